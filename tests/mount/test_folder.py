"""Mounts of a folder: its HDF5 files are directories, all else passes through, read-only."""
import concurrent.futures
import contextlib
import ctypes
import errno
import json
import mmap
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

import h5py
import numpy as np
import pytest

from compare import check_mount
from conftest import BUILD, START_SECONDS, Mount, is_mounted, let_in, wait_until
from forging_fuse import forging
from silent_fuse import silent

FRAMES, SIDE = 3, 16
NOBODY = 65534


def values_of(seed):
    return (np.arange(FRAMES * SIDE * SIDE) * 7 + seed * 13).astype("<u2").reshape(FRAMES, SIDE, SIDE)


def make_file(path, seed=0, **options):
    with h5py.File(str(path), "w", **options) as f:
        f.create_dataset("entry/data", data=values_of(seed), chunks=(1, SIDE, SIDE), compression="gzip")
        f["entry"].attrs["seed"] = str(seed)
    return path


def frame(mount, name, number=1):
    return (mount / f"{name}/entry/data/frames/{number}.raw").read_bytes()


def stats(mount):
    return json.loads((mount / ".sparsefs/stats.json").read_text())


def refusal(action, *arguments):
    with pytest.raises(OSError) as refused:
        action(*arguments)
    return refused.value.errno


def make_plain(path, byte):
    path.write_bytes(byte * 50000)
    return path


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    return path


