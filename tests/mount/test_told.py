"""What a mount refuses it explains: in its log, in .sparsefs/log, and in README's table of errors."""
import ctypes
import errno
import os
import re
import subprocess

import h5py
import numpy as np
import pytest

from conftest import BUILD, TOP

FRAMES, SIDE = 4, 16


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """/dense, of fixed size, and /sparse, that can grow, with frames of SIDE x SIDE uint16."""
    path = tmp_path_factory.mktemp("told") / "run.h5"
    with h5py.File(path, "w", libver="latest") as f:
        data = np.arange(FRAMES * SIDE * SIDE, dtype="<u2").reshape(FRAMES, SIDE, SIDE)
        dataset = f.create_dataset("dense", data=data,
                                   chunks=(1, SIDE, SIDE))
        dataset.attrs["detector"] = "east"
    subprocess.run([BUILD / "sparsectl", "create", path, "/sparse", "--dims", f"{FRAMES},{SIDE},{SIDE}",
                    "--maxdims", f"inf,{SIDE},{SIDE}", "--chunk", f"1,{SIDE},{SIDE}", "--dtype", "<u2"], check=True)
    return path


def append(path):
    with open(path, "ab") as f:
        f.write(b"more")


def write_behind(path):
    with open(path, "r+b", buffering=0) as f:
        f.seek(2 * SIDE * SIDE)
        f.write(b"more")


def write_header(path):
    with open(path, "r+b", buffering=0) as f:
        f.seek(8)
        f.write(b"more")


