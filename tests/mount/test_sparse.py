"""Sparse datasets (structured chunk storage) in every view, their holes, and damage to them."""
import concurrent.futures
import errno
import json
import math
import os
import subprocess

import h5py
import numpy as np
import pytest

import files
import sparse_files
from compare import FRAME_DIRECTORIES, check_copies, selected
from conftest import BUILD, sparse_files as prototype_files

MIN_HOLE = 4096


def statistics(mount):
    return json.loads((mount / ".sparsefs/stats.json").read_text())


def delta(mount, before):
    return {key: value - before[key] for key, value in statistics(mount).items() if key != "lock"}


# ---- What a view must be ----


class Expected:
    """A dataset as it was made: dense elements, which of them are defined, and its frames."""

    def __init__(self, dense, defined, zero_fill, frame_rank=None):
        rank = dense.ndim
        if frame_rank is None:
            frame_rank = rank - 1 if rank >= 3 else rank
        self.dims = dense.shape[rank - min(frame_rank, rank):]
        self.shape = dense.shape
        self.n = math.prod(dense.shape[:rank - len(self.dims)])
        self.elements = math.prod(self.dims)
        self.dense = np.ascontiguousarray(dense).reshape(self.n, self.elements)
        self.defined = np.ascontiguousarray(defined).reshape(self.n, self.elements)
        self.zero_fill = zero_fill
        self.dtype = dense.dtype


def extents(mask, item, head):
    """Where there is data: the header and the defined elements, gaps that are worth it left out."""
    change = np.diff(np.concatenate([[0], mask.ravel().astype("i1"), [0]]))
    spans = [(0, head)] + [(head + b * item, head + e * item) for b, e in
                           zip(np.nonzero(change == 1)[0].tolist(), np.nonzero(change == -1)[0].tolist())]
    merged = [spans[0]]
    for begin, end in spans[1:]:
        if begin - merged[-1][1] < MIN_HOLE:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return [(b, e) for b, e in merged if e > b]


def shown_extents(fd, size):
    found, at = [], 0
    while at < size:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            raise
        at = os.lseek(fd, begin, os.SEEK_HOLE)
        assert at > begin
        found.append((begin, at))
    return found