def test_everything_in_a_tree(mounts, folder):
    """Also what it is called does not matter, but what is in it."""
    (folder / "sub/deeper").mkdir(parents=True)
    (folder / "empty").mkdir()
    made = {name: make_file(folder / name, seed, **more) for seed, (name, more) in enumerate({
        "run.h5": {}, "sub/run.nxs": {}, "sub/deeper/image.bin": {}, "no suffix": {},
        "behind 512.h5": {"userblock_size": 512}, "behind 64K.h5": {"userblock_size": 65536}}.items())}
    plain = {"notes.txt": b"hello\n", "sub/empty.h5": b"", "sub/short.h5": b"\x89HDF\r\n\x1a",
             "sub/late.h5": bytes(600) + b"\x89HDF\r\n\x1a\n" + bytes(4000),
             "large.bin": random.Random(1).getrandbits(8 << 20).to_bytes(1 << 20, "little") * 3}
    for name, content in plain.items():
        (folder / name).write_bytes(content)
    (folder / "script.sh").write_text("#!/bin/sh\necho run\n")
    (folder / "script.sh").chmod(0o755)
    os.mkfifo(folder / "pipe")
    mount = mounts(folder)
    here = {str(p.relative_to(folder)) for p in folder.rglob("*")} - {"pipe"}
    there = set()
    for root, directories, names in os.walk(mount.root):
        relative = pathlib.Path(root).relative_to(mount.root)
        there |= {str(relative / name) for name in directories + names}
        directories[:] = [d for d in directories if str(relative / d) not in made and d != ".sparsefs"]
    assert there - {".sparsefs"} == here
    for name, path in made.items():
        st, own = os.stat(mount / name), os.stat(path)
        assert (st.st_mode & 0o170000, st.st_mtime_ns, st.st_uid) == (0o40000, own.st_mtime_ns, own.st_uid)
        assert check_mount(mount / name, path) == 1
    for name, content in plain.items():
        assert (mount / name).read_bytes() == content
        st, own = os.stat(mount / name), os.stat(folder / name)
        assert (st.st_size, st.st_mtime_ns, st.st_mode) == (own.st_size, own.st_mtime_ns, own.st_mode & ~0o222)
    with open(mount / "large.bin", "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == plain["large.bin"]
    assert subprocess.run([mount / "script.sh"], capture_output=True, check=True).stdout == b"run\n"
    assert os.statvfs(mount.root).f_blocks == os.statvfs(folder).f_blocks
    assert {e.name: e.is_dir() for e in os.scandir(mount / "sub")} == \
        {"deeper": True, "run.nxs": True, "empty.h5": False, "short.h5": False, "late.h5": False}


def test_nothing_is_opened_for_looking(mounts, folder):
    for i in range(20):
        make_file(folder / f"{i}.h5", i)
    mount = mounts(folder)
    assert len(set(e.name for e in os.scandir(mount.root)) - {".sparsefs"}) == 20
    subprocess.run(["ls", mount.root], check=True, stdout=subprocess.DEVNULL)  # -l asks for attributes, if it is new
    subprocess.run(["find", mount.root, "-maxdepth", "1", "-ls"], check=True, stdout=subprocess.DEVNULL)
    assert (stats(mount)["files_opened"], stats(mount)["files_open"]) == (0, 0)
    assert os.listdir(mount / "7.h5") == ["entry"]
    assert (stats(mount)["files_opened"], stats(mount)["files_open"]) == (1, 1)


def test_attributes_of_files_that_are_not_open(mounts, folder):
    """ls -l of new coreutils asks each file for their names."""
    for name, options in {"none.h5": {}, "none new.h5": {"libver": "latest"}, "none behind.h5": {"userblock_size": 512},
                          "some.h5": {}, "some new.h5": {"libver": "latest"}, "behind.h5": {"userblock_size": 1024},
                          "other.h5": {}}.items():
        make_file(folder / name, **options)
    titled = ["some.h5", "some new.h5", "behind.h5"]
    for name in titled:
        with h5py.File(str(folder / name), "a") as f:
            f.attrs["title"] = name
    with h5py.File(str(folder / "dense.h5"), "w", libver="latest", track_order=True) as f:
        for i in range(20):
            f.attrs[f"number {i}"] = i
    shutil.copy(folder / "none.h5", folder / "damaged.h5")
    with open(folder / "damaged.h5", "r+b") as f:
        f.seek(96)
        f.write(bytes(200))
    mount = mounts(folder, "max_open=1", expect_log=True)

    def opened():
        return stats(mount)["files_opened"]

    for _ in range(2):
        for name in ("none.h5", "none new.h5", "none behind.h5"):
            assert os.listxattr(mount / name) == []
            assert refusal(os.getxattr, mount / name, "user.title") == errno.ENODATA
            assert refusal(os.getxattr, mount / name, "security.capability") == errno.ENODATA
    assert opened() == 0
    for name in titled:
        assert os.listxattr(mount / name) == ["user.title"]
        assert os.getxattr(mount / name, "user.title") == name.encode()
    assert sorted(os.listxattr(mount / "dense.h5")) == sorted(f"user.number {i}" for i in range(20))
    assert refusal(os.listxattr, mount / "damaged.h5") == errno.EIO
    everything = {name: sorted(os.listxattr(mount / name)) for name in [*titled, "dense.h5"]}

    def again():  # with another one open, so that none of these is
        frame(mount, "other.h5")
        before = opened()
        for name, names in everything.items():
            assert sorted(os.listxattr(mount / name)) == names
            assert refusal(os.getxattr, mount / name, "user.xdg.origin.url") == errno.ENODATA
        return opened() == before

    wait_until(again)  # as soon as they are old enough to be known by their times
    assert os.getxattr(mount / "some.h5", "user.title") == b"some.h5"
    frame(mount, "other.h5")
    at = os.open(mount / "some.h5", os.O_PATH)
    assert os.listxattr(f"/proc/self/fd/{at}") == ["user.title"]
    for name in ("some.h5", "none.h5"):
        with h5py.File(str(folder / name), "a") as f:
            f.attrs["more"] = 1
    assert refusal(os.listxattr, f"/proc/self/fd/{at}") == errno.ESTALE  # by an inode that was another state
    os.close(at)
    for name, names in {"none.h5": ["user.more"], "some.h5": ["user.more", "user.title"]}.items():
        wait_until(lambda n=name: can(lambda: os.stat(mount / n / "entry")))  # by a new inode, after a second
        assert sorted(os.listxattr(mount / name)) == names


def test_at_most_so_many_are_open(mounts, folder):
    """The kernel knows inodes of all of them, and of those that were closed, too."""
    for i in range(8):
        make_file(folder / f"{i}.h5", i)
    mount = mounts(folder, "max_open=2")
    for _ in range(3):
        for i in range(8):
            assert frame(mount, f"{i}.h5") == values_of(i)[1].tobytes()
            assert os.getxattr(mount / f"{i}.h5/entry", "user.seed") == str(i).encode()
            assert stats(mount)["files_open"] <= 2
    assert stats(mount)["files_opened"] >= 16
    inside = [os.open(mount / f"{i}.h5/entry/data", os.O_PATH) for i in range(8)]
    for _ in range(2):
        for i, at in enumerate(inside):  # by inode, without a name above it
            with open(os.open("frames/2.raw", os.O_RDONLY, dir_fd=at), "rb") as f:
                assert f.read() == values_of(i)[2].tobytes()
    for at in inside:
        os.close(at)
    assert len(set(os.stat(mount / f"{i}.h5/entry/data").st_ino for i in range(8))) == 8


@pytest.mark.parametrize("option", ["ro", "default"])
def test_what_is_of_a_root_group_opens_its_file(mounts, folder, option):
    """The kernel knows inodes that need it also when it was closed."""
    for i in range(2):
        make_file(folder / f"{i}.h5", i)
    with h5py.File(folder / "0.h5", "a") as f:
        f["lost"] = h5py.ExternalLink("nowhere.h5", "/x")
    mount = mounts(folder, option, "max_open=1")
    text = os.open(mount / "0.h5/group.json", os.O_PATH)
    try:
        size = os.fstat(text).st_size
        asks = [lambda: os.fstat(text).st_size]
        if option == "default":
            asks.append(lambda: os.chown(f"/proc/self/fd/{text}", -1, -1) or size)
        for ask in asks:
            assert frame(mount, "1.h5") == values_of(1)[1].tobytes()
            assert stats(mount)["files_open"] == 1  # the other one is closed
            assert ask() == size > 0
    finally:
        os.close(text)


def test_more_than_can_be_open(mounts, folder):
    for i in range(3):
        make_file(folder / f"{i}.h5", i)
    mount = mounts(folder, "max_open=2", expect_log=True)
    with open(mount / "0.h5/entry/data/frames/0.raw", "rb") as first, \
            open(mount / "1.h5/entry/data/frames/0.raw", "rb") as second:
        assert refusal(frame, mount, "2.h5") == errno.ENFILE
        assert "max_open" in mount.log()
        assert first.read() == values_of(0)[0].tobytes() and second.read() == values_of(1)[0].tobytes()
    wait_until(lambda: stats(mount)["files_open"] <= 2 and can(lambda: frame(mount, "2.h5")))
    assert frame(mount, "2.h5") == values_of(2)[1].tobytes()


def test_one_after_the_other(mounts, folder):
    """The kernel tells of a close when it has returned to the program already."""
    for i in range(2):
        make_file(folder / f"{i}.h5", i)
    mount = mounts(folder, "max_open=1")
    for i in range(60):
        assert frame(mount, f"{i % 2}.h5") == values_of(i % 2)[1].tobytes()


def can(action):
    try:
        action()
    except OSError:
        return False
    return True


def test_many_readers_of_more_files_than_are_open(mounts, folder):
    for i in range(6):
        make_file(folder / f"{i}.h5", i)
    mount = mounts(folder, "max_open=4", "threads=4")

    def read(seed):
        order = random.Random(seed)
        for _ in range(40):
            i, number = order.randrange(6), order.randrange(FRAMES)
            path = mount / f"{i}.h5/entry/data/frames/{number}.raw"
            while True:
                try:
                    with open(path, "rb") as f:
                        content = f.read()
                    break
                except OSError as error:  # four files are in use, but by four readers at most
                    assert error.errno == errno.ENFILE, error
            assert content == values_of(i)[number].tobytes()
            assert os.listdir(mount / f"{i}.h5") == ["entry"]

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(read, range(3)))
    assert stats(mount)["files_open"] <= 4 and stats(mount)["files_opened"] > 6


