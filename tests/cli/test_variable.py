"""Elements with parts of variable length anywhere, as the library has written them once: read by a reader of its own
(variable_reader.py), checked, described and repacked by sparsectl."""
import csv
import json
import pathlib

import h5py
import numpy as np
import pytest

from test_sparsectl import USAGE, done, failed, info, run
from variable_reader import Array, Compound, Dataset, Reference, Sequence

FOLDER = pathlib.Path(__file__).parent
GOLDEN = FOLDER / "golden_variable.h5"
DESCRIBED = json.loads((FOLDER / "golden_variable.json").read_text())


def check(path, name, index=True):
    found = Dataset(path, name)
    assert {",".join(map(str, place)): value for place, value in found.values.items()} == DESCRIBED[name]["defined"]
    assert found.index == DESCRIBED[name]["index"]
    return found


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_file_as_it_was_written_once(name):
    check(GOLDEN, name)


@pytest.mark.parametrize("filters", [(), ("--filter", "heap:none", "--filter", "values:deflate"),
                                     ("--filter", "heap:fletcher32", "--filter", "values:shuffle",
                                      "--filter", "selection:none")])
def test_repack(tmp_path, filters):
    """With filters elements are written anew; without, chunks are copied."""
    copy = tmp_path / "copy.h5"
    done("repack", *filters, GOLDEN, copy)
    for name in DESCRIBED:
        found = check(copy, name)
        if filters:
            assert all(unused == 0 for _, _, unused, _ in found.chunks)
            assert found.filters[2] == ([(3, [])] if "heap:fletcher32" in filters else [])
    assert "0 faults" in done("check", copy)


def test_info():
    for said in info(GOLDEN)["datasets"]:
        found = Dataset(GOLDEN, said["path"].strip("/"))
        assert said["defined_elements"] == len(found.values)
        assert said["heap_bytes_unfiltered"] == sum(len(s[2]) + 4 for _, s, _, _ in found.chunks if s[2])


def test_check_finds_damage(tmp_path):
    """What is nested is under the checksum of its section as all else is."""
    assert "0 faults" in done("check", GOLDEN)
    for name in DESCRIBED:
        found, copy = Dataset(GOLDEN, name), tmp_path / "damaged.h5"
        record = found.chunks[0][3]
        content = bytearray(GOLDEN.read_bytes())
        content[record[0] + record[1][2] + 5] ^= 1
        copy.write_bytes(content)
        result = run("check", copy)
        assert result.returncode == 1 and "1 faults" in result.stdout
        assert ("variable-length data is damaged" if found.filters[2] else
                "checksum of its variable-length data is wrong") in result.stdout


def is_empty(value, kind):
    """Whether it is undefined in what is imported: sequences of nothing, zeros in all else."""
    if isinstance(kind, Compound):
        return all(is_empty(part, base) for part, (_, base) in zip(value, kind.members))
    if isinstance(kind, Array):
        return all(is_empty(part, kind.base) for part in value)
    return not value if isinstance(kind, Sequence) else not value.strip("0")


def found_in(path, name):
    return {",".join(map(str, place)): value for place, value in Dataset(path, name).values.items()}


def full_in(path, name):
    kind = Dataset(GOLDEN, name).kind
    return {place: value for place, value in found_in(path, name).items() if not is_empty(value, kind)}


@pytest.mark.parametrize("options", [(), ("--chunk", "2,2", "--filter", "heap:none", "--filter", "values:fletcher32"),
                                     ("--chunk", "1,5")])
