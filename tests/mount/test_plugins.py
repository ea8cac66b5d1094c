"""Filter plugins in processes of their own: what those may do, what becomes of chunks that end them,
and which folders plugins are taken from."""
import contextlib
import errno
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import zlib

import h5py
import numpy as np
import pytest

from conftest import BUILD, counting_plugin
from test_limits import MIB, peak
from test_worker import SECRET, check_confined, check_forgotten, children, has_filter, is_sanitized, status

# hostile_filter.h
HOSTILE, CRASHES, HANGS, ALLOCATES, DOUBLES, LIES, ANSWERS, MEETS = 481, 1, 2, 3, 4, 5, 6, 8
THREAD, STARTS = 26, 27
DATA = np.random.default_rng(3).integers(0, 1000, (6, 32, 32), "<u2")
HARM = {"crash": CRASHES, "hang": HANGS, "allocate": ALLOCATES, "double": DOUBLES, "lie": LIES, "answer": ANSWERS}


def make(path, datasets, chunk=(1, 32, 32), data=DATA):
    """Chunks are stored as they are: that is how the plugin encodes them."""
    with h5py.File(path, "w", libver="latest") as file:
        for name, (number, values) in datasets.items():
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk(chunk)
            plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL, values)
            made = h5py.h5d.create(file.id, name.encode(), h5py.h5t.STD_U16LE,
                                   h5py.h5s.create_simple(data.shape), plist)
            for i in range(len(data)):
                made.write_direct_chunk((i, 0, 0), data[i].tobytes(), 0)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "some.h5"
    make(path, {"good": (HOSTILE, (0,)), **{name: (HOSTILE, (how,)) for name, how in HARM.items()}})
    return path


def hostile_plugin(folder):
    plugins = folder / "hostile"
    plugins.mkdir(mode=0o755)
    shutil.copy(BUILD / "tests/unit/libhostile_filter.so", plugins)
    (plugins / "libhostile_filter.so").chmod(0o755)
    return {"HDF5_PLUGIN_PATH": str(plugins)}


def frame(mount, name, i):
    return (mount / f"{name}/frames/{i}.raw").read_bytes()


def fails(mount, name, i):
    with pytest.raises(OSError) as error:
        frame(mount, name, i)
    assert error.value.errno == errno.EIO


def workers(mount):
    """The processes that plugins run in."""
    def is_of_plugins(child):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
            return status(child)["Name"] == "sparsefs-plugz"
        return False

    return [worker for zygote in children(mount.process.pid) if is_of_plugins(zygote) for worker in children(zygote)]


def make_large(path):
    """A chunk of 300 MiB behind the plugin and deflate."""
    n = 300 * MIB
    with h5py.File(path, "w", libver="latest") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((1, n))
        plist.set_filter(HOSTILE, h5py.h5z.FLAG_OPTIONAL, (0,))
        plist.set_deflate(1)
        made = h5py.h5d.create(file.id, b"large", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((1, n)), plist)
        made.write_direct_chunk((0, 0), zlib.compress(bytes(n), 1), 0)
    return n


@pytest.mark.skipif(is_sanitized(), reason="the address space of a process is not limited")
def test_large_chunks(mounts, tmp_path):
    n = make_large(tmp_path / "large.h5")
    mount = mounts(tmp_path / "large.h5", "ro,chunk_memory=2G,hdf5_timeout=100", environment=hostile_plugin(tmp_path))
    whole = (mount / "large/stack.raw").read_bytes()
    assert len(whole) == n and not whole.strip(b"\0")