def test_one_cache_for_all(mounts, folder):
    make_file(folder / "a.h5", 1)
    make_file(folder / "b.h5", 2)
    mount = mounts(folder, "default", "cache_size=1M")
    frame(mount, "a.h5"), frame(mount, "b.h5")
    assert stats(mount)["cache_chunks"] == 2 and stats(mount)["cache_limit"] == 1 << 20
    (mount / ".sparsefs/cache_size").write_text("1K\n")
    assert (mount / ".sparsefs/cache_size").read_text() == "1024\n"
    # One may be on its way, read ahead.
    assert stats(mount)["cache_chunks"] <= 1 and stats(mount)["cache_limit"] == 1024
    with pytest.raises(OSError):
        (mount / ".sparsefs/log").write_text("1K\n")
    assert frame(mount, "b.h5") == values_of(2)[1].tobytes()


def test_new_replaced_renamed_and_removed_files(mounts, folder):
    make_file(folder / "a.h5", 1)
    (folder / "b").write_bytes(b"text")
    mount = mounts(folder)
    assert frame(mount, "a.h5") == values_of(1)[1].tobytes()
    assert not (mount / "new.h5").exists()
    make_file(folder / "new.h5", 2)
    wait_until((mount / "new.h5").exists)
    assert frame(mount, "new.h5") == values_of(2)[1].tobytes()
    with open(mount / "a.h5/entry/data/frames/0.raw", "rb") as opened:
        inode = os.stat(mount / "a.h5").st_ino
        os.replace(make_file(folder.parent / "other.h5", 3), folder / "a.h5")
        wait_until(lambda: os.stat(mount / "a.h5").st_ino != inode)
        assert frame(mount, "a.h5") == values_of(3)[1].tobytes()
        assert opened.read() == values_of(1)[0].tobytes()  # of the file that it was
    os.replace(folder / "a.h5", folder / "b")  # text becomes a directory
    wait_until((mount / "b").is_dir)
    assert frame(mount, "b") == values_of(3)[1].tobytes()
    wait_until(lambda: not (mount / "a.h5").exists())
    (folder / "b").write_bytes(b"text again")  # in place, while it is open
    wait_until((mount / "b").is_file)
    assert (mount / "b").read_bytes() == b"text again"
    os.unlink(folder / "new.h5")
    wait_until(lambda: not (mount / "new.h5").exists())
    assert set(os.listdir(mount.root)) - {".sparsefs"} == {"b"}


@pytest.mark.parametrize("options", [("default",), ("ro",), ("follow=0.2",)])
def test_files_that_are_no_hdf5_are_changed_while_they_are_read(mounts, folder, options, request):
    """Nobody gets an error by a change of mode, or of the file behind a name, and what is open is read on."""
    if os.getuid() == 0:
        options = *options, "allow_other"
    inner = folder / "inner"
    inner.mkdir()
    path = inner / "plain.txt"
    os.link(make_plain(path, b"0"), folder / "linked.txt")
    mount = mounts(folder, *options)
    shown = mount / "inner/plain.txt"
    there = os.open(mount / "inner", os.O_RDONLY)
    request.addfinalizer(lambda: os.close(there))
    for i in range(1, 10):
        before = os.path.getsize(shown)
        if i % 3 == 0:
            os.replace(make_plain(inner / "new", b"%d" % i), path)
        elif i % 3 == 1:
            for mode in 0o600, 0o644, 0o400, 0o500, 0o755:
                path.chmod(mode)
                assert shown.read_bytes() == path.read_bytes()
        else:
            with open(path, "ab") as grown:
                grown.write(b"more")
            with open(shown, "rb") as read:
                os.fstat(read.fileno())
        with open(shown, "rb") as read:
            assert len(read.read()) >= min(before, 4096)
    assert (mount / "linked.txt").read_bytes() == (folder / "linked.txt").read_bytes()
    path.chmod(0o644)
    time.sleep(1.1)
    with open(shown, "rb", buffering=0) as read, open(shown, "rb", buffering=0) as again:
        assert read.read(4096) == path.read_bytes()[:4096]
        path.chmod(0o600)
        inner.chmod(0o700)
        assert shown.read_bytes() == path.read_bytes()
        time.sleep(1.1)
        os.stat(shown)
        assert read.read() == path.read_bytes()[4096:]
        assert os.fstat(again.fileno()).st_size == os.path.getsize(path)
        assert again.read() == path.read_bytes()
    with open(os.open("plain.txt", os.O_RDONLY, dir_fd=there), "rb") as read:
        assert read.read() == path.read_bytes()
    assert os.listdir(there) == ["plain.txt"]


def test_written_while_it_is_closed(mounts, folder):
    """What was known of it counts for nothing then."""
    for i in range(3):
        make_file(folder / f"{i}.h5", i)
    mount = mounts(folder, "max_open=1")
    assert frame(mount, "0.h5") == values_of(0)[1].tobytes()
    at = os.open(mount / "0.h5/entry", os.O_PATH)
    assert frame(mount, "1.h5") == values_of(1)[1].tobytes()
    with h5py.File(str(folder / "0.h5"), "a") as f:  # nobody keeps it locked
        del f["entry"]
        f["later"] = np.arange(5000)
    with pytest.raises(OSError) as stale:  # by an inode that the kernel still knows
        os.stat("data/frames/0.raw", dir_fd=at)
    assert stale.value.errno in (errno.ESTALE, errno.ENOENT)
    os.close(at)
    wait_until(lambda: (mount / "0.h5/later").is_dir())
    assert os.listdir(mount / "0.h5") == ["later"]
    assert np.array_equal(np.fromfile(mount / "0.h5/later/frames/0.raw", "<i8"), np.arange(5000))


