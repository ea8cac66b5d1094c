"""csr/ as it is written: three files that define, together, what is in every frame; all of it or nothing."""
import contextlib
import errno
import itertools
import os
import subprocess
import time

import numpy as np
import pytest

import sparse_files
from conftest import BUILD, wait_until
from model import refused
from test_limits import MIB, peak
from test_points import read_or_error
from test_worker import is_sanitized
from test_writing import SHAPE, Data, data, do, kill, sparse  # noqa: F401

NAMES = ["indptr.raw", "indices.raw", "data.raw"]


def arrays_of(array, defined):
    """What the three files are to hold."""
    flat, mask = array.reshape(len(array), -1), defined.reshape(len(array), -1)
    indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype("<i8")
    return [indptr, np.nonzero(mask)[1].astype("<i4"), flat[mask]]


def other(seed=9, frames=SHAPE[0], n=60):
    """Other elements, with values of which some are 0; one frame is empty."""
    rng = np.random.default_rng(seed)
    array, defined = np.zeros((frames, *SHAPE[1:]), "<u2"), np.zeros((frames, *SHAPE[1:]), bool)
    for frame in range(frames):
        if frame == 2:
            continue
        defined[frame].ravel()[rng.choice(defined[frame].size, n + frame, replace=False)] = True
        array[frame][defined[frame]] = rng.integers(0, 5, defined[frame].sum())
    return array, defined


def take(data, array, defined):
    data.array, data.defined = np.where(defined, array, data.fill).astype("<u2"), defined.copy()


def check_csr(d, data):
    for name, array in zip(NAMES, arrays_of(data.array, data.defined)):
        assert (d / "csr" / name).read_bytes() == array.tobytes(), name


def put(d, parts, names=NAMES):
    for name in names:
        (d / "csr" / name).write_bytes(parts[NAMES.index(name)].tobytes())


WAYS = {
    "cp": "cp {new}/*.raw {csr}/", "cp -a": "cp -a {new}/*.raw {csr}/",
    "cp of one state": "cp {new}/indptr.raw {new}/indices.raw {new}/data.raw {csr}",
    "rsync": "rsync -I --inplace --no-times {new}/*.raw {csr}/",
    "dd": "for f in data indptr indices; do dd if={new}/$f.raw of={csr}/$f.raw bs=100 status=none; done",
    "cat": "for f in indices indptr data; do cat {new}/$f.raw >{csr}/$f.raw; done",
    "truncated first": "for f in indices indptr data; do truncate -s $(stat -c %s {new}/$f.raw) {csr}/$f.raw; "
                       "dd if={new}/$f.raw of={csr}/$f.raw conv=notrunc status=none; done",
}


@pytest.mark.parametrize("way", WAYS)
def test_all_three(mounts, sparse, tmp_path, way):
    d = sparse.mount(mounts)
    sparse.check()  # so that the kernel knows everything as it was
    new = other()
    for name, array in zip(NAMES, arrays_of(*new)):
        (tmp_path / name).write_bytes(array.tobytes())
    do(WAYS[way].format(new=tmp_path, csr=d / "csr"))
    take(sparse, *new)
    check_csr(d, sparse)
    sparse.check_file(mounts)


def test_of_another_mount(mounts, sparse, tmp_path):
    """One dataset's csr/ into another one's."""
    os.mkdir(tmp_path / "other")
    source = Data(tmp_path / "other", True)
    take(source, *other(17))
    sparse_files.make(source.path, source.array, source.defined, (1, 7, 9))
    d = sparse.mount(mounts)
    do(f"cp {mounts(source.path, 'ro') / 'sparse/csr'}/*.raw {d}/csr/")
    sparse.array, sparse.defined = source.array, source.defined
    check_csr(d, sparse)
    sparse.check_file(mounts)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_by_numpy_and_synced(mounts, sparse, order):
    """All are open at once; what is synced last is what takes them."""
    d = sparse.mount(mounts, "commit_interval=3600")
    new = other()
    parts = arrays_of(*new)
    before = (d / "frames/0.raw").read_bytes()
    files = [open(d / "csr" / name, "wb") for name in NAMES]
    for i in order:
        assert (d / "frames/0.raw").read_bytes() == before
        parts[i].tofile(files[i])
        files[i].flush()
        os.fsync(files[i].fileno())
    take(sparse, *new)
    assert (d / "frames/0.raw").read_bytes() == sparse.array[0].tobytes()
    image = (sparse.mounted / ".sparsefs/image.h5").read_bytes()
    for file in files:
        file.close()
    check_csr(d, sparse)
    copy = sparse.path.with_name("copy.h5")
    copy.write_bytes(image)
    check_csr(mounts(copy) / "sparse", sparse)


