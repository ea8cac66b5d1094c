"""A mount that is exported, by smbd and nfs-ganesha: read, written and refused through them, against
h5py. They are used where they are installed; what NFS's servers do below is test_export.py."""
import contextlib
import errno
import io
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tarfile

import h5py
import numpy as np
import pytest

from conftest import BUILD, Mount, let_in
from servers import Ganesha, Samba, do, wanted, wanted_ganesha
from test_export import forget, opens_handles

IMAGES = np.arange(20 * 30 * 40, dtype="<u2").reshape(20, 30, 40)
OWNER, GROUP = 1234, 2345
SIZE = 30 * 40 * 2
FRAMES = "entry/data/images/frames"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "export.h5"
    with h5py.File(path, "w") as f:
        group = f.create_group("entry/data")
        group.create_dataset("images", data=IMAGES, maxshape=(None, 30, 40), chunks=(1, 30, 40), compression="gzip")
        group["name"] = "a sample"
        group["same"] = group["images"]
        group["soft"] = h5py.SoftLink("/entry/data/images")
        f.create_group("empty")
    subprocess.run([BUILD / "sparsectl", "create", path, "/entry/spots", "--dims", "3,16,16",
                    "--maxdims", "inf,16,16", "--dtype", "uint16"], check=True)
    return path


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """serve(Samba, mount, ...) starts a server of a mount; all are stopped at the end, before what they
    serve is unmounted."""
    running = []
    monkeypatch.setenv("HOME", str(tmp_path))  # nobody's own configuration of clients

    def start(kind, mount, *arguments):
        server = kind(tmp_path / f"server{len(running)}", mount.root, *arguments)
        running.append(server)
        return server.start()

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def samba(mounts, path, serve):
    """samba(option...) gives a mount and a server of it."""
    wanted("smbd", "smbclient", libraries=["smbclient"])

    def start(*options, guest="root", expect_log=False):
        mount = mounts(path, "allow_other", *options, expect_log=expect_log)
        return mount, serve(Samba, mount, guest)

    return start


@pytest.fixture
def ganesha(mounts, path, serve):
    wanted_ganesha()

    def start(*options, expect_log=False):
        mount = mounts(path, "allow_other", *options, expect_log=expect_log)
        return mount, serve(Ganesha, mount)

    return start


def random_frame():
    return np.frombuffer(os.urandom(SIZE), "<u2").reshape(30, 40)


def all_names(root):
    """Of files and directories, links followed; without those that tell of the daemon."""
    names = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        inside = pathlib.Path(folder).relative_to(root)
        folders[:] = [name for name in folders if name != ".sparsefs"]
        names |= {inside / name for name in folders + files}
    assert len(names) > 100
    return names


def check_file(mount, path, expected):
    """What is in the HDF5 file once it is synced."""
    subprocess.run(["sync", mount.root], check=True)
    image = path.with_name("image.h5")
    shutil.copy(mount / ".sparsefs/image.h5", image)
    with h5py.File(image) as f:
        assert f["entry/data/images"].shape == expected.shape
        assert (f["entry/data/images"][...] == expected).all()


@contextlib.contextmanager
def refused(*numbers):
    """What is done in it ends with one of these errors."""
    with pytest.raises(OSError) as error:
        yield
    assert error.value.errno in numbers, error.value


# Samba


@pytest.mark.parametrize("options", ["rw", "ro", "ro,follow"])
def test_samba_shows_everything(samba, tmp_path, options):
    mount, server = samba(options)
    server.client(f"tar c {tmp_path}/all.tar")
    with tarfile.open(tmp_path / "all.tar") as tar:
        tar.extractall(tmp_path / "all")
    assert all_names(tmp_path / "all") == all_names(mount.root)
    for name in all_names(mount.root):
        if (mount / name).is_file():
            assert (tmp_path / "all" / name).read_bytes() == (mount / name).read_bytes(), name