def test_damaged_and_locked_files(mounts, folder):
    whole = make_file(folder / "whole.h5", 1).read_bytes()
    (folder / "damaged.h5").write_bytes(whole[:700])
    (folder / "signature").write_bytes(whole[:8])
    mount = mounts(folder, expect_log=True)
    for name in ("damaged.h5", "signature"):
        assert (mount / name).is_dir()
        assert refusal(os.listdir, mount / name) == errno.EIO
        assert refusal(os.stat, mount / name / "entry") == errno.EIO
    assert str(folder / "damaged.h5") in mount.log()
    assert str(folder / "damaged.h5") in (mount / ".sparsefs/log").read_text()
    (folder / "damaged.h5").write_bytes(whole)
    wait_until(lambda: can(lambda: frame(mount, "damaged.h5")))
    with h5py.File(str(folder / "busy.h5"), "w") as f:
        f["entry"] = 1
        f.flush()
        wait_until((mount / "busy.h5").exists)
        assert refusal(os.listdir, mount / "busy.h5") in (errno.EBUSY, errno.EIO)
    wait_until(lambda: can(lambda: os.listdir(mount / "busy.h5")))
    assert os.listdir(mount / "busy.h5") == ["entry"]


def test_hostile_names(mounts, folder):
    names = ["a b", "new\nline", "per%2Fcent", "%", "x" * 230 + ".h5", "-rf", "*", "caf\u00e9.h5", ".hidden.h5",
             "~cut~0123456789abcdef", "external:x"]
    for i, name in enumerate(names):
        make_file(folder / name, i)
    raw = os.fsencode(folder) + b"/\xff\xfe"
    shutil.copy(folder / "a b", raw)
    (folder / ".sparsefs").write_text("not to be seen")
    mount = mounts(folder)
    assert set(os.listdir(os.fsencode(mount.root))) - {b".sparsefs"} == \
        set(os.listdir(os.fsencode(folder))) - {b".sparsefs"}
    for i, name in enumerate(names):
        assert frame(mount, name) == values_of(i)[1].tobytes()
    with open(os.fsencode(mount.root) + b"/\xff\xfe/entry/data/frames/1.raw", "rb") as f:
        assert f.read() == values_of(0)[1].tobytes()
    assert stats(mount)["read_only"] == 1
    with h5py.File(str(folder / "names.h5"), "w") as f:  # names in a file are encoded as in its own mount
        f["%2F"] = 1
        f[".sparsefs"] = 2
    wait_until((mount / "names.h5").exists)
    assert sorted(os.listdir(mount / "names.h5")) == ["%252F", ".sparsefs"]
    assert (mount / "names.h5/.sparsefs/value.txt").read_text() == "2\n"


def test_links(mounts, folder):
    """Symbolic links are shown, and never followed by the daemon."""
    outside = make_file(folder.parent / "outside.h5", 9)
    (folder.parent / "secret.txt").write_text("secret")
    (folder / "sub").mkdir()
    make_file(folder / "sub/run.h5", 4)
    targets = {"to file": "sub/run.h5", "up": "../secret.txt", "absolute.h5": str(outside), "to sub": "sub",
               "nowhere": "not/there", "itself": "itself"}
    for name, target in targets.items():
        (folder / name).symlink_to(target)
    with h5py.File(str(folder / "sub/links.h5"), "w") as f:
        f["group/soft"] = h5py.SoftLink("/group/data")
        f["group/data"] = np.arange(6)
        f["group/beside"] = h5py.ExternalLink("run.h5", "/entry/data")
        f["absolute"] = h5py.ExternalLink(str(folder / "sub/run.h5"), "entry")
        f["out"] = h5py.ExternalLink("../../outside.h5", "/entry/data")
        f["gone"] = h5py.ExternalLink("gone.h5", "/entry/data")
        f["again"] = f["/"]
    mount = mounts(folder)
    for name, target in targets.items():
        assert os.readlink(mount / name) == target
    assert frame(mount, "to file") == frame(mount, "to sub/run.h5") == values_of(4)[1].tobytes()
    inside = mount / "sub/links.h5"
    assert os.readlink(inside / "group/soft") == "../group/data"
    assert os.readlink(inside / "again") == "."
    assert (inside / "group/beside/frames/0.raw").read_bytes() == values_of(4)[0].tobytes()
    assert (inside / "absolute/data/frames/2.raw").read_bytes() == values_of(4)[2].tobytes()
    assert (inside / "group/beside").resolve() == mount.root.resolve() / "sub/run.h5/entry/data"
    for name in ("out", "gone"):
        assert os.readlink(inside / name).startswith("external:") and not (inside / name).exists()
    make_file(folder / "sub/gone.h5", 5)
    wait_until((inside / "gone").exists)
    assert (inside / "gone/frames/1.raw").read_bytes() == values_of(5)[1].tobytes()


def test_a_directory_that_becomes_a_link_leads_nowhere(mounts, folder):
    """Somebody who may write in the folder must not lead the daemon out of it."""
    secret = folder.parent / "secret"
    secret.mkdir()
    (secret / "notes").write_text("secret")
    (folder / "sub").mkdir()
    (folder / "sub/notes").write_text("public")
    mount = mounts(folder)
    at = os.open(mount / "sub", os.O_RDONLY)
    assert os.listdir(at) == ["notes"]
    os.rename(folder / "sub", folder / "was")
    (folder / "sub").symlink_to(secret)
    for action in (lambda: os.open("notes", os.O_RDONLY, dir_fd=at), lambda: os.listdir(at)):
        try:
            found = action()
        except OSError as error:
            assert error.errno in (errno.ESTALE, errno.ENOENT, errno.ENOTDIR)
        else:
            assert found == ["notes"] or os.read(found, 10) == b"public"
    os.close(at)
    wait_until((mount / "sub").is_symlink)