@pytest.mark.parametrize("name", DESCRIBED)
def test_there_and_back(tmp_path, name, options):
    """Ordinary datasets, of libhdf5, out of sparse ones, and sparse ones and dense structured ones out of these, which
    are what they were: but what is empty is undefined then."""
    plain, sparse, dense, back = (tmp_path / part for part in ("plain.h5", "sparse.h5", "dense.h5", "back.h5"))
    expected = full_in(GOLDEN, name)
    assert expected
    done("export", f"{GOLDEN}:/{name}", plain)
    assert info(plain)["datasets"][0]["layout"] == "chunked"
    done("import", *options, f"{plain}:/{name}", sparse)
    assert found_in(sparse, name) == expected
    done("import", "--dense", *options, f"{plain}:/{name}", dense)
    assert full_in(dense, name) == expected and len(found_in(dense, name)) > len(expected)
    for path in sparse, dense:
        assert "0 faults" in done("check", path)
        done("export", f"{path}:/{name}", back)
        done("import", f"{back}:/{name}", tmp_path / "again.h5")
        assert found_in(tmp_path / "again.h5", name) == expected
        (tmp_path / "again.h5").unlink()
        back.unlink()


@pytest.mark.parametrize("length", [1, 2, 50_000_000, 2**32 - 1])
@pytest.mark.parametrize("where", ["nowhere", "there"])
def test_lengths_that_are_none(tmp_path, length, where):
    """Of sequences that lead nowhere, which libhdf5 takes for empty ones, or to fewer elements."""
    path, copy = tmp_path / "claims.h5", tmp_path / "copy.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (3,), h5py.vlen_dtype(np.dtype("<i4")))
        dataset[0], dataset[2] = [1, 2, 3], [4]
        at = dataset.id.get_offset() + 16 * (1 if where == "nowhere" else 2)
    content = bytearray(path.read_bytes())
    content[at:at + 4] = length.to_bytes(4, "little")
    path.write_bytes(content)
    if where == "nowhere":
        failed("import", f"{path}:/x", f"{copy}:/x", code=1, says="other lengths")
        assert not copy.exists()
    else:  # libhdf5 reads what is there, or refuses it
        assert run("import", f"{path}:/x", f"{copy}:/x").returncode in (0, 1)


RECORD = np.dtype([("n", ">i4"), ("name", h5py.string_dtype()), ("hits", h5py.vlen_dtype(np.dtype("<u2"))),
                   ("tags", h5py.string_dtype(), (2,))])


def test_what_h5py_wrote(tmp_path):
    """A table with a text and a list in each row, as programs write it; read back by h5py."""
    plain, sparse, back = tmp_path / "plain.h5", tmp_path / "sparse.h5", tmp_path / "back.h5"
    rows = np.zeros(9000, RECORD)
    for i in range(0, len(rows), 3):
        rows[i] = (i, f"row {i} é", np.arange(i % 7, dtype="<u2"), ["a" * (i % 5), "b\n"])
    with h5py.File(plain, "w") as file:
        written = file.create_dataset("table", (9000,), RECORD, maxshape=(None,), chunks=(100,))
        for i in range(0, len(rows), 3):
            written[i] = rows[i]
        written.attrs["unit"] = "counts"
    done("import", f"{plain}:/table", sparse)
    found = Dataset(sparse, "table").values
    assert sorted(found) == [(i,) for i in range(0, len(rows), 3)]
    assert found[(33,)] == ["00000021", "row 33 é".encode().hex(), [f"{k:02x}00" for k in range(5)],
                            ["616161", "620a"]]
    done("export", f"{sparse}:/table", back)
    with h5py.File(back, "r") as file, h5py.File(plain, "r") as original:
        assert file["table"].attrs["unit"] == "counts"
        for one, other in zip(file["table"][...], original["table"][...]):
            assert one["n"] == other["n"] and one["name"] == other["name"] and list(one["tags"]) == list(other["tags"])
            assert (one["hits"] == other["hits"]).all() and one["hits"].dtype == other["hits"].dtype


def test_import_keeps_what_is_zero_if_it_is_told(tmp_path):
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file.create_dataset("x", (5, 4), [("s", h5py.string_dtype()), ("i", "i4")])
    done("import", f"{tmp_path}/plain.h5:/x", tmp_path / "none.h5")
    assert not Dataset(tmp_path / "none.h5", "x").values
    done("import", "--undefined", "none", f"{tmp_path}/plain.h5:/x", tmp_path / "all.h5")
    assert list(Dataset(tmp_path / "all.h5", "x").values.values()) == [["", "00000000"]] * 20


