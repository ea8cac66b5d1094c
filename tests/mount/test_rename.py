"""The HDF5 file, or a folder above it, is renamed, replaced or removed under a writing mount: what an
fsync has promised is found where the file is then, and nothing that stands beside a name changes
another file or is in its way."""
import errno
import os
import pathlib
import subprocess

import h5py
import numpy as np
import pytest

from conftest import BUILD
from test_writing import kill, refused

SHAPE = (4, 32, 32)
DATASETS = "sparse", "chunked", "contiguous"


def make(path, value):
    with h5py.File(path, "w") as f:
        f.create_dataset("chunked", data=np.full(SHAPE, value, "<u2"), chunks=(1, 32, 32))
        f.create_dataset("contiguous", data=np.full(SHAPE, value, "<u2"))
    subprocess.run([BUILD / "sparsectl", "create", path, "/sparse", "--dims", "4,32,32",
                    "--dtype", "uint16"], check=True, capture_output=True)
    return path


@pytest.fixture
def path(tmp_path):
    (tmp_path / "above/folder").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    return make(tmp_path / "above/folder/a.h5", 0)


def content(value):
    return np.full(SHAPE[1:], value, "<u2").tobytes()


def write(mount, value):
    """Into a frame of each dataset, with fsync after each."""
    for dataset in DATASETS:
        with open(mount / dataset / "frames/1.raw", "r+b", buffering=0) as frame:
            frame.write(content(value))
            os.fsync(frame.fileno())


def check(mounts, path, value, *options):
    done = subprocess.run([BUILD / "sparsectl", "check", path], capture_output=True, text=True)
    assert done.returncode == 0, done
    mount = mounts(path, *options, expect_log=True)
    for dataset in DATASETS:
        assert (mount / dataset / "frames/1.raw").read_bytes() == content(value), dataset
    mount.unmount()


def beside(path):
    return sorted(name.name for name in path.parent.iterdir() if name != path)


def end(mount, way):
    if way == "kill":
        kill(mount)
    else:
        mount.unmount()


MOVES = {
    "the file": (("above/folder/a.h5", "above/folder/b.h5"),),
    "the file into another folder": (("above/folder/a.h5", "other/b.h5"),),
    "its folder": (("above/folder", "above/new"),),
    "a folder above": (("above", "new"),),
    "its folder and then the file": (("above/folder", "above/new"), ("above/new/a.h5", "other/b.h5")),
    "the file and what is beside it": (("above/folder/a.h5", "other/b.h5"),
                                       ("above/folder/a.h5.journal", "other/b.h5.journal"),
                                       ("above/folder/a.h5.commits", "other/b.h5.commits")),
    "there and back": (("above/folder/a.h5", "other/b.h5"), ("other/b.h5", "above/folder/a.h5")),
}


def move(tmp_path, path, how):
    """Where the file is then."""
    relative = path.relative_to(tmp_path)
    for old, new in MOVES[how]:
        os.rename(tmp_path / old, tmp_path / new)
        if relative.is_relative_to(old):
            relative = pathlib.Path(new) / relative.relative_to(old)
    return tmp_path / relative


@pytest.mark.parametrize("way", ["kill", "unmount"])
@pytest.mark.parametrize("how", MOVES)
def test_moved(mounts, tmp_path, path, how, way):
    mount = mounts(path, "rw,commit_interval=0", expect_log=True)
    write(mount, 1)
    path = move(tmp_path, path, how)
    for value in 2, 3:
        write(mount, value)
    says = "was moved while it is written" in mount.log()
    assert says == (how not in ("its folder", "a folder above", "there and back")), mount.log()
    assert mount.log().count("was moved") <= 1
    names = beside(path)
    assert names == ([path.name + ".commits", path.name + ".journal"]), names
    end(mount, way)
    for options in "ro", "rw":
        check(mounts, path, 3, options)
    assert beside(path) == []


@pytest.mark.parametrize("way", ["kill", "unmount"])
def test_moved_out_of_a_folder_that_was_renamed(mounts, tmp_path, path, way):
    """With a commit between the two: the journal of that is where the folder is then."""
    mount = mounts(path, "rw,commit_interval=0", expect_log=True)
    write(mount, 1)
    os.rename(tmp_path / "above/folder", tmp_path / "above/new")
    write(mount, 2)
    path = tmp_path / "other/b.h5"
    os.rename(tmp_path / "above/new/a.h5", path)
    end(mount, way)
    for options in "ro", "rw":
        check(mounts, path, 2, options)
    assert beside(path) == [] and not list((tmp_path / "above/new").glob("*.journal*"))


