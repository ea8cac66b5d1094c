"""Elements with parts of variable length anywhere, as the library has written them once: read by a reader of its own
(variable_reader.py), checked, described and repacked by sparsectl."""
import json
import pathlib

import pytest

from test_sparsectl import done, failed, info, run
from variable_reader import Dataset

FOLDER = pathlib.Path(__file__).parent
GOLDEN = FOLDER / "golden_variable.h5"
DESCRIBED = json.loads((FOLDER / "golden_variable.json").read_text())
ELEMENTS = "elements with references, or with parts of variable length"


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


def test_what_cannot_be(tmp_path):
    failed("export", f"{GOLDEN}:/record", tmp_path / "x.h5", says=ELEMENTS)
    failed("import", f"{GOLDEN}:/deep", tmp_path / "x.h5", says=ELEMENTS)
    failed("dump", f"{GOLDEN}:/record", says="are not dumped")