def test_what_cannot_be(tmp_path):
    path = tmp_path / "plain.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (4,), [("s", h5py.string_dtype()), ("r", h5py.ref_dtype)])
        file.create_dataset("y", (4,), [("s", h5py.string_dtype())])
        file.create_dataset("z", (), [("s", h5py.string_dtype())])
    failed("import", f"{path}:/x", tmp_path / "x.h5", says="elements with references")
    failed("import", f"{path}:/z", tmp_path / "x.h5", says="without axes")
    failed("export", f"{path}:/x", tmp_path / "x.h5", says="elements with references")
    for option in (["--undefined", "0"], ["--above", "1"], ["--fast"]):
        failed("import", *option, f"{path}:/y", tmp_path / "x.h5", says="variable length")


# ---- Ordinary datasets that h5py writes and reads ----

RNG = np.random.default_rng(11)
TEXT = h5py.string_dtype()
FLOATS = h5py.vlen_dtype(np.dtype("<f4"))  # h5py takes >f4 in compounds for <f4
INNER = np.dtype([("s", TEXT), ("n", ">u2")])
KINDS = {  # h5py reads and writes no sequences of compounds
    "record": np.dtype([("id", "<i4"), ("name", TEXT), ("hits", FLOATS), ("pair", TEXT, (2,))]),
    "gaps": np.dtype({"names": ["a", "b", "c"], "formats": ["u1", TEXT, "<f8"], "offsets": [3, 8, 24], "itemsize": 40}),
    "nested": np.dtype([("in", INNER), ("k", "u1"), ("hits", FLOATS)]),
    "array": np.dtype([("a", INNER, (3,)), ("k", "u1")]),
    "sequences": h5py.vlen_dtype(h5py.vlen_dtype(np.dtype("<i2"))),
    "strings": h5py.vlen_dtype(TEXT),
}
SHAPES = {"fixed": ((9, 7), (9, 7), "4,3"), "tree": ((9, 7), (None, None), "5,2"), "line": ((40,), (None,), "16")}


def without_empty(kind, values):
    return {place: value for place, value in values.items() if not is_empty(value, kind)}


def random_value(kind):
    """A value of a NumPy datatype as h5py takes it; a third of all sequences is empty."""
    n = RNG.integers(1, 6) if RNG.random() < 0.67 else 0
    if h5py.check_string_dtype(kind):
        return "".join(RNG.choice(list("aé\n\\ "), n))
    if h5py.check_vlen_dtype(kind):
        base = h5py.check_vlen_dtype(kind)
        values = np.empty(n, base)
        for i in range(n):
            values[i] = random_value(base)
        return values
    if kind.fields:
        return tuple(random_value(kind[name]) for name in kind.names)
    if kind.subdtype:
        return [random_value(kind.subdtype[0]) for _ in range(kind.subdtype[1][0])]
    return RNG.integers(0, 100)


def as_read(kind, value):
    """The same as variable_reader.py has it."""
    if h5py.check_string_dtype(kind):
        return (value.encode() if isinstance(value, str) else value or b"").hex()
    if h5py.check_vlen_dtype(kind):
        return [as_read(h5py.check_vlen_dtype(kind), one) for one in value]
    if kind.fields:
        return [as_read(kind[name], value[name]) for name in kind.names]
    if kind.subdtype:
        return [as_read(kind.subdtype[0], one) for one in value]
    return np.asarray(value, kind).tobytes().hex()


def make_ordinary(path, kind, shape, maxshape=None, chunks=None):
    """Of every second element nothing is written; gives what is to be read."""
    values = np.zeros(shape, kind)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", shape, kind, maxshape=maxshape, chunks=chunks)
        dataset.attrs["unit"] = "counts"
        for number, place in enumerate(np.ndindex(*shape)):
            if number % 2:
                value = random_value(kind)
                dataset[place] = np.array(value, kind) if kind.fields else value
    return read_ordinary(path, kind)