def test_samba_writes_as_clients_copy(samba, path, tmp_path):
    """Over what is there, behind the last frame, in another form, and under another name first."""
    mount, server = samba("rw")
    frames = [random_frame() for _ in range(4)]
    expected = np.append(IMAGES, [frames[1]], axis=0)
    expected[3], expected[5], expected[7] = frames[0], frames[2], frames[3]
    expected[9] = 0
    expected[9].reshape(-1)[:50] = frames[0].reshape(-1)[:50]
    frames[0].tofile(tmp_path / "0.raw")
    frames[1].tofile(tmp_path / "1.raw")
    frames[0].reshape(-1)[:50].tofile(tmp_path / "short.raw")
    np.save(tmp_path / "2.npy", frames[2])
    frames[3].tofile(tmp_path / "3.raw")
    server.client(f"lcd {tmp_path}", r"cd entry\data\images\frames",
                  "put 0.raw 3.raw", "put 1.raw 20.raw", "put short.raw 9.raw",
                  "put 3.raw 7.raw.part", "rename 7.raw.part 7.raw -f",
                  r"cd ..\npy", "put 2.npy copy.tmp", "rename copy.tmp 000005.npy -f")
    assert server.refuses(f"ls {FRAMES}/*.part")
    check_file(mount, path, expected)
    server.client(f"get entry/data/images/npy/000003.npy {tmp_path}/back.npy")
    assert (np.load(tmp_path / "back.npy") == frames[0]).all()


def test_samba_writes_sparse_frames(samba, tmp_path):
    mount, server = samba("rw")
    frame = os.urandom(512)
    (tmp_path / "frame").write_bytes(frame)
    server.client(rf"put {tmp_path}/frame entry\spots\frames\1.raw",
                  rf"put {tmp_path}/frame entry\spots\frames\5.raw")
    with server.files().open("entry/spots/frames/5.raw") as file:
        file.truncate(100)
    assert (mount / "entry/spots/frames/1.raw").read_bytes() == frame
    assert (mount / "entry/spots/frames/5.raw").read_bytes() == frame[:100] + bytes(412)
    assert (mount / "entry/spots/values/5.values").read_bytes() == frame[:100]
    assert len(list((mount / "entry/spots/raw").iterdir())) == 6


@opens_handles
def test_samba_writes_in_place(samba, path):
    mount, server = samba("rw")
    expected = IMAGES.copy()
    expected[4].reshape(-1)[10:20] = 7
    expected[4].reshape(-1)[600:] = 0
    with server.files().open(f"{FRAMES}/4.raw") as file:
        file.pwrite(20, np.full(10, 7, "<u2").tobytes())
        forget(mount)
        assert file.pread(0, SIZE)[20:40] == np.full(10, 7, "<u2").tobytes()
        file.truncate(1200)
        assert file.pread(0, SIZE) == expected[4].tobytes()
    check_file(mount, path, expected)


def test_samba_is_refused(samba, path, tmp_path):
    """The client has an error, and nothing has changed."""
    mount, server = samba("rw", expect_log=True)
    before = {name: (mount / name).read_bytes() for name in all_names(mount.root) if (mount / name).is_file()}
    (tmp_path / "long").write_bytes(os.urandom(SIZE + 2))
    np.save(tmp_path / "shape.npy", np.zeros((31, 40), "<u2"))
    for command in (f"put {tmp_path}/long notes.txt",
                    f"put {tmp_path}/long entry/data/images/dataset.json",
                    f"put {tmp_path}/shape.npy entry/data/images/npy/000003.npy",
                    "rm entry/data/images/stack.raw", "rm notes.txt", f"rename {FRAMES}/3.raw {FRAMES}/4.raw -f",
                    "rmdir entry/data", "mkdir entry/data/images/more"):
        assert server.refuses(command), command
    with server.files().open(f"{FRAMES}/3.raw") as file:
        for what in (lambda: file.truncate(SIZE + 2), lambda: file.pwrite(SIZE, b"four")):
            with refused(errno.EFBIG, errno.ENOSPC, errno.EINVAL, errno.EACCES, errno.EPERM):
                what()
    assert {name: (mount / name).read_bytes() for name in before} == before
    assert all_names(mount.root) >= set(before)
    check_file(mount, path, IMAGES)


def test_samba_of_a_read_only_mount(samba, path, tmp_path):
    mount, server = samba("ro")
    (tmp_path / "frame").write_bytes(os.urandom(SIZE))
    before = path.read_bytes()
    assert server.refuses(f"put {tmp_path}/frame {FRAMES}/3.raw")
    assert server.refuses("mkdir more")
    assert path.read_bytes() == before