def check_file(path, content, data=None):
    """The bytes, the size, blocks and holes of one file. data: bytes that are no holes, and extents."""
    allocated, wanted = data or (len(content), [(0, len(content))] if content else [])
    st = os.stat(path)
    assert st.st_size == len(content), path
    assert st.st_blocks == -(-allocated // 512), path
    fd = os.open(path, os.O_RDONLY)
    try:
        assert os.pread(fd, len(content) + 1, 0) == content, path
        middle = len(content) // 2
        assert os.pread(fd, 7, middle) == content[middle:middle + 7], path
        assert os.pread(fd, 10, len(content)) == b""
        assert shown_extents(fd, len(content)) == wanted, path
        with pytest.raises(OSError):
            os.lseek(fd, len(content), os.SEEK_HOLE)
    finally:
        os.close(fd)


def dense_data(expected, mask, head=0):
    """What check_file is to find of a dense view."""
    item = expected.dtype.itemsize
    if not expected.zero_fill:
        return None
    return head + int(mask.sum()) * item, extents(mask, item, head)


def check_defined(path, expected, frame):
    """libhdf5 decodes it, and selects just that."""
    content = path.read_bytes()
    mask = selected(content, expected.dims)
    assert np.array_equal(mask.ravel(), expected.defined[frame]), path
    check_file(path, content)


def check_csr(folder, expected):
    import scipy.sparse
    toml = (folder / "raw_csr.toml").read_text()
    assert f"sig_shape = {list(expected.dims) or [1]}" in toml
    index_type = "<i4" if expected.elements < 2**31 else "<i8"
    counts = expected.defined.sum(axis=1)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype("<i8")
    indices = np.nonzero(expected.defined)[1].astype(index_type)
    data = expected.dense[expected.defined]
    check_file(folder / "indptr.raw", indptr.tobytes())
    check_file(folder / "indices.raw", indices.tobytes())
    check_file(folder / "data.raw", data.tobytes())
    native = data.astype(data.dtype.newbyteorder("="))
    matrix = scipy.sparse.csr_matrix(
        (native, np.fromfile(folder / "indices.raw", index_type),
         np.fromfile(folder / "indptr.raw", "<i8")), shape=expected.dense.shape)
    assert np.array_equal(matrix.toarray(), np.where(expected.defined, expected.dense, 0))


def check_frame(directory, expected, frame, number, width, listed):
    content, mask = expected.dense[frame].tobytes(), expected.defined[frame]
    for name in (f"frames/{number}.raw", f"raw/{number:0{width}d}.raw"):
        check_file(directory / name, content, dense_data(expected, mask))
    check_file(directory / f"values/{number:0{width}d}.values",
               expected.dense[frame][mask].tobytes())
    check_defined(directory / f"frames/{number}.defined", expected, frame)
    if "npy" in listed:
        path = directory / f"npy/{number:0{width}d}.npy"
        loaded = np.load(path)
        assert loaded.shape == expected.dims and loaded.tobytes() == content
        head = path.stat().st_size - len(content)
        check_file(path, path.read_bytes()[:head] + content, dense_data(expected, mask, head))
    if "tiff" in listed:
        import tifffile
        path = directory / f"tiff/{number:0{width}d}.tif"
        assert np.array_equal(tifffile.imread(path), expected.dense[frame].reshape(expected.dims))
        head = path.stat().st_size - len(content)
        check_file(path, path.read_bytes()[:head] + content, dense_data(expected, mask, head))


def check_sparse(directory, expected, first=0):
    """Every view of a sparse dataset."""
    listed = set(os.listdir(directory))
    numbers = range(first, first + expected.n)
    width = max(6, len(str(first + expected.n - 1)))
    described = json.loads((directory / "dataset.json").read_text())
    assert described["layout"] == "sparse" and described["frames"] == expected.n
    assert described["dims"] == list(expected.shape)
    assert described["frame_dims"] == list(expected.dims)
    assert described["defined_elements"] == expected.defined.sum()
    assert set(described["filters"]) == {"selection", "values"}
    assert {e.name for e in os.scandir(directory / "frames")} \
        == {f"{n}.{s}" for n in numbers for s in ("raw", "defined")}
    for kind, suffix in FRAME_DIRECTORIES.items():
        if kind in listed:
            assert {e.name for e in os.scandir(directory / kind)} \
                == {f"{n:0{width}d}{suffix}" for n in numbers}
    for number in numbers:
        check_frame(directory, expected, number - first, number, width, listed)
    whole = expected.dense.tobytes()
    check_file(directory / "stack.raw", whole, dense_data(expected, expected.defined))
    head = (directory / "stack.npy").stat().st_size - len(whole)
    check_file(directory / "stack.npy", (directory / "stack.npy").read_bytes()[:head] + whole,
               dense_data(expected, expected.defined, head))
    assert np.load(directory / "stack.npy").shape == expected.shape
    if expected.dtype.kind in "iuf":
        assert {"csr", "npy"} <= listed
        check_csr(directory / "csr", expected)
        if "value.txt" in listed:
            text = (directory / "value.txt").read_text()
            assert np.array_equal(np.array(text.split()).astype(expected.dtype.newbyteorder("=")),
                                  expected.dense.ravel())


# ---- Files of the prototype, and our own ----


def expected_of_json(path, frame_rank=None):
    what = json.loads(path.with_suffix(".json").read_text())
    dtype = what["dtype"]
    dtype = np.dtype(dtype)

    def element(value):
        return tuple(value) if isinstance(value, list) else value

    fill = np.zeros((), dtype) if what["fill"] is None else np.array(element(what["fill"]), dtype)
    dense, defined = np.full(what["shape"], fill, dtype), np.zeros(what["shape"], bool)
    for place, value in what["defined"]:
        dense[tuple(place)] = element(value)
        defined[tuple(place)] = True
    return Expected(dense, defined, not any(fill.tobytes()), frame_rank), what


@pytest.mark.parametrize("path", prototype_files(), ids=lambda p: p.name)
@pytest.mark.parametrize("options", [(), ("direct_io", "cache_size=1M")], ids=["cached", "direct"])
def test_prototype_files(mounts, path, options):
    mount = mounts(path, *options)
    expected, what = expected_of_json(path)
    check_sparse(mount / "sparse", expected)
    described = json.loads((mount / "sparse/dataset.json").read_text())
    assert described["max_dims"] == what["maxshape"] and described["chunk_dims"] == what["chunks"]
    for section, key in (("selection", "deflate_section0"), ("values", "deflate_section1")):
        deflates = [f for f in described["filters"][section] if f["name"] == "deflate"]
        assert [f["parameters"] for f in deflates] == ([[what[key]]] if what[key] else [])


def scattered(shape, dtype="<u2", share=0.1, seed=1):
    """Elements and which of them are defined, the second frame empty and the third full."""
    random = np.random.default_rng(seed)
    array = random.integers(1, 200, shape).astype(dtype)
    defined = random.random(shape) < share
    defined[1], defined[2] = False, True
    return np.where(defined, array, 0).astype(dtype), defined


FILES = {
    "a chunk for each frame": dict(chunks=(1, 30, 41)),
    "chunks that are parts of frames": dict(chunks=(1, 8, 16), deflate=(0, 6)),
    "chunks that span frames": dict(chunks=(3, 8, 41), deflate=(6, 6)),
    "many chunks": dict(chunks=(1, 2, 5)),
    "many chunks that span frames": dict(chunks=(2, 2, 5)),
    "edges that may move": dict(chunks=(1, 8, 16), maxshape=(7, 60, 60)),
    "one chunk": dict(chunks=(7, 30, 41), deflate=(0, 1)),
    "a fill value": dict(chunks=(1, 30, 41), fill=7),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("options", [(), ("direct_io", "cache_size=64K")], ids=["cached", "direct"])
def test_chunk_shapes(mounts, tmp_path, name, options):
    array, defined = scattered((7, 30, 41))
    sparse_files.make(tmp_path / "file.h5", array, defined, **FILES[name])
    fill = FILES[name].get("fill", 0)
    mount = mounts(tmp_path / "file.h5", *options)
    check_sparse(mount / "sparse", Expected(np.where(defined, array, fill).astype("<u2"), defined,
                                            fill == 0))


@pytest.mark.parametrize("maxshape, chunk", [
    ((9, 30, 41), "9,30,41"), ((9, 30, 41), "1,15,20"), ((None, 30, 41), "1,30,41"),
    ((9, None, 41), "2,7,41"), ((None, None, 41), "1,16,16")], ids=str)
def test_files_of_sparsectl(mounts, tmp_path, maxshape, chunk):
    """All kinds of chunk index, selections in their smallest form, filters of both sections."""
    array, defined = scattered((9, 30, 41))
    with h5py.File(tmp_path / "dense.h5", "w") as f:
        f.create_dataset("sparse", data=array, maxshape=maxshape, chunks=True)
    subprocess.run([BUILD / "sparsectl", "import", "--chunk", chunk, tmp_path / "dense.h5",
                    tmp_path / "file.h5"], check=True, capture_output=True)
    mount = mounts(tmp_path / "file.h5")
    check_sparse(mount / "sparse", Expected(array, defined, True))
    described = json.loads((mount / "sparse/dataset.json").read_text())
    assert described["max_dims"] == list(maxshape)
    assert [[f["name"] for f in described["filters"][s]] for s in ("selection", "values")] \
        == [["shuffle", "deflate"]] * 2


@pytest.mark.parametrize("dtype", [">f8", "|u1", "<c8", "S3", "i2,f4"])
def test_datatypes(mounts, tmp_path, dtype):
    dtype = np.dtype(dtype)
    random = np.random.default_rng(2)
    array = np.frombuffer(random.integers(40, 60, 200 * dtype.itemsize, "u1").tobytes(),
                          dtype).reshape(5, 8, 5)
    defined = random.random(array.shape) < 0.5
    array = np.where(defined, array, np.zeros((), dtype))
    sparse_files.make(tmp_path / "file.h5", array, defined, (1, 8, 5))
    mount = mounts(tmp_path / "file.h5")
    check_sparse(mount / "sparse", Expected(array, defined, True))


@pytest.mark.parametrize("frame_rank, first", [(0, 0), (1, 1), (2, 1), (3, 0), (9, 0)])
def test_frame_rank_and_first(mounts, tmp_path, frame_rank, first):
    array, defined = scattered((4, 5, 6))
    sparse_files.make(tmp_path / "file.h5", array, defined, (2, 3, 6))
    mount = mounts(tmp_path / "file.h5", f"frame_rank={frame_rank},first={first}")
    check_sparse(mount / "sparse", Expected(array, defined, True, frame_rank), first)


def test_smallest_file(mounts, tmp_path):
    (tmp_path / "smallest.h5").write_bytes(sparse_files.SMALLEST)
    mount = mounts(tmp_path / "smallest.h5")
    defined = np.array([False, True, True, True, False])
    check_sparse(mount / "x", Expected(np.array([0, 1, 5, 7, 0], "<i4"), defined, True))
    assert (mount / "x/value.txt").read_text() == "0 1 5 7 0\n"
    check_copies(mount.root, tmp_path)


def test_attributes(mounts, tmp_path):
    array, defined = scattered((3, 4, 5))
    sparse_files.make(tmp_path / "file.h5", array, defined, (1, 4, 5),
                      attributes=[("gain", 5), ("run", -42)])
    mount = mounts(tmp_path / "file.h5")
    assert set(os.listxattr(mount / "sparse")) == {"user.gain", "user.run"}
    assert os.getxattr(mount / "sparse", "user.run") == b"-42"
    described = json.loads((mount / "sparse/dataset.json").read_text())
    assert described["attributes"] == {"gain": 5, "run": -42}


def test_variable_length(mounts, tmp_path):
    """Shown, with what is defined, as sequences (test_parts.py)."""
    sparse_files.make_variable_length(tmp_path / "file.h5")
    mount = mounts(tmp_path / "file.h5")
    assert set(os.listdir(mount / "sparse")) == {"dataset.json", "frames", "offsets.npy", "values.npy"}
    assert np.load(mount / "sparse/offsets.npy").tolist() == [0, 2, 2, 2]
    assert np.load(mount / "sparse/values.npy").tolist() == [10, 20]
    assert json.loads((mount / "sparse/dataset.json").read_text())["defined_elements"] == 2
    space = files.decode_selection((mount / "sparse/frames/0.defined").read_bytes())
    assert space.get_select_hyper_blocklist().tolist() == [[[0], [1]]]
    assert os.listdir(mount / "sparse/frames") == ["0.defined"]
    check_copies(mount.root, tmp_path)


# ---- Holes ----


@pytest.fixture
def spots(tmp_path):
    """Frames of 256 KiB with a few spots, of 80 frames the odd ones empty."""
    array, defined = np.zeros((80, 256, 512), "<u2"), np.zeros((80, 256, 512), bool)
    for frame in range(0, 80, 2):
        for row, column in ((0, 3), (100, 500), (101, 20), (255, 511)):
            defined[frame, row, column:column + 5] = True
    array[defined] = 1 + np.arange(defined.sum()) % 60000
    path = tmp_path / "spots.h5"
    sparse_files.make(path, array, defined, (1, 256, 512), deflate=(0, 4))
    return path, Expected(array, defined, True)


def test_holes(mounts, spots):
    path, expected = spots
    mount = mounts(path)
    directory = mount / "sparse"
    for number in (0, 1, 2, 79):
        check_frame(directory, expected, number, number, 6, {"npy", "tiff"})
    assert (directory / "frames/1.raw").stat().st_blocks == 0
    fd = os.open(directory / "frames/1.raw", os.O_RDONLY)
    with pytest.raises(OSError) as error:
        os.lseek(fd, 0, os.SEEK_DATA)
    assert error.value.errno == errno.ENXIO and os.lseek(fd, 99, os.SEEK_HOLE) == 99
    os.close(fd)
    check_file(directory / "stack.raw", expected.dense.tobytes(),
               dense_data(expected, expected.defined))
    used = subprocess.run(["du", "-s", "--block-size=512", directory / "raw"], check=True,
                          capture_output=True, text=True).stdout
    assert int(used.split()[0]) == 40


def test_copies_move_only_what_exists(mounts, spots, tmp_path):
    path, expected = spots
    mount = mounts(path)
    directory = mount / "sparse"
    subprocess.run(["cp", "--sparse=auto", directory / "stack.raw", tmp_path / "stack"], check=True)
    subprocess.run(["cp", "-r", "--sparse=auto", directory / "raw", tmp_path / "copied"], check=True)
    subprocess.run(["tar", "-S", "-cf", tmp_path / "raw.tar", "-C", directory, "raw", "stack.npy"],
                   check=True)
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "raw.tar", "-C", tmp_path / "unpacked"], check=True)
    assert (tmp_path / "stack").read_bytes() == expected.dense.tobytes()
    assert (tmp_path / "unpacked/stack.npy").read_bytes() == (directory / "stack.npy").read_bytes()
    for folder in ("copied", "unpacked/raw"):
        for number in range(80):
            assert (tmp_path / folder / f"{number:06d}.raw").read_bytes() \
                == expected.dense[number].tobytes()
    assert (tmp_path / "raw.tar").stat().st_size < expected.dense.nbytes / 10
    if (tmp_path / "stack").stat().st_blocks * 512 < expected.dense.nbytes:  # as the disk has holes
        assert (tmp_path / "stack").stat().st_blocks * 512 < expected.dense.nbytes / 5