def read_ordinary(path, kind):
    with h5py.File(path, "r") as file:
        assert file["x"].attrs["unit"] == "counts"
        return {place: as_read(kind, value) for place, value in np.ndenumerate(file["x"][...])}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("options", [(), ("--dense",), ("--undefined", "none")], ids=["sparse", "dense", "defined"])
def test_kinds_of_h5py_there_and_back(tmp_path, name, shape, options):
    plain, made, back = tmp_path / "plain.h5", tmp_path / "made.h5", tmp_path / "back.h5"
    dims, maxshape, chunks = SHAPES[shape]
    values = make_ordinary(plain, KINDS[name], dims, maxshape, chunks=True)
    done("import", *options, "--chunk", chunks, f"{plain}:/x", made)
    found = Dataset(made, "x")
    wanted = without_empty(found.kind, values)
    assert 0.2 < len(wanted) / len(values) < 0.8
    if "--dense" in options:
        assert found.first == 1 and without_empty(found.kind, found.values) == wanted
    else:
        assert found.values == (values if options else wanted)
    assert "0 faults" in done("check", made)
    done("export", "--filter", "deflate", f"{made}:/x", back)
    assert read_ordinary(back, KINDS[name]) == values
    with h5py.File(back, "r") as file:
        assert file["x"].maxshape == maxshape and file["x"].compression == "gzip"


@pytest.mark.parametrize("layout", ["contiguous", "virtual"])
def test_import_of_other_layouts(tmp_path, layout):
    plain, source = tmp_path / "plain.h5", tmp_path / "source.h5"
    values = make_ordinary(plain, KINDS["record"], (6, 5))
    if layout == "virtual":
        plain.rename(source)
        shown = h5py.VirtualLayout((6, 5), KINDS["record"])
        shown[...] = h5py.VirtualSource(source.name, "x", (6, 5), KINDS["record"])
        with h5py.File(plain, "w") as file:
            file.create_virtual_dataset("x", shown)
    done("import", f"{plain}:/x", tmp_path / "sparse.h5")
    found = Dataset(tmp_path / "sparse.h5", "x")
    assert found.values == without_empty(found.kind, values)


def test_between_ordinary_datasets(tmp_path):
    values = make_ordinary(tmp_path / "plain.h5", KINDS["array"], (6, 5))
    done("export", f"{tmp_path}/plain.h5:/x", tmp_path / "copy.h5")
    assert read_ordinary(tmp_path / "copy.h5", KINDS["array"]) == values


def test_import_of_damaged_lengths(tmp_path):
    """What exceeds memory is not asked for."""
    path = tmp_path / "damaged.h5"
    kind = np.dtype([("id", "<i4"), ("hits", FLOATS)])
    make_ordinary(path, kind, (4,))
    with h5py.File(path, "r") as file:
        at = file["x"].id.get_offset() + 20 + 4
    content = bytearray(path.read_bytes())
    content[at:at + 4] = b"\xff" * 4
    path.write_bytes(content)
    failed("import", f"{path}:/x", tmp_path / "sparse.h5", says="/x")


# ---- Dumping ----

def as_json(kind, value):
    """A value that h5py has read as dump prints it."""
    if h5py.check_string_dtype(kind):
        return value.decode() if value else ""
    if h5py.check_vlen_dtype(kind):
        return [as_json(h5py.check_vlen_dtype(kind), one) for one in value]
    if kind.fields:
        return {name: as_json(kind[name], value[name]) for name in kind.names}
    if kind.subdtype:
        return [as_json(kind.subdtype[0], one) for one in value]
    return value.item()


def dumped(path, *options):
    """{coordinates: value}, of both forms, which say the same in row-major order."""
    header, *rows = csv.reader(done("dump", *options, f"{path}:/x").splitlines())
    found = {tuple(map(int, row[:-1])): json.loads(row[-1]) for row in rows}
    assert header[-2:] == ["x", "value"] and list(found) == sorted(found)
    rank, coo = len(header) - 1, done("dump", "--format", "coo", *options, f"{path}:/x").splitlines()
    assert found == {tuple(map(int, line.split(" ", rank)[:-1])): json.loads(line.split(" ", rank)[-1])
                     for line in coo}
    return found