@pytest.mark.parametrize("way", ["kill", "unmount"])
@pytest.mark.parametrize("how", MOVES)
def test_moved_when_all_is_written(mounts, tmp_path, path, how, way):
    """No commit sees it."""
    mount = mounts(path, "rw,commit_interval=0", expect_log=True)
    write(mount, 1)
    path = move(tmp_path, path, how)
    end(mount, way)
    for options in "ro", "rw":
        check(mounts, path, 1, options)
    assert [name for name in beside(path) if "journal" in name] == []


@pytest.mark.parametrize("way", ["kill", "unmount"])
@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_replaced_or_removed(mounts, tmp_path, path, how, way):
    kept = tmp_path / "other/kept.h5"
    os.link(path, kept)
    mount = mounts(path, "rw,commit_interval=0", expect_log=True)
    write(mount, 1)
    if how == "replaced":
        os.rename(make(tmp_path / "new.h5", 7), path)
    else:
        path.unlink()
    for _ in range(3):
        with refused(errno.ESTALE):
            write(mount, 2)
    assert mount.log().count("was removed or replaced") == 1, mount.log()
    assert beside(path) == []
    if way == "kill":
        kill(mount)
    else:
        assert mount.umount() and mount.wait() == 2  # what was written is not in the file
        mount.process.returncode = 0
        assert "could not be committed: Stale file handle" in mount.log()
    check(mounts, kept, 1, "rw")
    if how == "replaced":
        with h5py.File(path) as f:
            assert (f["chunked"][...] == 7).all()
        writer = mounts(path, "rw")
        write(writer, 8)
        writer.unmount()
        check(mounts, path, 8)


def test_the_name_comes_back(mounts, tmp_path, path):
    mount = mounts(path, "rw,commit_interval=0", expect_log=True)
    write(mount, 1)
    os.link(path, tmp_path / "other/kept.h5")
    path.unlink()
    with refused(errno.ESTALE):
        write(mount, 2)
    os.link(tmp_path / "other/kept.h5", path)
    write(mount, 3)
    mount.unmount()
    check(mounts, path, 3)


def test_recover_finds_a_journal_at_the_old_name(mounts, tmp_path, path):
    try:
        os.setxattr(path, "user.test", b"")
    except OSError:
        pytest.skip("files here cannot have the note of their place")
    mount = mounts(path, "rw,commit_interval=0")
    write(mount, 1)
    kill(mount)
    new = tmp_path / "other/b.h5"
    os.rename(path, new)
    make(path, 7)
    done = subprocess.run([BUILD / "sparsectl", "recover", new], capture_output=True, text=True)
    assert done.returncode == 0 and "its journal was replayed" in done.stdout, done
    assert not list(tmp_path.rglob("*.journal*"))
    check(mounts, new, 1)
    with h5py.File(path) as f:
        assert (f["chunked"][...] == 7).all()


# ---- Folders that cannot be written ----


@pytest.fixture
def closed_folder(tmp_path, path):
    """Of a file that can be written itself, by root as well."""
    folder = path.parent
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield path
        folder.chmod(0o755)
        return
    file = tmp_path / "file"
    os.rename(path, file)
    path.touch()
    commands = [["mount", "--bind", folder, folder], ["mount", "--bind", file, path],
                ["mount", "-o", "remount,bind,ro", folder]]
    try:
        for command in commands:
            if subprocess.run(command, capture_output=True).returncode:
                pytest.skip("this machine does not let us mount")
        yield path
    finally:
        subprocess.run(["umount", path], capture_output=True)
        subprocess.run(["umount", folder], capture_output=True)


@pytest.mark.parametrize("options", ["default", "rw"])
def test_a_folder_in_which_no_journal_can_be_made(mounts, closed_folder, options):
    with open(closed_folder, "r+b"):
        pass
    mount = mounts(closed_folder, options, expect_log=True)
    assert "no journal can be made in its directory" in mount.log()
    assert os.statvfs(mount.root).f_flag & os.ST_RDONLY
    with refused(errno.EROFS):
        open(mount / "chunked/frames/1.raw", "r+b")
    assert (mount / "chunked/frames/1.raw").read_bytes() == content(0)
    mount.unmount()
    done = subprocess.run([BUILD / "sparsectl", "create", closed_folder, "/new", "--dims", "4",
                           "--dtype", "uint16"], capture_output=True, text=True)
    assert done.returncode != 0 and "no journal can be made" in done.stderr, done
