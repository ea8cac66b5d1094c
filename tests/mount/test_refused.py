"""The files of tests/refused, each with one thing wrong: sparsectl says what, and under a mount it is
EIO, of which the rest of the file takes no harm."""
import os
import subprocess
import sys

import pytest

from conftest import BUILD, START_SECONDS, TOP

FOLDER = TOP / "tests/refused"
OTHER = bytes.fromhex("00000000 01000000 05000000 07000000 00000000")
DONE, FAILED, UNKNOWN, MOUNT_FAILED = 0, 1, 2, 32


def table():
    for line in (FOLDER / "table.txt").read_text().splitlines():
        name, where, *words = line.split(None, 2)
        yield pytest.param(name, where, "".join(words), id=name)


def sparsectl(*arguments):
    return subprocess.run([BUILD / "sparsectl", *arguments], capture_output=True, text=True,
                          timeout=START_SECONDS)


def test_files_are_made(tmp_path):
    """They are what the script beside them makes."""
    subprocess.run([sys.executable, "-B", FOLDER / "make.py", tmp_path], check=True)
    made = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    kept = {p.name: p.read_bytes() for p in FOLDER.iterdir() if p.suffix in (".h5", ".txt")}
    assert made == kept
    names = {f"{parameter.id}.h5" for parameter in table()}
    assert {name for name in kept if not name.startswith("sound_")} == names | {"table.txt"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("sound_*.h5")), ids=lambda p: p.stem)
def test_sound(path):
    process = sparsectl("check", path)
    assert process.returncode == DONE and "3 groups and datasets sound, 0 faults" in process.stdout


def test_filters_that_were_left_out_are_not_needed(mounts):
    """Of any chunk: filter 300 stands in the pipeline, but in all masks, too."""
    path = FOLDER / "sound_left_out.h5"
    process = sparsectl("dump", f"{path}:/bad")
    assert process.stdout == "x,value\n1,1\n2,5\n3,7\n6,1\n7,5\n8,7\n"
    assert (mounts(path) / "bad/frames/0.raw").read_bytes() == 2 * OTHER


@pytest.mark.parametrize("name, where, words", table())
def test_sparsectl(name, where, words):
    path = FOLDER / f"{name}.h5"
    process = sparsectl("check", path)
    assert process.returncode == (UNKNOWN if where in ("unknown", "missing") else FAILED)
    assert words in process.stdout + process.stderr
    if where == "unknown":
        process = sparsectl("info", f"{path}:/bad")
        assert process.returncode == FAILED and words in process.stderr
    process = sparsectl("dump", f"{path}:/bad")
    if where != "check":
        assert process.returncode == FAILED and words in process.stderr
    else:
        assert process.returncode in (DONE, FAILED)
    process = sparsectl("dump", f"{path}:/other")
    if where == "file":
        assert process.returncode == FAILED and words in process.stderr
    else:
        assert process.stdout == "x,value\n1,1\n2,5\n3,7\n"


def read_all(folder):
    for view in os.listdir(folder / "frames"):
        (folder / "frames" / view).read_bytes()


@pytest.mark.parametrize("name, where, words", table())
def test_mount(mounts, run, tmp_path, name, where, words):
    path = FOLDER / f"{name}.h5"
    if where == "file":
        process = run(path, tmp_path)
        assert process.returncode == MOUNT_FAILED and words in process.stderr
        return
    mount = mounts(path, "ro", expect_log=True)
    if where == "check":
        try:
            read_all(mount / "bad")
        except OSError:
            pass
    else:
        with pytest.raises(OSError, match="Input/output error"):
            read_all(mount / "bad")
        assert words in mount.log()
    assert (mount / "other/frames/0.raw").read_bytes() == OTHER