def test_samba_shows_owner_and_group(samba, path):
    """Those of the HDF5 file."""
    os.chown(path, OWNER, GROUP)
    path.chmod(0o640)
    mount, server = samba("rw")
    for name in (f"{FRAMES}/3.raw", "entry/data"):
        shown = server.client("showacls", f"ls {name}")
        assert f"Owner SID:\tS-1-22-1-{OWNER}\n" in shown, shown
        assert f"Group SID:\tS-1-22-2-{GROUP}\n" in shown, shown


def test_samba_lets_nobody_do_more_than_the_modes(samba, path, tmp_path):
    (tmp_path / "frame").write_bytes(IMAGES[5].tobytes())
    let_in(tmp_path)
    path.chmod(0o644)
    mount, server = samba("rw", guest="nobody")
    server.client(f"get {FRAMES}/3.raw {tmp_path}/back")
    assert (tmp_path / "back").read_bytes() == IMAGES[3].tobytes()
    assert server.refuses(f"put {tmp_path}/frame {FRAMES}/3.raw")
    assert (mount / FRAMES / "3.raw").read_bytes() == IMAGES[3].tobytes()


# NFS


@pytest.mark.parametrize("options", ["rw", "ro", "ro,follow"])
def test_ganesha_shows_everything(ganesha, tmp_path, options):
    mount, server = ganesha(options)

    def check(folder):
        assert client.list(folder) == sorted(os.listdir(mount / folder))
        for name in client.list(folder):
            name = f"{folder}/{name}" if folder else name
            if (mount / name).is_symlink() or name == ".sparsefs":
                continue
            assert client.stat(name).ino == os.stat(mount / name).st_ino
            if (mount / name).is_dir():
                check(name)
            else:
                assert client.read(name) == (mount / name).read_bytes(), name

    with server.client() as client:
        check("")
        assert client.read("entry/data/soft/frames/3.raw") == IMAGES[3].tobytes()
    assert "000019.tif" in do("nfs-ls", server.url("entry/data/images/tiff"))
    do("nfs-cp", server.url("entry/data/images/stack.npy"), tmp_path / "stack.npy")
    assert (np.load(tmp_path / "stack.npy") == IMAGES).all()


@opens_handles
@pytest.mark.parametrize("options", ["rw", "ro,follow"])
def test_ganesha_finds_what_was_forgotten(ganesha, options):
    """Clients have handles only, of which server and kernel know nothing any more."""
    mount, server = ganesha(options)
    folders = ["", "entry", "entry/data", "entry/data/images", FRAMES, "entry/data/same/tiff", "entry/spots/raw"]
    handles = {}
    for folder in folders:
        with server.client(folder) as client:
            handles[folder] = client.handle()
            forget(mount)
            assert client.list("") == sorted(os.listdir(mount / folder))
            forget(mount)
            assert folder != FRAMES or client.read("7.raw") == IMAGES[7].tobytes()
    assert len(set(handles.values())) == len(folders)
    server.stop()
    forget(mount)
    server.start()
    for folder in reversed(folders):
        with server.client("entry/data") as client:
            client.take_handle(handles[folder])
            forget(mount)
            assert client.list("") == sorted(os.listdir(mount / folder))
            assert client.stat("").ino == os.stat(mount / folder).st_ino
            assert folder != FRAMES or client.read("7.raw") == IMAGES[7].tobytes()


@opens_handles
def test_ganesha_says_what_is_gone(ganesha, mounts, path):
    """A group that was removed, and all of the mount before: stale, never another one."""
    mount, server = ganesha("rw")
    with server.client("empty") as client:
        gone = client.handle()
    with server.client(FRAMES) as client:
        frames = client.handle()
    (mount / "empty").rmdir()
    (mount / "another").mkdir()
    server.stop()  # it remembers attributes for a minute
    forget(mount)
    server.start()
    with server.client("entry") as client:
        client.take_handle(gone)
        with refused(errno.ESTALE):
            client.stat("")
        client.take_handle(frames)
        assert client.read("3.raw") == IMAGES[3].tobytes()
    server.stop()
    mount.unmount()
    again = mounts(path, "rw", "allow_other")
    subprocess.run(["mount", "--bind", again.root, mount.root], check=True)
    try:
        server.start()
        with server.client(FRAMES) as client:
            assert client.read("3.raw") == IMAGES[3].tobytes()
            client.take_handle(frames)
            with refused(errno.ESTALE):
                client.stat("")
    finally:
        server.stop()
        subprocess.run(["umount", mount.root], check=True)