def test_scipy(mounts, sparse):
    """A matrix of scipy.sparse, of which rows are in any order."""
    scipy_sparse = pytest.importorskip("scipy.sparse")
    d = sparse.mount(mounts)
    parts = arrays_of(sparse.array, sparse.defined)
    shape = (SHAPE[0], SHAPE[1] * SHAPE[2])
    matrix = scipy_sparse.csr_matrix((parts[2], parts[1], parts[0]), shape)
    assert (matrix.toarray() == sparse.array.reshape(shape)).all()
    changed = (matrix[::-1] * 2).tocsr()
    changed.has_sorted_indices = False
    rng = np.random.default_rng(1)
    for row in range(shape[0]):
        at = slice(changed.indptr[row], changed.indptr[row + 1])
        shuffled = rng.permutation(changed.indptr[row + 1] - changed.indptr[row])
        changed.indices[at], changed.data[at] = changed.indices[at][shuffled], changed.data[at][shuffled]
    changed.indptr.astype("<i8").tofile(d / "csr/indptr.raw")
    changed.indices.astype("<i4").tofile(d / "csr/indices.raw")
    changed.data.astype("<u2").tofile(d / "csr/data.raw")
    take(sparse, sparse.array[::-1] * 2, sparse.defined[::-1])
    check_csr(d, sparse)
    sparse.check_file(mounts)


def test_values_alone(mounts, sparse):
    """Of the same size: the selection stays. In part, too, and through a map."""
    d = sparse.mount(mounts)
    sparse.check()
    parts = arrays_of(sparse.array, sparse.defined)
    parts[2][...] = np.random.default_rng(3).integers(1, 60000, parts[2].size)
    put(d, parts, ["data.raw"])
    sparse.array[sparse.defined] = parts[2]
    sparse.check()
    with open(d / "csr/data.raw", "r+b", buffering=0) as f:
        f.seek(11)
        f.write(b"\x01\x02\x03")
    view = parts[2].view("u1")
    view[11:14] = 1, 2, 3
    sparse.array[sparse.defined] = parts[2]
    sparse.check()
    mapped = np.memmap(d / "csr/data.raw", "<u2", "r+")
    mapped[-1] = parts[2][-1] = 77
    mapped.flush()
    sparse.array[sparse.defined] = parts[2]
    assert (d / "frames/4.raw").read_bytes() == sparse.array[4].tobytes()
    del mapped
    check_csr(d, sparse)
    sparse.check_file(mounts)


def test_positions_alone(mounts, sparse):
    """The values stay, in their order."""
    d = sparse.mount(mounts)
    defined = sparse.defined[:, ::-1, ::-1].copy()
    parts = arrays_of(sparse.array, sparse.defined)
    array = np.zeros_like(sparse.array)
    array[defined] = parts[2]
    put(d, arrays_of(array, defined), ["indices.raw"])
    take(sparse, array, defined)
    check_csr(d, sparse)
    sparse.check_file(mounts)


def test_frames_that_are_the_same_are_not_written(mounts, sparse):
    d = sparse.mount(mounts)
    size = sparse.path.stat().st_size
    put(d, arrays_of(sparse.array, sparse.defined))
    do(f"sync -f {sparse.path} {d}/csr/data.raw")
    assert sparse.path.stat().st_size == size
    sparse.check_file(mounts)