@pytest.mark.skipif(is_sanitized(), reason="the address space of a process is not limited")
@pytest.mark.parametrize("option", ["ro", "rw"])
def test_want_of_memory_names_the_option(mounts, tmp_path, option):
    """The chunk is sound: who mounts is told which option would let it be read, and the process lives."""
    make_large(tmp_path / "large.h5")
    small = np.full((1, 64), 7, "u1")
    with h5py.File(tmp_path / "large.h5", "a") as file:
        plist = file["large"].id.get_create_plist()
        plist.set_chunk(small.shape)
        made = h5py.h5d.create(file.id, b"small", h5py.h5t.STD_U8LE, h5py.h5s.create_simple(small.shape), plist)
        made.write_direct_chunk((0, 0), zlib.compress(small.tobytes()), 0)
    mount = mounts(tmp_path / "large.h5", option, "chunk_memory=2G,hdf5_memory=64M,threads=1",
                   environment=hostile_plugin(tmp_path), expect_log=True)
    with pytest.raises(OSError) as error:
        (mount / "large/stack.raw").read_bytes()
    assert error.value.errno == errno.EIO
    assert "/large: chunk (0,0) at address " in mount.log()
    assert ": filter 481, 1: its process may not have as much memory as it wants (hdf5_memory=)" in mount.log()
    assert (mount / "small/stack.raw").read_bytes() == small.tobytes()
    assert "the process of plugins ended" not in mount.log()


@pytest.mark.parametrize("option", ["ro", "rw"])
def test_they_may_do_nothing(mounts, tmp_path, path, option):
    mount = mounts(path, option, environment=hostile_plugin(tmp_path) | {"SPARSEFS_SECRET": SECRET})
    assert not workers(mount)  # as long as nobody needs one
    assert (mount / "good/stack.raw").read_bytes() == DATA.tobytes()
    found = workers(mount)
    assert 1 <= len(found) <= os.cpu_count()
    check_forgotten(mount, found)
    for worker in found:
        check_confined(worker, None)
        is_now = status(worker)
        assert is_now["NoNewPrivs"] == "1"
        assert int(is_now["CapEff"], 16) == int(is_now["CapPrm"], 16) == 0
        assert is_now["Seccomp"] == ("2" if has_filter() else "0")
        if os.geteuid() == 0:
            assert set(is_now["Uid"].split()) == {"65534"}
            folder = f"/proc/{worker}/fd"
            targets = {os.readlink(f"{folder}/{fd}").split(":")[0] for fd in os.listdir(folder)}
            assert targets <= {"/dev/null", "socket", "/proc/self/exe", str(BUILD / "sparsefs")}
            maps = pathlib.Path(f"/proc/{worker}/maps").read_text()
            assert "libhostile_filter.so" in maps
            shared = [line for line in maps.splitlines() if "memfd:sparsefs-chunk" in line]
            assert shared and all(line.split()[1] == "rw-s" for line in shared)
    if os.geteuid() == 0:
        assert "libhostile_filter.so" not in pathlib.Path(f"/proc/{mount.process.pid}/maps").read_text()


def test_they_run_inside_if_told_so(mounts, tmp_path, path):
    mount = mounts(path, "hdf5=inside", environment=hostile_plugin(tmp_path))
    assert (mount / "good/stack.raw").read_bytes() == DATA.tobytes()
    assert not children(mount.process.pid)


@pytest.mark.parametrize("option", ["ro", "rw"])
@pytest.mark.parametrize("name, reason", [
    ("crash", "the process of plugins ended, asked to undo filter 481: signal 11"),
    ("hang", "the process of plugins ended, asked to undo filter 481: it did not answer for 5.0 s"),
    ("allocate", "the process of plugins ended, asked to undo filter 481: signal 6"),
    ("answer", "the process of plugins ended, asked to undo filter 481: its answer cannot be"),
    ("double", "its checksum or its compressed data are damaged"),
    ("lie", "its checksum or its compressed data are damaged")])
def test_harm_is_one_chunks_affair(mounts, tmp_path, path, name, reason, option):
    if name == "allocate" and is_sanitized():
        pytest.skip("sanitizers need more address space than there is memory")
    mount = mounts(path, option, "hdf5_timeout=5,hdf5_memory=256M", environment=hostile_plugin(tmp_path),
                   expect_log=True)
    for _ in range(3):
        fails(mount, name, 2)
        assert (mount / "good/stack.raw").read_bytes() == DATA.tobytes()
    lines = [line for line in mount.log().splitlines() if reason in line]
    assert lines and all(f"some.h5: /{name}: chunk (2,0,0) at address" in line for line in lines)
    if "process" in reason:  # what ends it twice, or takes too long once, is not given to it again
        assert "not given to it any more" in mount.log()


