"""Names, targets and paths of links: what they take of the daemon's memory, and that long ones are still shown."""
import errno
import json
import os

import h5py
import numpy as np
import pytest

import old_groups
from test_limits import KIB, MIB, SANITIZER, peak

LONG = 60000


def shared_names(path, levels, n, target=None):
    """A chain of groups that share one heap and a node of n links whose names are ends of one long string; with a
    target they are soft links, of short names."""
    file = old_groups.File(n // 2 + 1)
    leaf = file.dataset()
    if target:
        names = b"".join(b"b%06d\0" % i for i in range(n))
        heap = file.heap(b"\0a\0" + names + target + b"\0")
        links = [(3 + 8 * i, None, 3 + len(names)) for i in range(n)]
    else:
        heap = file.heap(b"\0a\0" + b"b" * LONG + b"\0")
        links = [(3 + n - 1 - i, leaf) for i in range(n)]
    shared = file.node(links)
    group = leaf
    for _ in range(levels):
        group = file.group([0, 1, links[-1][0]], [file.node([(1, group)]), shared], heap)
    return file.save(path, group)


@pytest.mark.parametrize("kind", ["names", "targets"])
def test_what_links_share_is_not_kept_for_each(mounts, tmp_path, kind):
    target = b"/.." * (LONG // 3) if kind == "targets" else None
    path = shared_names(tmp_path / "shared.h5", 8, 500, target)
    assert path.stat().st_size < 256 * KIB
    mount = mounts(path, "ro")
    directory = mount.root
    for _ in range(8):
        names = os.listdir(directory)
        assert len([name for name in names if name.startswith("b")]) == 500
        for name in names:
            assert len(name) <= 255
            if target and name.startswith("b"):
                assert os.lstat(directory / name).st_size > os.pathconf("/", "PC_PATH_MAX")
                with pytest.raises(OSError) as refused:
                    os.readlink(directory / name)
                assert refused.value.errno == errno.ENAMETOOLONG
        directory = directory / "a"
    assert peak(mount.process.pid) < 256 * MIB + 4 * SANITIZER


def test_long_names_are_whole_in_what_is_told(mounts, tmp_path):
    name = "x" * 65000
    with h5py.File(tmp_path / "long.h5", "w") as file:
        group = file.create_group(name)
        group["d"] = np.arange(3, dtype="u1")
        group.create_group("y" * 300)
        group["nowhere"] = h5py.ExternalLink("no.h5", "/x")
    mount = mounts(tmp_path / "long.h5", "rw", expect_log=True)
    (shown,) = (entry for entry in os.listdir(mount.root) if entry.startswith("xxx"))
    assert len(shown) < 256
    directory = mount.root / shown
    assert json.loads((directory / "d/dataset.json").read_text())["path"] == f"/{name}/d"
    assert json.loads((directory / "group.json").read_text())["path"] == f"/{name}"
    (directory / "made").mkdir()
    (removed,) = (entry for entry in os.listdir(directory) if entry.startswith("yyy"))
    (directory / removed).rmdir()
    assert removed not in os.listdir(directory)
    mount.unmount()
    with h5py.File(tmp_path / "long.h5") as file:
        assert sorted(file[name].keys()) == ["d", "made", "nowhere"]


def test_paths_end(mounts, tmp_path):
    """Three groups of long names are more than a path may have; groups are listed further down all the same."""
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        group = file
        for level in range(3):
            group = group.create_group("z" * LONG)
            group[f"d{level}"] = np.arange(3, dtype="u1")
    mount = mounts(tmp_path / "deep.h5", "ro", expect_log=True)
    directory = mount.root
    for level in range(3):
        (directory,) = (directory / name for name in os.listdir(directory) if name.startswith("zzz"))
        assert f"d{level}" in os.listdir(directory)
        if level < 2:
            assert json.loads((directory / f"d{level}/dataset.json").read_text())["path"].endswith(f"z/d{level}")
    with pytest.raises(OSError) as refused:
        os.listdir(directory / "d2")
    assert refused.value.errno == errno.ENAMETOOLONG
    assert "more than 128 KiB" in (mount.root / ".sparsefs/log").read_text()


def memory(pid):
    status = open(f"/proc/{pid}/status", encoding="ascii").read()
    return int(status.split("VmRSS:")[1].split()[0]) * KIB


def test_fill_values_are_not_kept(mounts, tmp_path):
    """Of elements that are arrays of 60 MiB; each would take four times as much with its JSON."""
    with h5py.File(tmp_path / "fill.h5", "w", libver="latest") as file:
        for i in range(4):
            datatype = h5py.h5t.array_create(h5py.h5t.STD_U8LE, (60 * MIB,))
            h5py.h5d.create(file.id, b"d%d" % i, datatype, h5py.h5s.create_simple((2,)))
    mount = mounts(tmp_path / "fill.h5", "ro")
    before = memory(mount.process.pid)
    for i in range(4):
        assert json.loads((mount.root / f"d{i}/dataset.json").read_text())["fill_value"] is None
    assert memory(mount.process.pid) - before < 128 * MIB + SANITIZER