@pytest.mark.parametrize("through", ["csr", "stack"])
def test_times_of_frames_end_with_what_is_written_to_all(mounts, sparse, through):
    """By which rsync finds what has changed. The file that was written has the time that is set before it is closed."""
    d = sparse.mount(mounts)
    frames = [d / f"{name}/{frame:06}.{name}" for name in ("raw", "npy") for frame in range(SHAPE[0])]
    names = ["csr/" + name for name in NAMES] if through == "csr" else ["stack.raw"]
    for path in frames + [d / name for name in names]:
        os.utime(path, (1.6e9, 1.6e9))
    contents = [part.tobytes() for part in arrays_of(*other())] if through == "csr" else [b""]
    for name, content in zip(names, contents):
        with open(d / name, "wb", buffering=0) as file:
            file.write(content)
            os.utime(file.fileno(), (1.5e9, 1.5e9))
    assert (d / names[-1]).stat().st_mtime == 1.5e9
    assert min(path.stat().st_mtime for path in frames) > 1.6e9


def test_all_at_once_where_indptr_was_emptied(mounts, sparse):
    """Each of the same size as before would be taken when it is closed."""
    d = sparse.mount(mounts)
    parts = arrays_of(sparse.array, sparse.defined)
    new = np.zeros_like(sparse.array), sparse.defined[:, ::-1, ::-1].copy()
    new[0][new[1]] = np.random.default_rng(4).integers(1, 60000, parts[2].size)
    before = [(d / f"frames/{i}.raw").read_bytes() for i in range(len(new[0]))]
    os.truncate(d / "csr/indptr.raw", 0)
    for name in ("data.raw", "indices.raw"):
        put(d, arrays_of(*new), [name])
        do(f"sync {d}/csr/{name}")
        assert [(d / f"frames/{i}.raw").read_bytes() for i in range(len(before))] == before
    put(d, arrays_of(*new), ["indptr.raw"])
    take(sparse, *new)
    check_csr(d, sparse)
    sparse.check_file(mounts)


def test_of_nothing(mounts, sparse):
    """Empty files: all frames are erased."""
    d = sparse.mount(mounts)
    sparse.erase(0, sparse.array.size)
    put(d, arrays_of(sparse.array, sparse.defined))
    wait_until(lambda: (d / "csr/data.raw").stat().st_size == 0 and not any((d / "frames/0.raw").read_bytes()))
    check_csr(d, sparse)
    put(d, arrays_of(*other()))
    take(sparse, *other())
    check_csr(d, sparse)
    sparse.check_file(mounts)


def test_more_rows_than_frames(mounts, tmp_path):
    data = Data(tmp_path, True, maxshape=(100, *SHAPE[1:]))
    d = data.mount(mounts)
    new = other(frames=SHAPE[0] + 4)
    new[0][-1], new[1][-1] = 0, False  # an empty row at the end is a frame, too
    put(d, arrays_of(*new))
    take(data, *new)
    assert len(os.listdir(d / "frames")) == 2 * len(data.array)
    check_csr(d, data)
    data.check_file(mounts)


def without(parts, part, change):
    parts = [array.copy() for array in parts]
    parts[part] = change(parts[part])
    return parts


def replaced(array, at, value):
    array[at] = value
    return array


MISFITS = {
    "does not begin with 0": (0, lambda a: replaced(a, 0, 1)),
    "falls behind item": (0, lambda a: replaced(a, 2, 0)),
    "and indices.raw has": (0, lambda a: replaced(a, -1, a[-1] + 3)),
    "for 5 frames it has 6": (0, lambda a: a[:-1]),
    "cannot grow so far": (0, lambda a: np.append(a, a[-1])),
    "its items have 8 each": (0, lambda a: a.view("u1")[:-1]),
    "outside of a frame": (1, lambda a: replaced(a, 5, SHAPE[1] * SHAPE[2])),
    "is outside of a frame": (1, lambda a: replaced(a, 5, -1)),
    "twice": (1, lambda a: replaced(a, 5, a[6])),
    "indices.raw has": (1, lambda a: a[:-1]),
    "data.raw": (2, lambda a: a[:-1]),
    "its items have 2 each": (2, lambda a: a.view("u1")[:-1]),
}


