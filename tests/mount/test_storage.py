"""How a sparse dataset is stored, where there is a choice: order and encoding of messages, index and its numbers,
partial chunks, times, filters that count elements, chunks of 4 GiB. What is written by way of a mount is read by
sparse_reader.py, which shares nothing with sparsefs."""
import json
import os
import random
import subprocess

import numpy as np
import pytest

import sparse_reader
from conftest import BUILD, TOP, sparse_files as prototype_files

SPARSECTL = BUILD / "sparsectl"
ROWS, COLUMNS, TYPE = 8, 8, np.dtype("<i2")
KINDS = {sparse_reader.SINGLE: "single", sparse_reader.FIXED: "fixed-array",
         sparse_reader.EXTENSIBLE: "extensible-array", sparse_reader.BTREE: "btree"}


def sparsectl(*arguments, code=0):
    result = subprocess.run([SPARSECTL, *map(str, arguments)], capture_output=True, text=True)
    assert result.returncode == code, result.stderr
    return result.stderr if code else result.stdout


def create(path, *options, name="/x", dims="6,8,8", maxdims="inf,8,8", chunk="1,4,4", dtype="i2", **more):
    return sparsectl("create", "--dims", dims, "--maxdims", maxdims, "--chunk", chunk, "--dtype", dtype, *options,
                     path, name, **more)


def stored(path, name="/x"):
    (dataset,) = [d for d in json.loads(sparsectl("info", "--json", path))["datasets"] if d["path"] == name]
    return dataset


@pytest.mark.parametrize("path", prototype_files(), ids=lambda path: path.name)
def test_reader_of_these_tests(path):
    """It reads what the prototype writes, to which its opinion on sparsefs owes nothing."""
    described = json.loads(path.with_suffix(".json").read_text())
    if not isinstance(described["dtype"], str):
        pytest.skip("it knows no compound types")
    dataset = sparse_reader.File(path, strict=False)[described["dataset"]]
    assert dataset.elements() == {tuple(at): value for at, value in described["defined"]}
    assert dataset.chunk_dims == tuple(described["chunks"]) and dataset.dims == tuple(described["shape"])