def test_one_that_ends_while_it_is_loaded(mounts, tmp_path, path):
    mount = mounts(path, environment=hostile_plugin(tmp_path) | {"SPARSEFS_TEST_LOADING": "crash"},
                   expect_log=True)
    fails(mount, "good", 0)
    assert "filter 481: the process of plugins ended, asked to load them: signal 11" in mount.log()
    assert json.loads((mount / "good/dataset.json").read_text())["missing_filter"]["id"] == HOSTILE


def test_a_thread_from_before_may_do_nothing_either(mounts, tmp_path):
    """Libraries that plugins need start some as they are loaded: where these cannot be confined there is no process."""
    path = tmp_path / "thread.h5"
    make(path, {"looks": (HOSTILE, (THREAD,))})
    mount = mounts(path, environment=hostile_plugin(tmp_path) | {"SPARSEFS_TEST_LOADING": "thread"},
                   expect_log=not has_filter())
    if has_filter():
        assert frame(mount, "looks", 0) == b"\0" + DATA[0].tobytes()[1:]
    else:
        fails(mount, "looks", 0)


def test_a_thread_from_before_may_begin_late(mounts, tmp_path):
    """A thread that is started as a library is loaded may run for the first time when its process is confined."""
    path = tmp_path / "starts.h5"
    make(path, {"starts": (HOSTILE, (STARTS,))})
    mount = mounts(path, environment=hostile_plugin(tmp_path))
    assert frame(mount, "starts", 0) == b"\0" + DATA[0].tobytes()[1:]


def test_readers_have_their_chunks_decoded_at_once(mounts, tmp_path):
    """Each of the first two chunks is decoded only when the other one is, too."""
    if os.cpu_count() < 2:
        pytest.skip("there is one processor only")
    path, meets = tmp_path / "meets.h5", tmp_path / "meets"
    make(path, {"first": (HOSTILE, (MEETS,)), "second": (HOSTILE, (MEETS,))})
    meets.write_bytes(bytes(4096))
    mount = mounts(path, environment=hostile_plugin(tmp_path) | {"SPARSEFS_TEST_MEETS": str(meets)})
    read = {}
    readers = [threading.Thread(target=lambda name=name: read.update({name: frame(mount, name, 0)}))
               for name in ("first", "second")]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert read == dict.fromkeys(("first", "second"), DATA[0].tobytes())