@pytest.mark.parametrize("last", NAMES)
@pytest.mark.parametrize("why", MISFITS)
def test_what_does_not_fit_is_refused(mounts, sparse, why, last):
    """By close, of whichever is the last, or earlier, if no other file could mend it."""
    d = sparse.mount(mounts, expect_log=True)
    sparse.check()
    parts = without(arrays_of(*other()), *MISFITS[why])
    with refused(errno.EINVAL):
        put(d, parts, [name for name in NAMES if name != last] + [last])
        pytest.fail("all were taken")
    wait_until(lambda: why in sparse.mounted.log())
    lines = [line for line in (sparse.mounted / ".sparsefs/log").read_text().splitlines() if "does not fit:" in line]
    assert len(lines) == 1 and why in lines[0], lines
    sparse.check()
    check_csr(d, sparse)
    # What was refused is gone: the next ones are taken.
    put(d, arrays_of(*other()))
    take(sparse, *other())
    check_csr(d, sparse)
    sparse.check_file(mounts)


def test_what_does_not_fit_is_refused_by_fsync(mounts, sparse):
    d = sparse.mount(mounts, expect_log=True)
    parts = without(arrays_of(*other()), *MISFITS["twice"])
    put(d, parts, NAMES[:1])
    with open(d / "csr/data.raw", "wb", buffering=0) as f:
        f.write(parts[2].tobytes())
    with open(d / "csr/indices.raw", "wb", buffering=0) as f:
        f.write(parts[1].tobytes())
        with refused(errno.EINVAL):
            os.fsync(f.fileno())
    sparse.check()
    check_csr(d, sparse)


def test_what_waits_is_shown_and_lost(mounts, sparse):
    d = sparse.mount(mounts, expect_log=True)
    parts = arrays_of(*other())
    put(d, parts, ["indices.raw", "indptr.raw"])
    for i in (0, 1):
        assert (d / "csr" / NAMES[i]).stat().st_size == parts[i].nbytes
        assert (d / "csr" / NAMES[i]).read_bytes() == parts[i].tobytes()
    assert "csr/indices.raw waits for the other files" in (sparse.mounted / ".sparsefs/log").read_text()
    assert (d / "csr/data.raw").read_bytes() == arrays_of(sparse.array, sparse.defined)[2].tobytes()
    for frame in range(len(sparse.array)):
        assert (d / f"frames/{frame}.raw").read_bytes() == sparse.array[frame].tobytes()
    sparse.mounted.unmount()
    lost = [line for line in sparse.mounted.log().splitlines() if "lost" in line]
    assert len(lost) == 1 and "csr/indptr.raw csr/indices.raw" in lost[0]
    sparse.d = sparse.mounted = None
    mounted = mounts(sparse.path, "ro")
    check_csr(mounted / "sparse", sparse)


def test_no_more_than_staging_size(mounts, sparse):
    d = sparse.mount(mounts, "staging_size=16K", expect_log=True)
    with refused(errno.ENOSPC):
        (d / "csr/data.raw").write_bytes(bytes(20000))
    assert "csr/data.raw: it would need more than staging_size=16384" in sparse.mounted.log()
    # What one has is not there for another one.
    put(d, arrays_of(*other()), ["data.raw"])
    with refused(errno.ENOSPC):
        (d / "csr/indices.raw").write_bytes(bytes(13000))
    put(d, arrays_of(*other()), ["indptr.raw", "indices.raw"])
    take(sparse, *other())
    sparse.check()


