"""Elements of variable length in sparse datasets: made and written by sparsectl, read by a reader of its own
(sequences_reader.py), and the same in ordinary datasets before and after."""
import json
import struct
import subprocess

import h5py
import numpy as np
import pytest

from sequences_reader import EXTENSIBLE_ARRAY, FIXED_ARRAY, SINGLE, TREE, Dataset
from test_sparsectl import BUILD, SECONDS, USAGE, done, failed, info

RNG = np.random.default_rng(7)
TEXT = h5py.string_dtype()

KINDS = [  # name, shape, max shape, chunks of the sparse dataset, index, base type
    ("single", (60,), (60,), "60", SINGLE, "str"),
    ("fixed", (17, 11), (17, 11), "4,5", FIXED_ARRAY, "f4"),
    ("fixed_text", (17, 11), (17, 11), "4,5", FIXED_ARRAY, "str"),
    ("first", (30, 6), (None, 6), "4,6", EXTENSIBLE_ARRAY, ">i2"),
    ("second", (6, 30), (6, None), "6,4", EXTENSIBLE_ARRAY, "str"),
    ("tree", (40, 40), (None, None), "5,3", TREE, "u1"),
    ("frames", (9, 5, 5), (None, 5, 5), "1,5,5", EXTENSIBLE_ARRAY, "f8"),
]
FILTERS = {
    "default": (),
    "none": ("--filter", "selection:none", "--filter", "values:none", "--filter", "heap:none"),
    "each": ("--filter", "selection:deflate=9", "--filter", "values:shuffle", "--filter", "values:deflate",
             "--filter", "heap:fletcher32"),
    "heap": ("--filter", "selection:none", "--filter", "values:none", "--filter", "heap:shuffle",
             "--filter", "heap:deflate"),
}


def make_dense(path, name, shape, maxshape, base):
    """A third of the elements has something."""
    with h5py.File(path, "a") as file:
        kind = TEXT if base == "str" else h5py.vlen_dtype(np.dtype(base))
        dataset = file.create_dataset(name, shape, kind, maxshape=maxshape, chunks=True)
        values = np.empty(shape, object)
        for place in np.ndindex(*shape):
            n = RNG.integers(1, 12) if RNG.random() < 0.35 else 0
            if RNG.random() < 0.02:
                n = 700
            if base == "str":
                values[place] = "".join(RNG.choice(list("aé\n\r\\ nr"), n))
            else:
                values[place] = RNG.integers(0, 120, n).astype(base)
        dataset[...] = values
        dataset.attrs["unit"] = "counts"
    return values


def as_bytes(value):
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else value.tobytes()


def put(path, name, values):
    every = b"".join(struct.pack("<Q", len(as_bytes(value)) if isinstance(value, (str, bytes)) else len(value)) +
                     as_bytes(value) for value in values.flat)
    subprocess.run([BUILD / "tests/mount/put_sequences", path, name], input=every, check=True, timeout=SECONDS)


def check_sparse(path, name, values, index=None, empty_is_defined=False):
    found = Dataset(path, name)
    assert index is None or found.index == index
    for place, value in np.ndenumerate(values):
        assert found.elements[place] == as_bytes(value), place
        assert found.defined[place] == (empty_is_defined or len(value) > 0), place
    return found


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("name, shape, maxshape, chunks, index, base", KINDS, ids=[kind[0] for kind in KINDS])
def test_there_and_back(tmp_path, name, shape, maxshape, chunks, index, base, filters):
    dense, sparse = tmp_path / "dense.h5", tmp_path / "sparse.h5"
    values = make_dense(dense, name, shape, maxshape, base)
    done("import", "--chunk", chunks, *FILTERS[filters], f"{dense}:/{name}", sparse)
    found = check_sparse(sparse, name, values, index)
    assert all(unused == 0 for _, _, unused, _ in found.chunks)
    assert "0 faults" in done("check", sparse)
    said = info(sparse)["datasets"][0]
    assert said["defined_elements"] == found.defined.sum()
    assert said["heap_bytes_unfiltered"] == sum(len(s[2]) + 4 for _, s, _, _ in found.chunks if s[2])
    assert said["stored_bytes"] == sum(record[1][3] for *_, record in found.chunks)
    done("export", f"{sparse}:/{name}", tmp_path / "back.h5")
    with h5py.File(tmp_path / "back.h5", "r") as file:
        assert file[name].attrs["unit"] == "counts"
        for place, value in np.ndenumerate(file[name][...]):
            assert as_bytes(value) == as_bytes(values[place])
    done("repack", sparse, tmp_path / "repacked.h5")
    check_sparse(tmp_path / "repacked.h5", name, values, index)


