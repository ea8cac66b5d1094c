"""libhdf5 in a process of its own: what it may do, and that a mount outlives it."""
import errno
import os
import pathlib
import signal
import subprocess
import threading

import h5py
import numpy as np
import pytest

from conftest import BUILD, START_SECONDS, wait_until

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


def children(pid):
    return [int(child) for child in
            pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def workers(mount):
    """The processes that libhdf5 runs in: those that the daemon's child has forked."""
    return [worker for zygote in children(mount.process.pid) for worker in children(zygote)]


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


MODES = ["ro", "follow=0.1"]


@pytest.fixture(params=MODES)
def mode(request):
    """What the process is there for; everything it must do is the same."""
    return request.param


def test_it_may_do_nothing(mounts, path, mode):
    mount = mounts(path, mode)
    check_others(mount)
    found = workers(mount)
    assert len(found) == 1
    for worker in found:
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


def test_it_is_inside_if_told_so(mounts, path, mode):
    mount = mounts(path, mode, "hdf5=inside")
    check_others(mount)
    assert not children(mount.process.pid)


def test_files_that_are_written_are_opened_inside(mounts, path):
    assert not workers(mounts(path, "rw"))


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
                    os.kill(worker, signal.SIGKILL)
                    self.kills += 1
                except ProcessLookupError:
                    pass  # it was the last one's turn

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


def test_killing_it_is_not_noticed(mounts, path, mode):
    mount = mounts(path, mode, "cache_size=1M", "direct_io", expect_log=True)
    refused = 0
    with Killer(mount):
        for _ in range(5):
            for i in range(N_OTHERS):
                try:
                    assert os.getxattr(mount / f"other{i}", "user.number") == str(i).encode()
                    assert (mount / "data/frames" / f"{i}.raw").read_bytes() == DATA[i].tobytes()
                except OSError as error:  # killed three times in one call
                    assert error.errno == errno.EIO
                    refused += 1
    check_others(mount)
    assert refused < 5 * N_OTHERS
    assert "signal 9" in mount.log()


def again(call):
    """What somebody who kills the process three times in one call is told is no answer."""
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


def test_sparsectl_outlives_it(path):
    done = subprocess.run([BUILD / "sparsectl", "info", path], capture_output=True, text=True,
                          timeout=START_SECONDS, env=os.environ | FAILING)
    assert "/other3: contiguous" in done.stdout
