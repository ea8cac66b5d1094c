"""npz/N.npz: the defined elements of a frame and their values, as scipy.sparse loads and saves them. What is
written defines exactly these, all of them or nothing."""
import errno
import io
import os
import zipfile

import h5py
import numpy as np
import pytest

import sparse_files
from conftest import BUILD, wait_until
from model import refused
from test_writing import SHAPE, Data, data, do, kill, sparse  # noqa: F401

NAMES = {"?": "bool", "<c16": "complex128"}  # of those that sparsectl calls otherwise
scipy_sparse = pytest.importorskip("scipy.sparse")
DIMS = SHAPE[1:]


def name(d, frame):
    return d / f"npz/{frame:06}.npz"


def points(seed, n=40, dims=DIMS, dtype="<u2"):
    """A mask and values: any, of which some are 0."""
    rng = np.random.default_rng(seed)
    mask = np.zeros(dims, bool)
    mask.ravel()[rng.choice(mask.size, min(n, mask.size), replace=False)] = True
    values = np.zeros(dims, dtype)
    values[mask] = rng.integers(0, 4, mask.sum())
    return mask, values


def matrix_of(mask, values, form="csr"):
    rows, columns = np.nonzero(mask)
    # SciPy has its own byte order only, in newer versions; tests of others do without it.
    coo = scipy_sparse.coo_matrix((values[mask].astype(values.dtype.newbyteorder("=")), (rows, columns)), mask.shape)
    return getattr(coo, "to" + form)() if form != "coo" else coo


def take(data, frame, mask, values):
    data.defined[frame] = mask
    data.array[frame] = np.where(mask, values, data.fill)


def check_matrix(data, frame):
    path = name(data.d, frame)
    matrix = scipy_sparse.load_npz(str(path))
    assert matrix.format == "csr" and matrix.shape == data.array.shape[1:]
    assert matrix.nnz == data.defined[frame].sum() and matrix.dtype == data.array.dtype
    found = np.zeros(matrix.shape, bool)
    coo = matrix.tocoo()
    found[coo.row, coo.col] = True
    assert (found == data.defined[frame]).all()
    assert (coo.data == data.array[frame][coo.row, coo.col]).all()
    assert len(path.read_bytes()) == path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def check(data):
    data.check()
    for frame in range(len(data.array)):
        check_matrix(data, frame)


@pytest.mark.parametrize("options", [("rw",), ("ro",), ("ro", "direct_io"), ()])
def test_scipy_loads_frames(mounts, sparse, options):
    sparse.d = mounts(sparse.path, *options) / "sparse"
    for frame in range(len(sparse.array)):
        check_matrix(sparse, frame)
    assert sorted(os.listdir(sparse.d / "npz")) == [f"{i:06}.npz" for i in range(len(sparse.array))]
    if "ro" in options:
        with refused(errno.EROFS):
            open(name(sparse.d, 0), "r+b")


@pytest.mark.parametrize("dims, dtype", [((7,), ">f4"), ((3, 5), "<i8"), ((2, 3, 4, 5), "u1"), ((4, 6), "<c16"),
                                         ((4, 6), "<f8"), ((4, 6), "?")])
def test_shapes_and_types(mounts, tmp_path, dims, dtype):
    """Rows are all axes but the last; of up to two dims the dataset is one frame."""
    path = tmp_path / "a.h5"
    numbers = ",".join(map(str, dims))
    do(f"{BUILD}/sparsectl create {path} /d --dims {numbers} --chunk {numbers} --dtype '{NAMES.get(dtype, dtype)}'")
    d = mounts(path, "rw") / "d"
    frame = dims[1:] if len(dims) > 2 else dims
    shape = (int(np.prod(frame[:-1])), frame[-1])
    mask, values = points(1, 6, shape, dtype)
    np.savez(str(name(d, 0)), **parts(matrix_of(mask, values)))
    found = np.fromfile(str(d / "frames/0.raw"), dtype).reshape(shape)
    assert (found == np.where(mask, values, 0)).all()
    selection = h5py.h5s.decode((d / "frames/0.defined").read_bytes())
    assert selection.get_select_npoints() == mask.sum() and selection.shape == frame
    with np.load(str(name(d, 0))) as loaded:
        assert loaded["data"].dtype == np.dtype(dtype).newbyteorder("<")  # as SciPy wants it
        assert loaded["shape"].tolist() == list(shape) and loaded["format"].item() == b"csr"
        assert (loaded["data"] == values[mask]).all() and (loaded["indices"] == np.nonzero(mask)[1]).all()
        assert (loaded["indptr"] == np.concatenate([[0], np.cumsum(mask.sum(axis=1))])).all()