def test_virtual_datasets_and_their_sources(mounts, folder):
    """Sources may be anywhere in the folder."""
    (folder / "raw").mkdir()
    (folder / "master").mkdir()
    layout = h5py.VirtualLayout((2 * FRAMES, SIDE, SIDE), "<u2")
    for i in range(2):
        make_file(folder / f"raw/{i}.h5", i)
        layout[i * FRAMES:(i + 1) * FRAMES] = h5py.VirtualSource(f"../raw/{i}.h5", "entry/data",
                                                                 (FRAMES, SIDE, SIDE))
    with h5py.File(str(folder / "master/all.h5"), "w", libver="latest") as f:
        f.create_virtual_dataset("data", layout)
    mount = mounts(folder, "max_open=1")
    assert (mount / "master/all.h5/data/stack.raw").read_bytes() == \
        values_of(0).tobytes() + values_of(1).tobytes()
    assert frame(mount, "raw/1.h5") == values_of(1)[1].tobytes()


@pytest.mark.parametrize("kind", ["virtual", "series"])
@pytest.mark.parametrize("options", ["ro", "default"])
def test_sources_that_others_write(mounts, folder, kind, options):
    """Nothing is kept of what was read of a virtual dataset before its file was closed."""
    make_file(folder / "source.h5", 1)
    make_file(folder / "other.h5", 2)
    layout = h5py.VirtualLayout((FRAMES, SIDE, SIDE), "<u2")
    layout[...] = h5py.VirtualSource("source.h5", "entry/data", layout.shape)
    with h5py.File(str(folder / "all.h5"), "w", libver="latest") as f:
        if kind == "virtual":
            f.create_virtual_dataset("data", layout)
        else:
            f["data_000001"] = h5py.ExternalLink("source.h5", "/entry/data")
    mount = mounts(folder, options, "max_open=1")
    shown = mount / "all.h5/data"
    whole = values_of(1)
    for value in 7, 8:
        assert (shown / "stack.raw").read_bytes() == whole.tobytes()
        assert np.array_equal(np.load(shown / "npy/000001.npy"), whole[1])
        assert frame(mount, "other.h5") == values_of(2)[1].tobytes()  # closes it
        with h5py.File(str(folder / "source.h5"), "r+") as f:
            f["entry/data"][...] = value
        whole = np.full_like(whole, value)
    assert (shown / "stack.raw").read_bytes() == whole.tobytes()
    assert np.array_equal(np.load(shown / "npy/000001.npy"), whole[1])


def test_it_is_read_only(mounts, folder):
    make_file(folder / "a.h5")
    (folder / "notes").write_text("x")
    before = (folder / "a.h5").read_bytes()
    mount = mounts(folder, "ro")
    for action in (lambda: open(mount / "notes", "r+b"), lambda: open(mount / "new", "wb"),
                   lambda: open(mount / "a.h5/entry/data/frames/0.raw", "r+b"), lambda: os.mkdir(mount / "d"),
                   lambda: os.unlink(mount / "notes"), lambda: os.rename(mount / "notes", mount / "n"),
                   lambda: os.chmod(mount / "notes", 0o600), lambda: os.rmdir(mount / "a.h5"),
                   lambda: os.symlink("x", mount / "l"), lambda: os.truncate(mount / "notes", 0)):
        assert refusal(action) == errno.EROFS
    mount.unmount()
    assert (folder / "a.h5").read_bytes() == before and sorted(os.listdir(folder)) == ["a.h5", "notes"]


@pytest.mark.parametrize("value", ["0", "-1", "x", ""])
def test_max_open_is_a_number(run, folder, tmp_path, value):
    (tmp_path / "mnt").mkdir()
    refused = run("-f", "-o", f"max_open={value}", folder, tmp_path / "mnt")
    assert refused.returncode == 1 and "max_open" in refused.stderr


def test_mounts_inside_of_the_folder(mounts, folder, tmp_path):
    """A daemon that looks into its own mount, or another one's, would wait for itself."""
    make_file(folder / "a.h5", 1)
    (folder / "inside").mkdir()
    mount = Mount(folder, folder / "inside")
    try:
        assert sorted(set(os.listdir(mount.root)) - {".sparsefs"}) == ["a.h5", "inside.log"]
        assert not (mount / "inside").exists()
        assert frame(mount, "a.h5") == values_of(1)[1].tobytes()
        other = mounts(folder)
        assert not (other / "inside").exists() and (other / "a.h5").is_dir()
        other.unmount()
    finally:
        mount.unmount()
    assert mount.log() == ""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