def write_some(mount, frames, seed, model, name="x", growing=True):
    """Runs of elements somewhere in the frames: no others become defined."""
    chance = random.Random(seed)
    for frame in chance.sample(range(frames), frames) if not growing else range(frames):
        fd = os.open(mount / f"{name}/raw/{frame:06}.raw", os.O_RDWR | (os.O_CREAT if growing else 0))
        for _ in range(3):
            first = chance.randrange(ROWS * COLUMNS)
            values = np.array([chance.randrange(-2000, 2000) for _ in range(min(9, ROWS * COLUMNS - first))], TYPE)
            os.pwrite(fd, values.tobytes(), first * TYPE.itemsize)
            for at, value in enumerate(values, first):
                model[frame, at // COLUMNS, at % COLUMNS] = value
        os.close(fd)


def read_back(path, model, name="/x"):
    dataset = sparse_reader.File(path)[name]
    assert dataset.elements() == model
    assert dataset.versions <= ({0} if dataset.encoding == "rfc" else {0, 1})
    return dataset


def check_copy(path, model, dataset):
    """A copy is stored in the same way."""
    copy = path.with_name("copy.h5")
    sparsectl("repack", path, copy)
    again = read_back(copy, model)
    for what in ("order", "encoding", "allocation", "fill_time", "unfiltered_edges", "filters", "filters_message"):
        assert getattr(again, what) == getattr(dataset, what), what
    assert (again.index.kind, again.index.numbers) == (dataset.index.kind, dataset.index.numbers)
    sparsectl("check", copy)


INDEXES = {
    "extensible": ("extensible-array", "inf,8,8"),
    "smallest blocks": ("extensible-array,page-bits=1,max-bits=12,index-block=1,data-block=1,super-block=2", "inf,8,8"),
    "few bits": ("extensible-array,page-bits=6,max-bits=6,index-block=60,data-block=1,super-block=2", "inf,8,8"),
    "largest blocks": ("extensible-array,page-bits=14,index-block=255,data-block=128,super-block=128", "inf,8,8"),
    "all in the index block": ("extensible-array,index-block=255", "inf,8,8"),
    "long pages": ("extensible-array,page-bits=31", "8,inf,8"),
    "fixed": ("fixed-array", "9,8,8"),
    "short pages": ("fixed-array,page-bits=1", "9,8,8"),
    "largest pages": ("fixed-array,page-bits=31", "9,8,8"),
    "tree": ("btree", "inf,inf,8"),
    "tree of one unlimited axis": ("btree", "inf,8,8"),
    "tree of none": ("btree", "9,8,8"),
    "least nodes": ("btree,node-size=244,split=100,merge=40", "inf,8,8"),
    "other percentages": ("btree,node-size=512,split=67,merge=1", "inf,8,8"),
    "largest nodes": ("btree,node-size=1048576", "inf,8,8"),
}


@pytest.mark.parametrize("deflate", (False, True), ids=("plain", "deflate"))
@pytest.mark.parametrize("name", INDEXES)
def test_indexes(mounts, tmp_path, name, deflate):
    """Chunks are written, found, erased and copied with any numbers, and each kind where it is possible."""
    path, model = tmp_path / "a.h5", {}
    option, maxdims = INDEXES[name]
    filters = ("--filter", "values:deflate=3") if deflate else ()
    if deflate and "node-size=244" in option:
        option = option.replace("244", "316")
    create(path, "--index", option, *filters, maxdims=maxdims)
    wanted = stored(path)["index"]
    mount = mounts(path, "rw")
    write_some(mount, 9 if maxdims[0] != "8" else 6, name, model, growing=maxdims[0] != "8")
    mount.unmount()
    dataset = read_back(path, model)
    assert KINDS[dataset.index.kind] == option.split(",")[0]
    assert {"kind": KINDS[dataset.index.kind], **dataset.index.numbers} == wanted == stored(path)["index"]
    assert "0 faults" in sparsectl("check", path)
    check_copy(path, model, dataset)
    mount = mounts(path, "rw")
    os.truncate(mount / "x/raw/000003.raw", 0)
    model = {at: value for at, value in model.items() if at[0] != 3}
    write_some(mount, 6, "again", model, growing=False)
    mount.unmount()
    read_back(path, model)


def test_many_chunks(mounts, tmp_path):
    """As many that super blocks with pages are made, and trees of several levels."""
    options = {"a": "extensible-array,page-bits=1,max-bits=12,index-block=1,data-block=1,super-block=2",
               "t": "btree,node-size=248", "f": "fixed-array,page-bits=3"}
    path, models = tmp_path / "a.h5", {name: {} for name in options}
    for name, option in options.items():
        create(path, "--index", option, name=f"/{name}", dims="0,8,8" if name != "f" else "99,8,8", chunk="1,8,8",
               maxdims="inf,8,8" if name != "f" else "300,8,8")
    mount = mounts(path, "rw")
    for name, model in models.items():
        write_some(mount, 99, name, model, name)
    mount.unmount()
    for name, model in models.items():
        assert len(read_back(path, model, f"/{name}").chunks) == 99
    assert sparse_reader.File(path)["/t"].depth >= 2
    assert "0 faults" in sparsectl("check", path)


@pytest.mark.parametrize("option, says", (
    ("single", "dims, max dims and chunk dims must be the same"),
    ("fixed-array", "no axis may be unlimited"),
    ("btree,node-size=200", "bytes in a node of the index: 200 is not 208 to 1048576"),
    ("btree,node-size=1048577", "bytes in a node"),
    ("btree,split=101", "split percent of the index: 101 is not 1 to 100"),
    ("btree,merge=50", "not less than half of the split percent"),
    ("btree,page-bits=10", "the index has no page bits"),
    ("extensible-array,page-bits=32", "page bits of the index: 32 is not 1 to 31"),
    ("extensible-array,page-bits=5", "are smaller than the blocks without pages (64)"),
    ("extensible-array,index-block=256", "elements in the index block of the index: 256 is not 1 to 255"),
    ("extensible-array,index-block=255,page-bits=7", "or the index block (255)"),
    ("extensible-array,data-block=24", "must be powers of two"),
    ("extensible-array,data-block=256", "least elements of a data block of the index: 256 is not 1 to 128"),
    ("extensible-array,super-block=1", "least data blocks of a super block of the index: 1 is not 2 to 128"),
    ("extensible-array,super-block=6", "must be powers of two"),
    ("extensible-array,max-bits=33", "bits of the number of elements of the index: 33 is not 1 to 32"),
    ("extensible-array,max-bits=9", "more elements than numbers of 9 bits"),
    ("extensible-array,max-bits=6,page-bits=6,super-block=4,data-block=16", "more elements than numbers of 6 bits"),
    ("extensible-array,node-size=2048", "the index has no bytes in a node"),
    ("auto,split=90", "the index has no split percent")))
def test_numbers_that_cannot_be(tmp_path, option, says):
    assert says in create(tmp_path / "a.h5", "--index", option, code=1)


@pytest.mark.parametrize("option, says", (
    (("--index", "hash"), "--index hash"), (("--index", "btree,node=5"), "node is no number of an index"),
    (("--index", "btree,node-size"), "--index"), (("--index", "btree,node-size=0"), "--index"),
    (("--index", "btree,node-size=4294967296"), "too large"), (("--layout-message", "23"), "--layout-message 23"),
    (("--encoding", "mine"), "--encoding mine"), (("--alloc-time", "now"), "--alloc-time now"),
    (("--fill-time", "then"), "--fill-time then")))
def test_words_that_are_none(tmp_path, option, says):
    assert says in create(tmp_path / "a.h5", *option, code=2)
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.parametrize("maxdims, dims, chunk", (
    ("6,8,8", "6,8,8", "6,8,8"), ("6,8,8", "6,8,8", "2,8,4"), ("inf,8,8", "6,8,8", "1,8,8"),
    ("inf,8,inf", "6,8,8", "1,5,8")), ids=("single", "fixed", "extensible", "tree"))
@pytest.mark.parametrize("deflate", (False, True), ids=("plain", "deflate"))
@pytest.mark.parametrize("encoding", ("prototype", "rfc"))
@pytest.mark.parametrize("order", ("prototype", "22", "sectioned"))
def test_layout_messages(mounts, tmp_path, order, encoding, deflate, maxdims, dims, chunk):
    """In each order, and as prototype and RFC encode what stands around: it can be told which it is."""
    path, model = tmp_path / "a.h5", {}
    filters = ("--filter", "values:shuffle", "--filter", "values:deflate=3", "--filter", "selection:deflate=1")
    create(path, "--layout-message", order, "--encoding", encoding, *(filters if deflate else ()),
           maxdims=maxdims, dims=dims, chunk=chunk)
    said = stored(path)
    assert (said["layout_message"], said["encoding"]) == (order, "rfc" if order == "sectioned" else encoding)
    mount = mounts(path, "rw")
    write_some(mount, 6, order, model)
    mount.unmount()
    dataset = read_back(path, model)
    assert (dataset.order, dataset.encoding) == (said["layout_message"], said["encoding"])
    assert dataset.type == (1 if said["encoding"] == "rfc" else 0)
    assert "0 faults" in sparsectl("check", path)
    check_copy(path, model, dataset)


def test_default_is_the_prototype(tmp_path):
    create(tmp_path / "a.h5", "--filter", "values:deflate")
    dataset = sparse_reader.File(tmp_path / "a.h5")["/x"]
    assert (dataset.order, dataset.type, dataset.filters_message) == ("prototype", 0, 0x19)
    assert (dataset.allocation, dataset.fill_time, dataset.unfiltered_edges) == ("incremental", "ifset", False)
    assert dataset.index.numbers == {"max_bits": 32, "index_block_elements": 4, "super_block_min_blocks": 4,
                                     "data_block_min_elements": 16, "page_bits": 10}


@pytest.mark.parametrize("index, maxdims, bytes_of_it", (
    ("fixed-array", "6,8,8", 28), ("extensible-array", "inf,8,8", 72), ("btree", "inf,inf,8", 38)))
def test_times(mounts, tmp_path, index, maxdims, bytes_of_it):
    """Early allocation is that of the index's header; what no program minds stands in the file all the same."""
    path, model = tmp_path / "a.h5", {}
    create(path, "--index", index, "--alloc-time", "early", "--fill-time", "never", maxdims=maxdims)
    create(path, "--index", index, "--alloc-time", "late", "--fill-time", "alloc", maxdims=maxdims, name="/late")
    dataset, late = (sparse_reader.File(path)[name] for name in ("/x", "/late"))
    assert (dataset.allocation, dataset.fill_time) == ("early", "never")
    assert (late.allocation, late.fill_time) == ("late", "alloc")
    assert late.index.address == sparse_reader.UNDEFINED
    assert (dataset.index.address, dataset.index.address + bytes_of_it) in {taken[:2] for taken in dataset.file.taken}
    assert "0 faults" in sparsectl("check", path)
    mount = mounts(path, "rw")
    write_some(mount, 6, 1, model)
    mount.unmount()
    check_copy(path, model, read_back(path, model))
    said = stored(path)
    assert (said["alloc_time"], said["fill_time"]) == ("early", "never")


def test_partial_chunks(mounts, tmp_path):
    """They are stored as they are; a chunk of which all is in the dataset is not."""
    path, model = tmp_path / "a.h5", {}
    create(path, "--unfiltered-edges", "--filter", "values:deflate", "--filter", "selection:deflate", chunk="1,8,5")
    mount = mounts(path, "rw")
    write_some(mount, 6, 2, model)
    mount.unmount()
    dataset = read_back(path, model)
    assert dataset.unfiltered_edges and stored(path)["unfiltered_edges"]
    sizes = {place[2] * 5 + 5 > COLUMNS: [] for place in dataset.chunks}
    for place, chunk in dataset.chunks.items():
        sizes[place[2] * 5 + 5 > COLUMNS].append(chunk.size == sum(chunk.unfiltered))
    assert all(sizes[True]) and not any(sizes[False])
    check_copy(path, model, dataset)


@pytest.mark.parametrize("filters", (
    ("values:5",), ("values:6=2,0",), ("values:6=2,0", "values:deflate"), ("values:5", "values:fletcher32")),
    ids=("nbit", "scale-offset", "scale-offset and deflate", "nbit and fletcher32"))
def test_filters_that_count_elements(mounts, tmp_path, filters):
    """Nbit and scale-offset of sections, each of another number of elements."""
    path, model = tmp_path / "a.h5", {}
    create(path, *(word for text in filters for word in ("--filter", text)), dims="0,8,8", chunk="1,8,8")
    mount = mounts(path, "rw")
    write_some(mount, 8, 3, model)
    mount.unmount()
    dataset = read_back(path, model)
    assert dataset.filters[1][0][1][2] == 0 and len({chunk.unfiltered[1] for chunk in dataset.chunks.values()}) > 3
    assert all(mask == 0 for chunk in dataset.chunks.values() for mask in chunk.masks)
    check_copy(path, model, dataset)
    again = mounts(path)
    for frame in range(8):
        expected = np.zeros((ROWS, COLUMNS), TYPE)
        for (at, row, column), value in model.items():
            if at == frame:
                expected[row, column] = value
        assert (again / f"x/raw/{frame:06}.raw").read_bytes() == expected.tobytes()


@pytest.mark.parametrize("filters", (("values:deflate", "values:5"), ("selection:5",), ("selection:6=2,0",)))
def test_filters_that_cannot_count(tmp_path, filters):
    options = (word for text in filters for word in ("--filter", text))
    assert "must be the first filter of the values" in create(tmp_path / "a.h5", *options, code=1)


@pytest.mark.parametrize("dims, chunk", (("65536,65536,2", "65536,65536,1"), ("3,4294967295,5", "1,4294967295,5")))
def test_chunks_of_4_gib(mounts, tmp_path, dims, chunk):
    """Of 8 GiB and more, in which little is defined."""
    path, model = tmp_path / "a.h5", {}
    create(path, dims=dims, maxdims=dims, chunk=chunk, dtype="i2")
    assert stored(path)["chunk_dims"] == [int(n) for n in chunk.split(",")]
    width = int(dims.split(",")[2]) * int(dims.split(",")[1])
    mount = mounts(path, "rw")
    for place in (0, 3, width // 2, width - 4):
        fd = os.open(mount / "x/raw/000001.raw", os.O_RDWR)
        os.pwrite(fd, np.arange(place % 50, place % 50 + 4, dtype=TYPE).tobytes(), place * 2)
        os.close(fd)
        columns = int(dims.split(",")[2])
        for k in range(4):
            model[1, (place + k) // columns, (place + k) % columns] = place % 50 + k
    with open(f"/proc/{mount.process.pid}/status") as status:
        (peak,) = (int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    assert peak < 1 << 20, "KiB"
    mount.unmount()
    dataset = read_back(path, model)
    assert dataset.chunk_bytes > 2**32
    assert path.stat().st_size < 1 << 20
    check_copy(path, model, dataset)
    again = mounts(path)
    fd = os.open(again / "x/raw/000001.raw", os.O_RDONLY)
    assert os.pread(fd, 8, (width - 4) * 2) == np.arange((width - 4) % 50, (width - 4) % 50 + 4, dtype=TYPE).tobytes()
    os.close(fd)


# ---- Files that are kept ----

STORED = TOP / "tests/stored"
DESCRIPTION = json.loads((STORED / "description.json").read_text())


@pytest.mark.parametrize("name", DESCRIPTION)
def test_kept_files(name):
    """What the description says is what both readers say."""
    description, path = DESCRIPTION[name], STORED / "encodings.h5"
    elements = {tuple(at): value for *at, value in description["defined"]}
    dataset = sparse_reader.File(path)[name]
    said = stored(path, f"/{name}")
    assert dataset.elements() == elements
    assert (dataset.index.kind, dataset.index.numbers) == (description["index"], description["numbers"])
    assert said["index"] == {"kind": KINDS[description["index"]], **description["numbers"]}
    for ours, theirs in (("layout_message", "order"), ("encoding",) * 2, ("alloc_time", "allocation"),
                         ("fill_time",) * 2, ("unfiltered_edges",) * 2):
        assert said[ours] == description[ours] == getattr(dataset, theirs)
    assert said["chunk_dims"] == description["chunk_dims"] == list(dataset.chunk_dims)
    lines = sparsectl("dump", "--format", "coo", f"{path}:/{name}").splitlines()
    assert {tuple(map(int, line.split()[:-1])): int(line.split()[-1]) for line in lines} == elements


def test_kept_files_are_written(mounts, tmp_path):
    """Messages and indexes keep their order, encoding and numbers."""
    path, models = tmp_path / "a.h5", {}
    path.write_bytes((STORED / "encodings.h5").read_bytes())
    mount = mounts(path, "rw")
    for name, description in DESCRIPTION.items():
        models[name] = {tuple(at): value for *at, value in description["defined"]}
        fd = os.open(mount / f"{name}/raw/000004.raw", os.O_RDWR)
        os.pwrite(fd, np.arange(30, 60, dtype="<u2").tobytes(), 24)
        os.close(fd)
        models[name] |= {(4, (12 + i) // 10, (12 + i) % 10): 30 + i for i in range(30)}
        os.truncate(mount / f"{name}/raw/000001.raw", 20)
        models[name] = {at: value for at, value in models[name].items() if at[:1] != (1,) or at[1] == 0}
    mount.unmount()
    file = sparse_reader.File(path)
    for name, description in DESCRIPTION.items():
        dataset = file[name]
        assert dataset.elements() == models[name]
        assert (dataset.order, dataset.encoding) == (description["layout_message"], description["encoding"])
        assert (dataset.index.kind, dataset.index.numbers) == (description["index"], description["numbers"])


@pytest.mark.parametrize("file, name", (*(("sparse.h5", name) for name in ("single", "fixed", "extensible", "btree")),
                                        ("imported.h5", "gzip")))
def test_files_of_a_release(file, name):
    """Both readers say the same of them, too."""
    path = TOP / "tests/golden/0.1.0" / file
    lines = sparsectl("dump", "--format", "coo", f"{path}:/{name}").splitlines()
    elements = {tuple(map(int, line.split()[:-1])): int(line.split()[-1]) for line in lines}
    assert sparse_reader.File(path)[name].elements() == elements and len(elements) > 1000
