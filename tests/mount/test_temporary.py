"""Programs that write a new file and rename it to the one that it replaces: such files are in memory, and
what they hold becomes a frame, all of it or nothing."""
import ctypes
import errno
import mmap
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
import zipfile

import h5py
import numpy as np
import pytest

from conftest import BUILD, START_SECONDS, wait_until
from model import refused
from test_sparse import Expected, check_sparse
from test_writing import FRAME_BYTES, Data, data, do, kill, new_content, shell, sparse  # noqa: F401

NOREPLACE, EXCHANGE = 1, 2
libc = ctypes.CDLL(None, use_errno=True)


def renameat2(old, new, flags):
    if libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) < 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def still(data):
    """What check does, but for listings."""
    assert (data.d / "stack.raw").read_bytes() == data.array.tobytes()
    for frame, content in enumerate(data.array):
        for kind in KINDS:
            assert (data.d / view(data.d, frame, kind)[0]).read_bytes()[-FRAME_BYTES:] == content.tobytes()


def head_of(d, name):
    return (d / name).read_bytes()[:-FRAME_BYTES]


def view(d, frame, kind):
    """The name of a view, and the bytes before its elements."""
    name = {"frames": f"frames/{frame}.raw", "raw": f"raw/{frame:06}.raw", "npy": f"npy/{frame:06}.npy",
            "tiff": f"tiff/{frame:06}.tif"}[kind]
    known = {"frames": "frames/0.raw", "raw": "raw/000000.raw", "npy": "npy/000000.npy", "tiff": "tiff/000000.tif"}
    return d / name, head_of(d, known[kind])


KINDS = "frames", "raw", "npy", "tiff"


@pytest.mark.parametrize("folder", KINDS)
def test_a_file_that_is_none_of_the_frames(mounts, data, folder):
    """What can be done with it; and that no frame, and no byte of the HDF5 file, is other by it."""
    d = data.mount(mounts)
    before, file_before = sorted(os.listdir(d / folder)), data.path.read_bytes()
    path, other = d / folder / ".000001.raw.Xa12", d / folder / "notes.txt"
    with open(path, "x+b", buffering=0) as file:
        assert os.fstat(file.fileno()).st_size == 0
        file.write(b"hello")
        file.seek(100)
        file.write(b"world")
        os.fsync(file.fileno())
        os.ftruncate(file.fileno(), 103)
        os.posix_fallocate(file.fileno(), 0, 110)
        assert os.pread(file.fileno(), 1000, 0) == b"hello" + bytes(95) + b"wor" + bytes(7)
        assert os.lseek(file.fileno(), 50, os.SEEK_HOLE) == 110
    st = path.stat()
    assert stat.S_ISREG(st.st_mode) and st.st_size == 110 and abs(st.st_mtime - time.time()) < 100
    with refused(errno.EEXIST):
        open(path, "xb")
    with open(path, "ab") as file:
        file.write(b"more")
    assert path.read_bytes()[-5:] == b"\0more"
    os.truncate(path, 3)
    assert path.read_bytes() == b"hel" and path.stat().st_size == 3
    os.chmod(path, 0o600)
    os.chown(path, os.geteuid(), os.getegid())
    os.utime(path, ns=(1_000_000_007, 2_000_000_009))
    st = path.stat()
    assert (st.st_atime_ns, st.st_mtime_ns) == (1_000_000_007, 2_000_000_009)
    assert sorted(os.listdir(d / folder)) == sorted(before + [path.name])
    os.rename(path, other)
    assert not path.exists() and other.read_bytes() == b"hel" and other.stat().st_ino == st.st_ino
    assert other.stat().st_mtime_ns == 2_000_000_009
    path.write_bytes(b"second")
    assert path.stat().st_ino != st.st_ino
    os.replace(path, other)
    assert other.read_bytes() == b"second" and not path.exists()
    with open(other, "r+b") as file:
        os.unlink(other)
        assert not other.exists() and file.read() == b"second"
        file.write(b" one")
        file.seek(0)
        assert file.read() == b"second one" and os.fstat(file.fileno()).st_size == 10
    assert sorted(os.listdir(d / folder)) == before
    with refused(errno.ENOENT):
        os.unlink(other)
    data.check()
    os.sync()
    assert data.path.read_bytes() == file_before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [FRAME_BYTES, 1001, 1, 0])
