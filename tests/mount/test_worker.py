"""libhdf5 in a process of its own: what it may do, and that a mount outlives it."""
import concurrent.futures
import contextlib
import errno
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import threading
import time

import h5py
import numpy as np
import pytest

from conftest import BUILD, START_SECONDS, state_of, wait_until
from test_folder import list_all

DATA = np.arange(40 * 64 * 64, dtype="u2").reshape(40, 64, 64)
N_OTHERS = 20


@pytest.fixture
def path(tmp_path):
    """Datasets among which some have attributes that failing_hdf5.c looks for."""
    path = tmp_path / "some.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("data", data=DATA, chunks=(1, 32, 64), compression="gzip")
        for i in range(N_OTHERS):
            other = file.create_dataset(f"other{i}", data=DATA[i])
            other.attrs["number"] = i
        for name in "crash", "hang", "allocate":
            file.create_dataset(name, data=DATA[0]).attrs[name] = 1
    return path


def file_for_libhdf5(path):
    """A new file that our own reader leaves to libhdf5: its superblock has an extension."""
    creation, access = (h5py.h5p.create(kind) for kind in (h5py.h5p.FILE_CREATE, h5py.h5p.FILE_ACCESS))
    creation.set_file_space_strategy(h5py.h5f.FSPACE_STRATEGY_NONE, False, 1)
    access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    return h5py.File(h5py.h5f.create(bytes(path), h5py.h5f.ACC_TRUNC, creation, access))


def children(pid):
    """None, if it has ended: what a user's mount is begun with is a child of the daemon for a moment."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def workers(mount):
    """The processes that libhdf5 runs in: those that the daemon's child has forked."""
    return [worker for zygote in children(mount.process.pid) for worker in children(zygote)]


def names_of(processes):
    return [pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in processes]