@pytest.mark.skipif(is_sanitized(), reason="a sanitizer takes memory of its own")
def test_frames_that_were_larger_than_can_be_kept(mounts, tmp_path):
    """What a frame has before is read only to be kept, or compared, and not where that cannot be."""
    side, path = 8192, tmp_path / "large.h5"
    subprocess.run([BUILD / "sparsectl", "create", path, "/d", f"--dims=1,{side},{side}", "--dtype=u1",
                    "--chunk=1,1024,1024", "--filter=values:deflate"], check=True)
    mount = mounts(path, "rw", "cache_size=16M")
    (mount / "d/frames/0.raw").write_bytes(b"\1" * side * side)
    mount.unmount()
    mount = mounts(path, "rw", "cache_size=16M,staging_size=4M")
    with contextlib.ExitStack() as stack:  # as one alone would have to be compared with the others as they are
        for name, part in zip(NAMES, [np.array([0, 1], "<i8"), np.array([5], "<i4"), np.array([7], "u1")]):
            stack.enter_context(open(mount / "d/csr" / name, "wb")).write(part.tobytes())
    assert (mount / "d/csr/data.raw").read_bytes() == b"\7"
    assert (mount / "d/frames/0.raw").read_bytes()[:8] == bytes([0, 0, 0, 0, 0, 7, 0, 0])
    assert peak(mount.process.pid) < 64 * MIB


def test_what_one_cannot_write_keeps_what_another_has_written(mounts, sparse):
    d = sparse.mount(mounts, expect_log=True)
    parts = arrays_of(*other())
    put(d, parts, ["indptr.raw", "indices.raw"])  # they wait for the last one
    for name in "indices.raw", "data.raw":
        with open(d / "csr/data.raw", "wb", buffering=0) as file:
            file.write(parts[2].tobytes())
            with refused(errno.ENOSPC):
                os.truncate(d / "csr" / name, 1 << 50)
            with open(d / "csr" / name, "r+b", buffering=0) as failing, refused(errno.ENOSPC):
                os.pwrite(failing.fileno(), b"\1", 1 << 50)
            os.fsync(file.fileno())
    take(sparse, *other())
    sparse.check()
    check_csr(d, sparse)
    put(d, parts, ["indices.raw"])  # who has changed it a little can still not have it lost
    with open(d / "csr/indices.raw", "r+b", buffering=0) as file:
        file.write(parts[1].tobytes()[:1])
        with refused(errno.ENOSPC):
            os.pwrite(file.fileno(), b"\1", 1 << 50)
        assert os.pread(file.fileno(), parts[1].nbytes, 0) == parts[1].tobytes()