def test_other_fill_values_have_no_holes(mounts, tmp_path):
    """A copy of a hole would be zeros."""
    array, defined = scattered((3, 100, 100), share=0.001)
    sparse_files.make(tmp_path / "file.h5", array, defined, (1, 100, 100), fill=0xFFFF)
    mount = mounts(tmp_path / "file.h5")
    dense = np.where(defined, array, 0xFFFF).astype("<u2")
    check_sparse(mount / "sparse", Expected(dense, defined, False))
    subprocess.run(["cp", mount / "sparse/frames/1.raw", tmp_path / "copy"], check=True)
    assert (tmp_path / "copy").read_bytes() == b"\xff" * 20000


# ---- What is read, and how often ----


def test_listing_reads_no_chunk(mounts, tmp_path):
    """Names, sizes and blocks of many frames come from the index."""
    n = 20000
    array, defined = np.zeros((n, 4, 3), "<u2"), np.zeros((n, 4, 3), bool)
    defined[::2, 1, 1] = True
    array[defined] = 9
    sparse_files.make(tmp_path / "many.h5", array, defined, (1, 4, 3))
    mount = mounts(tmp_path / "many.h5")
    directory = mount / "sparse"
    assert len(os.listdir(directory / "frames")) == 2 * n
    for kind, size in (("raw", 24), ("npy", 128 + 24)):
        found = [e.stat() for e in os.scandir(directory / kind)]
        assert {st.st_size for st in found} == {size}
        assert sum(st.st_blocks for st in found) == (n // 2 if kind == "raw" else n)
    assert sum(e.stat().st_size for e in os.scandir(directory / "values")) == n
    assert (directory / "csr/data.raw").stat().st_size == n
    assert (directory / "stack.raw").stat().st_blocks == -(-n // 512)
    assert json.loads((directory / "dataset.json").read_text())["defined_elements"] == n // 2
    assert statistics(mount)["cache_misses"] == 0


def test_what_cannot_be_lent_is_looked_for_once(mounts, tmp_path):
    """Packed values are put in their places by the request that has loaded them."""
    array, defined = scattered((3, 64, 30), share=0.01) # else it is dense in memory
    sparse_files.make(tmp_path / "a.h5", array[:1], defined[:1], (1, 64, 30))
    mount = mounts(tmp_path / "a.h5", "direct_io")
    for hits in range(3):
        fd = os.open(mount / "sparse/frames/0.raw", os.O_RDONLY)
        assert os.pread(fd, 3001, 3) == array[0].tobytes()[3:3004]
        os.close(fd)
        found = statistics(mount)
        assert (found["cache_misses"], found["cache_hits"]) == (1, hits)


def test_defined_reads_no_values(mounts, tmp_path):
    array, defined = scattered((4, 200, 300), share=0.3)
    sparse_files.make(tmp_path / "file.h5", array, defined, (2, 200, 100))
    size = (tmp_path / "file.h5").stat().st_size
    mount = mounts(tmp_path / "file.h5")
    before = statistics(mount)
    for number in range(4):
        check_defined(mount / f"sparse/frames/{number}.defined",
                      Expected(array, defined, True), number)
    read = delta(mount, before)
    assert read["chunks_decoded"] == 6
    assert read["store_bytes_read"] < size - array[defined].nbytes / 2


def test_damaged_values_leave_what_is_defined(mounts, tmp_path):
    array, defined = scattered((4, 20, 30))
    sparse_files.make(tmp_path / "file.h5", array, defined, (1, 20, 30), deflate=(0, 6))
    content = (tmp_path / "file.h5").read_bytes()
    compressed = content.find(b"\x78\x9c")  # of the first chunk
    damaged = bytearray(content)
    damaged[compressed + 10:compressed + 14] = b"\xff\xff\xff\xff"
    (tmp_path / "file.h5").write_bytes(damaged)
    mount = mounts(tmp_path / "file.h5", expect_log=True)
    expected = Expected(array, defined, True)
    for kind in ("frames/0.raw", "values/000000.values", "csr/data.raw"):
        with pytest.raises(OSError, match="Input/output error"):
            (mount / "sparse" / kind).read_bytes()
    assert "/sparse: chunk (0,0,0)" in mount.log() and "values section" in mount.log()
    for number in range(4):
        check_defined(mount / f"sparse/frames/{number}.defined", expected, number)
    for number in range(1, 4):
        check_frame(mount / "sparse", expected, number, number, 6, {"npy", "tiff"})
    assert (mount / "sparse/csr/indices.raw").read_bytes() \
        == np.nonzero(expected.defined)[1].astype("<i4").tobytes()


def test_what_is_defined_changes_beside_damaged_values(mounts, tmp_path):
    """What stays as it is need not be readable."""
    array, defined = scattered((3, 20, 30))
    defined[1] = defined[0]
    defined[1, 5:, 15:] = False
    sparse_files.make(tmp_path / "file.h5", array, defined, (1, 20, 15), deflate=(0, 6))
    content = bytearray((tmp_path / "file.h5").read_bytes())
    compressed = content.find(b"\x78\x9c")  # of the first chunk
    content[compressed + 10:compressed + 14] = b"\xff\xff\xff\xff"
    (tmp_path / "file.h5").write_bytes(content)
    d = mounts(tmp_path / "file.h5", "rw", expect_log=True) / "sparse"
    with pytest.raises(OSError, match="Input/output error"):
        (d / "frames/0.raw").read_bytes()
    (d / "frames/0.defined").write_bytes((d / "frames/1.defined").read_bytes())
    assert (d / "frames/0.defined").read_bytes() == (d / "frames/1.defined").read_bytes()


def test_what_is_defined_is_worked_out_once(mounts, tmp_path):
    """Many requests and many readers of one frame, with a cache that keeps no chunk."""
    array, defined = scattered((3, 1000, 700), share=0.2)
    sparse_files.make(tmp_path / "file.h5", array, defined, (1, 1000, 700))
    mount = mounts(tmp_path / "file.h5", "direct_io", "cache_size=4K", "threads=8")
    size = (mount / "sparse/frames/0.defined").stat().st_size
    assert size > 1 << 20
    before = statistics(mount)

    def read(_):
        with open(mount / "sparse/frames/0.defined", "rb", buffering=0) as file:
            return b"".join(iter(lambda: file.read(100000), b""))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        contents = set(pool.map(read, range(16)))
    assert len(contents) == 1 and len(contents.pop()) == size
    assert delta(mount, before)["chunks_decoded"] <= 1


@pytest.mark.parametrize("options", [(), ("direct_io", "cache_size=32K")], ids=["cached", "direct"])
def test_many_readers_at_once(mounts, tmp_path, options):
    array, defined = scattered((40, 50, 60), share=0.2)
    sparse_files.make(tmp_path / "file.h5", array, defined, (3, 25, 60), deflate=(1, 1))
    mount = mounts(tmp_path / "file.h5", *options, "threads=8")
    expected = Expected(array, defined, True)
    whole, data = expected.dense.tobytes(), expected.dense[expected.defined].tobytes()

    def read(seed):
        random = np.random.default_rng(seed)
        for _ in range(40):
            n, what = int(random.integers(40)), random.integers(5)
            directory = mount / "sparse"
            if what == 0:
                check_defined(directory / f"frames/{n}.defined", expected, n)
            elif what == 1:
                assert (directory / f"values/{n}.values").read_bytes() \
                    == expected.dense[n][expected.defined[n]].tobytes()
            elif what == 2:
                offset = int(random.integers(len(data)))
                with open(directory / "csr/data.raw", "rb") as file:
                    assert os.pread(file.fileno(), 999, offset) == data[offset:offset + 999]
            elif what == 3:
                offset = int(random.integers(len(whole)))
                with open(directory / "stack.raw", "rb") as file:
                    assert os.pread(file.fileno(), 5000, offset) == whole[offset:offset + 5000]
            else:
                assert (directory / f"frames/{n}.raw").read_bytes() == expected.dense[n].tobytes()
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(8)))


