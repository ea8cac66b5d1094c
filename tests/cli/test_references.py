"""References in sparse datasets, as the library has written them once: read by a reader of its own
(variable_reader.py), checked, described, and set to the copies where a file is repacked."""
import json
import pathlib
import shutil

import h5py
import pytest

from test_sparsectl import done, failed, info
from variable_reader import Dataset

FOLDER = pathlib.Path(__file__).parent
GOLDEN = FOLDER / "golden_references.h5"
DESCRIBED = json.loads((FOLDER / "golden_references.json").read_text())


def addresses(path):
    """Of all objects, their paths. libhdf5 cannot open sparse datasets."""
    found = {}

    def look(group, name):
        for link in group:
            address = group.id.links.get_info(link.encode()).u
            found[address] = name + link
            if h5py.h5g.get_objinfo(group.id, link.encode()).type == h5py.h5g.GROUP:
                look(group[link], found[address] + "/")

    with h5py.File(path) as file:
        look(file, "/")
    return found


def named(value, paths):
    """The paths of what references lead to."""
    if isinstance(value, list):
        return [named(part, paths) for part in value]
    return {**value, "to": paths[value["to"]]} if isinstance(value, dict) else value


def read(path, name):
    found, paths = Dataset(path, name), addresses(path)
    return found, {",".join(map(str, place)): named(value, paths) for place, value in found.values.items()}


def check(path, name):
    found, values = read(path, name)
    assert values == DESCRIBED[name]["defined"]
    assert found.index == DESCRIBED[name]["index"]
    return found


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_file_as_it_was_written_once(name):
    check(GOLDEN, name)


@pytest.mark.parametrize("filters", [(), ("--filter", "heap:none", "--filter", "values:deflate"),
                                     ("--filter", "heap:fletcher32", "--filter", "selection:none")])
def test_repacked_they_lead_to_the_copies(tmp_path, filters):
    """Whether chunks are copied, or elements are written anew."""
    copy, paths = tmp_path / "copy.h5", addresses(GOLDEN)
    done("repack", *filters, GOLDEN, copy)
    copied = addresses(copy)
    assert sorted(copied.values()) == sorted(paths.values())
    assert not [address for address in paths if copied.get(address) == paths[address]]
    for name in DESCRIBED:
        check(copy, name)
    assert "0 faults" in done("check", copy)


def test_what_was_removed_is_named_no_more(tmp_path):
    source, copy = tmp_path / "a.h5", tmp_path / "b.h5"
    shutil.copy(GOLDEN, source)
    with h5py.File(source, "r+") as file:
        del file["group/x"]
    done("repack", source, copy)
    _, regions = read(copy, "regions")
    assert regions == {str(i): None for i in range(2, 7)}
    _, objects = read(copy, "objects")
    assert objects == {**DESCRIBED["objects"]["defined"], "2": None}
    found, _ = read(copy, "records")
    assert found.values[0, 1][2] == [["0102", None, None], ["0300", None, found.values[0, 1][2][1][2]]]
    assert "0 faults" in done("check", copy)


def test_info_and_check():
    assert "0 faults" in done("check", GOLDEN)
    said = {dataset["path"].strip("/"): dataset for dataset in info(GOLDEN)["datasets"]}
    for name in DESCRIBED:
        found = Dataset(GOLDEN, name)
        assert said[name]["defined_elements"] == len(found.values)
        assert said[name]["heap_bytes_unfiltered"] == sum(len(s[2]) + 4 for _, s, _, _ in found.chunks if s[2])


def dumped(path, name):
    return done("dump", "--format", "coo", f"{path}:/{name}").splitlines()


def test_dump(tmp_path):
    """Paths, and bounds of regions, of what is defined, also inside of elements; as JSON."""
    assert dumped(GOLDEN, "objects") == ['1 "/group"', '2 "/group/x"', '3 "/type"', "6 null", '7 "/records"']
    assert dumped(GOLDEN, "regions") == ['2 "/group/x {(2,3)-(4,6)}"', '3 "/group/x {(0,0)-(4,9)}"', "4 null",
                                         '5 "/group/x {(0,1)-(5,9)}"', '6 "/group/x {(0,0)-(5,9)}"']
    assert dumped(GOLDEN, "dense") == ['0 "/dense"', '1 "/objects"', "2 null", "3 null"]
    assert dumped(GOLDEN, "records") == [
        '0 1 {"first": 17, "pair": ["/group", null], "parts": [{"n": 513, "region": "/group/x {(2,3)-(4,6)}", '
        '"object": "/group/x"}, {"n": 3, "region": null, "object": "/records"}], "last": 34}',
        '2 4 {"first": 51, "pair": ["/group", "/dense"], "parts": [], "last": 68}']
    copy = tmp_path / "copy.h5"
    shutil.copy(GOLDEN, copy)
    with h5py.File(copy, "r+") as file:
        del file["group/x"]
    assert dumped(copy, "objects")[1] == "2 null"
    assert '"region": null, "object": null}' in dumped(copy, "records")[0]


def test_dump_of_ordinary_ones(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        kind = [("s", h5py.string_dtype()), ("r", h5py.ref_dtype), ("q", h5py.regionref_dtype, (2,))]
        x, y = file.create_dataset("x", (2,), kind), file.create_dataset("y", (4, 5), "i4")
        x[1] = "a", y.ref, [y.regionref[1:3, 2:4], h5py.RegionReference()]
        file.create_dataset("r", (), h5py.ref_dtype)[()] = x.ref
    assert dumped(path, "x") == ['0 {"s": "", "r": null, "q": [null, null]}',
                                 '1 {"s": "a", "r": "/y", "q": ["/y {(1,2)-(2,3)}", null]}']
    assert dumped(path, "r") == ['"/x"']


def test_what_cannot_be(tmp_path):
    """They mean nothing elsewhere."""
    failed("export", f"{GOLDEN}:/objects", tmp_path / "x.h5", says="references")
    failed("import", f"{GOLDEN}:/objects", tmp_path / "x.h5", says="references")
    assert not list(tmp_path.iterdir())