@pytest.mark.parametrize("frame", [3, 4])
def test_a_failure_in_the_midst_changes_nothing(mounts, sparse, frame):
    """A chunk cannot be read: what the frames before it got is taken back."""
    content = sparse.path.read_bytes()
    for at in range(len(content) // 4, len(content), 300):
        sparse.path.write_bytes(content[:at] + b"\xff" * 40 + content[at + 40:])
        done = subprocess.run([BUILD / "sparsectl", "check", sparse.path], capture_output=True, text=True)
        if f"chunk ({frame},1," in done.stdout:
            break
    else:
        pytest.fail("no chunk of this frame was damaged")
    d = sparse.mount(mounts, expect_log=True)
    before = [read_or_error(d / f"frames/{i}.raw") for i in range(len(sparse.array))]
    assert before[frame] == errno.EIO and before.count(errno.EIO) == 1
    put(d, arrays_of(*other()), ["indptr.raw", "indices.raw"])  # which wait, whatever cannot be read
    with refused(errno.EIO):
        put(d, arrays_of(*other()), ["data.raw"])
    assert [read_or_error(d / f"frames/{i}.raw") for i in range(len(sparse.array))] == before
    for i in range(len(sparse.array)):
        if i != frame:
            values = (d / f"values/{i:06}.values").read_bytes()
            assert values == sparse.array[i][sparse.defined[i]].tobytes()


def test_all_of_it_or_nothing_after_a_crash(mounts, sparse):
    d = sparse.mount(mounts, "commit_interval=3600", expect_log=True)
    before = [a.tobytes() for a in arrays_of(sparse.array, sparse.defined)]
    put(d, arrays_of(*other()))
    take(sparse, *other())
    check_csr(d, sparse)
    kill(sparse.mounted)
    d = mounts(sparse.path, "ro") / "sparse"
    assert [(d / "csr" / name).read_bytes() for name in NAMES] == before


def test_what_cannot_be_written(mounts, data, tmp_path):
    """Of dense datasets, of read-only mounts, and the text."""
    d = data.mount(mounts)
    for name in NAMES if not data.is_sparse else []:
        with refused(errno.EPERM):
            open(d / "csr" / name, "r+b")
    with refused(errno.EPERM):
        open(d / "csr/raw_csr.toml", "r+b")
    data.mounted.unmount()
    with refused(errno.EROFS):
        open(mounts(data.path, "ro") / "sparse/csr/data.raw", "r+b")


def test_in_a_folder(mounts, tmp_path):
    """What waits keeps its file open, however few may be."""
    folder = tmp_path / "folder"
    folder.mkdir()
    several = []
    for i in range(4):
        (folder / str(i)).mkdir()
        several.append(Data(folder / str(i), True))
    mounted = mounts(folder, "default", "max_open=2")
    parts = arrays_of(*other())
    put(mounted / "0/sparse0.h5/sparse", parts, ["indptr.raw", "data.raw"])
    for i in (1, 2, 3):
        check_csr(mounted / f"{i}/sparse0.h5/sparse", several[i])
    put(mounted / "0/sparse0.h5/sparse", parts, ["indices.raw"])
    take(several[0], *other())
    check_csr(mounted / "0/sparse0.h5/sparse", several[0])
    mounted.unmount()
    done = subprocess.run([BUILD / "sparsectl", "check", several[0].path], capture_output=True, text=True)
    assert done.returncode == 0, done


def pause(path):
    """Truncated, and passed on as a shell does: by another descriptor of the same opening, which is given."""
    opened = os.open(path, os.O_WRONLY | os.O_TRUNC)
    passed = open(os.dup(opened), "wb", buffering=0)
    os.close(opened)
    return passed


def test_who_has_written_before_does_not_end_what_another_writes(mounts, sparse):
    """Its last descriptor is closed in the midst of that; the kernel itself may say so that late."""
    d = sparse.mount(mounts)
    new = other()
    parts = arrays_of(*new)
    with pause(d / "csr/indptr.raw") as earlier:
        earlier.write(arrays_of(sparse.array, sparse.defined)[0].tobytes())
        os.close(os.dup(earlier.fileno()))
        put(d, parts, NAMES[1:])
        with open(d / "csr/indptr.raw", "wb", buffering=0) as f:
            f.write(parts[0][:2].tobytes())
            earlier.close()
            time.sleep(0.2)
            f.write(parts[0][2:].tobytes())
    take(sparse, *new)
    check_csr(d, sparse)
    sparse.check_file(mounts)


@pytest.mark.parametrize("order", itertools.permutations(range(3)))
def test_no_elements_are_there_when_the_last_file_is_closed(mounts, sparse, order):
    """Two of the files have no bytes, so that nothing is written after they are truncated."""
    d = sparse.mount(mounts)
    new = np.zeros_like(sparse.array), np.zeros_like(sparse.defined)
    parts = arrays_of(*new)
    with contextlib.ExitStack() as passed:
        for i in order:
            if parts[i].size:
                put(d, parts, [NAMES[i]])
            else:
                passed.enter_context(pause(d / "csr" / NAMES[i]))
        take(sparse, *new)
        assert (d / "frames/0.raw").read_bytes() == sparse.array[0].tobytes()
        sparse.check()
    check_csr(d, sparse)
    sparse.check_file(mounts)


def test_several_programs_at_once(mounts, sparse):
    """`cat data >data.raw &` has truncated it, and not yet begun to write when the others have ended."""
    d = sparse.mount(mounts)
    new = other()
    parts = arrays_of(*new)
    with pause(d / "csr/data.raw") as passed:
        put(d, parts, NAMES[:2])
        passed.write(parts[2].tobytes())
    take(sparse, *new)
    check_csr(d, sparse)
    sparse.check_file(mounts)
