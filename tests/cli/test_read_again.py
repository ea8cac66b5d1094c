"""The files that programs of tests/unit write are read by readers that share no code with src/, after each test of
theirs; and these readers see what is wrong."""
import collections
import os
import pathlib
import select
import shutil
import subprocess

import pytest

import read_again
from test_sparsectl import BUILD

FOLDER = pathlib.Path(__file__).parent


@pytest.mark.parametrize("program, encoding", (
    ("sequences", "variable"), ("sequences", "dense"), ("variable", "variable"), ("references", "variable"),
    ("many", "prototype"), ("chunks", "prototype")))
def test_programs(tmp_path, program, encoding):
    """After each test it says its folder by one pipe, and waits for an answer by another."""
    said, counts, folder = tmp_path / "said", collections.Counter(), b""
    pipes = [tmp_path / name for name in ("ask", "answer")]
    for pipe in pipes:
        os.mkfifo(pipe)
    ask, answer = (os.open(pipe, os.O_RDWR) for pipe in pipes)
    environment = {**os.environ, "TMPDIR": str(tmp_path),
                   "SPARSEFS_AFTER_TEST": f"pwd >{pipes[0]}; read line <{pipes[1]}"}
    with open(said, "wb") as output, subprocess.Popen([BUILD / f"tests/unit/test_{program}"], stdout=output,
                                                      stderr=output, env=environment) as process:
        try:
            while process.poll() is None:
                if select.select([ask], [], [], 0.1)[0]:
                    folder += os.read(ask, 4096)
                if folder.endswith(b"\n"):
                    counts.update(read_again.read_again(os.fsdecode(folder[:-1])))
                    folder = b""
                    os.write(answer, b"\n")
        finally:
            process.terminate()  # it ends its child, and removes its folder
            os.close(ask)
            os.close(answer)
    assert process.returncode == 0, said.read_text()
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