@pytest.mark.parametrize("user", [NOBODY, 0])
def test_fuses_inside_of_the_folder(mounts, folder, user):
    """Another user's need not answer: it is not shown, whether it is on a directory or on a file. Root's is entered."""
    make_file(folder / "a.h5", 1)
    (folder / "inner").mkdir()
    (folder / "inner/file").write_text("below")
    mount = mounts(folder, "allow_other")
    with forging(folder / "forged", user, {"x.txt": b"forged"}), contextlib.ExitStack() as stack:
        if user == 0:
            assert (mount / "forged/x.txt").read_bytes() == b"forged"
            return
        for name in "silent", "inner/silent", "inner/file":
            stack.enter_context(silent(folder / name, user=user))
        stack.enter_context(silent(folder / "private", user=user, for_all=False))
        for name, shown in (".", {".sparsefs", "a.h5", "inner"}), ("inner", set()), ("inner/file", None), \
                           ("silent", None), ("inner/silent", None), ("private", None), ("forged", None), \
                           ("forged/x.txt", None):
            looking = subprocess.Popen(["ls", "-A", mount / name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       text=True)  # if it waits it is to end with those mounts
            listed, _ = looking.communicate(timeout=START_SECONDS)
            assert (set(listed.split()) if looking.returncode == 0 else None) == shown, name
        assert frame(mount, "a.h5") == values_of(1)[1].tobytes()
        mount.unmount()


def test_follow(mounts, folder):
    """Files that are being written are read without a lock, and grow."""
    path = folder / "grows.h5"
    with h5py.File(str(path), "w", libver="latest") as f:
        data = f.create_dataset("data", data=values_of(0), maxshape=(None, SIDE, SIDE), chunks=(1, SIDE, SIDE))
        f.swmr_mode = True
        make_file(folder / "still.h5", 3)
        mount = mounts(folder, "follow=0.1", "max_open=2")
        assert sorted(p.name for p in (mount / "grows.h5/data/raw").iterdir()) == \
            [f"{i:06}.raw" for i in range(FRAMES)]
        for i in range(FRAMES, 8):
            data.resize(i + 1, axis=0)
            data[i] = values_of(i)[0]
            data.flush()
            wait_until((mount / f"grows.h5/data/frames/{i}.raw").exists)
            wait_until(lambda n=i: (mount / f"grows.h5/data/frames/{n}.raw").read_bytes() ==
                       values_of(n)[0].tobytes())
            assert frame(mount, "still.h5") == values_of(3)[1].tobytes()
        make_file(folder / "third.h5", 4)
        wait_until((mount / "third.h5").exists)
        assert frame(mount, "third.h5") == values_of(4)[1].tobytes()
        for i in range(8, 10):  # also after it was closed meanwhile
            data.resize(i + 1, axis=0)
            data[i] = values_of(i)[0]
            data.flush()
            assert frame(mount, "still.h5") == values_of(3)[1].tobytes()
            assert frame(mount, "third.h5") == values_of(4)[1].tobytes()
            wait_until((mount / f"grows.h5/data/frames/{i}.raw").exists)


def test_ends_while_it_is_used(mounts, folder):
    for i in range(4):
        make_file(folder / f"{i}.h5", i)
    mount = mounts(folder, "max_open=2")
    ended = threading.Event()

    def read():
        while not ended.is_set():
            for i in range(4):
                can(lambda n=i: frame(mount, f"{n}.h5"))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    wait_until(lambda: stats(mount)["files_opened"] > 8)
    mount.process.send_signal(signal.SIGTERM)
    assert mount.wait() == 0
    ended.set()
    for reader in readers:
        reader.join()
    assert not is_mounted(mount.root)


def read_by(mount):
    """Bytes that the daemon has read, with those of the kernel's requests."""
    lines = pathlib.Path(f"/proc/{mount.process.pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def test_what_files_are_is_known(mounts, folder):
    """Each is looked into once for every state of it."""
    first = make_file(folder / "first.h5").read_bytes()
    for i in range(2000):
        (folder / f"{i}.h5").write_bytes(first)
        (folder / f"{i}.txt").write_bytes(bytes(3000))
    mount = mounts(folder)
    try:
        read_by(mount)
    except OSError:
        pytest.skip("the kernel does not count what is read")

    def reads_to_list():
        before = read_by(mount)
        kinds = {entry.name: entry.is_dir() for entry in os.scandir(mount.root)}
        assert len(kinds) == 4002 and all(kinds[name] == (not name.endswith(".txt")) for name in kinds)
        return read_by(mount) - before

    assert reads_to_list() > 4000 * 2048
    wait_until(lambda: reads_to_list() < 50 * 2048)  # as soon as they are old enough to be known by their times
    (folder / "7.txt").write_bytes(first)
    (folder / "8.h5").write_bytes(bytes(3000))
    kinds = {entry.name: entry.is_dir() for entry in os.scandir(mount.root)}
    assert kinds["7.txt"] and not kinds["8.h5"]


def test_a_folder_that_is_open_is_read_again(mounts, folder):
    make_file(folder / "a.h5")
    mount = mounts(folder)
    at = os.open(mount.root, os.O_RDONLY)
    assert set(os.listdir(at)) == {".sparsefs", "a.h5"}
    make_file(folder / "b.h5")
    assert set(os.listdir(at)) == {".sparsefs", "a.h5", "b.h5"}  # it rewinds
    os.unlink(folder / "a.h5")
    (folder / "c").symlink_to("b.h5")
    assert set(os.listdir(at)) == {".sparsefs", "b.h5", "c"}
    os.close(at)


def test_ten_thousand_files(mounts, folder):
    """They are listed, and one is found, without any of them being opened."""
    first = make_file(folder / "first.h5", 5)
    for i in range(100):
        (folder / f"{i:02}").mkdir()
        for j in range(100):
            os.link(first, folder / f"{i:02}/{j:02}.h5")
    mount = mounts(folder)
    listed = subprocess.run(["find", ".", "-maxdepth", "2", "-type", "d"], cwd=mount.root, check=True,
                            capture_output=True, text=True).stdout.splitlines()
    assert len([name for name in listed if name.endswith(".h5")]) == 10001
    assert stats(mount)["files_opened"] <= 1  # find has looked into first.h5
    assert frame(mount, "57/31.h5") == values_of(5)[1].tobytes()
    assert stats(mount)["files_opened"] <= 2


reads_entries = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "getdents64"), reason="needs glibc 2.30")


