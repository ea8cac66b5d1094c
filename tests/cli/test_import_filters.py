"""sparsectl import --fast and --small: what is chosen is said, can be asked for again, and is within
its bytes. Which filters are the fastest depends on the machine: no test asks for one."""
import re

import h5py
import numpy as np
import pytest

from test_filters import is_built
from test_sparsectl import USAGE, done, info, make, only, run

GOALS = ["--fast", "--small"]
SLACK = 2048  # bytes of a file that filters do not decide


def frames(dtype="<u4"):
    """Three frames, a tenth of which are counts, with gaps of the highest number."""
    random = np.random.default_rng(2)
    data = random.poisson(0.1, (3, 200, 210)).astype(dtype)
    data[:, 60:70] = np.iinfo(dtype).max
    return data


def back(tmp_path, sparse):
    (tmp_path / "back.h5").unlink(missing_ok=True)
    done("export", sparse, tmp_path / "back.h5")
    with h5py.File(tmp_path / "back.h5") as f:
        return f["d"][...]


def chosen(said, path="/d"):
    """The options of the one line that was printed."""
    line = re.fullmatch(re.escape(path) + r"((?: --filter (?:selection|values):[a-z0-9=:]+)+)\n", said)
    assert line, said
    return line[1].split()


def filters(path):
    return {section: [(f["id"], f["parameters"]) for f in found]
            for section, found in only(path)["filters"].items()}


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("dtype", ["<u4", ">u2", "u1", "<i8"])
def test_what_is_chosen_is_said_and_can_be_asked_for(tmp_path, goal, dtype):
    data = frames(dtype)
    source, sparse, again = (tmp_path / name for name in ("source.h5", "sparse.h5", "again.h5"))
    make(source, d=(data, {"chunks": (1, 200, 210)}))
    options = chosen(done("import", "--undefined", "0", goal, source, sparse))
    assert {option.split(":")[0] for option in options[1::2]} == {"selection", "values"}
    done("check", sparse)
    assert np.array_equal(back(tmp_path, sparse), data)
    assert done("import", "--undefined", "0", *options, source, again) == ""
    assert filters(again) == filters(sparse)


@pytest.mark.parametrize("dtype", ["<u4", "u1"])
def test_bytes(tmp_path, dtype):
    """All sections of a small dataset are tried: no guess is in it."""
    sizes = {}
    source = make(tmp_path / "source.h5", d=(frames(dtype), {"chunks": (1, 200, 210)}))
    for goal in ([], ["--fast"], ["--small"]):
        path = tmp_path / f"{goal}.h5"
        done("import", "--undefined", "0", *goal, source, path)
        sizes[tuple(goal)] = only(path)["stored_bytes"]
    assert sizes["--small",] <= sizes[()]
    assert sizes["--fast",] <= 1.15 * sizes[()] + SLACK


def test_small_takes_more_than_deflate(tmp_path):
    """Values that repeat at a distance of more than 32 KiB."""
    if not (is_built("zstd") or is_built("bzip2")):
        pytest.skip("built with deflate only")
    once = np.random.default_rng(1).integers(1, 2 ** 32, 40000, "<u4")
    source = make(tmp_path / "source.h5", d=(np.tile(once, 2).reshape(1, 400, 200),
                                             {"chunks": (1, 400, 200)}))
    done("import", source, tmp_path / "default.h5")
    options = chosen(done("import", "--small", source, tmp_path / "small.h5"))
    small, default = only(tmp_path / "small.h5"), only(tmp_path / "default.h5")
    assert small["value_bytes"] < 0.6 * default["value_bytes"], options


@pytest.mark.parametrize("goal", GOALS)
def test_only_sections_without_filters(tmp_path, goal):
    source = make(tmp_path / "source.h5", d=(frames(), {"chunks": (1, 200, 210)}))
    for given, left in (("selection", "values"), ("values", "selection")):
        path = tmp_path / f"{given}.h5"
        options = chosen(done("import", "--undefined", "0", goal, "--filter", f"{given}:fletcher32",
                              source, path))
        assert {option.split(":")[0] for option in options[1::2]} == {left}
        assert [f["id"] for f in only(path)["filters"][given]] == [3]
        done("check", path)
    assert done("import", goal, "--filter", "selection:none", "--filter", "values:none", source,
                tmp_path / "none.h5") == "/d\n"


def test_all_datasets_are_named(tmp_path):
    source = make(tmp_path / "source.h5", d=frames(), e=frames("u1"))
    lines = done("import", "--all", "--fast", "--undefined", "0", source, tmp_path / "s.h5").splitlines(True)
    assert [bool(chosen(line, path)) for line, path in zip(lines, ("/d", "/e"))] == [True, True]
    assert len(info(tmp_path / "s.h5")["datasets"]) == 2


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("data", [
    np.zeros((2, 30, 40), "<u2"), np.zeros((0, 30, 40), "<u2"), np.ones(5, "<f8"),
    np.array([(1, 2.5)] * 300, [("a", "i2"), ("b", "f8")]), np.array([b"abc"] * 300)],
    ids=["nothing", "no frames", "short", "compound", "strings"])
def test_any_dataset(tmp_path, goal, data):
    source = make(tmp_path / "source.h5", d=data)
    chosen(done("import", goal, f"{source}:/d", tmp_path / "sparse.h5"))
    done("check", tmp_path / "sparse.h5")
    assert np.array_equal(back(tmp_path, f"{tmp_path}/sparse.h5:/d"), data)


def test_no_room_for_trying(tmp_path, monkeypatch):
    source = make(tmp_path / "source.h5", d=frames())
    monkeypatch.setenv("TMPDIR", "/nowhere")
    options = chosen(done("import", "--small", source, tmp_path / "s.h5"))
    assert [option.split("=")[0] for option in options[1::2]] == [
        "selection:shuffle", "selection:deflate", "values:shuffle", "values:deflate"]


@pytest.mark.parametrize("options", [("--fast", "--small"), ("--fast", "--fast"), ("--fast=1",)])
def test_refused(tmp_path, options):
    result = run("import", *options, "a.h5", tmp_path / "b.h5")
    assert result.returncode == USAGE


@pytest.mark.parametrize("options", [[], ["--fast"]], ids=["default", "fast"])
@pytest.mark.parametrize("chunks", [(1, 600, 2100), (1, 100, 2100), (1, 600, 700), (2, 600, 2100)])
def test_compressed_sources_are_scanned_where_they_are_decoded(tmp_path, chunks, options):
    """Chunks of more than 4 MiB make blocks as large; the last one is over the edge of the dataset."""
    data = np.zeros((3, 500, 2100), "<u4")
    data[:, ::7, ::5] = np.arange(3 * 72 * 420).reshape(3, 72, 420) + 1
    data[1] = 5
    with h5py.File(tmp_path / "source.h5", "w") as f:
        f.create_dataset("d", data=data, maxshape=(3, 600, 2100), chunks=chunks, compression="gzip",
                         compression_opts=1)
    done("import", "--undefined", "0", *options, tmp_path / "source.h5", tmp_path / "s.h5")
    assert only(tmp_path / "s.h5")["defined_elements"] == np.count_nonzero(data)
    assert np.array_equal(back(tmp_path, tmp_path / "s.h5"), data)
