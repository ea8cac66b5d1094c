"""Types of structured chunks and of sectioned storage that are reserved, in layout messages of all kinds: they are not
supported, which sparsectl says, and is not damage; the other dataset of the file is read."""
import pathlib
import sys

import pytest

from test_sparsectl import FAILED, run

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "refused"))
import build  # noqa: E402

CANNOT_TELL = 2


def check_unknown(path, content, says):
    path.write_bytes(content)
    said = run("info", path)
    assert said.returncode == FAILED and "unsupported: data layout message at address" in said.stderr
    assert said.stderr.rstrip().endswith(says), said.stderr
    assert "/other: sparse" in said.stdout and "/bad" not in said.stdout
    checked = run("check", path)
    assert checked.returncode == CANNOT_TELL and says in checked.stdout and "cannot tell" in checked.stdout


def check_dump(path, says):
    refused = run("dump", f"{path}:/bad")
    assert refused.returncode == FAILED and says in refused.stderr and not refused.stdout
    assert run("dump", f"{path}:/other").stdout == "x,value\n1,1\n2,5\n3,7\n"


@pytest.mark.parametrize("name", [name for name, make in build.SOUND.items() if "bad.layout" in make().pieces])
def test_types(tmp_path, name):
    """Each of the bits 2 to 15."""
    known = build.SOUND[name]()
    at = known.address("bad.layout") + 3
    known = int.from_bytes(known.content[at:at + 2], "little")
    for bit in range(2, 16):
        file = build.SOUND[name]().put("bad.layout", 3, (known | 1 << bit).to_bytes(2, "little"))
        check_unknown(tmp_path / "a.h5", file.content, f"structured chunk type 0x{known | 1 << bit:04x}")
    check_dump(tmp_path / "a.h5", f"structured chunk type 0x{known | 1 << 15:04x}")


@pytest.mark.parametrize("width", (1, 4, 8))
def test_storage(tmp_path, width):
    for storage in 1, 2, 3, 4, 8, 127, 128, 255:
        file = build.sectioned(width).put("bad.layout", 5, bytes([storage]))
        check_unknown(tmp_path / "a.h5", file.content, f"type of storage {storage}")
    check_dump(tmp_path / "a.h5", "type of storage 255")