def entries(descriptor, size=4096):
    """Some of a directory's, from where it stands on: their names, and the offset behind each."""
    buffer = ctypes.create_string_buffer(size)
    n = ctypes.CDLL(None, use_errno=True).getdents64(descriptor, buffer, size)
    assert n >= 0, os.strerror(ctypes.get_errno())
    at = 0
    while at < n:
        offset, length = struct.unpack_from("=qH", buffer, at + 8)
        yield os.fsdecode(buffer[at + 19:at + length].split(b"\0")[0]), offset
        at += length


@contextlib.contextmanager
def open_directory(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def memory(mount):
    status = pathlib.Path(f"/proc/{mount.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


@pytest.fixture(scope="module")
def many_names(tmp_path_factory):
    """A directory with very many."""
    path = tmp_path_factory.mktemp("many") / "folder"
    (path / "large").mkdir(parents=True)
    at = os.open(path / "large", os.O_RDONLY)
    os.close(os.open("first", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=at))
    for i in range(6000):
        os.link("first", f"{i:0{5 + i * 37 % 230}}", src_dir_fd=at, dst_dir_fd=at)
    os.close(at)
    yield path
    shutil.rmtree(path)


@reads_entries
def test_a_directory_of_very_many_names(mounts, many_names):
    """It is read as its reader goes on: opening it reads nothing, and what is open takes little memory."""
    mount = mounts(many_names)
    names = set(os.listdir(many_names / "large"))
    listed = os.listdir(mount / "large")
    assert len(listed) == len(names) and set(listed) == names
    before = memory(mount)
    with contextlib.ExitStack() as opened:
        for _ in range(100):
            descriptor = opened.enter_context(open_directory(mount / "large"))
            assert len(list(entries(descriptor))) > 2
        assert memory(mount) - before < 48 << 20  # all names have 0.7 MB


@reads_entries
def test_going_back_in_a_directory_of_very_many_names(mounts, many_names):
    mount = mounts(many_names)
    with open_directory(mount / "large") as descriptor:
        all_of_it = []
        while some := list(entries(descriptor, 32768)):
            all_of_it += some
        assert len({name for name, _ in all_of_it}) == len(all_of_it) == 6001 + 2
        for i in (5990, 0, 3456, 3000, 1, 6000, 2000, 1500, 7):
            os.lseek(descriptor, all_of_it[i][1], os.SEEK_SET)
            some = list(entries(descriptor))
            assert some and some == all_of_it[i + 1:i + 1 + len(some)]
        os.lseek(descriptor, all_of_it[-1][1] + 10**12, os.SEEK_SET)
        assert not list(entries(descriptor))
        os.lseek(descriptor, 0, os.SEEK_SET)
        some = list(entries(descriptor))
        assert some == all_of_it[:len(some)]


def soft_limit(mount, n=None):
    """Of what the daemon may have open."""
    pid = mount.process.pid
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard if n is None else n, hard))


def test_what_cannot_be_looked_into(mounts, folder):
    """For want of descriptors an HDF5 file does not become another file."""
    mount = mounts(folder)
    make_file(folder / "a.h5")
    used = {int(name) for name in os.listdir(f"/proc/{mount.process.pid}/fd")}
    soft_limit(mount, [number for number in range(1000) if number not in used][2])
    for look in (mount / "a.h5").stat, lambda: os.listdir(mount / "a.h5"):
        assert refusal(look) == errno.EMFILE
    soft_limit(mount)
    assert (mount / "a.h5").is_dir()
    assert frame(mount, "a.h5") == values_of(0)[1].tobytes()


HOLD_OPEN = """
import os, sys
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
opened = 0
try:
    for opened in range(200):
        os.open(sys.argv[1], os.O_RDONLY)
    print(opened, 0, flush=True)
except OSError as error:
    print(opened, error.errno, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has several users")
@pytest.mark.parametrize("what", ["notes.txt", "sub"])
def test_what_readers_have_open_is_limited(mounts, folder, what):
    """Of a quarter of what the daemon may have open a quarter is root's; of others nobody has more than is left."""
    make_file(folder / "a.h5")
    (folder / "notes.txt").write_text("notes")
    (folder / "sub").mkdir()
    let_in(folder)
    mount = mounts(folder, "default", "allow_other", expect_log=True)
    soft_limit(mount, 400)
    raw = mount / "a.h5/entry/data/frames/1.raw"
    with contextlib.ExitStack() as others:
        for user, allowed in (65534, 38), (65533, 19):
            other = others.enter_context(subprocess.Popen(
                [sys.executable, "-c", HOLD_OPEN, mount / what, str(user)], text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE))
            others.callback(other.kill)
            assert list(map(int, other.stdout.readline().split())) == [allowed, errno.EMFILE]
        assert "user 65534 has 38 files and directories of it open" in mount.log()
        assert set(os.listdir(mount.root)) >= {"a.h5", "notes.txt", "sub"}
        assert (mount / "notes.txt").read_text() == "notes"
        with open(raw, "r+b") as file:
            file.write(values_of(3)[0].tobytes())
            file.flush()
            os.fsync(file.fileno())
        with subprocess.Popen([sys.executable, "-c", HOLD_OPEN, raw, "65534"], text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as other:
            assert other.stdout.readline().split() == ["199", "0"]  # that is HDF5
            other.kill()
    wait_until(lambda: subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "cat", mount / "notes.txt"],
                                      capture_output=True, check=False).stdout == b"notes")


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root")
def test_what_may_not_be_read(folder, tmp_path):
    """By who mounts: a file without permission is a file, and says so; nothing else is worse for it."""
    make_file(folder / "mine.h5", 1).chmod(0o644)
    make_file(folder / "others.h5", 2).chmod(0o600)
    (folder / "closed").mkdir(mode=0o700)
    code = """
import errno, os, sys
root = sys.argv[1]
assert sorted(set(os.listdir(root)) - {".sparsefs"}) == ["closed", "mine.h5", "others.h5"]
assert os.path.isdir(root + "/mine.h5") and os.path.isfile(root + "/others.h5")
for action in (lambda: open(root + "/others.h5"), lambda: os.listdir(root + "/closed")):
    try:
        action()
    except PermissionError:
        continue
    raise AssertionError
assert len(open(root + "/mine.h5/entry/data/frames/0.raw", "rb").read()) > 0
"""
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for above in [folder, *folder.parents]:
        if above != above.parent and not os.stat(above).st_mode & 0o001:
            above.chmod(0o755)
    mountpoint = tmp_path / "mnt"
    mountpoint.mkdir()
    os.chown(mountpoint, 65534, 65534)
    if subprocess.run([*user, "test", "-x", os.environ.get("SPARSEFS_BUILD", "build") + "/sparsefs"],
                      check=False).returncode != 0 or not shutil.which("fusermount3"):
        pytest.skip("no such user can mount here")
    from conftest import SPARSEFS
    if subprocess.run([*user, SPARSEFS, folder, mountpoint], check=False, capture_output=True).returncode != 0:
        pytest.skip("no such user can mount here")
    try:
        subprocess.run([*user, sys.executable, "-c", code, mountpoint], check=True)
    finally:
        subprocess.run(["umount", "-i", "-l", mountpoint], check=True)