# ---- Foreign and damaged files ----


def test_elements_behind_the_edge_are_not_counted_silently(mounts, tmp_path):
    """A careless writer defined elements outside of the dataset: its index counts them."""
    array, defined = scattered((3, 5, 6))
    outside = np.zeros((3, 8, 8), bool)
    outside[0, 6, 1] = True
    sparse_files.make(tmp_path / "file.h5", array, defined, (1, 4, 4), outside=outside)
    mount = mounts(tmp_path / "file.h5", expect_log=True)
    expected = Expected(array, defined, True)
    assert (mount / "sparse/frames/0.raw").read_bytes() == expected.dense[0].tobytes()
    check_defined(mount / "sparse/frames/0.defined", expected, 0)
    for name in ("values/000000.values", "csr/data.raw", "csr/indices.raw"):
        with pytest.raises(OSError, match="Input/output error"):
            (mount / "sparse" / name).read_bytes()
    assert "/sparse: frame 0: the chunk index does not tell" in mount.log()
    check_frame(mount / "sparse", expected, 1, 1, 6, {"npy", "tiff"})


def test_one_bad_chunk_hides_nothing_else(mounts, tmp_path):
    array, defined = scattered((4, 20, 30))
    file = sparse_files.File("bad", "good")
    file.add("bad", array, defined, (1, 20, 30))
    file.add("good", array, defined, (2, 20, 30))
    file.content[file.content.find(sparse_files.encoded_selection(defined[3:4])) + 80] ^= 1
    file.save(tmp_path / "file.h5")
    mount = mounts(tmp_path / "file.h5", expect_log=True)
    expected = Expected(array, defined, True)
    for number in range(3):
        check_frame(mount / "bad", expected, number, number, 6, {"npy", "tiff"})
    for name in ("frames/3.raw", "frames/3.defined", "values/3.values", "stack.raw"):
        with pytest.raises(OSError, match="Input/output error"):
            (mount / "bad" / name).read_bytes()
    assert "/bad: chunk (3,0,0)" in mount.log() and "selection section" in mount.log()
    assert {e.name for e in os.scandir(mount / "bad/frames")} \
        == {f"{n}.{s}" for n in range(4) for s in ("raw", "defined")}
    assert json.loads((mount / "bad/dataset.json").read_text())["defined_elements"] == defined.sum()
    check_sparse(mount / "good", expected)