def read_while_they_are_killed(mount):
    """Once in every read, wherever that is."""
    ended, done = threading.Event(), []

    def kill_all():
        seen = 0
        while not ended.wait(0.001):
            if len(done) == seen:
                continue
            seen = len(done)
            for worker in workers(mount):
                try:
                    os.kill(worker, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # it was the last one's turn

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        for i in range(200):
            assert frame(mount, "good", i % len(DATA)) == DATA[i % len(DATA)].tobytes()
            done.append(i)
    finally:
        ended.set()
        killer.join()


def test_killing_them_is_not_noticed(mounts, tmp_path, path):
    """Mounted anew until one was killed in the midst of a chunk."""
    environment = hostile_plugin(tmp_path)
    for _ in range(50):
        mount = mounts(path, "direct_io,cache_size=1M", environment=environment, expect_log=True)
        read_while_they_are_killed(mount)
        if "signal 9" in mount.log():
            return
        mount.unmount()
    pytest.fail("none was killed in the midst of a chunk")


def test_writing(mounts, tmp_path):
    """Dense datasets, too: their chunks are made by the plugin and put into the file by libhdf5."""
    path, counter = tmp_path / "written.h5", tmp_path / "decoded"
    counter.write_bytes(bytes(4))
    environment = counting_plugin(tmp_path) | {"SPARSEFS_TEST_DECODED": str(counter)}
    make(path, {"dense": (480, ())})
    mount = mounts(path, "rw", environment=environment)
    changed = DATA.copy()
    changed[1, 3] = 7
    changed[4] = 9
    with open(mount / "dense/frames/1.raw", "r+b") as file:
        file.seek(3 * 64)
        file.write(changed[1, 3].tobytes())
    (mount / "dense/frames/4.raw").write_bytes(changed[4].tobytes())
    mount.unmount()
    assert int.from_bytes(counter.read_bytes(), "little") > 0
    with h5py.File(path) as file:
        for i in range(len(DATA)):
            mask, chunk = file["dense"].id.read_direct_chunk((i, 0, 0))
            assert mask == 0 and chunk == changed[i].tobytes()
    assert (mounts(path, environment=environment) / "dense/stack.raw").read_bytes() == changed.tobytes()


@pytest.mark.parametrize("option", ["ro", "rw", "ro,hdf5=inside"])
def test_folders_that_others_may_write_are_refused(mounts, tmp_path, path, option):
    environment = hostile_plugin(tmp_path)
    folder = pathlib.Path(environment["HDF5_PLUGIN_PATH"])
    folder.chmod(0o777)
    mount = mounts(path, option, environment=environment, expect_log=True)
    fails(mount, "good", 0)
    assert "missing_filter" in json.loads((mount / "good/dataset.json").read_text())
    line = f"plugins of libhdf5 in {folder} are not used: others may write {folder}"
    assert mount.log().count(line) == 1


def sparsectl(*arguments, environment):
    return subprocess.run([BUILD / "sparsectl", *map(str, arguments)], capture_output=True, timeout=300,
                          env=os.environ | environment)


def test_sparsectl_outlives_them(tmp_path, path):
    environment = hostile_plugin(tmp_path)
    good = sparsectl("dump", f"{path}:/good", environment=environment)
    assert good.returncode == 0 and good.stdout
    crash = sparsectl("dump", f"{path}:/crash", environment=environment)
    assert crash.returncode > 0
    assert b"the process of plugins ended, asked to undo filter 481: signal 11" in crash.stderr
    pathlib.Path(environment["HDF5_PLUGIN_PATH"]).chmod(0o777)
    refused = sparsectl("dump", f"{path}:/good", environment=environment)
    assert refused.returncode > 0
    assert b"are not used: others may write" in refused.stderr


@pytest.mark.parametrize("command", ["import", "export", "repack"])
def test_a_copy_with_a_chunk_that_cannot_be_encoded_is_none(tmp_path, command):
    """Neither a new file nor a change of one that is there."""
    environment, some, there = hostile_plugin(tmp_path), tmp_path / "some.h5", tmp_path / "there.h5"
    with h5py.File(some, "w") as file:
        file.create_dataset("x", data=DATA, chunks=(1, 32, 32))
    if command != "import":
        assert sparsectl("import", some, tmp_path / "sparse.h5", environment=environment).returncode == 0
        some = tmp_path / "sparse.h5"
    with h5py.File(there, "w") as file:
        file["mine"] = 1
    before = there.read_bytes()
    section = "" if command == "export" else "values:"
    for to in (tmp_path / "new.h5", there) if command != "repack" else [tmp_path / "new.h5"]:
        done = sparsectl(command, "--filter", f"{section}{HOSTILE}={CRASHES},1", some, to, environment=environment)
        assert done.returncode == 1 and b"signal 11" in done.stderr, done
    assert not (tmp_path / "new.h5").exists() and there.read_bytes() == before


def test_sparsectl_copies_what_they_filter(tmp_path):
    """Also into new datasets with such a filter, whose chunks the plugin makes: of as many elements as before."""
    path, counter = tmp_path / "some.h5", tmp_path / "decoded"
    counter.write_bytes(bytes(4))
    make(path, {"dense": (480, ())})
    environment = counting_plugin(tmp_path) | {"SPARSEFS_TEST_DECODED": str(counter)}
    copies = {name: tmp_path / f"{name}.h5" for name in ("repacked", "sparse", "back")}
    for command in (("repack", path, copies["repacked"]), ("import", f"{path}:/dense", copies["sparse"]),
                    ("export", f"{copies['sparse']}:/dense", copies["back"])):
        done = sparsectl(*command, environment=environment)
        assert done.returncode == 0, done.stderr
    assert int.from_bytes(counter.read_bytes(), "little") >= len(DATA)
    with h5py.File(copies["repacked"]) as file:
        plist = file["dense"].id.get_create_plist()
        assert [plist.get_filter(i)[0] for i in range(plist.get_nfilters())] == [480]
        for i in range(len(DATA)):
            mask, chunk = file["dense"].id.read_direct_chunk((i, 0, 0))
            assert mask == 0 and chunk == DATA[i].tobytes()
    with h5py.File(copies["back"]) as file:
        assert np.array_equal(file["dense"][...], DATA)
    without = sparsectl("import", f"{path}:/dense", tmp_path / "none.h5", environment={"HDF5_PLUGIN_PATH": "/"})
    assert without.returncode == 1 and b"480" in without.stderr and not (tmp_path / "none.h5").exists()


CLAIM = 160 * MIB


def make_claims(path):
    """Chunks of 160 MiB, each dataset's first one of which is stored in some KiB."""
    deflate = zlib.compressobj(9)
    stored = b"".join(deflate.compress(bytes(MIB)) for _ in range(CLAIM // MIB)) + deflate.flush()
    with h5py.File(path, "w", libver="latest") as file:
        for name, filters in {"ours": (1,), "theirs": (HOSTILE, 1)}.items():
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((1, CLAIM // MIB, MIB))
            for number in filters:
                plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL, (0,) if number == HOSTILE else (9,))
            made = h5py.h5d.create(file.id, name.encode(), h5py.h5t.STD_U8LE,
                                   h5py.h5s.create_simple((3, CLAIM // MIB, MIB)), plist)
            made.write_direct_chunk((0, 0, 0), stored, 0)


def first(mount, name, i):
    with open(mount / f"{name}/frames/{i}.raw", "rb", buffering=0) as file:
        return file.read(4096)


def shared(mount):
    """Bytes that the daemon shares with processes for plugins."""
    lines = pathlib.Path(f"/proc/{mount.process.pid}/maps").read_text().splitlines()
    ends = [line.split()[0].split("-") for line in lines if "memfd:sparsefs-chunk" in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in ends)


@pytest.mark.parametrize("option", ["ro", "rw"])
def test_large_chunks_stay_within_the_memory_of_a_chunk(mounts, tmp_path, option):
    """Undoing plugins takes the chunk twice. Of what is not stored nothing is allocated."""
    path = tmp_path / "claims.h5"
    make_claims(path)
    environment = hostile_plugin(tmp_path)
    mount = mounts(path, option, "chunk_memory=200M,cache_size=16M", environment=environment,
                   expect_log=True)
    for name in "ours", "theirs":
        assert first(mount, name, 1) == bytes(4096)
    assert is_sanitized() or peak(mount.process.pid) < 64 * MIB
    fails(mount, "theirs", 0)
    assert "chunk_memory= allows no more than 200 MiB" in mount.log()
    assert is_sanitized() or peak(mount.process.pid) < 64 * MIB
    assert first(mount, "ours", 0) == bytes(4096)
    mount.unmount()

    mount = mounts(path, option, "chunk_memory=400M,cache_size=16M,hdf5_timeout=100", environment=environment)
    assert first(mount, "theirs", 0) == bytes(4096)
    assert is_sanitized() or peak(mount.process.pid) < 400 * MIB
    assert shared(mount) < CLAIM  # it is not kept for chunks that take little
    assert first(mount, "theirs", 0) == bytes(4096)