def status(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def check_others(mount):
    for i in range(N_OTHERS):
        assert os.getxattr(mount / f"other{i}", "user.number") == str(i).encode()
        assert (mount / f"other{i}/stack.raw").read_bytes() == DATA[i].tobytes()
    assert (mount / "data/stack.raw").read_bytes() == DATA.tobytes()


FAILING = {"LD_PRELOAD": str(BUILD / "tests/mount/libfailing_hdf5.so"),
           "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


def failing(mounts, path, *options):
    return mounts(path, *options, environment=FAILING, expect_log=True)


def is_sanitized():
    program = (BUILD / "sparsefs").read_bytes()
    return b"__asan_init" in program or b"__tsan_init" in program


MODES = ["ro", "follow=0.1", "rw"]


@pytest.fixture(params=MODES)
def mode(request):
    """What the process is there for; everything it must do is the same."""
    return request.param


def can_make_namespaces():
    """The daemon as who runs the tests: root, or where users may have some of their own."""
    names = ["--net", "--mount", "--ipc"] if os.geteuid() == 0 else ["--user", "--net", "--mount", "--ipc"]
    return subprocess.run(["unshare", *names, "true"], capture_output=True, check=False).returncode == 0


def check_confined(worker, memory):
    """What the kernel says of a process besides; `memory`: bytes of address space, None: some."""
    is_limited = {line[:26].strip(): line[26:].split()[:2]
                  for line in pathlib.Path(f"/proc/{worker}/limits").read_text().splitlines()}
    for name in "Max core file size", "Max open files", "Max file size", "Max processes":
        assert is_limited[name] == ["0", "0"], name
    if not is_sanitized():
        found = is_limited["Max address space"]
        assert found == [str(memory)] * 2 if memory else found[0].isdigit() and found[0] == found[1]
    if os.geteuid() != 0:
        with pytest.raises(PermissionError):  # not dumpable: who runs it may not look at it, either
            os.readlink(f"/proc/{worker}/exe")
        return
    assert os.stat(f"/proc/{worker}/mem").st_uid == 0  # not dumpable: else it were that of nobody
    if can_make_namespaces():
        for kind in "net", "mnt", "ipc":
            assert os.readlink(f"/proc/{worker}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
        assert os.listdir(f"/proc/{worker}/root") == []
        assert len(pathlib.Path(f"/proc/{worker}/net/dev").read_text().splitlines()) == 3  # the loopback


SECRET = "the-passphrase-of-somebody"


def knows(worker, text):
    """Whether it stands anywhere in memory that a process may write."""
    with open(f"/proc/{worker}/mem", "rb", buffering=0) as memory:
        for line in pathlib.Path(f"/proc/{worker}/maps").read_text().splitlines():
            start, end = (int(number, 16) for number in line.split()[0].split("-"))
            if not line.split()[1].startswith("rw"):
                continue
            with contextlib.suppress(OSError):
                if text.encode() in os.pread(memory.fileno(), end - start, start):
                    return True
    return False


def check_forgotten(mount, found):
    """The variables of the daemon, which root may look for."""
    if os.geteuid() != 0:
        return
    assert SECRET in pathlib.Path(f"/proc/{mount.process.pid}/environ").read_text()
    assert knows(mount.process.pid, SECRET)
    for worker in found:
        assert not pathlib.Path(f"/proc/{worker}/environ").read_bytes().strip(b"\0")
        assert not knows(worker, SECRET)


def score(pid):
    """How soon the kernel ends it for want of memory."""
    return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_the_kernel_ends_it_before_others_for_want_of_memory(mounts, path, mode):
    """But not the process that makes another one, without which the file could not be written any more."""
    mount = mounts(path, mode)
    check_others(mount)
    worker, = workers(mount)
    own = score(mount.process.pid)
    assert score(worker) == min(own + 500, 1000)
    assert {score(zygote) for zygote in children(mount.process.pid)} == {own}


def test_it_may_do_nothing(mounts, path, mode):
    mount = mounts(path, mode, "hdf5_memory=700M", environment={"SPARSEFS_SECRET": SECRET})
    check_others(mount)
    found = workers(mount)
    assert len(found) == 1
    check_forgotten(mount, found)
    for worker in found:
        check_confined(worker, 700 << 20)
        is_now = status(worker)
        assert is_now["NoNewPrivs"] == "1"
        assert int(is_now["CapEff"], 16) == int(is_now["CapPrm"], 16) == 0
        assert is_now["Seccomp"] == ("2" if has_filter() else "0")
        if os.geteuid() == 0:
            assert set(is_now["Uid"].split()) == {"65534"}
            targets = {os.readlink(f"/proc/{worker}/fd/{fd}").split(":")[0]
                       for fd in os.listdir(f"/proc/{worker}/fd")}
            assert targets <= {"/dev/null", "socket"}


def has_filter():
    return "#define HAVE_SECCOMP 1" in (BUILD / "config.h").read_text()


@pytest.mark.skipif(not has_filter(), reason="built without libseccomp")
def test_code_in_it_finds_every_door_shut(mounts, tmp_path, mode):
    """Files, sockets, programs, signals, the memory of the daemon's process that has forked it."""
    with h5py.File(tmp_path / "doors.h5", "w") as file:
        file.create_dataset("d", data=1).attrs["doors"] = np.zeros(64, "u1")
    mount = failing(mounts, tmp_path / "doors.h5", mode)
    tried, *found = json.loads(os.getxattr(mount / "d", "user.doors"))
    assert tried > 40
    assert not any(found[:tried]), [number for number, is_open in enumerate(found) if is_open]


def test_limits_that_nobody_has_set(mounts, path):
    """1 GiB of memory, and 10 s."""
    mount = mounts(path, "ro", expect_log=True)
    check_others(mount)
    worker, = workers(mount)
    check_confined(worker, 1 << 30)
    os.kill(worker, signal.SIGSTOP)
    with pytest.raises(OSError, match="Input/output error"):
        os.getxattr(mount / "data", "user.number")
    assert "did not answer for 10.0 s" in mount.log()


def test_places_of_chunks_are_asked_for_together(mounts, tmp_path):
    """The process is woken for far fewer questions than there are frames."""
    with h5py.File(tmp_path / "frames.h5", "w", libver="latest") as file:
        data = np.arange(2000 * 64, dtype="u4").reshape(2000, 8, 8)
        file.create_dataset("d", data=data, chunks=(1, 8, 8), compression="gzip")
    mount = mounts(tmp_path / "frames.h5", "ro")
    (mount / "d/dataset.json").read_bytes()
    worker, = workers(mount)
    woken = int(status(worker)["voluntary_ctxt_switches"])
    for n in range(2000):
        assert (mount / f"d/frames/{n}.raw").read_bytes() == data[n].tobytes()
    assert workers(mount) == [worker]
    assert 0 < int(status(worker)["voluntary_ctxt_switches"]) - woken < 1000


def begun(pid, thread):
    """When a thread has begun; numbers go up where clock ticks are the same."""
    stat = pathlib.Path(f"/proc/{pid}/task/{thread}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19]), int(thread)


def test_they_are_forked_before_there_are_threads(mounts, path, mode):
    if b"__tsan_init" in (BUILD / "sparsefs").read_bytes():
        pytest.skip("ThreadSanitizer has a thread of its own in each process")
    mount = mounts(path, mode)
    check_others(mount)
    daemon = mount.process.pid
    threads = [thread for thread in os.listdir(f"/proc/{daemon}/task") if int(thread) != daemon]
    zygotes = [child for child in children(daemon) if status(child)["Name"].startswith("sparsefs-")]
    assert len(threads) >= 2 and {status(zygote)["Name"] for zygote in zygotes} >= {"sparsefs-hdf5z", "sparsefs-plugz"}
    for zygote in zygotes:
        assert os.listdir(f"/proc/{zygote}/task") == [str(zygote)]
        assert begun(zygote, zygote) < min(begun(daemon, thread) for thread in threads)


# Runs commands, gets all processes that they leave behind, as process 1 of a container, and says their names.
HEIR = """
import ctypes, json, os, pathlib, subprocess, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
for command in json.loads(sys.argv[1]):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
left = []
while True:
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid
    except ChildProcessError:
        break
    left.append(pathlib.Path(f"/proc/{ended}/comm").read_text().strip())
    os.waitpid(ended, 0)
print(json.dumps(left))
"""


def test_who_ends_has_waited_for_its_processes(path, mode, tmp_path):
    """Else they stay for good where nobody waits for what is left, as in most containers."""
    mount, copy = tmp_path / "mnt", tmp_path / "copy.h5"
    mount.mkdir()
    commands = [[BUILD / "sparsectl", "info", path], [BUILD / "sparsectl", "import", f"{path}:/data", copy],
                [BUILD / "sparsefs", "-o", mode, path, mount],
                ["cat", mount / "data/stack.raw", mount / "other3/stack.raw"],
                ["umount", "-i", mount]]
    ended = subprocess.run(["/usr/bin/python3", "-c", HEIR, json.dumps(commands, default=str)], check=True, timeout=60,
                           capture_output=True, text=True)
    assert json.loads(ended.stdout) == ["sparsefs"]  # which goes into the background


@pytest.mark.parametrize("folder", ["${ORIGIN}", "elsewhere"])
def test_variables_of_libhdf5_that_name_folders(mounts, tmp_path, path, folder):
    """They are for who looks for the files: the process has no folder to look in."""
    names = ["HDF5_EXTFILE_PREFIX", "HDF5_VDS_PREFIX", "HDF5_EXT_PREFIX"]
    environment = dict.fromkeys(names, folder)
    sparse = tmp_path / "sparse.h5"
    with h5py.File(path, "a") as file:
        file["data"].attrs["units"] = "counts"
    subprocess.run([BUILD / "sparsectl", "import", f"{path}:/data", sparse], check=True)
    check_others(mounts(path, environment=environment))
    mount = mounts(sparse, environment=environment)
    assert os.getxattr(mount / "data", "user.units") == b"counts"
    for file in path, sparse:
        subprocess.run([BUILD / "sparsectl", "check", file.name], check=True, capture_output=True,
                       cwd=tmp_path, env=os.environ | environment)


@pytest.mark.parametrize("options", ["default", "default,hdf5=worker"])
def test_it_is_there_by_default(mounts, path, options):
    mount = mounts(path, *options.split(","))
    list_all(mount)
    assert not workers(mount)  # the file is plain
    os.mkdir(mount / "group")
    assert names_of(workers(mount)) == ["sparsefs-hdf5"]
    check_others(mount)


def failing_forks(forks="", asks=""):
    """A letter for each of the first ones, see failing_fork.c."""
    return {"LD_PRELOAD": str(BUILD / "tests/mount/libfailing_fork.so"), "SPARSEFS_FORKS": forks,
            "SPARSEFS_ASKS": asks, "ASAN_OPTIONS": FAILING["ASAN_OPTIONS"]}


WHY_NOT_STARTED = {"forks": "Resource temporarily unavailable", "asks": "Too many references"}


@pytest.mark.parametrize("what", WHY_NOT_STARTED)
def test_one_that_cannot_be_started_is_started_later(mounts, path, what):
    """Whoever reads has an error; nothing is lost, as nothing was begun. The same of whoever changes something."""
    mount = mounts(path, "default", environment=failing_forks(**{what: "ff"}), expect_log=True)
    list_all(mount)
    for call in lambda: os.getxattr(mount / "other0", "user.number"), lambda: os.mkdir(mount / "group"):
        with pytest.raises(OSError) as error:
            call()
        assert error.value.errno == errno.EIO and WHY_NOT_STARTED[what] in mount.log()
    check_others(mount)
    os.mkdir(mount / "group")
    mount.unmount()
    assert "group" in is_sound(path)


@pytest.mark.parametrize("what", WHY_NOT_STARTED)
def test_one_that_cannot_be_started_again_is_started_later(mounts, path, what):
    """What is to be changed then is an error, and nothing else is lost."""
    mount = mounts(path, "default", environment=failing_forks(**{what: ".ff"}), expect_log=True)
    os.mkdir(mount / "before")
    [worker] = workers(mount)
    os.kill(worker, signal.SIGKILL)
    wait_for_end(worker)
    for call in lambda: os.mkdir(mount / "group"), lambda: os.getxattr(mount / "other0", "user.number"):
        with pytest.raises(OSError) as error:
            call()
        assert error.value.errno == errno.EIO and WHY_NOT_STARTED[what] in mount.log()
    os.mkdir(mount / "group")
    check_others(mount)
    assert json.loads((mount / ".sparsefs/stats.json").read_text())["read_only"] == 0
    mount.unmount()
    assert {"before", "group"} <= set(is_sound(path))


def test_check_cannot_tell_without_one(path):
    """What keeps it from starting is no fault of the file."""
    found = subprocess.run([BUILD / "sparsectl", "check", path], env=os.environ | failing_forks("f" * 100), text=True,
                           capture_output=True, check=False)
    assert found.returncode == 2 and not found.stdout, found
    assert "cannot start a process for libhdf5: Resource temporarily unavailable" in found.stderr


def test_it_is_inside_if_told_so(mounts, path, mode):
    mount = mounts(path, mode, "hdf5=inside")
    check_others(mount)
    assert not workers(mount)


def sync(mount):
    root = os.open(mount.root, os.O_RDONLY)
    try:
        os.fsync(root)
    finally:
        os.close(root)


def write_frame(mount, name, i, content):
    with open(mount / name / f"frames/{i}.raw", "r+b" if i < frames(mount, name) else "wb") as frame:
        frame.write(content)


def frames(mount, name):
    return sum(entry.endswith(".raw") for entry in os.listdir(mount / name / "frames"))


def is_sound(path):
    done = subprocess.run([BUILD / "sparsectl", "check", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with h5py.File(path) as file:
        return sorted(file)


@pytest.mark.parametrize("name", ["crash", "hang"])
def test_what_was_begun_is_dropped(mounts, path, name):
    """It has written all of the group when it ends: nothing of that is in the file, and all goes on."""
    with h5py.File(path, "a") as file:
        file.create_group("group")
    there = path.read_bytes()
    mount = failing(mounts, path, "rw", "hdf5_timeout=2", "commit_interval=0")
    for _ in range(2):
        with pytest.raises(OSError) as error:
            os.mkdir(mount / f"group/{name}")
        assert error.value.errno == errno.EIO
        sync(mount)
        assert path.read_bytes() == there
        check_others(mount)
        assert not os.listdir(mount / "group")
    os.mkdir(mount / "sound")
    os.rmdir(mount / "sound")
    os.mkdir(mount / "sound")
    write_frame(mount, "other1", 0, DATA[7].tobytes())
    assert (mount / "other1/stack.raw").read_bytes() == DATA[7].tobytes()
    mount.unmount()
    assert is_sound(path) == sorted([*(f"other{i}" for i in range(N_OTHERS)), "allocate", "crash", "data", "group",
                                     "hang", "sound"])
    with h5py.File(path) as file:
        assert (file["other1"][...] == DATA[7]).all()


USER_BLOCK = 512
ROWS = np.arange(8 * 16 * 64, dtype="u2").reshape(8, 16, 64)


@pytest.fixture
def guarded(tmp_path):
    """A sparse dataset of some chunks in a file that has a user block, and dense ones."""
    path = tmp_path / "guarded.h5"
    with h5py.File(path, "w", userblock_size=USER_BLOCK) as file:
        file.create_dataset("contiguous", data=~ROWS[0])
        file.create_dataset("chunked", data=~ROWS[1], chunks=ROWS[1].shape)
    subprocess.run([BUILD / "sparsectl", "create", path, "/sparse", "--dims", "0,16,64", "--maxdims", "inf,16,64",
                    "--chunk", "1,16,64", "--dtype", "uint16"], check=True)
    return path


def fill(mounts, path):
    """Returns where the chunks are that it has written."""
    mount = mounts(path, "rw")
    for i, row in enumerate(ROWS):
        write_frame(mount, "sparse", i, row.tobytes())
    mount.unmount()
    done = subprocess.run([BUILD / "sparsectl", "info", "--json", "--chunks", path], check=True, capture_output=True)
    info = json.loads(done.stdout)
    sparse = next(dataset for dataset in info["datasets"] if dataset["path"] == "/sparse")
    return [chunk["address"] for chunk in sparse["chunks"]]


def test_one_that_was_taken_over_does_not_change_sparse_datasets(mounts, guarded):
    chunks = fill(mounts, guarded)
    content = guarded.read_bytes()
    with h5py.File(guarded) as file:
        header = file.id.links.get_info(b"sparse").u + USER_BLOCK
    assert content[header:header + 4] == b"OHDR"
    addresses = [0, USER_BLOCK - 1, header, content.index(b"EAHD"), content.index(b"EAIB"),
                 content.index(b"EADB"), *chunks, chunks[-1] + 100]
    mount = failing(mounts, guarded, "rw", "commit_interval=0")
    with open(mount / "sparse/frames/0.raw", "rb"):
        for address in addresses:
            for what in "write", "free":
                with pytest.raises(OSError) as error:
                    os.mkdir(mount / f"{what}-{address}")
                assert error.value.errno == errno.EIO
                assert f"wanted to change 16 bytes at address {address}," in mount.log()
    sync(mount)
    assert guarded.read_bytes() == content
    os.mkdir(mount / "group")
    assert (mount / "sparse/stack.raw").read_bytes() == ROWS.tobytes()
    write_frame(mount, "sparse", 1, ROWS[2].tobytes())
    mount.unmount()
    assert is_sound(guarded) == ["chunked", "contiguous", "group", "sparse"]


def test_sparse_datasets_that_nobody_has_opened(mounts, guarded):
    """What docs/security.md says is not kept from that process, and from when on it is."""
    chunks = fill(mounts, guarded)
    content = bytearray(guarded.read_bytes())
    mount = failing(mounts, guarded, "rw", "commit_interval=0")
    os.mkdir(mount / f"write-{chunks[0]}")
    sync(mount)
    content[chunks[0]:chunks[0] + 16] = b"overwritten here"
    size = ROWS[0].nbytes
    assert guarded.read_bytes()[chunks[0]:][:size] == content[chunks[0]:][:size]
    with open(mount / "sparse/frames/1.raw", "rb"):
        os.mkdir(mount / "group")
    for chunk in chunks:  # nobody has it open any more
        with pytest.raises(OSError) as error:
            os.mkdir(mount / f"write-0{chunk}")
        assert error.value.errno == errno.EIO
    os.mkdir(mount / "another")
    sync(mount)
    for i, chunk in enumerate(chunks):
        assert guarded.read_bytes()[chunk:][:size] == content[chunk:][:size], i
    assert mount.log().count("wanted to change 16 bytes at address") >= len(chunks)


def test_of_a_damaged_index_what_can_be_found(mounts, guarded):
    """The file can be changed, and the log says that not all is kept."""
    chunk = fill(mounts, guarded)[0]
    content = bytearray(guarded.read_bytes())
    content[content.index(b"EADB") + 20] ^= 1
    guarded.write_bytes(content)
    mount = failing(mounts, guarded, "rw", "commit_interval=0")
    with open(mount / "sparse/frames/0.raw", "rb"):
        os.mkdir(mount / "group")
        assert "/sparse: not all of it can be kept from libhdf5's process: " in mount.log()
        with pytest.raises(OSError):
            os.mkdir(mount / f"write-{chunk}")
        os.mkdir(mount / "another")
    assert mount.log().count("not all of it") == 1
    assert (mount / "sparse/frames/0.raw").read_bytes() == ROWS[0].tobytes()


@pytest.mark.parametrize("name, row", [("contiguous", 0), ("chunked", 1)])
def test_a_dense_dataset_that_is_where_a_sparse_one_is(mounts, guarded, name, row):
    chunk = fill(mounts, guarded)[1]
    content = guarded.read_bytes()
    place = content.index((~ROWS[row]).tobytes())
    size = struct.pack("<Q", ROWS[row].nbytes) if name == "contiguous" else b""
    old, new = (struct.pack("<Q", address - USER_BLOCK) + size for address in (place, chunk))
    assert content.count(old) == 1
    guarded.write_bytes(content.replace(old, new))
    content = guarded.read_bytes()
    mount = mounts(guarded, "rw", "commit_interval=0", expect_log=True)
    with open(mount / "sparse/frames/0.raw", "rb"), pytest.raises(OSError) as error:
        with open(mount / name / "frames/0.raw", "r+b") as frame:
            frame.write(bytes(100))
            frame.flush()
            os.fsync(frame.fileno())
    assert error.value.errno == errno.EIO
    assert "in use by others" in mount.log()
    assert (mount / "sparse/stack.raw").read_bytes() == ROWS.tobytes()
    mount.umount()
    assert mount.wait() != 0  # not all of it could be committed
    mount.process.returncode = 0  # as the fixture wants it
    assert guarded.read_bytes()[chunk:][:ROWS[0].nbytes] == content[chunk:][:ROWS[0].nbytes]


def test_when_it_cannot_be_started_again(mounts, path):
    """Nothing can be changed any more, which the log and the counters say; what was written is there."""
    mount = mounts(path, "rw", "commit_interval=0", expect_log=True)
    write_frame(mount, "other1", 0, DATA[7].tobytes())
    sync(mount)
    assert json.loads((mount / ".sparsefs/stats.json").read_text())["read_only"] == 0
    found = workers(mount)
    for child in children(mount.process.pid):
        if status(child)["Name"] == "sparsefs-hdf5z":
            os.kill(child, signal.SIGKILL)
    for worker in found:
        wait_for_end(worker)
    with pytest.raises(OSError) as error:
        os.mkdir(mount / "new")
    assert error.value.errno in (errno.EIO, errno.EROFS)
    with pytest.raises(OSError) as error:
        write_frame(mount, "other1", 0, DATA[8].tobytes())
    assert error.value.errno == errno.EROFS
    assert json.loads((mount / ".sparsefs/stats.json").read_text())["read_only"] == 1
    assert "cannot be started again: nothing can be changed any more" in mount.log()
    mount.unmount()
    with h5py.File(path) as file:
        assert (file["other1"][...] == DATA[7]).all()
        assert "new" not in file


class Model:
    """What was written to a mount, and what of it is promised; whatever is refused is tried again."""

    def __init__(self, path, seed):
        self.path, self.random = path, np.random.default_rng(seed)
        with h5py.File(path, "w", libver="latest") as file:
            options = {"maxshape": (None, 64, 64), "chunks": (1, 32, 64)}
            file.create_dataset("packed", (0, 64, 64), "u2", compression="gzip", **options)
            file.create_dataset("plain", (0, 64, 64), "u2", **options)
            file.create_dataset("whole", (4, 64, 64), "u2")  # which has no place yet
        subprocess.run([BUILD / "sparsectl", "create", path, "/sparse", "--dims", "0,64,64", "--maxdims", "inf,64,64",
                        "--chunk", "1,32,64", "--dtype", "uint16"], check=True)
        zero = np.zeros((0, 64, 64), "u2")
        self.data = {"packed": zero, "plain": zero, "sparse": zero, "whole": np.zeros((4, 64, 64), "u2")}
        self.groups = set()
        self.refused = 0

    def until_done(self, call):
        while True:
            try:
                return call()
            except OSError as error:
                assert error.errno == errno.EIO, error
                self.refused += 1
                assert self.refused < 1000, "it is refused again and again"

    def change_group(self, path, is_there):
        """What was refused may have been done, if it could only not be looked at any more."""
        before = self.refused
        try:
            (os.rmdir if is_there else os.mkdir)(path)
        except (FileExistsError, FileNotFoundError):
            assert before > 0

    def step(self, mount):
        what = self.random.integers(10)
        if what < 2:
            name = f"group{self.random.integers(20)}"
            self.until_done(lambda: self.change_group(mount / name, name in self.groups))
            self.groups ^= {name}
            return
        name = list(self.data)[self.random.integers(4)]
        n = len(self.data[name])
        i = int(self.random.integers(n + (name != "whole" and n < 30)))
        frame = self.random.integers(0, 2 + what, (64, 64)).astype("u2") * 77
        self.until_done(lambda: write_frame(mount, name, i, frame.tobytes()))
        if i == n:
            self.data[name] = np.concatenate([self.data[name], frame[None]])
        self.data[name][i] = frame

    def check_mount(self, mount):
        for name, data in self.data.items():
            assert self.until_done((mount / name / "stack.raw").read_bytes) == data.tobytes(), name
        there = set(self.until_done(lambda: os.listdir(mount.root)))
        assert there - {".sparsefs"} == set(self.data) | self.groups


KILLS = int(os.environ.get("SPARSEFS_WORKER_KILLS", 200))


def test_killing_it_under_load_loses_nothing(mounts, tmp_path):
    """In rounds, after each of which the daemon is killed, too: what fsync has promised is there."""
    model = Model(tmp_path / "written.h5", 1)
    kills = 0
    while kills < KILLS:
        mount = mounts(model.path, "rw", "cache_size=1M", "commit_interval=1", expect_log=True)
        pauses = np.random.default_rng(kills)
        with Killer(mount, lambda: pauses.uniform(0.001, 0.04)) as killer:
            while killer.kills < KILLS // 4:
                for _ in range(10):
                    model.step(mount)
                model.until_done(lambda: sync(mount))
            model.check_mount(mount)
        kills += killer.kills
        assert "signal 9" in mount.log()
        mount.process.kill()
        mount.process.wait()
        mount.process.returncode = 0  # as the fixture wants it
        mount.umount("-l")
        reader = mounts(model.path, "ro", expect_log=True)
        model.check_mount(reader)
        reader.unmount()
    subprocess.run([BUILD / "sparsectl", "recover", model.path], check=True, capture_output=True)
    assert is_sound(model.path) == sorted(set(model.data) | model.groups)
    print(f"{kills} kills, {model.refused} calls refused")


@pytest.mark.parametrize("option", ["hdf5=outside", "hdf5=", "hdf5_memory=none", "hdf5_timeout=0"])
def test_options_that_are_none(run, path, tmp_path, option):
    assert run("-o", option, path, tmp_path).returncode == 1


def test_a_crash_is_one_objects_affair(mounts, path, mode):
    mount = failing(mounts, path, mode)
    for _ in range(5):
        with pytest.raises(OSError) as error:
            os.listxattr(mount / "crash")
        assert error.value.errno == errno.EIO
        check_others(mount)
    lines = [line for line in mount.log().splitlines() if "the process of libhdf5 ended" in line]
    assert len(lines) == 2  # it was asked twice, and no more
    for line in lines:
        assert "some.h5: " in line and "the attributes of the object at address" in line
        assert "signal 11" in line


COMPOUNDS = ["crash", "hang", "rest", "sound"]


def write_compounds(file, name, member):
    """With a number of 12 bits, whose text is libhdf5's affair."""
    data = np.zeros(N_COMPOUNDS, [(member, "u2"), ("b", "u2")])
    data["b"] = np.arange(1, N_COMPOUNDS + 1)
    memory, number = h5py.h5t.py_create(data.dtype), h5py.h5t.STD_U16LE.copy()
    number.set_precision(12)
    stored = h5py.h5t.create(h5py.h5t.COMPOUND, data.itemsize)
    stored.insert(member.encode(), 0, number)
    stored.insert(b"b", 2, h5py.h5t.STD_U16LE)
    space = h5py.h5s.create_simple(data.shape)
    h5py.h5d.create(file.id, name.encode(), stored, space).write(space, space, data, memory)


def make_sparse(tmp_path, names):
    """Sparse datasets of compounds, of names that failing_hdf5.c looks for, and a sound one; one has such an
    attribute."""
    dense, path = tmp_path / "dense.h5", tmp_path / "sparse.h5"
    with h5py.File(dense, "w") as file:
        for name in COMPOUNDS:
            write_compounds(file, name, name)
        write_compounds(file, "attribute", "sound")
        file["attribute"].attrs["crash"] = 1
    for name in names:
        subprocess.run([BUILD / "sparsectl", "import", f"{dense}:/{name}", path], check=True)
    return path


@pytest.fixture
def sparse(tmp_path):
    return make_sparse(tmp_path, [*COMPOUNDS, "attribute"])


N_COMPOUNDS = 1000


def ends(mount):
    return [line for line in mount.log().splitlines() if "the process of libhdf5 ended" in line and "asked for" in line
            and "cannot" not in line]


def check_sound(mount):
    sound = np.frombuffer((mount / "sound/stack.raw").read_bytes(), "u2").reshape(-1, 2)
    assert (sound[:, 1] == np.arange(1, N_COMPOUNDS + 1).astype("u2")).all() and not sound[:, 0].any()


def check_blamed(mount, name, what):
    lines = ends(mount)
    assert len(lines) == 2, mount.log()  # it was asked twice, and no more
    for line, how_often in zip(lines, ("", " again")):
        assert f"sparse.h5: the process of libhdf5 ended{how_often}, asked for {what} of the object at address " \
               f"{mount.addresses[name]}: signal 11" in line


def failing_sparse(mounts, path, *options):
    with h5py.File(path) as file:
        addresses = {name: file.id.links.get_info(name.encode()).u for name in file}
    mount = failing(mounts, path, *options)
    mount.addresses = addresses
    return mount


def test_a_datatype_of_a_sparse_dataset(mounts, sparse, mode):
    """It is decoded by our own code and then by libhdf5: in the process of its file, whose affair it is."""
    mount = failing_sparse(mounts, sparse, mode)
    for _ in range(5):
        with pytest.raises(OSError) as error:
            (mount / "crash/stack.raw").read_bytes()
        assert error.value.errno == errno.EIO
        check_sound(mount)
    check_blamed(mount, "crash", "a datatype")
    assert "/crash: cannot open the dataset at address" in mount.log()


def test_a_datatype_that_hangs(mounts, sparse, mode):
    mount = failing_sparse(mounts, sparse, mode, "hdf5_timeout=3")
    with pytest.raises(OSError) as error:
        (mount / "hang/stack.raw").read_bytes()
    assert error.value.errno == errno.EIO
    check_sound(mount)
    assert f"a datatype of the object at address {mount.addresses['hang']}: it did not answer for 3.0 s" \
        in mount.log()


def test_elements_of_a_sparse_dataset_as_text(mounts, sparse, mode):
    """Whichever elements they are, it is one object's affair; it can be read otherwise."""
    mount = failing_sparse(mounts, sparse, mode)
    content = (mount / "sound/stack.raw").read_bytes()
    for i in range(5):
        with pytest.raises(OSError) as error:
            (mount / "rest/value.txt").read_bytes()
        assert error.value.errno == errno.EIO
        assert (mount / "sound/value.txt").read_bytes()
        assert (mount / "rest/stack.raw").read_bytes() == content
        if mode == "rw":
            content = struct.pack("<H", i + 1) + content[2:]
            with open(mount / "rest/stack.raw", "r+b") as stack:
                stack.write(content)
    check_blamed(mount, "rest", "the text of elements")


def test_an_attribute_of_a_sparse_dataset(mounts, sparse, mode):
    mount = failing_sparse(mounts, sparse, mode)
    for _ in range(5):
        with pytest.raises(OSError) as error:
            os.listxattr(mount / "attribute")
        assert error.value.errno == errno.EIO
        check_sound(mount)
    check_blamed(mount, "attribute", "the attributes")
    with pytest.raises(OSError) as error:
        (mount / "attribute/stack.raw").read_bytes()
    assert error.value.errno == errno.EIO  # as all of an object that has


def test_a_datatype_is_the_affair_of_its_file(mounts, sparse, tmp_path):
    """Other files of a folder are read by other processes."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in "a.h5", "b.h5":
        (folder / name).write_bytes(sparse.read_bytes())
    mount = failing(mounts, folder, "ro")
    (mount / "b.h5/sound/value.txt").stat()
    before = set(workers(mount))
    for _ in range(3):
        with pytest.raises(OSError):
            (mount / "a.h5/crash/stack.raw").read_bytes()
    for line in ends(mount):
        assert "/a.h5: " in line
    assert len(ends(mount)) == 2
    assert len(before & set(workers(mount))) >= 1
    with pytest.raises(OSError):
        (mount / "b.h5/crash/stack.raw").read_bytes()
    assert sum("/b.h5: the process" in line for line in ends(mount)) == 2


def test_a_crash_among_what_is_listed(mounts, path):
    """Objects are asked for together: one of them must not be the end of the others."""
    with h5py.File(path, "r+") as file:
        del file["hang"], file["allocate"]
    mount = failing(mounts, path, "ro")
    for _ in range(5):
        failed = []
        for name in sorted(os.listdir(mount.root)):
            if not name.startswith("other") and name != "crash":
                continue
            try:
                found = os.listxattr(mount / name)
                assert found == ["user.number"]
            except OSError as error:
                assert error.errno == errno.EIO
                failed.append(name)
        assert failed == ["crash"]
        check_others(mount)
    lines = [line for line in mount.log().splitlines() if "the process of libhdf5 ended" in line]
    alone = [line for line in lines if "or one listed behind it" not in line]
    assert len(alone) == 2  # it was asked twice, and no more
    assert len(lines) - len(alone) <= 1


def test_texts_are_the_same_however_they_come(mounts, tmp_path):
    path = tmp_path / "texts.h5"
    texts = {f"d{i:02}": list(range(i + 1)) for i in range(30)}
    with h5py.File(path, "w") as file:
        for name, values in texts.items():
            file[name] = values
    mount = mounts(path, "ro")
    for _ in range(2):
        for name, values in texts.items():
            assert (mount / name / "value.txt").read_text().split() == [str(v) for v in values]


def test_an_endless_loop_is_ended(mounts, path, mode):
    mount = failing(mounts, path, mode, "hdf5_timeout=5")
    with pytest.raises(OSError) as error:
        os.listxattr(mount / "hang")
    assert error.value.errno == errno.EIO
    check_others(mount)
    assert "it did not answer for 5.0 s" in mount.log()


def test_memory_is_limited(mounts, path, mode):
    if is_sanitized():
        pytest.skip("sanitizers need more address space than there is memory")
    mount = failing(mounts, path, mode, "hdf5_memory=256M")
    os.listxattr(mount / "allocate")  # which cannot be read, as libhdf5 says itself
    check_others(mount)
    assert "the process of libhdf5 ended" not in mount.log()


def test_open_datasets_leave_it_memory(mounts, tmp_path, mode):
    """What it has to know of those that are open, here names of sources, would be more than it may have."""
    if is_sanitized():
        pytest.skip("sanitizers need more address space than there is memory")
    path, space = tmp_path / "named.h5", h5py.h5s.create_simple((4, 16))
    with h5py.File(path, "w") as file:
        file["words"] = ["one", "two"]
        file["words"].attrs["units"] = "counts"
        for i in range(20):
            dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            dcpl.set_virtual(space, b".", b"a" * (3 << 20), space)
            h5py.h5d.create(file.id, b"%d" % i, h5py.h5t.STD_U8LE, space, dcpl)
    mount = mounts(path, mode, "hdf5_memory=128M", expect_log=True)  # there are no such sources
    with contextlib.ExitStack() as stack:
        for i in range(20):
            stack.enter_context(open(mount / f"{i}/frames/0.raw", "rb"))
        assert (mount / "words/value.txt").read_text() == '"one" "two"\n'
        assert os.getxattr(mount / "words", "user.units") == b"counts"
        for i in range(20):
            assert json.loads((mount / f"{i}/dataset.json").read_text())["dims"] == [4, 16]


def test_a_small_memory_is_not_half_full_from_the_beginning(mounts, tmp_path):
    """Two datasets that are read in turn are read by one process."""
    if is_sanitized():
        pytest.skip("sanitizers need more address space than there is memory")
    path = tmp_path / "words.h5"
    with h5py.File(path, "w") as file:
        for name in "ab":
            file.create_dataset(name, data=np.array([f"{name}{i}" * 20 for i in range(100000)], h5py.string_dtype()),
                                chunks=(2000,))
    mount = mounts(path, "ro")
    (mount / "a/lines.txt").stat()
    worker, = workers(mount)
    pages = int(pathlib.Path(f"/proc/{worker}/statm").read_text().split()[0])
    mount.unmount()
    mount = mounts(path, "ro", f"hdf5_memory={pages * os.sysconf('SC_PAGESIZE') * 15 // 8}")
    with open(mount / "a/lines.txt", "rb", buffering=0) as a, open(mount / "b/lines.txt", "rb", buffering=0) as b:
        first = [os.pread(file.fileno(), 4, 0) for file in (a, b)]
        before = workers(mount)
        assert first == [b"a0a0", b"b0b0"] and before
        for i in range(1, 20):
            for file in a, b:
                assert os.pread(file.fileno(), 4096, 400000 * i)
        assert workers(mount) == before


class Killer(threading.Thread):
    """Kills the processes of a mount again and again, until the block ends."""

    def __init__(self, mount, pause=lambda: 0.02):
        super().__init__()
        self.mount, self.pause = mount, pause
        self.ended = threading.Event()
        self.kills = 0

    def run(self):
        while not self.ended.wait(self.pause()):
            for worker in workers(self.mount):
                try:
                    lives = not status(worker)["State"].startswith("Z")
                    os.kill(worker, signal.SIGKILL)
                    self.kills += lives
                except (FileNotFoundError, ProcessLookupError, PermissionError):  # it is no such process
                    pass  # it was the last one's turn

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def is_refused(mount, i):
    """What there is of number i is as it was written, or EIO: killed all the time in one call."""
    try:
        assert os.getxattr(mount / f"other{i}", "user.number") == str(i).encode()
        assert (mount / "data/frames" / f"{i}.raw").read_bytes() == DATA[i].tobytes()
    except OSError as error:
        assert error.errno == errno.EIO
        return True
    return False


def test_killing_it_while_it_is_read_loses_nothing(mounts, path):
    """As often as when it writes, by several readers at once; afterwards everything can be read."""
    pauses = np.random.default_rng(2)
    kills, in_a_call = 0, False
    while kills < KILLS or not in_a_call:
        mount = mounts(path, "ro", "cache_size=1M", "direct_io", expect_log=True)
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            with Killer(mount, lambda: pauses.uniform(0, 0.01)) as killer:
                list(threads.map(lambda i: is_refused(mount, i), list(range(N_OTHERS)) * 4))
        assert not any(is_refused(mount, i) for i in range(N_OTHERS))
        check_others(mount)
        kills += killer.kills
        in_a_call |= "signal 9" in mount.log()
        mount.unmount()


def test_killing_it_is_not_noticed(mounts, path, mode):
    """Mounted anew until it was killed in a call, as it is asked only for what is not known yet; where it takes long
    to start it is killed all the time, until the pauses have become longer than that."""
    pauses = np.random.default_rng(1)
    for i in range(50):
        mount = mounts(path, mode, "cache_size=1M", "direct_io", expect_log=True)
        with Killer(mount, lambda: pauses.uniform(0, 0.02 * 1.1 ** i)):
            refused = sum(is_refused(mount, i) for i in range(N_OTHERS))
        check_others(mount)
        if refused < N_OTHERS and "signal 9" in mount.log():
            return
        mount.unmount()
    pytest.fail("it was never killed in a call that was answered all the same")


def call_of(pid):
    """With its arguments, if it sleeps in one."""
    words = pathlib.Path(f"/proc/{pid}/syscall").read_text()
    return words if state_of(pid) == "S" and words[0].isdigit() else None


def are_answered_no_more(mount, processes):
    """Each sleeps in a call, and the daemon has nothing to do."""
    before = [call_of(process.pid) for process in processes]
    time.sleep(0.3)
    threads = pathlib.Path(f"/proc/{mount.process.pid}/task").iterdir()
    return all(before) and before == [call_of(process.pid) for process in processes] and \
        all(state_of(thread.name) == "S" for thread in threads)


def test_who_waits_for_a_call_of_others_can_be_interrupted(mounts, tmp_path, mode):
    """While the process answers nobody: also the one that it was asked for; nothing is the matter with what they
    wanted. Each is in a directory of its own, as the kernel may let one in at a time. (A followed file is looked at
    again meanwhile, which waits for all of them.)"""
    if mode.startswith("follow"):
        pytest.skip("who takes a new state waits for those who read")
    path, groups = tmp_path / "some.h5", [f"g{i}" for i in range(8)]
    with file_for_libhdf5(path) as file:
        for group in groups:
            file[f"{group}/d"] = DATA[0]
            file[group].attrs["number"] = 1
            file[f"{group}/d"].attrs["number"] = 2
            file.create_dataset(f"{group}/chunked", data=DATA[:2], chunks=(1, 32, 64), compression="gzip")
    mount = mounts(path, mode, "hdf5_timeout=600", "direct_io")
    for group in groups:
        os.stat(mount / group)
    os.stat(mount / "g5/d")
    os.stat(mount / "g6/chunked/frames/1.raw")
    worker, = workers(mount)
    get = [sys.executable, "-c", "import os, sys; os.getxattr(sys.argv[1], 'user.number')"]
    commands = [["ls", mount / "g0"], ["ls", "-d", mount / "g1/d"], get + [mount / "g2"], get + [mount / "g3"],
                ["cat", mount / "g4/d/stack.raw"], get + [mount / "g5/d"], ["cat", mount / "g6/chunked/frames/1.raw"],
                ["ls", mount / "g7/d/frames"]]
    os.kill(worker, signal.SIGSTOP)
    waiting = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for command in commands]
    wait_until(lambda: are_answered_no_more(mount, waiting))
    for process in waiting:
        process.send_signal(signal.SIGINT)
    codes = [process.wait(START_SECONDS) for process in waiting]
    assert all(codes), codes
    for group in groups:
        assert os.getxattr(mount / group, "user.number") == b"1"
        assert os.getxattr(mount / group / "d", "user.number") == b"2"
        assert (mount / group / "d/stack.raw").read_bytes() == DATA[0].tobytes()
        assert (mount / group / "chunked/stack.raw").read_bytes() == DATA[:2].tobytes()
    assert worker not in workers(mount)
    assert "the process of libhdf5 ended" not in mount.log()


LOOK = [sys.executable, "-c", "import os, sys; os.listxattr(sys.argv[1])"]


def begin_to_hang(mount, command):
    """Waits until libhdf5 hangs in the call, which takes it a processor."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    seconds = os.sysconf("SC_CLK_TCK")

    def hangs():
        times = [pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in workers(mount)]
        return any(int(time_of[11]) > seconds / 4 for time_of in times)
    wait_until(hangs)
    return process


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_a_call_under_way_ends_with_who_asks(mounts, path, mode):
    """Neither is the object to blame for that, nor do those learn of it who wait for other calls."""
    mount = failing(mounts, path, mode, "hdf5_timeout=3600")
    reader = begin_to_hang(mount, [*LOOK, mount / "hang"])
    other = subprocess.Popen([*LOOK, mount / "other1"])
    reader.kill()
    reader.wait(START_SECONDS)
    assert other.wait(START_SECONDS) == 0
    check_others(mount)
    assert not mount.log()


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_a_call_under_way_ends_with_the_mount(mounts, path, mode):
    mount = failing(mounts, path, mode, "hdf5_timeout=3600")
    reader = begin_to_hang(mount, [*LOOK, mount / "hang"])
    mount.process.send_signal(signal.SIGTERM)
    assert mount.wait() == 0
    assert reader.wait(START_SECONDS) != 0


@pytest.mark.parametrize("way", ["killed", "mount ends"])
def test_a_change_under_way_is_dropped(mounts, path, tmp_path, way):
    """When nobody waits for it any more; files beside it are used meanwhile."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with h5py.File(path, "a") as file:
        file.create_group("group")
    for name in "a.h5", "b.h5":
        (folder / name).write_bytes(path.read_bytes())
    mount = failing(mounts, folder, "default", "hdf5_timeout=3600", "commit_interval=0")
    os.stat(mount / "a.h5/other1")
    assert len(os.listdir(mount / "b.h5/group")) == 0
    maker = begin_to_hang(mount, ["mkdir", mount / "a.h5/group/hang"])
    beside = subprocess.run(["sh", "-c", 'ls "$0" "$0/other1" && mkdir "$0/group/new" && rmdir "$0/group/new"',
                             mount / "b.h5"], timeout=START_SECONDS, check=False, stdout=subprocess.DEVNULL)
    assert beside.returncode == 0
    waiting = subprocess.Popen([*LOOK, mount / "a.h5/other1"])  # for the links not to change
    if way == "killed":
        time.sleep(1)  # the longer the more surely it waits
        waiting.kill()
        waiting.wait(START_SECONDS)
        assert maker.poll() is None
        maker.kill()
        maker.wait(START_SECONDS)
        assert not os.listdir(mount / "a.h5/group")
        os.mkdir(mount / "a.h5/group/sound")
        assert os.listdir(mount / "a.h5/group") == ["sound"]
        mount.unmount()
    else:
        mount.process.send_signal(signal.SIGTERM)
        assert mount.wait() == 0
        assert maker.wait(START_SECONDS) != 0
        waiting.wait(START_SECONDS)
    assert is_sound(folder / "a.h5") == is_sound(path)
    with h5py.File(folder / "a.h5") as file:
        assert list(file["group"]) == (["sound"] if way == "killed" else [])


def again(call):
    """What somebody who kills the process again and again in one call is told is no answer."""
    while True:
        try:
            return call()
        except OSError as error:
            if error.errno != errno.EIO:
                raise


def test_a_file_that_grows_while_it_is_killed(mounts, tmp_path):
    path = tmp_path / "grows.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("data", (0, 64, 64), "u2", maxshape=(None, 64, 64), chunks=(1, 64, 64))
        file.create_dataset("compact", data=DATA[0, :8])
    writer = mounts(path, "rw")
    mount = mounts(path, "follow=0.05", expect_log=True)
    with Killer(mount, lambda: 0.1):
        for i in range(len(DATA)):
            with open(writer / f"data/frames/{i}.raw", "wb") as frame:
                frame.write(DATA[i].tobytes())
                frame.flush()
                os.fsync(frame.fileno())
            wait_until(lambda: again((mount / "data/stack.raw").read_bytes) == DATA[:i + 1].tobytes())
            assert again((mount / "compact/stack.raw").read_bytes) == DATA[0, :8].tobytes()


def test_a_followed_dataset_whose_elements_grow(mounts, tmp_path):
    """In the same file, at the same address: what is read into memory for it would not fit."""
    path = tmp_path / "changes.h5"

    def write(dtype):
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_layout(h5py.h5d.COMPACT)
        with h5py.File(path, "w", libver="latest") as file:
            space = h5py.h5s.create_simple((64,))
            dataset = h5py.h5d.create(file.id, b"data", h5py.h5t.py_create(np.dtype(dtype)), space, dcpl)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(64, dtype=dtype))

    write("u1")
    mount = mounts(path, "follow=0.05", expect_log=True)
    with open(mount / "data/stack.raw", "rb", buffering=0) as stack:
        assert stack.read() == bytes(range(64))
        write("u8")

        def is_gone():
            try:
                os.pread(stack.fileno(), 64, 0)
            except OSError as error:
                return error.errno == errno.ESTALE
            return False
        wait_until(is_gone)


def test_a_followed_virtual_dataset_of_many_files(mounts, tmp_path):
    """libhdf5 has them all open at a time."""
    layout = h5py.VirtualLayout((100, 8), "u2")
    for i in range(100):
        with h5py.File(tmp_path / f"source{i}.h5", "w") as file:
            file.create_dataset("data", data=np.full(8, i, "u2"))
        layout[i] = h5py.VirtualSource(f"source{i}.h5", "data", (8,))
    with h5py.File(tmp_path / "virtual.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("all", layout)
    mount = mounts(tmp_path / "virtual.h5", "follow=0.1")
    content = np.frombuffer((mount / "all/stack.raw").read_bytes(), "u2").reshape(100, 8)
    assert (content == np.arange(100)[:, None]).all()
    assert len(workers(mount)) == 1


def test_the_processes_hold_no_mount(mounts, path):
    """Their namespaces began with copies of all: a daemon ends only when nobody has its mount."""
    first = mounts(path)
    second = mounts(path)
    check_others(second)
    first.unmount()
    check_others(second)


def test_the_processes_end_with_the_daemon(mounts, path):
    mount = mounts(path)
    found = children(mount.process.pid) + workers(mount)
    mount.process.kill()
    mount.process.wait()
    mount.process.returncode = 0  # as the fixture wants it
    subprocess.run(["fusermount3", "-u", "-z", mount.root], check=True)  # which users may, too
    for pid in found:
        wait_for_end(pid)


def wait_for_end(pid):
    """An orphan may be left to nobody who waits for it: a zombie has ended, too."""
    def has_ended():
        try:
            return status(pid)["State"].startswith("Z")
        except (FileNotFoundError, ProcessLookupError):
            return True
    wait_until(has_ended)


def test_sparsectl_outlives_it(tmp_path):
    """Whatever the command, the process that reads the file ends, not it: it says of which object, leaves no
    copy, and does what needs only others."""
    def sparsectl(*arguments):
        return subprocess.run([BUILD / "sparsectl", *map(str, arguments)], capture_output=True, check=False,
                              timeout=START_SECONDS, env=os.environ | FAILING)

    copy, sparse = tmp_path / "copy.h5", make_sparse(tmp_path, ["crash", "rest", "sound"])
    with h5py.File(sparse) as file:
        address = file.id.links.get_info(b"crash").u
    crash, sound = f"{sparse}:/crash", f"{sparse}:/sound"
    asked = f"asked for a datatype of the object at address {address}: signal 11"
    for command in (("info", sparse), ("check", sparse), ("dump", crash), ("repack", sparse, copy),
                    ("export", crash, copy), ("import", crash, copy)):
        done = sparsectl(*command)
        assert done.returncode == 1 and asked in (done.stdout + done.stderr).decode(), (command, done.stderr)
        if command[0] == "check":  # names the dataset, which has been looked at before as an object
            assert b"/crash: cannot open the dataset at address" in done.stdout and not done.stderr
        else:
            assert "the process of libhdf5 ended, " + asked in done.stderr.decode(), command
        assert not list(tmp_path.glob("copy.h5*")), command
    done = sparsectl("info", "--json", sparse)
    listed = {dataset["path"]: dataset for dataset in json.loads(done.stdout)["datasets"]}
    assert done.returncode == 1 and "error" in listed["/crash"]
    for name in "/rest", "/sound":
        assert listed[name]["defined_elements"] == N_COMPOUNDS
        assert name + ": sparse" in sparsectl("info", sparse).stdout.decode()
    assert b"3 groups and datasets sound, 2 faults" in sparsectl("check", sparse).stdout
    for command in ("dump", sound), ("export", sound, copy), ("image", sparse):
        done = sparsectl(*command)
        assert (done.returncode, done.stderr) == (0, b""), command
    with h5py.File(copy) as file:
        assert (file["sound"]["b"] == np.arange(1, N_COMPOUNDS + 1)).all()