def read_everything(root):
    """All that can be read below a directory; errors of single files are what they may be."""
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    shown_extents(file.fileno(), min(size, 1 << 20))
                    file.read(1 << 20)
            except OSError as error:
                assert error.errno in (errno.EIO, errno.EOPNOTSUPP, errno.ENOMEM, errno.EFBIG), name


@pytest.mark.parametrize("kind", ["smallest", "spanning", "deflated", "variable"])
def test_damage(mounts, tmp_path, kind):
    """Some bytes of every region changed: the daemon answers, and lives."""
    path = tmp_path / "file.h5"
    if kind == "smallest":
        path.write_bytes(sparse_files.SMALLEST)
    elif kind == "variable":
        sparse_files.make_variable_length(path)
    else:
        array, defined = scattered((3, 4, 5), share=0.3)
        options = dict(chunks=(2, 4, 4)) if kind == "spanning" else \
            dict(chunks=(1, 4, 5), deflate=(6, 6))
        sparse_files.make(path, array, defined, **options)
    content = path.read_bytes()
    read = 0
    for at in range(0, len(content), len(content) // 45):
        damaged = bytearray(content)
        damaged[at] ^= 0xFF if at % 2 else 1 << at % 8
        path.write_bytes(damaged)
        try:
            mount = mounts(path, expect_log=True, log="error")
        except RuntimeError as refused:
            assert "ended with 32" in str(refused)
            continue
        read_everything(mount.root)
        assert int((mount / ".sparsefs/pid").read_text()) == mount.process.pid
        mount.unmount()
        read += 1
    assert read > 20