def test_ganesha_with_made_up_handles(ganesha):
    """It and the mount go on, and none leads to anything that is not there."""
    mount, server = ganesha("rw")
    numbers = {os.stat(mount / name).st_ino for name in all_names(mount.root)} | {os.stat(mount.root).st_ino}
    chance = random.Random(3)
    found = 0
    with server.client("entry/data") as client:
        handle = client.handle()
        for _ in range(2000):
            made_up = bytearray(handle)
            for _ in range(chance.choice((1, 1, 2, 4))):
                made_up[-chance.randrange(1, 17)] ^= 1 << chance.randrange(8)
            client.take_handle(bytes(made_up))
            try:
                found += client.stat("").ino in numbers
            except OSError as error:
                assert error.errno in (errno.ESTALE, errno.EINVAL, errno.EIO, errno.ERANGE), error
            else:
                assert client.stat("").ino in numbers
        client.take_handle(handle)
        assert "images" in client.list("")
    assert found


@opens_handles
def test_ganesha_writes(ganesha, path):
    mount, server = ganesha("rw")
    frames = [random_frame() for _ in range(4)]
    expected = np.append(IMAGES, [frames[1]], axis=0)
    expected[3], expected[5], expected[7] = frames[0], frames[2], frames[3]
    expected[4].reshape(-1)[10:20] = 7
    expected[4].reshape(-1)[600:] = 0
    with server.client() as client:
        client.write(f"{FRAMES}/3.raw", frames[0].tobytes(), os.O_WRONLY | os.O_TRUNC)
        client.write(f"{FRAMES}/20.raw", frames[1].tobytes(), os.O_WRONLY | os.O_CREAT)
        with client.open(f"{FRAMES}/4.raw", os.O_RDWR) as file:
            file.pwrite(20, np.full(10, 7, "<u2").tobytes())
            forget(mount)
            assert file.pread(20, 20) == np.full(10, 7, "<u2").tobytes()
            file.truncate(1200)
            assert file.pread(0, SIZE) == expected[4].tobytes()
        client.write(f"{FRAMES}/7.raw.part", frames[3].tobytes(), os.O_WRONLY | os.O_CREAT)
        client.rename(f"{FRAMES}/7.raw.part", f"{FRAMES}/7.raw")
        npy = io.BytesIO()
        np.save(npy, frames[2])
        client.write("entry/data/images/npy/copy.tmp", npy.getvalue(), os.O_WRONLY | os.O_CREAT)
        client.rename("entry/data/images/npy/copy.tmp", "entry/data/images/npy/000005.npy")
        assert client.list(FRAMES) == sorted(os.listdir(mount / FRAMES))
    check_file(mount, path, expected)