def test_it_becomes_a_frame(mounts, data, kind, n):
    """What there are no bytes for is erased; every view shows it at once, and the file holds it."""
    d = data.mount(mounts)
    data.check()
    path, head = view(d, 2, kind)
    new = d / kind / f".{path.name}.Xa12"
    new.write_bytes(head + new_content()[:n])
    still(data)
    os.rename(new, path)
    if data.is_sparse or n:
        data.erase(2 * FRAME_BYTES // 2, 3 * FRAME_BYTES // 2)
        content = new_content()[:n]
        if n % 2:  # of an element that is cut the other byte is that of the fill value
            content += data.fill.to_bytes(2, "little")[1:]
        data.write(2 * FRAME_BYTES, content)
    else:
        data.erase(2 * FRAME_BYTES // 2, 3 * FRAME_BYTES // 2)
    assert not new.exists() and new.name not in os.listdir(d / kind)
    assert path.stat().st_nlink == 1 and path.stat().st_size == len(head) + FRAME_BYTES
    data.check_file(mounts)


def test_a_selection(mounts, sparse):
    d = sparse.mount(mounts, expect_log=True)
    selection = (d / "frames/0.defined").read_bytes()
    (d / "frames/.x").write_bytes(selection)
    os.rename(d / "frames/.x", d / "frames/1.defined")
    assert (d / "frames/1.defined").read_bytes() == selection
    sparse.defined[1], sparse.array[1] = sparse.defined[0], np.where(
        sparse.defined[0] & sparse.defined[1], sparse.array[1], 0)
    sparse.check()
    (d / "frames/.x").write_bytes(selection[:-1])
    with refused(errno.EINVAL):
        os.rename(d / "frames/.x", d / "frames/1.defined")
    still(sparse)
    (d / "frames/.x").write_bytes(b"")
    os.rename(d / "frames/.x", d / "frames/1.defined")
    sparse.erase(FRAME_BYTES // 2, FRAME_BYTES)
    sparse.check_file(mounts)


def test_what_is_refused_changes_nothing(mounts, data):
    d = data.mount(mounts, expect_log=True)
    head = head_of(d, "npy/000000.npy")
    for name, content, error in (
            ("frames/1.raw", bytes(FRAME_BYTES + 1), errno.EFBIG),
            ("npy/000001.npy", head + bytes(FRAME_BYTES + 1), errno.EFBIG),
            ("npy/000001.npy", head.replace(b"u2", b"i2") + bytes(FRAME_BYTES), errno.EINVAL),
            ("npy/000001.npy", bytes(FRAME_BYTES), errno.EINVAL),
            ("npy/000001.npy", b"x", errno.EINVAL),
            ("tiff/000001.tif", b"hello", errno.EINVAL),
            ("frames/5.raw", bytes(FRAME_BYTES), errno.EFBIG),
            (f"frames/{2**34}.raw", b"", errno.EFBIG),
            (f"frames/{2**70}.raw", b"", 0),
            ("frames/1.defined", b"x", errno.EINVAL if data.is_sparse else errno.EOPNOTSUPP),
            ("values/000001.values", b"x", errno.EINVAL if data.is_sparse else errno.EPERM),
            ("stack.raw", b"", errno.EPERM),
            ("dataset.json", b"", errno.EPERM), ("new", b"", errno.EPERM), ("../new", b"", errno.EPERM)):
        new = d / os.path.dirname(name) / ".new"
        if not name.startswith(("frames", "npy", "tiff")):
            new = d / "frames/.new"
        new.write_bytes(content)
        if error:
            with refused(error):
                os.rename(new, d / name)
            assert new.read_bytes() == content, name
            os.unlink(new)
        else:  # no number: another name of a temporary file
            os.rename(new, d / name)
            os.unlink(d / name)
        data.check()
    data.check_file(mounts)


@pytest.mark.parametrize("is_sparse", [True, False])
def test_new_frames(mounts, tmp_path, is_sparse):
    data = Data(tmp_path, is_sparse, maxshape=(9, 30, 41))
    d = data.mount(mounts, expect_log=True)
    assert len(os.listdir(d / "npy")) == 5
    (d / "npy/7.tmp").write_bytes(head_of(d, "npy/000000.npy") + new_content())
    os.rename(d / "npy/7.tmp", d / "npy/000007.npy")
    assert len(os.listdir(d / "npy")) == 8 and len(os.listdir(d / "frames")) == 16
    assert (d / "frames/7.raw").read_bytes() == new_content()
    assert (d / "frames/6.raw").read_bytes() == bytes(FRAME_BYTES)
    for bad, error in ((b"x", errno.EINVAL), (head_of(d, "npy/000000.npy") + bytes(FRAME_BYTES + 1), errno.EFBIG)):
        (d / "npy/8.tmp").write_bytes(bad)
        with refused(error):
            os.rename(d / "npy/8.tmp", d / "npy/000008.npy")
        assert len(os.listdir(d / "frames")) == 16
    (d / "npy/8.tmp").write_bytes(b"")
    with refused(errno.EFBIG):
        os.rename(d / "npy/8.tmp", d / "npy/000009.npy")
    os.rename(d / "npy/8.tmp", d / "npy/000008.npy")
    assert (d / "frames/8.raw").read_bytes() == bytes(FRAME_BYTES)
    data.mounted.unmount()
    array = np.zeros((9, 30, 41), "<u2")
    array[:5], array[7] = data.array, np.frombuffer(new_content(), "<u2").reshape(30, 41)
    defined = np.zeros(array.shape, bool)
    defined[:5], defined[7] = data.defined, True
    if is_sparse:
        check_sparse(mounts(data.path) / "sparse", Expected(array, defined, True))
    else:
        with h5py.File(data.path) as f:
            assert np.array_equal(f["sparse"][()], array)


def test_from_one_folder_to_another(mounts, data):
    """Of the same dataset, as a temporary file and as a frame."""
    d = data.mount(mounts)
    (d / "frames/.x").write_bytes(head_of(d, "npy/000000.npy") + new_content())
    os.rename(d / "frames/.x", d / "npy/.y")
    assert ".x" not in os.listdir(d / "frames") and ".y" in os.listdir(d / "npy")
    os.rename(d / "npy/.y", d / "frames/.x")
    with refused(errno.EFBIG):
        os.rename(d / "frames/.x", d / "frames/3.raw")
    os.rename(d / "frames/.x", d / "npy/000003.npy")
    data.write(3 * FRAME_BYTES, new_content())
    data.check_file(mounts)


# ---- Programs ----


PROGRAMS = {
    "rsync -a": "rsync -a {new} {d}/frames/2.raw",
    "rsync, of a folder": "mkdir in; cp -p {new} in/2.raw; rsync -aW in/ {d}/frames/",
    "rsync, sparse": "rsync -aS {new} {d}/frames/2.raw",
    "rsync, preallocated": "rsync -a --preallocate {new} {d}/frames/2.raw",
    "sed": "cp {new} {d}/frames/2.raw; LC_ALL=C sed -i -e 's/\\x01/\\x01/g' {d}/frames/2.raw",
    "perl": "cp {new} {d}/frames/2.raw; perl -pi -e 's/a/a/' {d}/frames/2.raw",
    "mv": "cp {new} {d}/frames/.2; mv {d}/frames/.2 {d}/frames/2.raw",
    "python": "python3 -c 'import os, tempfile as t; f = t.NamedTemporaryFile(dir=\"{d}/frames\", delete=False);"
              "f.write(open(\"{new}\", \"rb\").read()); f.close(); os.replace(f.name, \"{d}/frames/2.raw\")'",
    "np.save": "/usr/bin/python3 -c 'import os, numpy as np; a = np.fromfile(\"{new}\", \"<u2\").reshape(30, 41);"
               "np.save(\"{d}/npy/.x.npy\", a); os.replace(\"{d}/npy/.x.npy\", \"{d}/npy/000002.npy\")'",
    "np.memmap": "/usr/bin/python3 -c 'import os, numpy as np; a = np.fromfile(\"{new}\", \"<u2\").reshape(30, 41);"
                 "m = np.lib.format.open_memmap(\"{d}/npy/.x.npy\", \"w+\", \"<u2\", (30, 41)); m[:] = a; m.flush();"
                 "os.replace(\"{d}/npy/.x.npy\", \"{d}/npy/000002.npy\")'",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(mounts, data, tmp_path, program):
    command = PROGRAMS[program]
    for word in "rsync", "perl", "sed":
        if word in command and not shutil.which(word):
            pytest.skip(f"{word} is not here")
    new = tmp_path / "new"
    new.write_bytes(new_content())
    os.utime(new, (1000, 2000))
    d = data.mount(mounts)
    data.check()
    if program == "np.memmap" and "128" not in repr(len(head_of(d, "npy/000000.npy"))):
        pytest.skip("the header of this NumPy is another one")
    done = shell(command.format(new=new, d=d), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done
    data.write(2 * FRAME_BYTES, new_content())
    data.check()
    assert not [name for name in os.listdir(d / "frames") if name.startswith(".") or "sed" in name]
    if program.startswith("rsync"):
        assert (d / "frames/2.raw").stat().st_mtime == 2000
        again = do(f"rsync -ai {new} {d}/frames/2.raw")
        assert ">f" not in again, again
    data.check_file(mounts)


def test_rsync_that_wants_a_directory(mounts, sparse, tmp_path):
    """It says so, discards what it has got, and ends with 0; the log says how to do without."""
    if not shutil.which("rsync"):
        pytest.skip("there is no rsync")
    d = sparse.mount(mounts)
    (tmp_path / "3.raw").write_bytes(new_content())
    done = subprocess.run(["rsync", "-aI", "--delay-updates", tmp_path / "3.raw", d / "frames/"],
                          capture_output=True, text=True)
    assert "partial-dir" in done.stderr
    sparse.check()
    assert "rsync makes none without --delay-updates" in (sparse.mounted / ".sparsefs/log").read_text()
    do(f"rsync -aI --partial-dir=.p {tmp_path}/3.raw {d}/frames/")
    assert (d / "frames/3.raw").read_bytes() == new_content()


def test_archives(mounts, tmp_path):
    """zip and tar make the frames of a dataset that has none."""
    if not shutil.which("unzip"):
        pytest.skip("unzip is not here")
    path = tmp_path / "new.h5"
    subprocess.run([BUILD / "sparsectl", "create", path, "/d", "--dims", "0,30,41", "--maxdims", "inf,30,41",
                    "--dtype", "uint16"], check=True)
    contents = [new_content(seed=n) for n in range(6)]
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for n in range(3):
            archive.writestr(f"{n}.raw", contents[n])
    for n in range(3, 6):
        (tmp_path / f"{n}.raw").write_bytes(contents[n])
    d = mounts(path, "rw") / "d"
    do(f"unzip -q {tmp_path}/a.zip -d {d}/frames")
    do(f"tar -C {tmp_path} -cf - 3.raw 4.raw 5.raw | tar -C {d}/frames -xf -")
    assert (d / "stack.raw").read_bytes() == b"".join(contents)
    do(f"cd {d}/frames && tar -cf {tmp_path}/all.tar *.raw && zip -q {tmp_path}/all.zip *.raw")
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert [archive.read(f"{n}.raw") for n in range(6)] == contents


# ---- Who has it open, and how it is renamed ----


@pytest.mark.parametrize("kind", ["frames", "npy"])
def test_open_while_it_is_renamed(mounts, data, kind):
    """Who has it open goes on with the frame that it has become."""
    d = data.mount(mounts)
    data.check()
    path, head = view(d, 1, kind)
    new = d / kind / ".new"
    with open(new, "x+b", buffering=0) as file, open(path, "rb", buffering=0) as old:
        assert old.read(len(head) + 4)[len(head):] == data.array[1].tobytes()[:4]
        file.write(head + new_content()[:1000])
        os.rename(new, path)
        assert os.fstat(file.fileno()).st_ino == path.stat().st_ino
        assert os.fstat(file.fileno()).st_size == len(head) + FRAME_BYTES
        data.erase(FRAME_BYTES // 2, FRAME_BYTES)
        data.write(FRAME_BYTES, new_content()[:1000])
        data.check()
        file.write(new_content()[1000:])  # the rest
        data.write(FRAME_BYTES, new_content())
        data.check()
        file.seek(0)
        assert file.read() == head + new_content()
        os.pwrite(file.fileno(), b"ab", len(head) + 10)
        data.write(FRAME_BYTES + 10, b"ab")
        with refused(errno.EFBIG):
            os.pwrite(file.fileno(), b"ab", len(head) + FRAME_BYTES)
        os.fsync(file.fileno())
        # What others write to the frame he sees, too.
        with open(path, "r+b", buffering=0) as other:
            os.pwrite(other.fileno(), b"cd", len(head) + 10)
        data.write(FRAME_BYTES + 10, b"cd")
        assert os.pread(file.fileno(), 2, len(head) + 10) == b"cd"
    data.check_file(mounts)


def test_a_map_of_it(mounts, data):
    d = data.mount(mounts)
    with open(d / "frames/.new", "x+b") as file:
        os.ftruncate(file.fileno(), FRAME_BYTES)
        with mmap.mmap(file.fileno(), FRAME_BYTES) as m:
            m[:] = new_content()
            m.flush()
            os.rename(d / "frames/.new", d / "frames/3.raw")
            data.write(3 * FRAME_BYTES, new_content())
            data.check()
            m[:2] = b"xy"
            m.flush()
    data.write(3 * FRAME_BYTES, b"xy")
    data.check_file(mounts)


def test_flags_and_links(mounts, data):
    d = data.mount(mounts)
    a, b, frame = d / "frames/.a", d / "frames/.b", d / "frames/1.raw"
    a.write_bytes(new_content())
    b.write_bytes(b"b")
    for new, flags, error in ((b, NOREPLACE, errno.EEXIST), (frame, NOREPLACE, errno.EEXIST),
                              (b, EXCHANGE, errno.EINVAL), (frame, EXCHANGE, errno.EINVAL)):
        with refused(error):
            renameat2(a, new, flags)
    for attempt in (lambda: os.rename(frame, a), lambda: os.rename(frame, d / "frames/2.raw"),
                    lambda: renameat2(frame, a, EXCHANGE), lambda: os.link(a, d / "frames/.c"),
                    lambda: os.link(a, d / "frames/5.raw"), lambda: os.symlink("a", d / "frames/.c"),
                    lambda: os.mkfifo(d / "frames/.c"), lambda: os.mkdir(d / "frames/.c"),
                    lambda: os.unlink(d / "stack.npy"),
                    lambda: os.rename(d / "frames", d / "frames2"),
                    lambda: open(d / "csr/.x", "w"), lambda: open(d / ".x", "w"),
                    lambda: open(data.mounted / ".sparsefs/.x", "w")):
        with pytest.raises(OSError) as raised:
            attempt()
        by_mode = [errno.EACCES] if os.geteuid() else []  # of folders and files that nobody can write
        assert raised.value.errno in [errno.EPERM, errno.EINVAL, *by_mode], raised.value
    with refused(errno.EOPNOTSUPP):
        os.open(d / "frames", os.O_TMPFILE | os.O_WRONLY)
    assert a.read_bytes() == new_content() and b.read_bytes() == b"b"
    still(data)
    renameat2(a, d / "frames/.c", NOREPLACE)
    os.mknod(a)
    assert a.read_bytes() == b""
    with refused(errno.EEXIST):
        os.mknod(b)
    os.rename(d / "frames/.c", frame)
    for path in a, b:
        os.unlink(path)
    data.write(FRAME_BYTES, new_content())
    data.check_file(mounts)


def test_names(mounts, sparse):
    d = sparse.mount(mounts) / "frames"
    longest = "x" * 255
    (d / longest).write_bytes(b"1")
    assert longest in os.listdir(d)
    with refused(errno.ENAMETOOLONG):
        open(d / ("x" * 256), "w")
    with refused(errno.ENAMETOOLONG):
        os.rename(d / longest, d / ("y" * 256))
    os.rename(d / longest, d / "a b\nc%41\u00e9")
    assert (d / "a b\nc%41\u00e9").read_bytes() == b"1"
    os.unlink(d / "a b\nc%41\u00e9")
    # Frames' names are frames' in any spelling.
    (d / ".x").write_bytes(new_content())
    os.rename(d / ".x", d / "0000000001.raw")
    sparse.write(FRAME_BYTES, new_content())
    sparse.check_file(mounts)


def test_listings(mounts, sparse):
    """While others make and remove files, every one that stays is listed once."""
    d = sparse.mount(mounts) / "raw"
    names = {f".tmp{n}" for n in range(3000)}
    for name in sorted(names):
        (d / name).touch()
    with os.scandir(d) as entries:
        seen = [next(entries).name for _ in range(1500)]
        for name in seen[10:]:
            os.unlink(d / name)
        (d / "new").touch()
        seen += [entry.name for entry in entries]
    assert len(seen) == len(set(seen)) and names <= set(seen)
    assert set(os.listdir(d)) == (names - set(seen[10:1500])) | {f"{n:06}.raw" for n in range(5)} | {"new"}
    for name in set(os.listdir(d)) - {f"{n:06}.raw" for n in range(5)}:
        os.unlink(d / name)
    assert len(os.listdir(d)) == 5
    sparse.check()


def two_names(mounts, tmp_path):
    """A dataset with two hard links: its file, the mount, and both directories of its frames."""
    data = Data(tmp_path, False)
    with h5py.File(data.path, "a") as f:
        f["again"] = f["sparse"]
    mount = mounts(data.path, "rw")
    one, two = mount / "sparse/frames", mount / "again/frames"
    return data, mount, one, two


def test_a_dataset_with_two_names(mounts, tmp_path):
    data, mount, one, two = two_names(mounts, tmp_path)
    for _ in range(2):
        names = os.listdir(two), os.listdir(one)
        (one / ".x").write_bytes(new_content())
        assert (two / ".x").read_bytes() == new_content() and (two / ".x").stat().st_ino == (one / ".x").stat().st_ino
        assert sorted(os.listdir(two)) == sorted(names[0] + [".x"]) == sorted(os.listdir(one))
        os.rename(two / ".x", one / ".y")
        assert sorted(os.listdir(two)) == sorted(names[0] + [".y"]) == sorted(os.listdir(one))
        assert (two / "1.raw").read_bytes() == data.array[1].tobytes()
        os.rename(one / ".y", one / "1.raw")
        assert (two / "1.raw").read_bytes() == (one / "1.raw").read_bytes() == new_content()
        assert sorted(os.listdir(two)) == sorted(names[0]) == sorted(os.listdir(one))
        os.replace(mount / "sparse/frames/1.raw", one / "1.raw")  # the same: nothing happens
        (one / ".x").write_bytes(data.array[1].tobytes())
        os.rename(one / ".x", two / "1.raw")


def test_a_made_file_is_listed_by_both_names(mounts, tmp_path):
    """As soon as it is there, also while it is open: the kernel keeps the names of both directories."""
    _, _, one, two = two_names(mounts, tmp_path)
    names = set(os.listdir(two))
    for n in range(300):
        assert set(os.listdir(one)) == set(os.listdir(two)) == names
        fd = os.open(one / f".{n}", os.O_CREAT | os.O_WRONLY)
        seen = set(os.listdir(two))
        os.close(fd)
        assert seen == names | {f".{n}"}
        os.unlink(two / f".{n}")


def test_two_at_once(mounts, tmp_path):
    """Of files that are renamed to one frame at a time, through several of its views, one stays whole."""
    data = Data(tmp_path, True, chunks=(2, 8, 16))
    d = data.mount(mounts)
    heads = {kind: view(d, 0, kind)[1] for kind in KINDS}
    failures = []

    def rename(kind, seed):
        try:
            for n in range(25):
                new = d / kind / f".{seed}.{n}"
                new.write_bytes(heads[kind] + bytes([seed]) * FRAME_BYTES)
                os.rename(new, view(d, 1, kind)[0])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=rename, args=(kind, seed)) for seed, kind in enumerate(KINDS * 2, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    content = (d / "frames/1.raw").read_bytes()
    assert content[0] and content == content[:1] * FRAME_BYTES
    data.write(FRAME_BYTES, content)
    data.check_file(mounts)


# ---- The limit, the end, the lock ----


def test_no_more_than_the_limit(mounts, sparse):
    d = sparse.mount(mounts, "staging_size=1M", expect_log=True)
    with refused(errno.EFBIG):
        (d / "frames/.huge").write_bytes(bytes((1 << 20) + 1))
    with refused(errno.EFBIG):
        os.truncate(d / "frames/.huge", 1 << 40)
    assert sparse.mounted.log().count(".huge: it would need more than staging_size=1048576") == 1
    os.truncate(d / "frames/.huge", 0)
    (d / "frames/.a").write_bytes(bytes(600 << 10))
    with refused(errno.ENOSPC):
        (d / "npy/.b").write_bytes(bytes(600 << 10))
    assert sparse.mounted.log().count("temporary file .b: with the others it would need more") == 1
    (d / "npy/.b").write_bytes(bytes(200 << 10))
    # Room comes back with files that are cut, removed, and renamed.
    os.truncate(d / "frames/.a", 0)
    (d / "npy/.b").write_bytes(bytes(900 << 10))
    os.unlink(d / "npy/.b")
    (d / "frames/.a").write_bytes(new_content())
    for _ in range(1000):
        (d / "frames/.c").write_bytes(new_content())
        os.rename(d / "frames/.c", d / "frames/1.raw")
    sparse.write(FRAME_BYTES, new_content())
    with pytest.raises(OSError) as raised:
        for n in range(100_000):
            (d / f"frames/.{n}").touch()
    assert raised.value.errno == errno.ENOSPC and n > 1000
    for name in os.listdir(d / "frames"):
        if name.startswith("."):
            os.unlink(d / "frames" / name)
    sparse.check_file(mounts)


def test_what_is_left_is_lost(mounts, sparse):
    d = sparse.mount(mounts, expect_log=True)
    for n in range(4):
        (d / f"frames/.x{n}").write_bytes(bytes(n + 1))
    os.rename(d / "frames/.x1", d / "npy/.y")
    sparse.mounted.unmount()
    log = sparse.mounted.log()
    assert ("lost with the mount: 4 temporary files, renamed to no frame: /sparse: .x0 (1 bytes), /sparse: .y (2 "
            "bytes), /sparse: .x2 (3 bytes), ...") in log, log


def test_read_only(mounts, sparse):
    d = mounts(sparse.path, "ro") / "sparse"
    for attempt in (lambda: open(d / "frames/.x", "w"), lambda: os.rename(d / "frames/1.raw", d / "frames/.x"),
                    lambda: os.unlink(d / "frames/1.raw"), lambda: os.mknod(d / "frames/.x")):
        with refused(errno.EROFS):
            attempt()


def test_strict(mounts, sparse):
    d = sparse.mount(mounts, "strict")
    (d / "frames/.x").write_bytes(new_content())
    for attempt in (lambda: os.chmod(d / "frames/.x", 0o600), lambda: os.utime(d / "frames/.x", (1, 2))):
        with refused(errno.EPERM):
            attempt()
    os.rename(d / "frames/.x", d / "frames/1.raw")
    sparse.write(FRAME_BYTES, new_content())
    sparse.check()


def test_nobody_is_shut_out_before_the_rename(mounts, data, tmp_path):
    """The lock of a writer is taken by that; who cannot have it keeps his file."""
    d = mounts(data.path, "default", expect_log=True) / "sparse"
    (d / "frames/.x").write_bytes(new_content())
    holder = subprocess.Popen([sys.executable, "-c", "import fcntl, sys; f = open(sys.argv[1], 'r+b');"
                               "fcntl.flock(f, fcntl.LOCK_SH); print('held', flush=True); input()", data.path],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with refused(errno.EBUSY):
            os.rename(d / "frames/.x", d / "frames/1.raw")
        assert (d / "frames/.x").read_bytes() == new_content()
        assert (d / "frames/1.raw").read_bytes() == data.array[1].tobytes()
    finally:
        holder.communicate("\n", timeout=START_SECONDS)
    os.rename(d / "frames/.x", d / "frames/1.raw")
    assert (d / "frames/1.raw").read_bytes() == new_content()


@pytest.mark.parametrize("how", ["fsync of the folder", "fsync of the frame", "O_SYNC before"])
def test_it_is_durable(mounts, data, how):
    d = data.mount(mounts, "commit_interval=0")
    with open(d / "frames/.x", "xb") as file:
        file.write(new_content())
        os.fsync(file.fileno())
    os.rename(d / "frames/.x", d / "frames/1.raw")
    fd = os.open(d / ("frames" if how == "fsync of the folder" else "frames/1.raw"), os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    kill(data.mounted)
    done = subprocess.run([BUILD / "sparsectl", "recover", data.path], capture_output=True, text=True)
    assert done.returncode == 0, done
    data.write(FRAME_BYTES, new_content())
    assert (mounts(data.path) / "sparse/frames/1.raw").read_bytes() == new_content()


def test_a_failure_in_the_midst_changes_nothing(mounts, tmp_path):
    """A chunk of the frame cannot be read: what was written before it is taken back, or nothing is."""
    path = tmp_path / "a.h5"
    array = np.arange(2 * 64 * 64, dtype="<u2").reshape(2, 64, 64)
    with h5py.File(path, "w") as f:
        f.create_dataset("d", data=array, chunks=(1, 16, 64), compression="gzip")
        if not hasattr(f["d"].id, "get_chunk_info"):
            pytest.skip("this h5py cannot say where a chunk is")
        where = f["d"].id.get_chunk_info(2)
    with open(path, "r+b") as file:
        file.seek(where.byte_offset)
        file.write(b"\xff" * where.size)
    mount = mounts(path, "rw", expect_log=True)
    d = mount / "d"
    with refused(errno.EIO):
        (d / "frames/0.raw").read_bytes()
    (d / "frames/.x").write_bytes(bytes(16 * 64 * 2 * 2 + 100))  # ends in the damaged chunk
    with refused(errno.EIO):
        os.rename(d / "frames/.x", d / "frames/0.raw")
    with open(d / "frames/0.raw", "rb") as file:
        assert file.read(2 * 16 * 64 * 2) == array[0, :32].tobytes()
    (d / "frames/.x").write_bytes(bytes(64 * 64 * 2))  # all of it needs nothing of what was there
    os.rename(d / "frames/.x", d / "frames/0.raw")
    assert (d / "frames/0.raw").read_bytes() == bytes(64 * 64 * 2)
    assert (d / "frames/1.raw").read_bytes() == array[1].tobytes()


# ---- Files of other programs ----


def foreign_numpy(content, path):
    """The same frame in every form that NumPy writes."""
    save = np.lib.format.write_array
    for version in (1, 0), (2, 0), (3, 0):
        for array in content, content.astype(">u2"), np.asfortranarray(content), np.asfortranarray(content, ">u2"):
            with open(path, "wb") as file:
                save(file, array, version)
            yield path.read_bytes()
    body = content.tobytes()
    for text in ("{'shape':(30,41),\"descr\":'<u2','fortran_order':False}\n",
                 "{'descr': '=u2', 'fortran_order': False, 'shape': (30, 41L), }" + " " * 300 + "\n"):
        text = text.replace("=", "<" if sys.byteorder == "little" else ">")
        yield b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode() + body


def foreign_tiffs(content, path):
    tifffile = pytest.importorskip("tifffile")
    for options in ({}, {"byteorder": ">"}, {"bigtiff": True}, {"bigtiff": True, "byteorder": ">"}, {"rowsperstrip": 7},
                    {"tile": (16, 16)}, {"tile": (16, 32), "byteorder": ">"}, {"compression": "zlib"},
                    {"compression": "zlib", "predictor": True, "rowsperstrip": 4}, {"imagej": True},
                    {"compression": "adobe_deflate", "tile": (16, 16)}, {"metadata": None}):
        try:
            tifffile.imwrite(path, content, **options)
        except (ImportError, TypeError, ValueError, KeyError):
            continue  # this tifffile cannot
        yield options, path.read_bytes()
    try:
        from PIL import Image
    except ImportError:
        return
    for compression in None, "tiff_lzw", "tiff_adobe_deflate", "packbits":
        Image.fromarray(content).save(str(path), format="TIFF", **({"compression": compression} if compression else {}))
        yield compression, path.read_bytes()


def has_libtiff():
    return b"libtiff" in subprocess.run(["ldd", BUILD / "sparsefs"], capture_output=True).stdout


def test_numpy_files_of_others(mounts, data, tmp_path):
    d = data.mount(mounts)
    data.check()
    count = 0
    for seed, is_last in enumerate([False] * 13 + [True]):
        content = np.frombuffer(new_content(seed=seed), "<u2").reshape(30, 41)
        form = list(foreign_numpy(content, tmp_path / "new.npy"))[seed]
        (d / "npy/.new").write_bytes(form)
        os.rename(d / "npy/.new", d / "npy/000003.npy")
        assert (d / "frames/3.raw").read_bytes() == content.tobytes(), form[:100]
        count += 1
    data.write(3 * FRAME_BYTES, content.tobytes())
    assert count == 14
    data.check_file(mounts)


def test_tiff_files_of_others(mounts, data, tmp_path):
    if not has_libtiff():
        pytest.skip("built without libtiff")
    d = data.mount(mounts)
    data.check()
    content = np.frombuffer(new_content(), "<u2").reshape(30, 41)
    for how, form in foreign_tiffs(content, tmp_path / "new.tif"):
        os.truncate(d / "frames/3.raw", 0)
        (d / "tiff/.new").write_bytes(form)
        os.rename(d / "tiff/.new", d / "tiff/000003.tif")
        assert (d / "frames/3.raw").read_bytes() == content.tobytes(), how
    data.write(3 * FRAME_BYTES, content.tobytes())
    data.check_file(mounts)


@pytest.mark.parametrize("dtype", ["<u1", ">i2", "<i4", ">f4", "<f8", "<c8"])
def test_types_of_files_of_others(mounts, tmp_path, dtype):
    tifffile = pytest.importorskip("tifffile")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("d", shape=(2, 40, 50), dtype=dtype, chunks=(1, 16, 50))
    d = mounts(path, "rw") / "d"
    content = (np.arange(2000).reshape(40, 50) * 3 - 1000).astype(dtype)
    for order in "<>":
        with open(tmp_path / "new.npy", "wb") as file:
            np.lib.format.write_array(file, np.asfortranarray(content.astype(content.dtype.newbyteorder(order))),
                                      (2, 0))
        (d / "npy/.new").write_bytes((tmp_path / "new.npy").read_bytes())
        os.rename(d / "npy/.new", d / "npy/000000.npy")
        assert (d / "frames/0.raw").read_bytes() == content.tobytes()
        if "c" in dtype or not has_libtiff():
            continue
        tifffile.imwrite(tmp_path / "new.tif", content.astype(content.dtype.newbyteorder(order)), byteorder=order,
                         tile=(16, 16), compression="zlib")
        (d / "tiff/.new").write_bytes((tmp_path / "new.tif").read_bytes())
        os.rename(d / "tiff/.new", d / "tiff/000001.tif")
        assert (d / "frames/1.raw").read_bytes() == content.tobytes()


def test_masks_of_others(mounts, tmp_path):
    """Booleans are shown as unsigned bytes, which every program reads, and taken as such or as bits."""
    tifffile, image = pytest.importorskip("tifffile"), pytest.importorskip("PIL.Image")
    if not has_libtiff():
        pytest.skip("built without libtiff")
    path, content = tmp_path / "a.h5", np.arange(37 * 45).reshape(37, 45) % 3 == 0
    with h5py.File(path, "w") as f:
        f.create_dataset("d", data=[content, ~content], chunks=(1, 16, 45))
    mount = mounts(path, "rw", expect_log=True)
    d = mount / "d"
    for read in lambda name: np.asarray(image.open(name)), tifffile.imread:
        shown = read(d / "tiff/000000.tif")
        assert shown.dtype == "u1" and (shown == content).all()
    new = tmp_path / "new.tif"
    for i, write in enumerate((
            lambda mask: image.fromarray(mask).save(new),
            lambda mask: image.fromarray(mask).save(new, compression="tiff_lzw"),
            lambda mask: image.fromarray(mask).save(new, compression="packbits"),
            lambda mask: tifffile.imwrite(new, mask, photometric="minisblack", rowsperstrip=5),
            lambda mask: tifffile.imwrite(new, mask.astype("u1"), byteorder=">", tile=(16, 16)))):
        wanted = np.roll(content, i, 1)
        write(wanted)
        shutil.copy(new, d / "tiff/000001.tif")
        assert (d / "frames/1.raw").read_bytes() == wanted.tobytes(), i
    for write, reason in ((lambda: tifffile.imwrite(new, content), "black is not 0"),
                          (lambda: tifffile.imwrite(new, content, photometric="minisblack", tile=(16, 16)), "in tiles"),
                          (lambda: tifffile.imwrite(new, content.astype("i1")), "signed numbers of 8 bits")):
        write()
        with refused(errno.EINVAL):
            shutil.copy(new, d / "tiff/000001.tif")
        assert (d / "frames/1.raw").read_bytes() == wanted.tobytes()
        wait_until(lambda: reason in mount.log())


@pytest.mark.parametrize("dtype", ["<u1", ">u2"])
@pytest.mark.parametrize("samples", [3, 4])
def test_colours_of_others(mounts, tmp_path, dtype, samples):
    """Which stand together in a pixel; images of single colours do not fit."""
    tifffile = pytest.importorskip("tifffile")
    if not has_libtiff():
        pytest.skip("built without libtiff")
    path, content = tmp_path / "a.h5", np.arange(37 * 45 * samples).reshape(37, 45, samples).astype(dtype)
    with h5py.File(path, "w") as f:
        f.create_dataset("d", shape=(2, 37, 45, samples), dtype=dtype, chunks=(1, 16, 45, samples))
    d = mounts(path, "rw", expect_log=True) / "d"
    native = content.astype(content.dtype.newbyteorder("="))
    more = {"extrasamples": ["unassalpha"]} if samples == 4 else {}
    for options in {"byteorder": ">"}, {"tile": (16, 16)}, {"compression": "zlib", "rowsperstrip": 5}, \
            {"bigtiff": True}:
        os.truncate(d / "frames/1.raw", 0)
        tifffile.imwrite(tmp_path / "new.tif", native, photometric="rgb", **options, **more)
        shutil.copy(tmp_path / "new.tif", d / "tiff/000001.tif")
        assert (d / "frames/1.raw").read_bytes() == content.tobytes(), options
    for array, options in ((native[:, :, 0], {}),
                           (np.moveaxis(native, -1, 0), {"photometric": "rgb", "planarconfig": "separate", **more})):
        tifffile.imwrite(tmp_path / "new.tif", np.ascontiguousarray(array), **options)
        with pytest.raises(OSError) as refusal:
            shutil.copy(tmp_path / "new.tif", d / "tiff/000001.tif")
        assert refusal.value.errno == errno.EINVAL
        assert (d / "frames/1.raw").read_bytes() == content.tobytes()


def test_files_of_others_that_do_not_fit(mounts, data, tmp_path):
    tifffile = pytest.importorskip("tifffile")
    d = data.mount(mounts, expect_log=True)
    content = np.frombuffer(new_content(), "<u2").reshape(30, 41)

    def npy(array):
        np.save(tmp_path / "x.npy", array)
        return (tmp_path / "x.npy").read_bytes()

    def tiff(array, **options):
        tifffile.imwrite(tmp_path / "x.tif", array, **options)
        return (tmp_path / "x.tif").read_bytes()

    good = tiff(content, compression="zlib", rowsperstrip=10)
    ways = [("npy", npy(content.astype("<i2")), "elements are <i2, not <u2"),
            ("npy", npy(content.astype(">f4")), "elements are >f4, not <u2"),
            ("npy", npy(content.T), "the shape is (41, 30), not (30, 41)"),
            ("npy", npy(content[None]), "the shape is (1, 30, 41), not (30, 41)"),
            ("npy", npy(content[0]), "the shape is (41,), not (30, 41)"),
            ("npy", npy(content.astype(">u2"))[:-1], "elements are missing"),
            ("npy", npy(content.astype(">u2")) + b"x", "bytes follow"),
            ("npy", b"\x93NUMPY\1\0\xff\xff{}", "no NumPy header"), ("npy", b"\x93NUMPY\4\0\2\0{}", "no NumPy header")]
    if has_libtiff():
        ways += [("tiff", tiff(content.astype("<i2")), "signed numbers of 16 bits, not unsigned ones of 16"),
                 ("tiff", tiff(content.astype("<f4")), "floating-point numbers of 32 bits"),
                 ("tiff", tiff(content.T), "the image has 30 x 41 pixels, not 41 x 30"),
                 ("tiff", tiff(np.stack([content, content]), photometric="minisblack"), "several images"),
                 ("tiff", tiff(content, photometric="miniswhite"), "black is not 0"),
                 ("tiff", tiff(np.zeros((30, 41, 3), "u1"), photometric="rgb"), "3 samples"),
                 ("tiff", good[:len(good) // 2], ""), ("tiff", b"II*\0\x09\0\0\0", ""),
                 ("tiff", b"MM\0*" + b"\xff" * 50, "")]
    for folder, form, why in ways:
        name = {"npy": "000001.npy", "tiff": "000001.tif"}[folder]
        (d / folder / ".new").write_bytes(form)
        with refused(errno.EINVAL):
            os.rename(d / folder / ".new", d / folder / name)
        assert (d / folder / ".new").read_bytes() == form
        last = data.mounted.log().splitlines()[-1]
        assert "frame 1 is not changed" in last and why in last, (why, last)
        os.unlink(d / folder / ".new")
        still(data)
    data.check_file(mounts)


@pytest.mark.parametrize("way", ["cp {new} {path}", "cat {new} >{path}", "dd if={new} of={path} bs=70",
                                 "cp {new} {path}.x; /usr/bin/python3 -c 'import os; "
                                 "os.rename(\"{path}.x\", \"{path}\")'; rm {path}.x"])
@pytest.mark.parametrize("folder", ["npy", "tiff", "npz"])
def test_a_file_that_does_not_fit_is_told_in_one_line(mounts, sparse, tmp_path, folder, way):
    """What differs, and what to do."""
    tifffile = pytest.importorskip("tifffile")
    if folder == "tiff" and not has_libtiff():
        pytest.skip("built without libtiff")
    d = sparse.mount(mounts, expect_log=True)
    new = tmp_path / f"new.{folder}"
    other = np.ones((7, 9), ">u2")
    if folder == "npy":
        np.save(new, other)
    elif folder == "npz":
        np.savez(new, shape=(7, 9), data=other[0], format=b"coo", row=range(9), col=range(9))
    else:
        tifffile.imwrite(new, other)
    path = d / folder / f"000001.{folder[:3]}"
    done = shell(way.format(new=new, path=path))
    assert "nvalid argument" in done.stderr or way.startswith("cat"), done.stderr
    wait_until(lambda: (sparse.mounted / ".sparsefs/log").read_text())
    sparse.mounted.unmount()
    line, = sparse.mounted.log().splitlines()
    assert "7" in line or "the shape is not (30, 41)" in line
    assert "write one of the frame's shape and type, which dataset.json has" in line
    sparse.mount(mounts)
    sparse.check()


def test_damaged_files_of_others(mounts, sparse, tmp_path):
    """Whatever bytes are other, the frame is a whole one or as it was, and the mount goes on."""
    if not has_libtiff():
        pytest.skip("built without libtiff")
    tifffile = pytest.importorskip("tifffile")
    d = sparse.mount(mounts, expect_log=True)
    content = np.frombuffer(new_content(), "<u2").reshape(30, 41)
    random = np.random.default_rng(1)
    for n, options in enumerate([{"compression": "zlib", "rowsperstrip": 5}, {"tile": (16, 16)},
                                 {"bigtiff": True}] * 20):
        tifffile.imwrite(tmp_path / "x.tif", content, **options)
        form = bytearray((tmp_path / "x.tif").read_bytes())
        for at in random.integers(0, min(len(form), 400), 1 + n // 10):
            form[at] = random.integers(0, 256)
        (d / "tiff/.new").write_bytes(form)
        before = (d / "frames/1.raw").read_bytes()
        try:
            os.rename(d / "tiff/.new", d / "tiff/000001.tif")
        except OSError as error:
            assert error.errno in (errno.EINVAL, errno.ENOMEM)
            assert (d / "frames/1.raw").read_bytes() == before
    (d / "tiff/.new").write_bytes((tmp_path / "x.tif").read_bytes())
    os.rename(d / "tiff/.new", d / "tiff/000001.tif")
    sparse.write(FRAME_BYTES, new_content())
    sparse.check_file(mounts)


# ---- The same written in place ----


IN_PLACE = {
    "cp": "cp {new} {path}", "cat": "cat {new} > {path}", "dd": "dd if={new} of={path} bs=37 status=none",
    "dd, synced": "dd if={new} of={path} bs=1000 conv=fsync,notrunc status=none",
    "rsync": "rsync --inplace -I -W {new} {path}", "cp -a": "cp -a {new} {path}",
    "tee": "tee {path} < {new} > /dev/null",
}


@pytest.mark.parametrize("way", IN_PLACE)
@pytest.mark.parametrize("kind", ["npy", "tiff"])
def test_files_of_others_in_place(mounts, data, tmp_path, kind, way):
    if kind == "tiff" and not has_libtiff():
        pytest.skip("built without libtiff")
    if way == "rsync" and not shutil.which("rsync"):
        pytest.skip("rsync is not here")
    d = data.mount(mounts)
    data.check()
    path = view(d, 3, kind)[0]
    content = np.frombuffer(new_content(), "<u2").reshape(30, 41)
    forms = [form for form in foreign_numpy(content, tmp_path / "new")] if kind == "npy" else \
        [form for _, form in foreign_tiffs(content, tmp_path / "new")]
    new = tmp_path / "new"
    if "notrunc" in IN_PLACE[way]:  # the end of a longer file would stay
        forms = [form for form in forms if len(form) >= path.stat().st_size]
    assert forms
    for form in forms:
        new.write_bytes(form)
        os.truncate(d / "frames/3.raw", 0)
        do(IN_PLACE[way].format(new=new, path=path))
        assert (d / "frames/3.raw").read_bytes() == content.tobytes(), form[:200]
        assert path.read_bytes() == view(d, 3, kind)[1] + content.tobytes()
    data.write(3 * FRAME_BYTES, content.tobytes())
    data.check_file(mounts)


def test_programs_that_write_their_own_files(mounts, data, tmp_path):
    """Straight into the view; and new frames."""
    data = Data(tmp_path, False, maxshape=(9, 30, 41)) if not data.is_sparse and data.fill == 0 else data
    d = data.mount(mounts)
    content = np.frombuffer(new_content(), "<u2").reshape(30, 41)
    np.save(d / "npy/000001.npy", content.astype(">u2"))
    np.save(d / "npy/000002.npy", np.asfortranarray(content))
    frames = [1, 2]
    if (tifffile := pytest.importorskip("tifffile")) and has_libtiff():
        tifffile.imwrite(d / "tiff/000003.tif", content)
        tifffile.imwrite(d / "tiff/000004.tif", content, compression="zlib", bigtiff=True)
        frames += [3, 4]
        try:
            from PIL import Image
            Image.fromarray(content).save(str(d / "tiff/000000.tif"), compression="tiff_lzw")
            frames.append(0)
        except ImportError:
            pass
        try:
            import fabio.tifimage
            # In place it would add an image to the one that it finds: frames have their size.
            fabio.tifimage.TifImage(data=content[::-1].copy()).write(str(d / "tiff/.new.tif"))
            os.replace(d / "tiff/.new.tif", d / "tiff/000000.tif")
            assert (d / "frames/0.raw").read_bytes() == content[::-1].tobytes()
            Image.fromarray(content).save(str(d / "tiff/000000.tif"), compression="tiff_deflate")
        except ImportError:
            pass
    for frame in frames:
        data.write(frame * FRAME_BYTES, content.tobytes())
    data.check()
    if "dense0" in data.path.name and len(os.listdir(d / "npy")) == 5:
        np.save(d / "npy/000007.npy", content.astype(">u2"))
        assert len(os.listdir(d / "npy")) == 8 and (d / "frames/7.raw").read_bytes() == content.tobytes()
        data.mounted.unmount()
        return
    data.check_file(mounts)


def test_what_adds_to_the_file_that_it_finds(mounts, data):
    """fabio opens it truncated, finds an empty frame, and writes its image behind that."""
    if not has_libtiff():
        pytest.skip("sparsefs was built without libtiff")
    tifimage = pytest.importorskip("fabio.tifimage")
    d = data.mount(mounts)
    for frame in 3, 0:
        content = np.frombuffer(new_content(seed=frame), "<u2").reshape(30, 41)
        tifimage.TifImage(data=content).write(str(d / f"tiff/{frame:06}.tif"))
        data.write(frame * FRAME_BYTES, content.tobytes())
        data.check()
    data.check_file(mounts)


def test_new_frames_of_what_adds_to_a_file(mounts, tmp_path):
    if not has_libtiff():
        pytest.skip("sparsefs was built without libtiff")
    tifimage = pytest.importorskip("fabio.tifimage")
    d = Data(tmp_path, True, maxshape=(9, 30, 41)).mount(mounts)
    content = np.frombuffer(new_content(), "<u2").reshape(30, 41)
    tifimage.TifImage(data=content).write(str(d / "tiff/000006.tif"))
    assert (d / "frames/6.raw").read_bytes() == content.tobytes()
    assert not any((d / "frames/5.raw").read_bytes())


@pytest.mark.parametrize("change", [None, "pixel", "place", "shape"])
def test_what_was_added_to_another_image_is_refused(mounts, sparse, change):
    """Of two images one is not chosen; nor is one of another shape taken."""
    if not has_libtiff():
        pytest.skip("sparsefs was built without libtiff")
    d = sparse.mount(mounts, expect_log=True)
    path, before = d / "tiff/000003.tif", (d / "frames/3.raw").read_bytes()
    head = view(sparse.d, 3, "tiff")[1]
    at = 10 + 12 * int.from_bytes(head[8:10], "little")
    first, second = bytearray(head + bytes(FRAME_BYTES)), bytearray(head + new_content())
    first[at:at + 4] = len(first).to_bytes(4, "little")
    entries = second[8:at + 4]
    for i in range(2, len(entries) - 4, 12):
        tag = int.from_bytes(entries[i:i + 2], "little")
        if tag == 273:  # where the strip is
            entries[i + 8:i + 12] = (len(first) + len(entries)).to_bytes(4, "little")
        if tag == 257 and change == "shape":
            entries[i + 8:i + 12] = (29).to_bytes(4, "little")
    first[-1] = change == "pixel"
    gap = bytes(2 * (change == "place"))
    if gap:
        first[at:at + 4] = (len(first) + 2).to_bytes(4, "little")
    (d / "tiff/.new").write_bytes(bytes(first) + gap + entries + new_content())
    if not change:
        os.rename(d / "tiff/.new", path)
        assert (d / "frames/3.raw").read_bytes() == new_content()
        return
    with refused(errno.EINVAL):
        os.rename(d / "tiff/.new", path)
    assert (d / "frames/3.raw").read_bytes() == before


def test_what_is_written_in_place_and_does_not_fit(mounts, data, tmp_path):
    """Closing and syncing say so; frame and size are what they were."""
    d = data.mount(mounts, expect_log=True)
    data.check()
    path = d / "npy/000001.npy"
    size = path.stat().st_size
    np.save(tmp_path / "x.npy", np.frombuffer(new_content(), "<u2").astype("<i4"))
    bad = (tmp_path / "x.npy").read_bytes()
    fd = os.open(path, os.O_RDWR | os.O_TRUNC)
    assert os.write(fd, bad) == len(bad)
    assert os.fstat(fd).st_size == len(bad) and os.pread(fd, 1 << 20, 0) == bad
    with refused(errno.EINVAL):
        os.fsync(fd)
    os.lseek(fd, 0, os.SEEK_SET)
    assert os.read(fd, 1 << 20) == path.read_bytes() and os.fstat(fd).st_size == size
    data.check()
    os.pwrite(fd, bad, 0)
    with refused(errno.EINVAL):
        os.close(fd)
    data.check()
    wait_until(lambda: "frame 1 is not changed" in data.mounted.log())  # an equal line is not said again at once
    # What can be no such file is refused at once, as ever.
    with open(path, "wb", buffering=0) as file, refused(errno.EINVAL):
        file.write(b"hello")
    with open(path, "r+b", buffering=0) as file, refused(errno.EINVAL):
        os.pwrite(file.fileno(), b"x", 20)
    data.check()
    assert shell(f"cp {tmp_path}/x.npy {path}").returncode and shell(f"cat {tmp_path}/x.npy > {path}").returncode
    data.check_file(mounts)


def test_no_room_for_what_is_written_in_place(mounts, sparse, tmp_path):
    d = sparse.mount(mounts, "staging_size=64K", expect_log=True)
    np.save(tmp_path / "x.npy", np.zeros(100_000, "u1"))
    assert "No space" in shell(f"cp {tmp_path}/x.npy {d}/npy/000001.npy").stderr
    line, = sparse.mounted.log().splitlines()  # and nothing about the size of the frame
    assert f"{sparse.path}: /" in line and "it would need more than staging_size=65536" in line
    (d / "frames/.x").write_bytes(bytes(40_000))
    np.save(tmp_path / "x.npy", np.zeros(50_000, "u1"))
    assert "No space" in shell(f"cp {tmp_path}/x.npy {d}/npy/000001.npy").stderr
    os.unlink(d / "frames/.x")
    content = np.frombuffer(new_content(), "<u2").reshape(30, 41)
    for _ in range(50):
        np.save(d / "npy/000001.npy", content.astype(">u2"))
    sparse.write(FRAME_BYTES, new_content())
    sparse.check_file(mounts)