@pytest.mark.parametrize("name", KINDS)
def test_dump(tmp_path, name):
    """The same of an ordinary dataset, a sparse one of what is not empty in it, and a dense one in structured
    chunks, as h5py reads it."""
    plain, sparse, dense = tmp_path / "plain.h5", tmp_path / "sparse.h5", tmp_path / "dense.h5"
    kind = KINDS[name]
    values = make_ordinary(plain, kind, (3, 4, 5), chunks=True)
    with h5py.File(plain, "r") as file:
        wanted = {place: as_json(kind, value) for place, value in np.ndenumerate(file["x"][...])}
    done("import", "--chunk", "2,3,2", f"{plain}:/x", sparse)
    done("import", "--dense", "--chunk", "2,3,2", f"{plain}:/x", dense)
    full = without_empty(Dataset(sparse, "x").kind, values)
    assert dumped(plain) == wanted and dumped(dense) == wanted
    assert dumped(sparse) == {place: wanted[place] for place in full}
    for path in plain, sparse, dense:
        assert dumped(path, "--frame", "1") == {
            place: value for place, value in wanted.items() if place[0] == 1 and (path != sparse or place in full)}


def test_dump_of_scattered_elements(tmp_path):
    """However far from one another, in a row of more elements than are read at once."""
    plain, sparse, n = tmp_path / "plain.h5", tmp_path / "sparse.h5", 140_000
    places = sorted({*np.cumsum([0, *range(55, 75)]).tolist(), *range(3000, 3200), 65535, 65536, 131071, n - 1})
    texts = {place: "é" * (place % 7) + str(place) for place in places}
    with h5py.File(plain, "w") as file:
        values = np.full(n, "", object)
        for place, text in texts.items():
            values[place] = text
        file.create_dataset("x", data=values, dtype=h5py.string_dtype())
    done("import", "--chunk", str(n), f"{plain}:/x", sparse)
    assert dumped(sparse) == {(place,): text for place, text in texts.items()}
    assert done("dump", "--format", "coo", f"{plain}:/x").splitlines() == \
        [f"{i} {json.dumps(text, ensure_ascii=False)}" for i, text in enumerate(values)]


def test_dump_of_large_elements(tmp_path):
    """More than is read at once."""
    plain, sparse = tmp_path / "plain.h5", tmp_path / "sparse.h5"
    texts = [letter * n for letter, n in zip("abcde", (3 << 20, 6 << 20, 10, 9 << 20, 5 << 20))]
    with h5py.File(plain, "w") as file:
        file.create_dataset("x", data=np.array(texts, object), dtype=h5py.string_dtype())
    done("import", f"{plain}:/x", sparse)
    for path in plain, sparse:
        lines = done("dump", "--format", "coo", f"{path}:/x").splitlines()
        assert [line == f'{i} "{text}"' for i, (line, text) in enumerate(zip(lines, texts))] == [True] * 5