def parts(matrix):
    """What scipy saves, of any dtype."""
    if matrix.format == "coo":
        return {"row": matrix.row, "col": matrix.col, "format": b"coo", "shape": matrix.shape, "data": matrix.data}
    return {"indices": matrix.indices, "indptr": matrix.indptr, "format": matrix.format.encode(),
            "shape": matrix.shape, "data": matrix.data}


def encode(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("compressed", [True, False])
def test_scipy_saves_frames(mounts, sparse, form, compressed):
    d = sparse.mount(mounts)
    check(sparse)
    for frame, n in (1, 40), (3, 0), (0, 10**6), (len(sparse.array) - 1, 1):
        mask, values = points(frame, n)
        scipy_sparse.save_npz(str(name(d, frame)), matrix_of(mask, values, form), compressed=compressed)
        take(sparse, frame, mask, values)
        check(sparse)
    do(f"sync {d}")
    sparse.check_file(mounts)


def test_any_order_and_types_of_indices(mounts, sparse, tmp_path):
    """Columns of a row need not ascend; indices are integers of any kind; the other byte order."""
    d = sparse.mount(mounts)
    mask, values = points(5)
    coo = matrix_of(mask, values, "coo")
    order = np.random.default_rng(1).permutation(coo.nnz)
    for frame, index in enumerate(["<i4", ">i8", "<u2", "u1"]):
        content = encode(row=coo.row[order].astype(index), col=coo.col[order].astype(index), format=b"coo",
                         shape=np.array(coo.shape, index), data=coo.data[order].astype(">u2"), more=np.arange(5))
        name(d, frame).write_bytes(content)
        take(sparse, frame, mask, values)
        check(sparse)


def test_copies_truncation_and_names(mounts, sparse, tmp_path):
    """Frames are copied with cp; a temporary name and a rename; > erases; all of it shows itself at once."""
    d = sparse.mount(mounts)
    do(f"cp {name(d, 1)} {name(d, 2)}")
    sparse.array[2], sparse.defined[2] = sparse.array[1], sparse.defined[1]
    check(sparse)
    mask, values = points(8)
    temporary = d / "npz/.new.tmp.npz"
    scipy_sparse.save_npz(str(temporary), matrix_of(mask, values))
    os.replace(temporary, name(d, 4))
    take(sparse, 4, mask, values)
    check(sparse)
    do(f"> {name(d, 4)}")
    take(sparse, 4, np.zeros(DIMS, bool), values)
    check(sparse)
    os.truncate(name(d, 1), 0)
    take(sparse, 1, np.zeros(DIMS, bool), values)
    check(sparse)
    with open(name(d, 2), "r+b", buffering=0) as file:  # parts of a file are taken by themselves, in any order
        mask, values = points(9)
        content = encode(**parts(matrix_of(mask, values)))
        file.truncate(0)
        for at in reversed(range(0, len(content), 1000)):
            os.pwrite(file.fileno(), content[at:at + 1000], at)
        assert os.fstat(file.fileno()).st_size == len(content) and os.pread(file.fileno(), 10**6, 0) == content
        os.fsync(file.fileno())
        take(sparse, 2, mask, values)
        check(sparse)
    with refused(errno.EINVAL):
        os.truncate(name(d, 2), 100)
    with refused(errno.EFBIG):
        open(name(d, 2), "ab", buffering=0).write(b"more")
    check(sparse)


BAD = {
    "twice": lambda m: encode(row=[1, 1], col=[2, 2], format=b"coo", shape=m.shape, data=np.ones(2, "<u2")),
    "outside": lambda m: encode(row=[0], col=[m.shape[1]], format=b"coo", shape=m.shape, data=np.ones(1, "<u2")),
    "below": lambda m: encode(row=[-1], col=[0], format=b"coo", shape=m.shape, data=np.ones(1, "<u2")),
    "huge": lambda m: encode(row=np.array([2**63], "u8"), col=[0], format=b"coo", shape=m.shape,
                             data=np.ones(1, "<u2")),
    "type": lambda m: encode(**{**parts(m), "data": m.data.astype("<i2")}),
    "size": lambda m: encode(**{**parts(m), "data": m.data.astype("<u4")}),
    "shape": lambda m: encode(**{**parts(m), "shape": (m.shape[1], m.shape[0])}),
    "format": lambda m: encode(**{**parts(m), "format": b"bsr"}),
    "no data": lambda m: encode(**{k: v for k, v in parts(m).items() if k != "data"}),
    "too few": lambda m: encode(**{**parts(m), "indices": m.indices[:-1]}),
    "indptr falls": lambda m: encode(**{**parts(m), "indptr": m.indptr[::-1]}),
    "indptr short": lambda m: encode(**{**parts(m), "indptr": m.indptr[:-1]}),
    "indptr ends": lambda m: encode(**{**parts(m), "indptr": np.minimum(m.indptr, m.nnz - 1)}),
    "floats": lambda m: encode(**{**parts(m), "indices": m.indices.astype("f8")}),
    "pickles": lambda m: encode(**{**parts(m), "data": np.array([{}] * m.nnz, object)}),
    "text": lambda m: b"hello",
    "nothing there": lambda m: b"PK\5\6" + bytes(18),
    "half": lambda m: encode(**parts(m))[:700],
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("how", ["close", "fsync", "rename", "new"])
def test_what_is_refused_changes_nothing(mounts, tmp_path, bad, how):
    sparse = Data(tmp_path, True, maxshape=(20, *DIMS))
    d = sparse.mount(mounts, expect_log=True)
    content = BAD[bad](matrix_of(*points(2)))
    do(f"sync {d}")
    before = sparse.path.read_bytes()
    target = name(d, len(sparse.array) if how == "new" else 1)
    if how == "rename":
        (d / "npz/x.tmp").write_bytes(content)
        with refused(errno.EINVAL):
            os.replace(d / "npz/x.tmp", target)
    else:
        with refused(errno.EINVAL):
            fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            os.write(fd, content)
            try:
                if how == "fsync":
                    os.fsync(fd)
            finally:
                os.close(fd)
    check(sparse)
    assert not name(d, len(sparse.array)).exists()
    wait_until(lambda: "is not changed: the scipy.sparse file" in sparse.mounted.log())
    do(f"sync {d}")
    assert sparse.path.read_bytes() == before


def test_damaged_archives(mounts, sparse):
    """Any byte of a file may be another one: it is refused, or the same; nothing else happens."""
    d = sparse.mount(mounts, expect_log=True)
    mask, values = points(2)
    content = encode(**parts(matrix_of(mask, values)))
    rng = np.random.default_rng(4)
    scipy_sparse.save_npz(str(name(d, 0)), matrix_of(mask, values))
    packed = name(d, 0).read_bytes()
    take(sparse, 0, mask, values)
    n = 0
    for i in range(300):
        spoilt = bytearray(packed if i % 2 else content)
        for at in rng.integers(0, len(spoilt), rng.integers(1, 4)):
            spoilt[at] = rng.integers(0, 256)
        try:
            name(d, 1).write_bytes(spoilt[:len(spoilt) if i % 3 else int(rng.integers(len(spoilt)))])
        except OSError as error:
            assert error.errno in (errno.EINVAL, errno.ENOSPC, errno.EFBIG), error
            n += 1
    assert n > 100
    found = scipy_sparse.load_npz(str(name(d, 1))).toarray()
    assert (found == sparse.array[1]).all() or (found == np.where(mask, values, 0)).all()
    take(sparse, 1, *((mask, values) if (found == np.where(mask, values, 0)).all()
                      else (sparse.defined[1], sparse.array[1])))
    check(sparse)


def test_a_refused_archive_is_written_again_at_once(mounts, tmp_path):
    """Its last close is still looking at it then."""
    shape = (1, 1000, 1000)
    sparse_files.make(tmp_path / "a.h5", np.zeros(shape, "<u2"), np.zeros(shape, bool), (1, 1000, 1000))
    mount = mounts(tmp_path / "a.h5", "rw", expect_log=True)
    values = np.arange(1, 1_000_001, dtype="<u2").reshape(1000, 1000)
    content = bytearray(encode(**parts(scipy_sparse.csr_matrix(values))))
    content[content.index(b"data.npy") + 200_000] ^= 1
    path = mount / "sparse/npz/0.npz"
    for _ in range(60):
        with refused(errno.EINVAL):
            path.write_bytes(content)
    assert not scipy_sparse.load_npz(path).nnz


@pytest.mark.parametrize("told", ["close", "close of a copy", "fsync", "write"])
def test_what_is_forgotten_is_told_to_its_writers(mounts, sparse, told):
    """What one's close has refused is forgotten as another program opens the file, whose content this leaves alone."""
    d = sparse.mount(mounts, expect_log=True)
    mask, values = points(2)
    content = encode(**parts(matrix_of(mask, values)))
    first = os.open(name(d, 1), os.O_WRONLY | os.O_TRUNC)
    second = os.dup(first) if told == "close of a copy" else os.open(name(d, 1), os.O_WRONLY)
    os.pwrite(first, b"PK\3\4half", 0)
    os.pwrite(second, b"rest of it", 8)
    with refused(errno.EINVAL):
        os.close(first)
    third = os.open(name(d, 1), os.O_WRONLY)
    assert "frame 1 is not changed: what was written to its file was refused" in sparse.mounted.log()
    os.write(third, content[:100])
    if told == "fsync":
        with refused(errno.EINVAL):
            os.fsync(second)
        os.close(second)
    else:
        if told == "write":
            with refused(errno.EIO):
                os.pwrite(second, b"and the end", 18)
        with refused(errno.EINVAL):
            os.close(second)
    os.write(third, content[100:])
    os.close(third)
    take(sparse, 1, mask, values)
    check(sparse)


@pytest.mark.parametrize("file", ["npz/000001.npz", "frames/000001.defined"])
def test_what_a_sync_of_others_has_refused_is_told(mounts, sparse, file):
    d = sparse.mount(mounts, expect_log=True)
    first, second = (os.open(d / file, os.O_WRONLY) for _ in range(2))
    os.pwrite(first, b"half", 0)
    os.pwrite(second, b"rest of it", 4)
    with refused(errno.EINVAL):
        os.fsync(first)
    os.close(first)
    with refused(errno.EINVAL):
        os.close(second)
    check(sparse)


def test_a_bomb_is_refused(mounts, sparse):
    """A member that becomes more than staging_size."""
    d = sparse.mount(mounts, "staging_size=1M", expect_log=True)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{**parts(matrix_of(*points(2))), "data": np.zeros(2 << 20, "<u2")})
    with refused(errno.EFBIG, errno.ENOSPC, errno.EINVAL):
        name(d, 1).write_bytes(buffer.getvalue())
    check(sparse)


def test_frames_behind_the_last(mounts, tmp_path):
    sparse = Data(tmp_path, True, maxshape=(20, *DIMS))
    d = sparse.mount(mounts)
    mask, values = points(3)
    n = len(sparse.array)
    scipy_sparse.save_npz(str(name(d, n)), matrix_of(mask, values))
    sparse.array = np.concatenate([sparse.array, np.where(mask, values, 0)[None].astype(sparse.array.dtype)])
    sparse.defined = np.concatenate([sparse.defined, mask[None]])
    check(sparse)
    with refused(errno.EFBIG):
        scipy_sparse.save_npz(str(name(d, 20)), matrix_of(mask, values))
    check(sparse)


def test_a_dense_dataset_has_none(mounts, tmp_path):
    dense = Data(tmp_path, False)
    d = dense.mount(mounts)
    assert not (d / "npz").exists()


def test_synced_is_kept(mounts, sparse):
    """What was synced is there after the daemon was killed; what was not is there as a whole, or not at all."""
    d = sparse.mount(mounts)
    mask, values = points(6)
    fd = os.open(name(d, 2), os.O_RDWR | os.O_TRUNC)
    os.write(fd, encode(**parts(matrix_of(mask, values))))
    os.fsync(fd)
    take(sparse, 2, mask, values)
    kill(sparse.mounted)
    with pytest.raises(OSError):
        os.close(fd)
    sparse.mount(mounts, expect_log=True)
    check(sparse)


def test_a_frame_that_cannot_be_read_stays(mounts, sparse):
    """A chunk of it is damaged: the list is refused, other frames are written."""
    size = sparse.path.stat().st_size
    with open(sparse.path, "r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * 300)
    d = sparse.mount(mounts, expect_log=True)
    before = [read_or_error(d / f"frames/{i}.raw") for i in range(len(sparse.array))]
    assert errno.EIO in before and before.count(errno.EIO) < len(before)
    mask, values = points(1)
    content = encode(**parts(matrix_of(mask, values)))
    for frame, was in enumerate(before):
        if was == errno.EIO:
            with refused(errno.EIO):
                name(d, frame).write_bytes(content)
            assert read_or_error(d / f"frames/{frame}.raw") == errno.EIO
        else:
            name(d, frame).write_bytes(content)
            assert (d / f"frames/{frame}.raw").read_bytes() == np.where(mask, values, 0).astype("<u2").tobytes()


def read_or_error(path):
    try:
        return path.read_bytes()
    except OSError as error:
        return error.errno