def processes_of_files(mount):
    """Those of libhdf5, one for each file that is open and was asked for something new."""
    parents = {}
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = status.read_text().partition(" (")
        except OSError:
            continue
        name, _, rest = rest.rpartition(") ")
        parents[int(pid)] = (name, int(rest.split()[1]))
    return sum(name == "sparsefs-hdf5" and parents.get(parent, ("", 0))[1] == mount.process.pid
               for name, parent in parents.values())


def list_all(mount):
    return subprocess.run(["ls", "-R", "."], cwd=mount.root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def old_folder(folder):
    """Of files that were made a while ago."""
    for i in range(6):
        path = make_file(folder / f"{i}.h5", i)
        with h5py.File(path, "r+") as f:
            f["entry/text"], f["entry/all"] = "words", h5py.SoftLink("/entry/data")
            f["entry/virtual"] = np.arange(6)[::2]
            f.create_dataset("lengths", (3,), h5py.vlen_dtype("<i4"))
    path = folder / "5.h5"
    layout = h5py.VirtualLayout((2,), "<i8")
    layout[:] = h5py.VirtualSource("4.h5", "entry/virtual", (3,))[:2]
    with h5py.File(path, "r+") as f:
        f.create_virtual_dataset("of another", layout)
    changed = max(p.stat().st_ctime for p in folder.iterdir())
    wait_until(lambda: time.time() > changed + 4)
    return folder


@pytest.mark.parametrize("option", ["default", "ro"])
def test_listed_again_without_a_process(mounts, old_folder, option):
    """Files are closed, as others are wanted, and opened again: nothing is asked of libhdf5 that it has said."""
    mount = mounts(old_folder, option, "max_open=2")
    before = list_all(mount)
    for _ in range(2):  # what is kept is what was asked again, too
        assert list_all(mount) == before
    opened = stats(mount)["files_opened"]
    assert opened > 6 and processes_of_files(mount) <= 1  # the one with a source in another file
    for i in range(6):
        check_mount(mount / f"{i}.h5", old_folder / f"{i}.h5")
    assert list_all(mount) == before
    check_mount(mount / "5.h5", old_folder / "5.h5")


def test_listed_again_after_a_change(mounts, old_folder):
    """By h5py, while it is closed: also if that sets its time back, and keeps its size."""
    mount = mounts(old_folder, "default", "max_open=1")
    list_all(mount)
    list_all(mount)
    wait_until(lambda: can(lambda: frame(mount, "5.h5")))
    path = old_folder / "0.h5"
    old = path.stat()
    content = path.read_bytes()
    with open(path, "r+b") as f:
        f.write(content.replace(b"data\0", b"date\0"))
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert path.stat().st_size == old.st_size
    with h5py.File(old_folder / "1.h5", "r+") as f:
        f["entry/more"] = 1
    wait_until(lambda: (mount / "0.h5/entry/date/frames").is_dir())
    wait_until(lambda: (mount / "1.h5/entry/more").is_dir())
    assert (mount / "2.h5/entry/data").is_dir() and not (mount / "2.h5/entry/more").exists()


def test_written_after_it_was_listed_again(mounts, old_folder):
    """Through the mount: what was said before does not outlast it."""
    subprocess.run([BUILD / "sparsectl", "create", old_folder / "new.h5", "/d", "--dims", "2,8,8",
                    "--maxdims", "inf,8,8",
                    "--dtype", "<u2"], check=True)
    changed = (old_folder / "new.h5").stat().st_ctime
    wait_until(lambda: time.time() > changed + 4)
    mount = mounts(old_folder, "default", "max_open=2", "commit_interval=1")
    for n in range(3, 6):
        list_all(mount)
        list_all(mount)
        (mount / f"new.h5/d/frames/{n - 1}.raw").write_bytes(bytes(128))
        (mount / f"3.h5/group{n}").mkdir()
        assert len(os.listdir(mount / "new.h5/d/raw")) == n
        assert f"group{n}" in os.listdir(mount / "3.h5")
        os.sync()
        fd = os.open(mount.root, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        for i in range(3):  # they are closed meanwhile
            frame(mount, f"{i}.h5")
        assert len(os.listdir(mount / "new.h5/d/raw")) == n
        assert json.loads((mount / "new.h5/d/dataset.json").read_text())["dims"][0] == n
        assert f"group{n}" in os.listdir(mount / "3.h5")
    mount.unmount()
    with h5py.File(old_folder / "3.h5") as f:
        assert {"group3", "group4", "group5"} < set(f)