def reserve(path, mode=0):
    """posix_fallocate(3), which os has, would write zeros instead. 3: a hole."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "r+b") as f:
        if libc.fallocate64(f.fileno(), mode, ctypes.c_int64(0), ctypes.c_int64(10)):
            raise OSError(ctypes.get_errno(), "fallocate")


def rename_temporary(root, name, flags=0):
    """2: RENAME_EXCHANGE."""
    libc = ctypes.CDLL(None, use_errno=True)
    temporary = root / "sparse/frames/.0.raw.Xa12"
    temporary.touch()
    try:
        if libc.renameat2(-100, os.fsencode(temporary), -100, os.fsencode(root / "sparse" / name), flags):
            raise OSError(ctypes.get_errno(), "renameat2")
    finally:
        temporary.unlink()


CASES = {
    "a new name": (errno.EPERM, lambda root: (root / "dense/notes.txt").write_text("hello"),
                   "new files are frames, as frames/7.raw"),
    "a device": (errno.EPERM, lambda root: os.mkfifo(root / "pipe"), "new files are frames, as frames/7.raw"),
    "rm": (errno.EPERM, lambda root: os.unlink(root / "sparse/dataset.json"), "truncate -s 0 frames/N.raw erases"),
    "rm -r": (errno.EPERM, lambda root: os.rmdir(root / "sparse"), "truncate -s 0 frames/N.raw erases"),
    "mv": (errno.EPERM, lambda root: os.rename(root / "sparse", root / "other"), "rename objects with h5py"),
    "ln": (errno.EPERM, lambda root: os.link(root / "dense/frames/0.raw", root / "dense/frames/9.raw"),
           "a mount has no links: copy the file"),
    "ln -s": (errno.EPERM, lambda root: os.symlink("dense", root / "latest"), "a mount has no links: copy the file"),
    "mkdir": (errno.EPERM, lambda root: os.mkdir(root / "dense/mine"), "directories can be made and removed in groups"),
    "mkdir for rsync": (errno.EPERM, lambda root: os.mkdir(root / "sparse/frames/.~tmp~"), "rsync makes none without"),
    "mkdir of no name": (errno.EINVAL, lambda root: os.mkdir(root / "a%2Fb"), "no group of HDF5 can have this name"),
    "a new name in csr": (errno.EPERM, lambda root: (root / "sparse/csr/.data.raw.Xa12").touch(), "rsync --inplace"),
    "a device in csr": (errno.EPERM, lambda root: os.mkfifo(root / "sparse/csr/pipe"), "rsync --inplace"),
    "rm in csr": (errno.EPERM, lambda root: os.unlink(root / "sparse/csr/data.raw"), "tar --overwrite"),
    "mv in csr": (errno.EPERM, lambda root: os.rename(root / "sparse/csr/data.raw", root / "sparse/csr/a"),
                  "no others are made there"),
    "mv into csr": (errno.EPERM, lambda root: rename_temporary(root, "csr/data.raw"), "no others are made there"),
    "mv --exchange": (errno.EINVAL, lambda root: rename_temporary(root, "frames/0.raw", 2), "are not exchanged"),
    "a text": (errno.EPERM, lambda root: (root / "dense/dataset.json").write_text("{}"),
               "this file is computed: write"),
    "truncating a text": (errno.EPERM, lambda root: os.truncate(root / "dense/dataset.json", 0),
                          "this file is computed: write"),
    "a selection": (errno.EOPNOTSUPP, lambda root: open(root / "dense/frames/0.defined", "r+b"),
                    "a dense dataset has no selection"),
    "appending": (errno.EFBIG, lambda root: append(root / "dense/frames/0.raw"),
                  "files have the size of what they show"),
    "behind the end": (errno.EFBIG, lambda root: write_behind(root / "sparse/frames/0.raw"),
                       "files have the size of what they show"),
    "truncating behind it": (errno.EFBIG, lambda root: os.truncate(root / "dense/frames/0.raw", 10000),
                             "files have the size of what they show"),
    "a header": (errno.EINVAL, lambda root: write_header(root / "dense/npy/000000.npy"), "header bytes can only be"),
    "a frame too many": (errno.EFBIG, lambda root: open(root / f"dense/frames/{FRAMES}.raw", "wb"),
                         "the dataset has no room for this frame"),
    "an attribute": (errno.EPERM, lambda root: os.setxattr(root / "dense", "user.detector", b"west"),
                     "attributes can be read here, and set with h5py"),
    "an attribute less": (errno.EPERM, lambda root: os.removexattr(root / "dense", "user.detector"),
                          "attributes can be read here, and set with h5py"),
    "another attribute": (errno.EOPNOTSUPP, lambda root: os.setxattr(root / "dense", "user.other", b"west"),
                          "attributes can be read here, and set with h5py"),
    "fallocate": (errno.EOPNOTSUPP, lambda root: reserve(root / "sparse/frames/0.defined"),
                  "selections and files of csr are written whole"),
    "fallocate in csr": (errno.EOPNOTSUPP, lambda root: reserve(root / "sparse/csr/data.raw", 3),
                         "selections and files of csr are written whole"),
}


@pytest.fixture(scope="module")
def readme():
    text = (TOP / "README.md").read_text()
    table = re.search(r"^## Errors\n(.*?)^## ", text, re.M | re.S).group(1)
    return table.replace("`", "")


def is_told(mount, path, words, readme):
    """One line that names the file, in both logs, and the row of README that has it."""
    line, = [line for line in mount.log().splitlines() if "refused: " in line]
    text = line.split("refused: ")[1]
    assert line.startswith(f"sparsefs: {path}: /") and words in text
    assert text in (mount / ".sparsefs/log").read_text()
    assert f"| {text} |" in readme


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused_is_told(mounts, file, readme, case):
    number, action, words = CASES[case]
    before = file.read_bytes()
    mount = mounts(file, "default")
    with pytest.raises(OSError) as refusal:
        action(mount.root)
    if os.geteuid() and refusal.value.errno == errno.EACCES:
        pytest.skip("its mode keeps a user from it, whom the kernel tells")
    assert refusal.value.errno == number
    is_told(mount, file, words, readme)
    mount.unmount()
    assert file.read_bytes() == before


def test_what_a_strict_mount_refuses_is_told(mounts, file, readme):
    mount = mounts(file, "default", "strict")
    with pytest.raises(PermissionError):
        os.chmod(mount / "dense/frames/0.raw", 0o600)
    is_told(mount, file, "without -o strict other ones are ignored", readme)


def test_what_is_no_selection_is_told(mounts, file):
    mount = mounts(file, "default", expect_log=True)
    with pytest.raises(OSError) as refusal:
        (mount / "sparse/frames/0.defined").write_bytes(b"hello")
    assert refusal.value.errno == errno.EINVAL
    line, = [line for line in mount.log().splitlines() if "H5Sencode" in line]
    assert "/sparse: what is defined is not changed" in line
    assert line.partition("sparsefs: ")[2] in (mount / ".sparsefs/log").read_text()


def test_who_has_the_file_open_is_told(mounts, file, readme):
    mount = mounts(file, "default", expect_log=True)
    with h5py.File(file, "r"), pytest.raises(OSError) as refusal:
        open(mount / "sparse/frames/0.raw", "r+b")
    assert refusal.value.errno == errno.EBUSY
    line, = [line for line in mount.log().splitlines() if "another program" in line]
    assert line.endswith("; close it there") and f"process {os.getpid()}" in line
    assert "close it there" in readme


def test_what_is_refused_again_and_again_is_told_once(mounts, file):
    """In a second; however often it is."""
    mount = mounts(file, "default")
    for _ in range(50):
        with pytest.raises(OSError) as refusal:
            os.truncate(mount / "dense/frames/0.raw", 10000)
        assert refusal.value.errno == errno.EFBIG
    assert 0 < mount.log().count("refused: ") < 50


def test_a_missing_filter_is_told(mounts, tmp_path, readme):
    path = tmp_path / "filter.h5"
    with h5py.File(path, "w") as f:  # optional when it is written, so that no plugin is needed
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((1, SIDE))
        properties.set_filter(499, h5py.h5z.FLAG_OPTIONAL, (1,))
        dataset = h5py.h5d.create(f.id, b"data", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((2, SIDE)), properties)
        dataset.write_direct_chunk((0, 0), b"\1" * SIDE, 0)
    mount = mounts(path, expect_log=True)
    with pytest.raises(OSError) as refusal:
        (mount / "data/frames/0.raw").read_bytes()
    assert refusal.value.errno == errno.EIO
    text = "filter 499 is not available: install its plugin for libhdf5"
    assert text in mount.log() and text in (mount / ".sparsefs/log").read_text()
    assert '"missing_filter"' in (mount / "data/dataset.json").read_text()
    assert "filter N is not available" in readme