@pytest.mark.parametrize("name", ["record", "bytes", "text"])
def test_large_elements_there_and_back(tmp_path, name):
    """What is imported is exported."""
    plain, sparse, back = tmp_path / "plain.h5", tmp_path / "sparse.h5", tmp_path / "back.h5"
    size = (100 if name == "bytes" else 20) << 20
    numbers = np.arange(size // 4, dtype="u4").view("u1")
    sequence = h5py.vlen_dtype(np.dtype("u1"))
    with h5py.File(plain, "w") as file:
        if name == "record":
            file.create_dataset("x", (2,), [("n", "i4"), ("v", sequence)])[1] = 5, numbers
        elif name == "bytes":
            file.create_dataset("x", (2,), sequence)[1] = numbers
        else:
            file.create_dataset("x", (2,), h5py.string_dtype())[1] = "é" * (size // 2)
    done("import", "--filter", "heap:none", f"{plain}:/x", sparse)
    done("export", f"{sparse}:/x", back)
    with h5py.File(back) as file:
        value = file["x"][1]
        if name == "text":
            assert value == "é".encode() * (size // 2)
        else:
            assert np.array_equal(value["v"] if name == "record" else value, numbers)


def test_too_large_elements(tmp_path):
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file.create_dataset("x", (2,), [("n", "i4"), ("v", h5py.vlen_dtype(np.dtype("u1")))])[1] = \
            5, np.zeros(129 << 20, "u1")
    failed("import", f"{tmp_path}/plain.h5:/x", tmp_path / "x.h5", says="an element has more than 128 MiB")


def test_dump_of_scalars(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (), KINDS["record"])[()] = \
            np.array((3, "a", np.array([1, 2.5], "<f4"), ["", "b"]), KINDS["record"])
        file.create_dataset("none", (0, 4), KINDS["record"])
    value = '{"id": 3, "name": "a", "hits": [1, 2.5], "pair": ["", "b"]}'
    assert done("dump", "--format", "coo", f"{path}:/x") == value + "\n"
    assert done("dump", f"{path}:/none") == "y,x,value\n"


# ---- Datatypes that create makes ----

NAMED = {
    "record": "{id:int32,name:str,hits:vlen:float32,pair:(2)str}",
    "nested": "{in: {s: str, n: >u2}, k: u1, hits: vlen:f4}",
    "array": "{a:(3){s:str,n:>u2},k:u1}",
    "sequences": "vlen:vlen:<i2",
    "strings": "vlen:str",
    "ascii": "{\"a b\":ascii,f:S5}",
    "plain": "{x:>f8,m:(2,3)i4,ok:bool,z:complex64,o:V3}",
    "numbers": "(4,5)u2",
    "enumerations": "{c:enum:<i2{RED:0,GREEN:-300},s:str,d:vlen:enum:u1{\"a b\":255,c:1}}",
    "enumeration": "enum:>u4{RED:0,GREEN:0xfffffffe}",
}
COLOURS = h5py.enum_dtype({"RED": 0, "GREEN": -300}, "<i2")
BYTES = h5py.enum_dtype({"a b": 255, "c": 1}, "u1")
KINDS_NAMED = {**KINDS, "ascii": np.dtype([("a b", h5py.string_dtype("ascii")), ("f", "S5")]),
               "plain": np.dtype([("x", ">f8"), ("m", "i4", (2, 3)), ("ok", "?"), ("z", "c8"), ("o", "V3")]),
               "numbers": np.dtype(("u2", (4, 5))),
               "enumerations": np.dtype([("c", COLOURS), ("s", h5py.string_dtype()), ("d", h5py.vlen_dtype(BYTES))]),
               "enumeration": h5py.enum_dtype({"RED": 0, "GREEN": 0xfffffffe}, ">u4")}


def described(kind):
    """A datatype of libhdf5, whatever it is called in a file or in memory."""
    said = [kind.get_class(), kind.get_size()]
    if isinstance(kind, h5py.h5t.TypeCompoundID):
        said += [(kind.get_member_name(i), kind.get_member_offset(i), described(kind.get_member_type(i)))
                 for i in range(kind.get_nmembers())]
    elif isinstance(kind, h5py.h5t.TypeStringID):
        said += [kind.is_variable_str(), kind.get_cset(), kind.get_strpad()]
    elif isinstance(kind, h5py.h5t.TypeEnumID):
        said += sorted((kind.get_member_name(i), kind.get_member_value(i)) for i in range(kind.get_nmembers()))
        said += [described(kind.get_super())]  # h5py sorts the names before it writes them
    elif isinstance(kind, h5py.h5t.TypeArrayID):
        said += [kind.get_array_dims(), described(kind.get_super())]
    elif kind.get_class() == h5py.h5t.VLEN:
        said += [described(kind.get_super())]
    elif kind.get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT):
        said += [kind.get_order()]
    return said


@pytest.mark.parametrize("options", [(), ("--dense",)], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", NAMED)
def test_create(tmp_path, name, options):
    """Exported it is a dataset of the datatype that h5py writes for the same."""
    made, back, wanted = tmp_path / "made.h5", tmp_path / "back.h5", tmp_path / "wanted.h5"
    is_plain = name in ("plain", "numbers", "enumeration")
    create = ["create", *options, "--dims", "6,5", "--chunk", "2,5", "--dtype", NAMED[name]]
    if is_plain and options:
        failed(*create, made, "/x", says="of variable length")
        return
    done(*create, *(() if is_plain else ("--filter", "heap:shuffle", "--filter", "heap:deflate")), made, "/x")
    if not is_plain:
        assert Dataset(made, "x").filters[2] == [(2, [1]), (1, [4])]
    assert "0 faults" in done("check", made)
    done("export", f"{made}:/x", back)
    with h5py.File(wanted, "w") as other, h5py.File(back) as file:
        other.create_dataset("x", (6, 5), KINDS_NAMED[name])
        assert described(file["x"].id.get_type()) == described(other["x"].id.get_type())
        assert file["x"].shape == (6, 5)


def test_create_enumerations(tmp_path):
    """Names are elements, too: as fill value, in what is dumped, and for h5py."""
    made, back = tmp_path / "made.h5", tmp_path / "back.h5"
    done("create", "--dims", "3", "--dtype", "enum:i2{IDLE:0,BUSY:-5}", "--fill", "BUSY", made, "/x")
    described, = info(made)["datasets"]
    assert described["fill_value"] == "BUSY" and described["datatype"].endswith("enumeration of 2 names")
    done("export", f"{made}:/x", back)
    with h5py.File(back) as file:
        assert h5py.check_enum_dtype(file["x"].dtype) == {"IDLE": 0, "BUSY": -5} and list(file["x"]) == [-5] * 3
    assert [value for _, value in csv.reader(done("dump", f"{back}:/x").splitlines()[1:])] == ['"BUSY"'] * 3
    assert "0 faults" in done("check", made)
    failed("create", "--dims", "3", "--dtype", "enum:i2{IDLE:0}", "--fill", "BUSY", made, "/y", code=USAGE,
           says="--fill BUSY: not an element")


def test_create_references(tmp_path):
    """Anywhere, which this reader finds in the datatype that stands in the file."""
    path = tmp_path / "made.h5"
    done("create", "--dims", "4", "--dtype", "{a:ref,b:vlen:regionref,c:(2){d:ref,e:u2}}", path, "/x")
    kinds = [kind for _, kind in Dataset(path, "x").kind.members]
    assert [type(kind) for kind in kinds] == [Reference, Sequence, Array]
    assert type(kinds[1].base) is Reference and type(kinds[2].base) is Compound
    assert type(kinds[2].base.members[0][1]) is Reference
    for dtype, words in ("ref", "object reference"), ("regionref", "region reference"):
        done("create", "--dims", "4", "--dtype", dtype, path, f"/{dtype}")
        assert words in done("info", f"{path}:/{dtype}")
    assert "0 faults" in done("check", path)


def test_wrong_datatypes(tmp_path):
    path = tmp_path / "made.h5"
    for dtype, code, reason in [
            ("{x:float3,y:u4}", USAGE, "datatype '{x:float3,y:u4}': at character 4: no such datatype: float3"),
            ("{x:u4,x:u4}", USAGE, "at character 7: another member has this name"),
            ("{x:enum:u1{A:1,B:256}}", USAGE, "at character 18: a value of this enumeration is an integer"),
            ("enum:f4{A:1}", USAGE, "at character 6: the values of an enumeration are integers"),
            ("(2,0)str", USAGE, "at character 4: dims of an array are 1 to 4294967295"),
            ("(70000)str", 1, "more than 65536 parts of variable length")]:
        failed("create", "--dims", "4", "--dtype", dtype, path, "/x", code=code, says=reason)
    for option in ("--fill", "1"), ("--encoding", "rfc"):
        failed("create", "--dims", "4", "--dtype", "{x:str}", *option, path, "/x",
               code=USAGE if "--fill" in option else 1, says="variable length")
    failed("create", "--dims", "4", "--dtype", "{x:u1}", "--filter", "heap:deflate", path, "/x",
           code=USAGE, says="{x:u1} has no variable-length data")
