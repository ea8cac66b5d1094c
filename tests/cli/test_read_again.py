"""The files that programs of tests/unit write are read by readers that share no code with src/, after each test of
theirs; and these readers see what is wrong."""
import ast
import collections
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import read_again
from test_sparsectl import BUILD, SECONDS

FOLDER = pathlib.Path(__file__).parent


@pytest.mark.parametrize("program, encoding", (
    ("sequences", "variable"), ("sequences", "dense"), ("variable", "variable"), ("references", "variable"),
    ("many", "prototype"), ("chunks", "prototype")))
def test_programs(tmp_path, program, encoding):
    environment = {**os.environ, "TMPDIR": str(tmp_path),
                   "SPARSEFS_AFTER_TEST": f"{sys.executable} {FOLDER / 'read_again.py'} . >> {tmp_path / 'said'}"}
    result = subprocess.run([BUILD / f"tests/unit/test_{program}"], capture_output=True, text=True, env=environment,
                            timeout=SECONDS)
    assert result.returncode == 0, result.stdout + result.stderr
    counts = collections.Counter()
    for line in (tmp_path / "said").read_text().splitlines():
        counts.update(ast.literal_eval(line.split(": ", 1)[1]))
    assert counts[f"prototype {encoding}"] > 0, counts


@pytest.mark.parametrize("name", ("golden_sequences", "golden_variable", "golden_references"))
def test_another_value_is_seen(tmp_path, monkeypatch, name):
    """In what the library says, whichever of the values it is."""
    folder = tmp_path / "files"
    folder.mkdir()
    shutil.copy(FOLDER / f"{name}.h5", folder)
    assert sum(read_again.read_again(folder).values()) > 2
    dumped = read_again.dumped

    def without_one(path, name, rank):
        said = dumped(path, name, rank)
        said.pop(next(iter(said)), None)
        return said

    monkeypatch.setattr(read_again, "dumped", without_one)
    with pytest.raises((AssertionError, KeyError)):
        read_again.read_again(folder)
    for old, new in (("1", "2"), ('"', '"x'), ("[", '["y", ')):
        monkeypatch.setattr(read_again, "dumped", lambda *of, old=old, new=new: {
            place: text.replace(old, new) for place, text in dumped(*of).items()})
        with pytest.raises((AssertionError, KeyError, TypeError, ValueError)):
            read_again.read_again(folder)
    monkeypatch.undo()