def test_ganesha_makes_frames_that_must_be_new(ganesha, path):
    mount, server = ganesha("rw")
    frame = random_frame()
    with server.client() as client:
        client.write(f"{FRAMES}/20.raw", frame.tobytes(), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        for i in (3, 20):
            with refused(errno.EEXIST):
                client.write(f"{FRAMES}/{i}.raw", bytes(SIZE), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    check_file(mount, path, np.append(IMAGES, [frame], axis=0))


def test_ganesha_fills_no_new_frames_of_a_strict_mount(ganesha, path):
    """It sets modes and times of what it has made; that is refused, it says so, and leaves an empty frame."""
    mount, server = ganesha("rw", "strict", expect_log=True)
    with server.client() as client:
        with refused(errno.EPERM):
            client.write(f"{FRAMES}/20.raw", random_frame().tobytes(), os.O_WRONLY | os.O_CREAT)
        client.write(f"{FRAMES}/3.raw", IMAGES[5].tobytes())
    server.stop()
    expected = np.append(IMAGES, np.zeros((1, 30, 40), "<u2"), axis=0)
    expected[3] = IMAGES[5]
    check_file(mount, path, expected)


def test_ganesha_commits(ganesha, path):
    """COMMIT, and a write that is to be stable, are fsync: the HDF5 file has it when they return."""
    mount, server = ganesha("rw", "commit_interval=3600")
    frame = random_frame()
    with server.client() as client:
        for i, flags in enumerate((os.O_WRONLY, os.O_WRONLY | os.O_SYNC)):
            with client.open(f"{FRAMES}/{i}.raw", flags) as file:
                file.pwrite(0, frame.tobytes())
                if not flags & os.O_SYNC:
                    file.fsync()
                image = path.with_name(f"image{i}.h5")
                shutil.copy(mount / ".sparsefs/image.h5", image)
                with h5py.File(image) as f:
                    assert (f["entry/data/images"][i] == frame).all()


def test_ganesha_is_refused(ganesha, path):
    mount, server = ganesha("rw", expect_log=True)
    before = {name: (mount / name).read_bytes() for name in all_names(mount.root) if (mount / name).is_file()}
    with server.client() as client:
        with refused(errno.EFBIG), client.open(f"{FRAMES}/3.raw", os.O_WRONLY) as file:
            file.pwrite(SIZE, b"four")
            file.fsync()
        with refused(errno.EFBIG), client.open(f"{FRAMES}/3.raw", os.O_WRONLY) as file:
            file.truncate(SIZE + 2)
        for name in ("notes.txt", "entry/data/images/notes.txt"):
            with refused(errno.EPERM, errno.EACCES):
                client.write(name, b"text", os.O_WRONLY | os.O_CREAT)
        with refused(errno.EPERM, errno.EACCES):
            client.write("entry/data/images/dataset.json", b"{}")
        with refused(errno.EINVAL, errno.EIO):
            client.write("entry/data/images/npy/000003.npy", b"no header of NumPy" * 20)
        with refused(errno.EPERM, errno.EACCES):
            client.do("unlink", "entry/data/images/stack.raw")
        with refused(errno.EPERM, errno.EACCES):
            client.rename(f"{FRAMES}/3.raw", f"{FRAMES}/4.raw")
        with refused(errno.EPERM, errno.EACCES):
            client.do("mkdir", "entry/data/images/more")
        with refused(errno.ENOTEMPTY):
            client.do("rmdir", "entry/data")
    assert {name: (mount / name).read_bytes() for name in before} == before
    check_file(mount, path, IMAGES)


def test_ganesha_shows_owner_and_group(ganesha, path):
    """And modes hold for who asks, not for the server."""
    os.chown(path, OWNER, GROUP)
    path.chmod(0o640)
    mount, server = ganesha("rw")
    name = f"{FRAMES}/3.raw"
    with server.client() as client:
        for found in (client.stat(name), client.stat("entry"), client.stat("")):
            assert (found.uid, found.gid) == (OWNER, GROUP)
        assert client.stat(name).mode & 0o7777 == 0o640
    with server.client("entry/data", OWNER) as client:
        client.write("images/frames/3.raw", IMAGES[5].tobytes())
    assert (mount / name).read_bytes() == IMAGES[5].tobytes()
    with refused(errno.EACCES), server.client("entry/data", 4321) as client:
        client.read("images/frames/3.raw")


def test_ganesha_without_room(ganesha, path):
    """What is renamed to frames has no room: the client is told, and can go on."""
    mount, server = ganesha("rw", "staging_size=64K", expect_log=True)
    frame = random_frame()
    with server.client() as client:
        with refused(errno.ENOSPC, errno.EFBIG, errno.EIO):
            client.write(f"{FRAMES}/large.part", bytes(1 << 18), os.O_WRONLY | os.O_CREAT)
        client.do("unlink", f"{FRAMES}/large.part")
        client.write(f"{FRAMES}/small.part", frame.tobytes(), os.O_WRONLY | os.O_CREAT)
        client.rename(f"{FRAMES}/small.part", f"{FRAMES}/0.raw")
    expected = IMAGES.copy()
    expected[0] = frame
    check_file(mount, path, expected)


def test_ganesha_when_the_daemon_is_killed(serve, path, tmp_path):
    """Clients are told, and what was committed is there."""
    wanted_ganesha()
    mount = Mount(path, tmp_path / "mnt", "rw,allow_other")
    frame = random_frame()
    try:
        server = serve(Ganesha, mount)
        with server.client() as client:
            with refused(errno.EIO), client.open(f"{FRAMES}/3.raw", os.O_RDWR) as file:
                file.pwrite(0, frame.tobytes())
                file.fsync()
                mount.process.kill()
                assert mount.wait() == -signal.SIGKILL
                file.pwrite(0, b"lost")
                file.fsync()
        server.stop()
    finally:
        mount.process.kill()
        mount.umount("-l")
    expected = IMAGES.copy()
    expected[3] = frame
    subprocess.run([BUILD / "sparsectl", "recover", path], check=True, capture_output=True)
    with h5py.File(path) as f:
        assert (f["entry/data/images"][...] == expected).all()