@pytest.mark.parametrize("filters", [(), ("--filter", "values:none", "--filter", "heap:deflate=9")])
@pytest.mark.parametrize("name, shape, maxshape, chunks, index, base", KINDS, ids=[kind[0] for kind in KINDS])
def test_dense_chunks(tmp_path, name, shape, maxshape, chunks, index, base, filters):
    """Of two sections: all elements, and what they lead to."""
    plain, dense = tmp_path / "plain.h5", tmp_path / "dense.h5"
    values = make_dense(plain, name, shape, maxshape, base)
    done("import", "--dense", "--chunk", chunks, *filters, f"{plain}:/{name}", dense)
    for path in dense, tmp_path / "repacked.h5":
        found = check_sparse(path, name, values, index, empty_is_defined=True)
        assert found.first == 1 and all(sections[0] == b"" for _, sections, *_ in found.chunks)
        assert "0 faults" in done("check", path)
        said = info(path)["datasets"][0]
        assert said["layout"] == "structured" and said["selection_bytes"] == 0
        assert said["defined_elements"] == values.size
        if path == dense:
            done("repack", dense, tmp_path / "repacked.h5")
    done("export", f"{dense}:/{name}", tmp_path / "back.h5")
    with h5py.File(tmp_path / "back.h5", "r") as file:
        for place, value in np.ndenumerate(file[name][...]):
            assert as_bytes(value) == as_bytes(values[place])


def test_dense_is_for_variable_length(tmp_path):
    path = tmp_path / "x.h5"
    failed("create", "--dims", "4", "--dtype", "u2", "--dense", path, "/x", says="of variable length")
    failed("create", "--dims", "4", "--dtype", "str", "--dense", "--filter", "selection:deflate", path, "/x",
           says="no section of selections")
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["x"] = np.arange(4)
    failed("import", "--dense", f"{tmp_path}/plain.h5:/x", path, says="of variable length")
    failed("import", "--dense", "--all", tmp_path / "plain.h5", path, code=USAGE)
    done("create", "--dims", "4", "--dtype", "str", "--dense", path, "/x")
    assert Dataset(path, "x").defined.all()


def test_empty_elements_can_be_defined(tmp_path):
    dense, sparse = tmp_path / "dense.h5", tmp_path / "sparse.h5"
    values = make_dense(dense, "x", (50,), (50,), "<u2")
    done("import", "--undefined", "none", f"{dense}:/x", sparse)
    check_sparse(sparse, "x", values, empty_is_defined=True)


def test_nothing_but_empty_elements_has_no_heap(tmp_path):
    dense, sparse = tmp_path / "dense.h5", tmp_path / "sparse.h5"
    with h5py.File(dense, "w") as file:
        file.create_dataset("x", (10,), TEXT)
    done("import", "--undefined", "none", f"{dense}:/x", sparse)
    found = Dataset(sparse, "x")
    assert found.defined.all() and found.chunks[0][1][2] == b""
    assert info(sparse)["datasets"][0]["heap_bytes"] == 0


def test_repack_takes_other_filters(tmp_path):
    dense, sparse, copy = tmp_path / "dense.h5", tmp_path / "sparse.h5", tmp_path / "copy.h5"
    values = make_dense(dense, "x", (50, 20), (50, 20), "f8")
    done("import", f"{dense}:/x", sparse)
    done("repack", "--filter", "heap:shuffle=8", "--filter", "heap:deflate=9", sparse, copy)
    found = check_sparse(copy, "x", values)
    assert found.filters[2] == [(2, [8]), (1, [9])] and found.filters[1] == Dataset(sparse, "x").filters[1]


@pytest.mark.parametrize("order", ["22", "sectioned"])
@pytest.mark.parametrize("filters", ["none", "each"])
@pytest.mark.parametrize("name, shape, maxshape, chunks, index, base", KINDS, ids=[kind[0] for kind in KINDS])
def test_as_the_rfc_has_them(tmp_path, name, shape, maxshape, chunks, index, base, filters, order):
    """Sparse and dense, made as the RFC has them in each of its layout messages, written, and copied."""
    dense, path, copy = tmp_path / "dense.h5", tmp_path / "made.h5", tmp_path / "copy.h5"
    values = make_dense(dense, "x", shape, maxshape, base)
    dims = ",".join(map(str, shape)), ",".join("inf" if m is None else str(m) for m in maxshape)
    dtype = base if base == "str" else f"vlen:{base}"
    for kind in ([], ["--dense"]):
        options = [word for option in FILTERS[filters][1::2] if not (kind and option.startswith("selection"))
                   for word in ("--filter", option)]
        path.unlink(missing_ok=True)
        copy.unlink(missing_ok=True)
        done("create", "--dims", dims[0], "--maxdims", dims[1], "--chunk", chunks, "--dtype", dtype, *kind, *options,
             "--layout-message", order, "--encoding", "rfc", path, "/x")
        put(path, "/x", values)
        done("repack", path, copy)
        for written in (path, copy):
            found = Dataset(written, "x", order)
            assert found.index == index and found.first == len(kind)
            for place, value in np.ndenumerate(values):
                assert found.elements[place] == as_bytes(value)
            assert "0 faults" in done("check", written)
            assert info(written)["datasets"][0]["encoding"] == "rfc"
            assert info(written)["datasets"][0]["layout_message"] == order


@pytest.mark.parametrize("dtype", ["str", "string", "vlen:float32", "vlen:>i2", "vlen:S5"])
def test_create(tmp_path, dtype):
    path = tmp_path / "x.h5"
    done("create", "--dims", "0,4", "--chunk", "2,4", "--dtype", dtype, "--filter", "heap:deflate", path, "/x")
    found = Dataset(path, "x")
    assert found.is_string == (not dtype.startswith("vlen")) and not found.chunks
    assert found.filters == [[], [], [(1, [4])]]
    assert "variable-length" in info(path)["datasets"][0]["datatype"]


def test_what_cannot_be(tmp_path):
    path = tmp_path / "x.h5"
    failed("create", "--dims", "4", "--dtype", "vlen:", path, "/x", code=USAGE,
           says="datatype 'vlen:': at character 6: a datatype is missing")
    failed("create", "--dims", "4", "--dtype", "vlen:text", path, "/x", code=USAGE, says="no such datatype: text")
    failed("create", "--dims", "4", "--dtype", "str", "--fill", "a", path, "/x", code=USAGE, says="have none")
    failed("create", "--dims", "4", "--dtype", "u2", "--filter", "heap:deflate", path, "/x",
           code=USAGE, says="no variable-length data")
    failed("create", "--dims", "4", "--dtype", "str", "--encoding", "rfc", path, "/x",
           says="have the encoding of the RFC in layout messages of version 22")
    make_dense(path, "x", (4,), (4,), "str")
    for option in (["--undefined", "0"], ["--roi", "0:1,0:1"], ["--above", "1"], ["--fast"]):
        failed("import", *option, f"{path}:/x", tmp_path / "y.h5", says="variable length")


def test_a_file_as_it_was_written_once():
    """golden_sequences.json says what is in it."""
    from pathlib import Path
    folder = Path(__file__).parent
    for name, described in json.loads((folder / "golden_sequences.json").read_text()).items():
        found = Dataset(folder / "golden_sequences.h5", name)
        assert [found.dims, found.chunk_dims, found.index] == described["dims chunks index"]
        defined = {",".join(map(str, place)): found.elements[tuple(place)].hex()
                   for place in np.argwhere(found.defined)}
        assert defined == described["defined"]
    assert "0 faults" in done("check", folder / "golden_sequences.h5")
