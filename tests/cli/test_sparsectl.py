"""sparsectl, as it is used: every command, option, error and exit code. Dense sources are made and
exports are read by h5py."""
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPARSEFS_BUILD", TOP / "build"))
SPARSECTL = BUILD / "sparsectl"
DATA = pathlib.Path(os.environ.get("SPARSEFS_TEST_DATA", TOP.parent / "shared/data"))
SECONDS = 300  # only what hangs takes so long, also on a busy machine with sanitizers
COMMANDS = ("create", "import", "export", "info", "dump", "check", "recover", "repack")
DONE, FAILED, USAGE = 0, 1, 2


def run(*arguments, **more):
    result = subprocess.run([SPARSECTL, *map(str, arguments)], capture_output=True, text=True,
                            timeout=SECONDS, **more)
    assert not re.search("Sanitizer|runtime error|Assertion", result.stderr), result.stderr
    return result


def done(*arguments, stderr=""):
    """Runs a command that has to work, and to say nothing else on stderr; gives its output."""
    result = run(*arguments)
    assert result.returncode == DONE, result.stderr
    assert result.stderr == stderr
    return result.stdout


def failed(*arguments, says="", code=FAILED):
    """Runs a command that has to fail with one line that has these words in it."""
    result = run(*arguments)
    assert result.returncode == code, result.stderr
    assert result.stderr.startswith("sparsectl") and result.stderr.count("\n") == 1, result.stderr
    assert says in result.stderr
    return result


def info(path, *options):
    return json.loads(done("info", "--json", *options, path))


def only(path, *options):
    (dataset,) = info(path, *options)["datasets"]
    return dataset


def coordinates(path):
    """{coordinates: text of the value}"""
    lines = done("dump", "--format", "coo", path).splitlines()
    return {tuple(map(int, line.split()[:-1])): line.split()[-1] for line in lines}


def make(path, **datasets):
    """A dense file; a dataset is an array, or (array, options of create_dataset)."""
    with h5py.File(path, "w") as f:
        for name, data in datasets.items():
            data, options = data if isinstance(data, tuple) else (data, {})
            f.create_dataset(name, data=data, **options)
    return path


def scattered(shape, dtype="<u2", share=0.05, seed=1):
    random = np.random.default_rng(seed)
    values = random.integers(1, 100, shape)
    return np.where(random.random(shape) < share, values, 0).astype(dtype)


def round_trip(tmp_path, source, *options):
    """Imports and exports; gives the sparse file and the array that came out."""
    sparse, dense = tmp_path / "sparse.h5", tmp_path / "back.h5"
    done("import", *options, source, f"{sparse}:/sparse")
    assert run("check", sparse).returncode == DONE
    done("export", f"{sparse}:/sparse", f"{dense}:/dense")
    with h5py.File(dense) as f:
        return sparse, f["dense"][...]


def files_in(path):
    return sorted(p.name for p in path.iterdir())


# ---- The command line ----


def test_help_and_version():
    assert done("--help").startswith("usage: sparsectl [--external-files DIR] [--chunk-memory SIZE]")
    for command in COMMANDS:
        assert command in done("--help")
        assert done(command, "--help").startswith(f"usage: sparsectl {command}")


# The library of each filter, as the linker names it, and what its version looks like.
FILTER_LIBRARIES = {"libdeflate": ("libdeflate", "HAVE_LIBDEFLATE"), "liblz4": ("liblz4", "HAVE_LZ4"),
                    "libzstd": ("libzstd", "HAVE_ZSTD"), "libblosc": ("libblosc", "HAVE_BLOSC"),
                    "libblosc2": ("libblosc2", "HAVE_BLOSC2"), "libbz2": ("libbz2", "HAVE_BZIP2"),
                    "libaec": ("libsz", "HAVE_SZIP")}


def test_version_names_the_libraries_of_filters():
    first, second = done("--version").splitlines()
    assert re.fullmatch(r"sparsectl \d+\.\d+\.\d+ \(libhdf5 1\.\d+\.\d+\)", first)
    words, libraries = second.split("by ", 1)
    assert words == "filters "
    named = dict((library.split(" ") + [None])[:2] for library in libraries.split(", "))
    config = (BUILD / "config.h").read_text()
    built = {name for name, (_, macro) in FILTER_LIBRARIES.items() if f"#define {macro} 1" in config}
    assert set(named) == built | (set() if "libdeflate" in built else {"zlib"})
    for name, version in named.items():
        assert name == "libaec" and version is None or re.fullmatch(r"\d+\.\d+(\.\S+)?", version)
    linked = subprocess.run(["ldd", BUILD / "sparsectl"], text=True, stdout=subprocess.PIPE).stdout
    for name in built:
        assert f"{FILTER_LIBRARIES[name][0]}.so" in linked
    for name in "liblz4", "libblosc":  # their files are called by the same version
        path = re.search(rf"{name}\.so\S* => (\S+)", linked)
        if name in built and path:
            assert named[name] in os.path.basename(os.path.realpath(path[1]))


def test_every_option_is_in_the_help_and_in_the_manual():
    manual = (TOP / "docs/man/sparsectl.1").read_text().replace("\\-", "-")
    for command in COMMANDS:
        options = set(re.findall(r"(?m)^  (--[a-z-]+)", done(command, "--help")))
        source = (TOP / f"src/cli/{command}.c").read_text()
        if "STORAGE_OPTIONS," in source:
            source += (TOP / "src/cli/storage_words.h").read_text()
        assert options == {"--" + name for name in re.findall(r'\{"([a-z-]+)", \w+_argument', source)}
        for option in options:
            assert option in manual, option


@pytest.mark.parametrize("arguments", [
    (), ("fly",), ("--fly",),
    ("create",), ("create", "f"), ("create", "f", "d"), ("create", "f", "d", "--dims", "3"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "more"),
    ("create", "f", "d", "--dims", "3,x", "--dtype", "u1"),
    ("create", "f", "d", "--dims", "", "--dtype", "u1"),
    ("create", "f", "d", "--dims", "3,", "--dtype", "u1"),
    ("create", "f", "d", "--dims", "-3", "--dtype", "u1"),
    ("create", "f", "d", "--dims", "99999999999999999999", "--dtype", "u1"),
    ("create", "f", "d", "--dims", "inf", "--dtype", "u1"),
    ("create", "f", "d", "--dims", ",".join("1" * 33), "--dtype", "u1"),
    ("create", "f", "d", "--dims", "3,3", "--maxdims", "3", "--dtype", "u1"),
    ("create", "f", "d", "--dims", "3,3", "--maxdims", "2,3", "--dtype", "u1"),
    ("create", "f", "d", "--dims", "3,3", "--chunk", "1,0", "--dtype", "u1"),
    ("create", "f", "d", "--dims", "3,3", "--chunk", "1,inf", "--dtype", "u1"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u3x"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "--fill", "x"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "--fill", "256"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "--selection-version", "2"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "--filter", "deflate"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "--filter", "heap:deflate"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "--filter", "values:deflate=10"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "--filter", "values:deflate=x"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "--filter", "values:bzip3"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "--filter", "values:fletcher32=1"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "--filter", "values:shuffle=0"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "--filter", "values:65536"),
    ("create", "f", "d", "--dims", "3", "--dtype", "u1", "--fly"),
    ("create", "f", "d", "--dims"),
    ("import",), ("import", "a"), ("import", "a", "b", "c"), ("import", "a", ":/b"),
    ("import", "a", "b", "--roi", "1:2"), ("import", "a", "b", "--roi", "2:2,1:3"),
    ("import", "a", "b", "--roi", "1:2,1:3x"), ("import", "a", "b", "--full-every", "0"),
    ("import", "a:/x", "b", "--all"), ("import", "a", "b:/x", "--all"),
    ("import", "a", "b", "--all", "--chunk", "1"),
    ("export",), ("export", "a"), ("export", "a", "b", "--filter", "selection:deflate"),
    ("info",), ("info", "a", "b"), ("info", "a", "--fly"),
    ("dump",), ("dump", "a"), ("dump", "a:/b", "--frame", "x"), ("dump", "a:/b", "--format", "xml"),
    ("check",), ("check", "a", "b"), ("check", "a", "--repair"),
], ids=" ".join)
def test_wrong_usage(tmp_path, arguments):
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == USAGE
    assert result.stdout == ""
    assert result.stderr.startswith("sparsectl") and result.stderr.count("\n") == 1
    assert files_in(tmp_path) == []


def test_a_full_disk_for_the_output_is_an_error(tmp_path):
    make(tmp_path / "d.h5", d=np.arange(100))
    with open("/dev/full", "w") as full:
        for arguments in (["info", tmp_path / "d.h5"], ["dump", f"{tmp_path}/d.h5:/d"]):
            result = subprocess.run([SPARSECTL, *arguments], stdout=full, stderr=subprocess.PIPE,
                                    text=True, timeout=SECONDS)
            assert result.returncode == FAILED
            assert "No space left" in result.stderr


@pytest.mark.parametrize("to", ["new.h5", "dense.h5:/sparse"])
def test_what_cannot_be_said_is_not_imported(tmp_path, to):
    dense = make(tmp_path / "dense.h5", d=scattered((2, 8, 8)))
    before = dense.read_bytes()
    with open("/dev/full", "w") as full:
        result = subprocess.run([SPARSECTL, "import", "--fast", dense, tmp_path / to], stdout=full,
                                stderr=subprocess.PIPE, text=True, timeout=SECONDS)
    assert (result.returncode, result.stderr) == (
        FAILED, "sparsectl: standard output: No space left on device\n")
    assert files_in(tmp_path) == ["dense.h5"] and dense.read_bytes() == before


def complete(*words):
    """What bash answers to the last of these words."""
    script = (f". {TOP}/mount-helpers/sparsectl.bash-completion; COMP_WORDS=(\"$@\"); "
              "COMP_CWORD=$(($# - 1)); _sparsectl; printf '%s\\n' \"${COMPREPLY[@]}\"")
    result = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True,
                            timeout=SECONDS, check=True)
    return result.stdout.split()


def test_completion(tmp_path):
    (tmp_path / "run.h5").touch()
    (tmp_path / "run.txt").touch()
    assert complete("sparsectl", "i") == ["import", "info", "image"]
    assert complete("sparsectl", "import", "--un") == ["--undefined"]
    assert complete("sparsectl", "import", "--undefined", "n") == ["nan", "none"]
    assert complete("sparsectl", "create", "--filter", "s") == ["selection"]
    assert complete("sparsectl", "create", "--filter", "values", ":", "sh") == ["shuffle"]
    assert complete("sparsectl", "export", "--filter", "g") == ["gzip"]
    assert complete("sparsectl", "import", "--mask", "n") == ["none"]
    assert complete("sparsectl", "import", "--mask", f"{tmp_path}/r") == [f"{tmp_path}/run.h5"]
    assert sorted(complete("sparsectl", "import", "--roi", f"{tmp_path}/run.")) == \
        [f"{tmp_path}/run.h5", f"{tmp_path}/run.txt"]
    assert complete("sparsectl", "info", f"{tmp_path}/r") == [f"{tmp_path}/run.h5"]
    for command in COMMANDS:
        listed = set(complete("sparsectl", command, "--")) - {"--help"}
        assert listed == set(re.findall(r"(?m)^  (--[a-z-]+)", done(command, "--help")))


# ---- create ----


def test_create_makes_a_file_and_adds_to_it(tmp_path):
    path = tmp_path / "new.h5"
    done("create", path, "/entry/a", "--dims", "4,5,6", "--dtype", "uint16")
    done("create", path, "b", "--dims", "10", "--dtype", ">f4", "--fill", "nan")
    a, b = info(path)["datasets"]
    assert (a["path"], a["dims"], a["max_dims"], a["chunk_dims"]) == \
        ("/b", [10], [10], [10]) or a["path"] == "/b"
    assert b["path"] == "/entry/a"
    assert b["dims"] == b["max_dims"] == [4, 5, 6]
    assert b["chunk_dims"] == [1, 5, 6]
    assert b["layout"] == "sparse" and b["item_size"] == 2 and b["fill_value"] == 0
    assert a["item_size"] == 4 and "big-endian" in a["datatype"]
    assert b["stored_chunks"] == b["defined_elements"] == b["stored_bytes"] == 0
    assert run("check", path).returncode == DONE
    with h5py.File(path) as f:
        assert list(f) == ["b", "entry"]


@pytest.mark.parametrize("options, dims, max_dims, chunk_dims", [
    (["--dims", "0,64,64"], [0, 64, 64], [None, 64, 64], [1, 64, 64]),
    (["--dims", "2,64,64", "--maxdims", "inf,64,inf"], [2, 64, 64], [None, 64, None], [1, 64, 64]),
    (["--dims", "2,3", "--maxdims", "4,5", "--chunk", "2,2"], [2, 3], [4, 5], [2, 2]),
    (["--dims", "100"], [100], [100], [100]),
    (["--dims", "0"], [0], [None], [1024]),
    (["--dims", "9,8192,8192"], [9, 8192, 8192], [9, 8192, 8192], [1, 2048, 4096]),
    (["--dims", "3,2,64,64"], [3, 2, 64, 64], [3, 2, 64, 64], [1, 2, 64, 64]),
])
def test_create_dims(tmp_path, options, dims, max_dims, chunk_dims):
    path = tmp_path / "new.h5"
    done("create", path, "/d", "--dtype", "u2", *options)
    dataset = only(path)
    assert (dataset["dims"], dataset["max_dims"], dataset["chunk_dims"]) == \
        (dims, max_dims, chunk_dims)


def test_create_filters(tmp_path):
    path = tmp_path / "new.h5"
    done("create", path, "/d", "--dims", "4,8,8", "--dtype", "u4", "--filter", "values:shuffle",
         "--filter", "values:gzip=7", "--filter", "values:fletcher32", "--filter",
         "selection:shuffle", "--filter", "selection:deflate", "--filter", "selection:none")
    filters = only(path)["filters"]
    assert [(f["id"], f["parameters"]) for f in filters["values"]] == [(2, [4]), (1, [7]), (3, [])]
    assert [(f["id"], f["parameters"]) for f in filters["selection"]] == [(2, [12]), (1, [4])]


def test_create_registered_filter(tmp_path):
    path = tmp_path / "new.h5"
    done("create", path, "/d", "--dims", "4,8,8", "--dtype", "u4", "--filter", "values:4=4,8")
    (szip,) = only(path)["filters"]["values"]
    assert szip["id"] == 4 and len(szip["parameters"]) > 2  # libhdf5 adds what it needs
    for filter, says in (("4", "two parameters"), ("6=1,0", "do not fit"), ("6=2,40", "do not fit")):
        failed("create", path, "/e", "--dims", "4", "--dtype", "u4", "--filter", f"values:{filter}",
               says=says)
    failed("create", path, "/e", "--dims", "4", "--dtype", "u4", "--filter", "values:32767=1",
           says="filter")
    assert len(info(path)["datasets"]) == 1


def test_create_fails(tmp_path):
    path = tmp_path / "new.h5"
    ordinary = ("--dims", "4,4", "--dtype", "u1")
    done("create", path, "/d", *ordinary)
    before = path.read_bytes()
    failed("create", path, "/d", *ordinary, says="/d: ")
    failed("create", path, "/d/e", *ordinary)
    failed("create", path, "/e", *ordinary, "--chunk", "5,5", says="chunk dim")
    failed("create", tmp_path / "no/where.h5", "/d", *ordinary, says="No such file")
    failed("create", tmp_path, "/d", *ordinary, says=str(tmp_path))
    assert path.read_bytes() == before
    assert files_in(tmp_path) == ["new.h5"]
    path.write_bytes(b"this is no HDF5 file")
    failed("create", path, "/d", *ordinary, says=str(path))
    assert path.read_bytes() == b"this is no HDF5 file"


def test_a_failed_create_leaves_no_new_file(tmp_path):
    failed("create", tmp_path / "new.h5", "/d", "--dims", "4,4", "--dtype", "u1", "--chunk", "9,9")
    assert files_in(tmp_path) == []


def test_selection_version_1(tmp_path):
    """It is an attribute, and its coordinates have 4 bytes."""
    for version, marked, block in (("1", True, 24), ("auto", False, 12)):
        path = tmp_path / f"{version}.h5"
        done("create", path, "/d", "--dims", "4,8,8", "--dtype", "u4", "--selection-version",
             version, "--filter", "selection:shuffle")
        assert only(path)["filters"]["selection"][0]["parameters"] == [block]
        with h5py.File(path) as f:
            if marked:
                assert h5py.h5a.open(f.id, b"sparsefs.selection_version", obj_name=b"d")
            else:
                with pytest.raises(KeyError):
                    h5py.h5a.open(f.id, b"sparsefs.selection_version", obj_name=b"d")
        assert run("check", path).returncode == DONE


# ---- import and export ----

DTYPES = ["<u1", "<i1", "<u2", ">u2", "<i4", ">i4", "<u8", ">i8", "<f2", "<f4", ">f4", "<f8", ">f8",
          "?", "<c8", "S5", "V3"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_datatypes_come_back(tmp_path, dtype):
    data = scattered((5, 20, 33))
    if dtype == "S5":
        data = np.where(data > 0, b"abc", b"").astype("S5")
    elif dtype == "V3":
        data = np.where(data > 0, b"abc", b"\0\0\0").astype("S3").view("V3").reshape(data.shape)
    else:
        data = data.astype(dtype)
    source = make(tmp_path / "dense.h5", d=data)
    sparse, back = round_trip(tmp_path, source)
    assert back.dtype == data.dtype and back.tobytes() == data.tobytes()
    assert only(sparse)["defined_elements"] == np.count_nonzero(scattered((5, 20, 33)))


def test_compounds_come_back(tmp_path):
    data = np.zeros((4, 6), [("a", "<i2"), ("b", ">f8"), ("c", "S3")])
    data[1, 2] = (5, 2.5, b"x")
    source = make(tmp_path / "dense.h5", d=data)
    sparse, back = round_trip(tmp_path, source)
    assert np.array_equal(back, data)
    assert only(sparse)["defined_elements"] == 1


@pytest.mark.parametrize("shape, options", [
    ((1000,), []), ((64, 64), []), ((3, 64, 64), []), ((2, 3, 17, 19), []), ((2,) * 8, []),
    ((5, 33, 65), ["--chunk", "2,8,16"]), ((5, 33, 65), ["--chunk", "5,33,65"]),
    ((5, 33, 65), ["--chunk", "3,33,1"]), ((1, 1, 1), []), ((9, 700, 900), []),
])
def test_shapes_and_chunks(tmp_path, shape, options):
    data = scattered(shape)
    source = make(tmp_path / "dense.h5", d=data)
    sparse, back = round_trip(tmp_path, f"{source}:/d", *options)
    assert np.array_equal(back, data)
    assert only(sparse)["defined_elements"] == np.count_nonzero(data)
    if options:
        assert only(sparse)["chunk_dims"] == [int(n) for n in options[1].split(",")]


@pytest.mark.parametrize("options", [
    {}, {"chunks": (1, 40, 50)}, {"chunks": (2, 7, 9), "compression": "gzip", "shuffle": True},
    {"chunks": (3, 16, 16), "fletcher32": True}, {"chunks": (2, 20, 20), "scaleoffset": 0},
])
def test_sources_of_all_layouts(tmp_path, options):
    data = scattered((7, 40, 50))
    source = make(tmp_path / "dense.h5", d=(data, options))
    assert np.array_equal(round_trip(tmp_path, source)[1], data)


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.999, 1])
def test_densities(tmp_path, share):
    data = scattered((4, 100, 130), "<u1", share)
    sparse, back = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data))
    assert np.array_equal(back, data)
    assert only(sparse)["defined_elements"] == np.count_nonzero(data)


def test_unlimited_dims_stay_unlimited(tmp_path):
    data = scattered((6, 20, 30))
    for number, max_shape in enumerate([(None, 20, 30), (None, None, 30), (9, 20, 40)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        source = make(folder / "dense.h5", d=(data, {"maxshape": max_shape}))
        sparse, back = round_trip(folder, source)
        assert np.array_equal(back, data)
        assert only(sparse)["max_dims"] == list(max_shape)
        with h5py.File(folder / "back.h5") as f:
            assert f["dense"].maxshape == max_shape


def test_no_frames_yet(tmp_path):
    source = tmp_path / "dense.h5"
    with h5py.File(source, "w") as f:
        f.create_dataset("d", (0, 20, 30), "u2", maxshape=(None, 20, 30))
    sparse, back = round_trip(tmp_path, source)
    assert back.shape == (0, 20, 30)


def test_the_fill_value_is_undefined_by_default(tmp_path):
    data = np.full((3, 10, 10), 7, "<i4")
    data[1, 2, 3] = 0
    source = make(tmp_path / "dense.h5", d=(data, {"fillvalue": 7}))
    sparse, back = round_trip(tmp_path, source)
    assert coordinates(f"{sparse}:/sparse") == {(1, 2, 3): "0"}
    assert only(sparse)["fill_value"] == 7
    assert np.array_equal(back, data)


def test_another_undefined_value_becomes_the_fill_value(tmp_path):
    data = np.full((3, 10, 10), -1, "<i4")
    data[1, 2, 3] = 0
    sparse, back = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data), "--undefined", "-1")
    assert coordinates(f"{sparse}:/sparse") == {(1, 2, 3): "0"}
    assert only(sparse)["fill_value"] == -1
    assert np.array_equal(back, data)


@pytest.mark.parametrize("dtype", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
def test_every_nan_is_undefined(tmp_path, dtype):
    data = np.full((2, 40, 50), np.nan, dtype)
    data[0, :20] = -np.array(np.nan, dtype)
    data[1, 2, 3:9] = [0, -0.0, 1.5, np.inf, -np.inf, 65504]
    sparse, back = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data), "--undefined", "nan")
    assert only(sparse)["defined_elements"] == 6
    assert only(sparse)["fill_value"] in ("nan", "NaN", None) or \
        np.isnan(float(only(sparse)["fill_value"]))
    assert np.array_equal(back, data, equal_nan=True)


@pytest.mark.parametrize("options, defined", [((), 3), (("--undefined", "nan"), 1)], ids=["default", "nan"])
def test_a_nan_that_is_the_fill_value(tmp_path, options, defined):
    """By default others, which have other bytes, are defined: they stay what they are."""
    data = np.full((2, 30, 40), np.nan, "<f8")
    data[0, 1, 2] = 1.5
    data.view("<u8")[1, 2, 3:5] |= np.array([1, 1 << 63], "<u8")
    source = make(tmp_path / "dense.h5", d=(data, {"fillvalue": np.nan}))
    sparse, back = round_trip(tmp_path, source, *options)
    assert only(sparse)["defined_elements"] == defined
    assert options or back.tobytes() == data.tobytes()
    assert np.array_equal(back, data, equal_nan=True)


def test_none_is_undefined(tmp_path):
    data = scattered((2, 30, 40))
    sparse, back = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data), "--undefined", "none")
    assert only(sparse)["defined_elements"] == data.size
    assert np.array_equal(back, data)


def test_minus_zero_is_no_zero(tmp_path):
    data = np.zeros((1, 4, 70), "f8")
    data[0, 1, 2] = -0.0
    sparse, back = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data))
    assert back.tobytes() == data.tobytes()


def test_rois(tmp_path):
    data = scattered((3, 40, 50), share=0.5)
    kept = np.zeros(data.shape, bool)
    kept[:, 5:9, 10:20] = kept[:, 8:30, 15:17] = kept[:, 39:, :] = True
    sparse, back = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data), "--roi", "5:9,10:20",
                              "--roi", "8:30,15:17", "--roi", "39:,:", "--chunk", "2,16,16")
    assert np.array_equal(back, np.where(kept, data, 0))
    assert only(sparse)["defined_elements"] == np.count_nonzero(data[kept])


def test_a_roi_of_an_image(tmp_path):
    data = scattered((40, 50), share=0.9)
    sparse, back = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data), "--roi", "1:3,4:6",
                              "--undefined", "none")
    assert sorted(coordinates(f"{sparse}:/sparse")) == [(1, 4), (1, 5), (2, 4), (2, 5)]


def test_points_of_every_frame(tmp_path):
    points = tmp_path / "points.txt"
    points.write_text("# y x\n3 4\n\n  3 5 # beside it\n39 49\n3 4\n")
    source = make(tmp_path / "dense.h5", d=scattered((2, 40, 50)))
    sparse, _ = round_trip(tmp_path, source, "--points", points, "--undefined", "none")
    assert sorted(coordinates(f"{sparse}:/sparse")) == \
        [(f, y, x) for f in (0, 1) for y, x in ((3, 4), (3, 5), (39, 49))]


def test_points_of_frames_and_rois_together(tmp_path):
    points = tmp_path / "points.txt"
    points.write_text("1 3 4\n0 3 5\n1 3 7\n1,20,30\n")
    source = make(tmp_path / "dense.h5", d=scattered((2, 40, 50)))
    sparse, _ = round_trip(tmp_path, source, "--points", points, "--roi", "3:4,6:9", "--undefined",
                           "none")
    assert sorted(coordinates(f"{sparse}:/sparse")) == sorted(
        [(f, 3, x) for f in (0, 1) for x in (6, 7, 8)] + [(1, 3, 4), (0, 3, 5), (1, 20, 30)])


def test_full_frames(tmp_path):
    data = scattered((7, 40, 50))
    sparse, back = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data), "--full-every", "3",
                              "--roi", "0:5,0:5", "--chunk", "2,40,50")
    kept = np.zeros(data.shape, bool)
    kept[:, :5, :5] = True
    kept[::3] = True
    assert np.array_equal(back, np.where(kept, data, 0))
    by_path = {d["path"]: d for d in info(sparse)["datasets"]}
    assert set(by_path) == {"/sparse", "/sparse_selected"}
    assert by_path["/sparse"]["defined_elements"] == 3 * 2000 + sum(
        np.count_nonzero(data[f, :5, :5]) for f in (1, 2, 4, 5))


def test_a_sparse_source_keeps_what_is_undefined(tmp_path):
    data = scattered((4, 40, 50))
    first, _ = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data))
    again = tmp_path / "again.h5"
    done("import", first, f"{again}:/d", "--chunk", "4,7,11")
    assert coordinates(f"{again}:/d") == coordinates(f"{first}:/sparse")
    value = str(data[data > 0][0])
    done("import", first, f"{again}:/e", "--undefined", value, "--roi", "0:20,:")
    assert coordinates(f"{again}:/e") == {
        at: v for at, v in coordinates(f"{first}:/sparse").items() if v != value and at[1] < 20}


def test_import_fails(tmp_path):
    source = make(tmp_path / "dense.h5", a=scattered((2, 8, 9)), b=scattered((3, 3)),
                  line=np.arange(3), scalar=np.int32(3),
                  links=(np.array([h5py.Reference()], h5py.ref_dtype), {}))
    new = tmp_path / "new.h5"
    points = tmp_path / "points.txt"
    failed("import", source, new, says="/a /b")
    failed("import", f"{source}:/c", new, says="no such dataset")
    failed("import", f"{source}:/", new, says="not a dataset")
    failed("import", f"{source}:/scalar", new, says="without axes")
    failed("import", f"{source}:/links", new, says="references")
    failed("import", f"{source}:/line", new, "--roi", "0:1,0:1", says="rank 2")
    failed("import", f"{source}:/a", new, "--roi", "0:9,0:1", says="8 x 9")
    failed("import", f"{source}:/a", new, "--undefined", "70000", says="not an element")
    failed("import", f"{source}:/a", new, "--undefined", "nan", says="floating-point")
    failed("import", f"{source}:/a", new, "--chunk", "1,1", says="3 axes", code=USAGE)
    failed("import", f"{source}:/a", new, "--chunk", "9,9,9", says="/a: ")
    failed("import", f"{source}:/a", new, "--points", points, says="No such file")
    for text, says in (("1\n", "line 1"), ("1 2\n1 2 3\n", "line 2"), ("1 2 3 4\n", "line 1"),
                       ("a b\n", "line 1"), ("8 0\n", "y 8 x 0"), ("0 9\n", "y 0 x 9"),
                       ("2 0 0\n", "y 0 x 0"), ("1 18446744073709551615\n", "line 1"),
                       ("99999999999999999999 1\n", "line 1")):
        points.write_text(text)
        failed("import", f"{source}:/a", new, "--points", points, says=says)
    failed("import", tmp_path / "none.h5", new, says="No such file")
    failed("import", points, new, says="points.txt")
    failed("import", f"{source}:/a", f"{source}:/b", says="/b: ")
    assert files_in(tmp_path) == ["dense.h5", "points.txt"]
    done("import", f"{source}:/a", new)
    before = new.read_bytes()
    failed("import", f"{source}:/a", new, says="/a: ")
    assert new.read_bytes() == before


def test_import_within_one_file(tmp_path):
    data = scattered((3, 20, 30))
    path = make(tmp_path / "both.h5", dense=(data, {"compression": "gzip"}))
    done("import", f"{path}:/dense", f"{path}:/a/sparse")
    done("export", f"{path}:/a/sparse", f"{path}:/back")
    with h5py.File(path) as f:
        assert np.array_equal(f["back"][...], data)
        assert np.array_equal(f["dense"][...], data)
    assert run("check", path).returncode == DONE


@pytest.mark.parametrize("dtype", [bool, [("a", "<i4"), ("b", "<f8", (3,))],
                                   h5py.enum_dtype({"no": 0, "yes": 1}, "u1"),
                                   [("a", "<i2"), ("s", h5py.string_dtype())]], ids=str)
def test_datatypes_of_the_newest_format(tmp_path, dtype):
    """libhdf5 1.12 and later write datatypes of another version then, which 1.10 does not know: copies are of the
    one that all know."""
    source, sparse, dense = (tmp_path / name for name in ("new.h5", "sparse.h5", "dense.h5"))
    with h5py.File(source, "w", libver="latest") as f:
        d = f.create_dataset("d", (6, 4), np.dtype(dtype), chunks=(2, 4))
        if d.dtype.names and "s" in d.dtype.names:
            d[1, 2] = (7, "seven")
        else:
            d[...] = np.ones((6, 4), "u1").astype(d.dtype) if d.dtype.names is None else \
                np.frombuffer(bytes(range(24)) * d.dtype.itemsize, d.dtype).reshape(6, 4)
        wanted = d[...]
        d.attrs["a"] = pair = np.array([(1, 2.5)], [("a", "<i4"), ("b", "<f8")])
    done("import", f"{source}:/d", sparse, "--undefined", "none")
    done("check", sparse)
    done("export", f"{sparse}:/d", dense)
    with h5py.File(dense) as f:
        assert f["d"].dtype == wanted.dtype
        assert np.array_equal(f["d"][...], wanted)
        assert np.array_equal(f["d"].attrs["a"], pair)
    for path in sparse, dense:
        content = path.read_bytes()
        assert b"\x46\x02\0\0" not in content  # a compound of two members, of version 4
        assert any(bytes([version << 4 | 6, 2, 0, 0]) in content for version in (1, 2, 3))


def test_the_path_stays_the_same(tmp_path):
    source = make(tmp_path / "dense.h5", **{"entry/data/detector": scattered((3, 20, 30))})
    sparse, dense = tmp_path / "sparse.h5", tmp_path / "back.h5"
    done("import", source, sparse)
    assert only(sparse)["path"] == "/entry/data/detector"
    done("export", sparse, dense)
    with h5py.File(dense) as f:
        assert f["entry/data/detector"].shape == (3, 20, 30)


def test_attributes_go_along(tmp_path):
    source = tmp_path / "dense.h5"
    with h5py.File(source, "w") as f:
        d = f.create_dataset("d", data=scattered((3, 20, 30)))
        d.attrs["units"] = "counts"
        d.attrs["matrix"] = np.eye(3)
        d.attrs["bytes"] = np.bytes_(b"fixed")
        d.attrs["strings"] = ["a", "\xfc"]
        for n in range(20):  # more than fit in the header of the object
            d.attrs[f"n{n}"] = n
    round_trip(tmp_path, source)
    with h5py.File(source) as f, h5py.File(tmp_path / "back.h5") as g:
        assert set(f["d"].attrs) == set(g["dense"].attrs)
        for name, value in f["d"].attrs.items():
            assert np.array_equal(value, g["dense"].attrs[name]), name


def test_filters_of_an_import(tmp_path):
    data = scattered((4, 100, 100))
    source = make(tmp_path / "dense.h5", d=data)
    sparse, back = round_trip(tmp_path, source)
    ids = {section: [f["id"] for f in filters] for section, filters in only(sparse)["filters"].items()}
    assert ids == {"selection": [2, 1], "values": [2, 1]}
    other = tmp_path / "other.h5"
    done("import", source, other, "--filter", "values:none", "--filter", "selection:fletcher32")
    filters = only(other)["filters"]
    assert filters["values"] == [] and [f["id"] for f in filters["selection"]] == [3]
    assert only(other)["value_bytes"] == 2 * np.count_nonzero(data)


def test_no_room_for_trying_filters_does_no_harm(tmp_path):
    source = make(tmp_path / "dense.h5", d=scattered((4, 100, 100)))
    result = run("import", source, tmp_path / "s.h5", env=os.environ | {"TMPDIR": "/nowhere"})
    assert (result.returncode, result.stderr) == (DONE, "")
    assert only(tmp_path / "s.h5")["filters"]["selection"][0]["parameters"] == [12]


def test_export_and_dump_go_by_what_is_stored(tmp_path):
    """Of a dataset with room for 10^9 chunks; the index of the dense one has room for no more."""
    path, out = tmp_path / "a.h5", tmp_path / "out.h5"
    template = make(tmp_path / "b.h5", d=(np.arange(32, dtype="u1").reshape(2, 1, 16), {"maxshape": (None, 1, 16)}))
    done("create", path, "/d", "--dims", "2,500000000000,16", "--maxdims", "inf,500000000000,16",
         "--chunk", "1,1000,16", "--dtype", "uint8")
    done("dump", f"{path}:/d", "--frame", 1)
    done("create", path, "/larger", "--dims", "2,500000000000000000,2", "--chunk", "1,500000000,2", "--dtype", "uint8")
    done("dump", f"{path}:/larger", "--frame", 1)
    done("export", f"{path}:/d", f"{out}:/empty")
    done("import", f"{path}:/d", f"{tmp_path}/copy.h5:/d")
    assert only(f"{tmp_path}/copy.h5:/d")["stored_chunks"] == 0
    done("import", "--undefined", "none", "--chunk", "1,1,16", f"{template}:/d", f"{path}:/small")
    done("export", f"{path}:/small", f"{out}:/small")
    done("create", path, "/max", "--dims", "3,100,16", "--maxdims", "1000000,500000000000,16",
         "--chunk", "1,100,16", "--dtype", "uint8")
    done("export", f"{path}:/max", f"{out}:/max")
    with h5py.File(out) as f:
        assert f["empty"].shape == (2, 500000000000, 16) and f["empty"].id.get_storage_size() == 0
        assert f["small"].maxshape == (None, 1, 16)
        assert (f["small"][()].reshape(-1) == np.arange(32)).all()
        assert f["max"].shape == (3, 100, 16) and not f["max"][()].any()
    assert out.stat().st_size < 1 << 20
    done("create", path, "/line", "--dims", "1000000000000000", "--chunk", "1000", "--dtype", "uint8")
    failed("export", f"{path}:/line", f"{out}:/line", says="more than a dense dataset can have")


def test_filters_of_an_export(tmp_path):
    data = scattered((4, 100, 100))
    sparse, _ = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data))
    path = tmp_path / "filtered.h5"
    done("export", sparse, path, "--filter", "shuffle", "--filter", "gzip=9")
    with h5py.File(path) as f:
        d = f["sparse"]
        assert (d.shuffle, d.compression, d.compression_opts) == (True, "gzip", 9)
        assert np.array_equal(d[...], data)


def test_all_datasets_with_groups_and_attributes(tmp_path):
    source, sparse = tmp_path / "dense.h5", tmp_path / "sparse.h5"
    with h5py.File(source, "w") as f:
        f.attrs["root"] = 1
        f["a/b/one"] = scattered((3, 20, 30))
        f["a/two"] = scattered((20, 30), "f4")
        f["a"].attrs["NX_class"] = "NXentry"
        f["line"] = np.arange(3)
        f["text"] = "text"
        f["again"] = f["a/two"]
        f.create_group("empty")
    output = done("import", "--all", source, sparse)
    assert output.splitlines() == ["/a/b/one", "/a/two"]
    assert [d["path"] for d in info(sparse)["datasets"]] == ["/a/b/one", "/a/two"]
    with h5py.File(sparse) as f:
        assert f.attrs["root"] == 1 and f["a"].attrs["NX_class"] == "NXentry"
        assert "empty" in f and "line" not in f
    assert run("check", sparse).returncode == DONE
    before = sparse.read_bytes()
    failed("import", "--all", source, sparse, says="/a/b/one: ")
    assert sparse.read_bytes() == before


def test_memory_does_not_grow_with_the_file(tmp_path):
    if re.search(rb"__[at]san_init", SPARSECTL.read_bytes()):
        pytest.skip("sanitizers need memory of their own")
    source = tmp_path / "dense.h5"
    frame = scattered((1024, 1024), "<u4", 0.01)
    with h5py.File(source, "w") as f:
        d = f.create_dataset("d", (200, 1024, 1024), "<u4", chunks=(1, 1024, 1024), compression=1)
        for n in range(200):
            d[n] = frame
    # By a small process: what starts counts the memory of who starts it as its own.
    measure = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    used = subprocess.run([sys.executable, "-c", measure, SPARSECTL, "import", source, tmp_path / "s.h5"],
                          check=True, capture_output=True).stdout
    assert int(used.split()[-1]) < 500 << 10  # KiB, of 800 MiB of elements; the cache's limit is 256 MiB
    assert only(tmp_path / "s.h5")["defined_elements"] == 200 * np.count_nonzero(frame)


# ---- Interruptions ----


@pytest.fixture
def slow_source(tmp_path):
    """Takes seconds to import, as scaleoffset goes through libhdf5."""
    source = tmp_path / "slow.h5"
    with h5py.File(source, "w") as f:
        d = f.create_dataset("d", (150, 1024, 1024), "<u4", chunks=(1, 1024, 1024), scaleoffset=0)
        frame = scattered((1024, 1024), "<u4", 0.3)
        for n in range(150):
            d[n] = frame
    return source


def bytes_read(process):
    return int(pathlib.Path(f"/proc/{process.pid}/io").read_text().split("rchar:")[1].split()[0])


def start_and_signal(arguments, number, after_bytes=2 << 20):
    """When it has read so much of what it imports."""
    process = subprocess.Popen([SPARSECTL, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
    while bytes_read(process) < after_bytes:
        assert process.poll() is None, "it was over too soon to be interrupted"
        time.sleep(0.001)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=SECONDS)
    return process.returncode, stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_import_leaves_nothing(tmp_path, slow_source, number):
    code, stderr = start_and_signal(["import", slow_source, tmp_path / "new.h5"], number)
    assert code == FAILED and "interrupted" in stderr and stderr.count("\n") == 1
    assert files_in(tmp_path) == ["slow.h5"]


@pytest.mark.parametrize("number, expected", [(signal.SIGINT, FAILED),
                                              (signal.SIGKILL, -signal.SIGKILL)])
def test_an_interrupted_import_leaves_the_old_file(tmp_path, tmp_path_factory, monkeypatch, slow_source, number,
                                                   expected):
    path = tmp_path / "old.h5"
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tried")))  # what filters are tried on stays after SIGKILL
    done("create", path, "/a", "--dims", "3,4,5", "--dtype", "u1")
    before = only(path)
    code, _ = start_and_signal(["import", slow_source, f"{path}:/b"], number)
    assert code == expected
    assert only(path) == before
    assert run("check", path).returncode == DONE
    done("create", path, "/c", "--dims", "3,4,5", "--dtype", "u1")
    assert len(info(path)["datasets"]) == 2
    if number == signal.SIGINT:
        assert files_in(tmp_path) == ["old.h5", "slow.h5"]


def test_progress_only_on_a_terminal(tmp_path, slow_source):
    master, slave = pty.openpty()
    process = subprocess.Popen([SPARSECTL, "import", slow_source, tmp_path / "new.h5"], stderr=slave)
    os.close(slave)
    text = b""
    try:
        while chunk := os.read(master, 4096):
            text += chunk
    except OSError:  # the other end is closed
        pass
    os.close(master)
    assert process.wait(SECONDS) == DONE
    assert re.search(rb"importing \[#* *\] +\d+ %", text)
    assert done("import", slow_source, tmp_path / "quiet.h5") == ""


@pytest.mark.parametrize("closed", ["0<&- 1>&- 2>&-", "0<&- 1>&-", "2>&-", "1>&-"])
def test_messages_do_not_go_to_files(tmp_path, closed):
    """Where standard input, output or error is closed a file must not get its number."""
    path = make(tmp_path / "a.h5", n=np.arange(768, dtype="i4").reshape(3, 16, 16), m=np.int32(1))
    before = path.read_bytes()
    for command in (f"import {path}:/n {path}:/m", f"repack {path} {path}", f"create {path} /n --dims 3 --dtype u1"):
        code = subprocess.run(["sh", "-c", f'exec "$0" {command} {closed}', SPARSECTL], stderr=subprocess.PIPE,
                              stdout=subprocess.PIPE, timeout=SECONDS, check=False).returncode
        assert code != USAGE
        assert path.read_bytes() == before or command.startswith("repack")
        assert "sound" in done("check", path)
        before = path.read_bytes()
    assert subprocess.run(["sh", "-c", '"$0" info "$1" >&-', SPARSECTL, path], stderr=subprocess.DEVNULL,
                          timeout=SECONDS, check=False).returncode == FAILED


# ---- info and dump ----


def test_info_counts(tmp_path):
    data = scattered((5, 30, 40))
    data[3] = 0
    sparse, _ = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data))
    dataset = only(sparse, "--chunks")
    assert dataset["stored_chunks"] == 4 == len(dataset["chunks"])
    assert [c["start"] for c in dataset["chunks"]] == [[n, 0, 0] for n in (0, 1, 2, 4)]
    assert [c["defined_elements"] for c in dataset["chunks"]] == \
        [np.count_nonzero(data[n]) for n in (0, 1, 2, 4)]
    assert sum(c["size"] for c in dataset["chunks"]) == dataset["stored_bytes"] == \
        dataset["selection_bytes"] + dataset["value_bytes"]
    assert dataset["dense_bytes"] == data.nbytes
    assert dataset["value_bytes_unfiltered"] == 2 * np.count_nonzero(data)
    assert info(sparse)["size"] == sparse.stat().st_size


def test_info_lists_the_chunks_of_dense_datasets(tmp_path):
    """As h5py tells of them."""
    path = tmp_path / "dense.h5"
    with h5py.File(path, "w") as file:
        d = file.create_dataset("d", (5, 30, 40), "u2", chunks=(1, 16, 40), maxshape=(None, 30, 40), compression=4)
        for n in (0, 2, 3):
            d[n, :20] = scattered((20, 40))
        raw = d.id.read_direct_chunk((0, 0, 0))[1]
        d.id.write_direct_chunk((2, 16, 0), raw)
        d.id.write_direct_chunk((4, 0, 0), np.zeros((16, 40), "u2").tobytes(), filter_mask=1)
        known = [d.id.get_chunk_info(i) for i in range(d.id.get_num_chunks())]
    chunks = only(path, "--chunks")["chunks"]
    assert [(tuple(c["start"]), c["address"], c["size"], c["filter_mask"]) for c in chunks] == \
        sorted((k.chunk_offset, k.byte_offset, k.size, k.filter_mask) for k in known)
    assert len(chunks) == 7 and {c["unfiltered_size"] for c in chunks} == {1280}
    text = done("info", "--chunks", path)
    assert text.count("chunk at ") == 7
    assert re.search(r"chunk at 4,0,0: address \d+, 1280 bytes of 1280, filters left out: mask 0x1\n", text)
    assert "chunks" not in only(path) and "chunk at" not in done("info", path)


def test_info_as_text(tmp_path):
    sparse, _ = round_trip(tmp_path, make(tmp_path / "dense.h5", d=scattered((5, 30, 40))))
    done("create", sparse, "/unlimited", "--dims", "1,2", "--maxdims", "inf,2", "--dtype", "f8")
    text = done("info", "--chunks", sparse)
    for words in ("/sparse: sparse", "5 x 30 x 40", "1 x 30 x 40", "of 6000 elements", "shuffle",
                  "deflate", "chunk at 4,0,0: address", "dense 12000 bytes", "max inf x 2"):
        assert words in text, words
    assert "/unlimited" not in done("info", f"{sparse}:/sparse")
    dense = done("info", tmp_path / "dense.h5")
    assert "/d: contiguous" in dense and "12000 bytes" in dense
    assert only(tmp_path / "dense.h5")["layout"] == "contiguous"


def test_info_of_everything(tmp_path):
    path = tmp_path / "odd.h5"
    with h5py.File(path, "w") as f:
        f["scalar"] = 1
        f["null"] = h5py.Empty("f4")
        f["text"] = "text"
        f["a\nb"] = np.arange(3)
        f["loop"] = f["/"]
        f["soft"] = h5py.SoftLink("/nowhere")
    assert {d["path"] for d in info(path)["datasets"]} == {"/scalar", "/null", "/text", "/a\nb"}
    assert "/a?b: contiguous" in done("info", path)
    failed("info", f"{path}:/none", says="no such dataset")
    failed("info", tmp_path / "none.h5", says="No such file")
    failed("info", f"{path}:/loop", says="not a dataset")


def test_dump_csv_and_coo(tmp_path):
    data = np.zeros((3, 4, 5), "<i2")
    data[0, 1, 2], data[2, 3, 4], data[2, 3, 3] = -7, 8, 9
    sparse, _ = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data), "--chunk", "2,3,2")
    path = f"{sparse}:/sparse"
    assert done("dump", path) == "frame,y,x,value\n0,1,2,-7\n2,3,3,9\n2,3,4,8\n"
    assert done("dump", path, "--format", "coo") == "0 1 2 -7\n2 3 3 9\n2 3 4 8\n"
    assert done("dump", path, "--frame", "2") == "frame,y,x,value\n2,3,3,9\n2,3,4,8\n"
    assert done("dump", path, "--frame", "1", "--format", "coo") == ""
    failed("dump", path, "--frame", "3", says="no frame 3 of 3")


@pytest.mark.parametrize("rank, header", [(1, "x"), (2, "y,x"), (3, "frame,y,x"),
                                          (4, "frame,axis1,y,x")])
def test_dump_names_the_axes(tmp_path, rank, header):
    path = make(tmp_path / "dense.h5", d=np.ones((2,) * rank, "u1"))
    lines = done("dump", f"{path}:/d").splitlines()
    assert lines[0] == header + ",value"
    assert lines[1] == "0," * rank + "1" and len(lines) == 1 + 2 ** rank


@pytest.mark.parametrize("dtype, values", [
    ("<f8", [0.1, 1e300, np.inf, -np.inf, np.nan, 5e-324, 1 / 3, -0.0]),
    (">f4", [0.1, 1e30, 16777217, -1.5]), ("<f2", [0.5, 65504]),
    ("<u8", [2 ** 64 - 1, 1]), (">i8", [-2 ** 63, 5]), ("<i1", [-128, 127]), ("?", [True, False])])
def test_dump_gives_values_back(tmp_path, dtype, values):
    data = np.array(values, dtype).reshape(1, 1, -1)
    path = make(tmp_path / "dense.h5", d=data)
    lines = done("dump", "--format", "coo", f"{path}:/d").splitlines()
    texts = [line.split()[-1] for line in lines]
    if dtype == "?":
        assert texts == ["true", "false"]
    else:
        back = np.array([int(t) if "f" not in dtype else float(t) for t in texts], dtype)
        assert back.tobytes() == data.tobytes() or np.array_equal(back, data[0, 0], equal_nan=True)


def test_dump_quotes_strings(tmp_path):
    path = make(tmp_path / "dense.h5", d=np.array([[b"a,b", b'"']]))
    lines = done("dump", f"{path}:/d").splitlines()
    assert lines[1] == '0,0,"""a,b"""' and lines[2].startswith('0,1,"')


def test_dump_is_in_order_over_many_blocks(tmp_path):
    data = scattered((3, 2100, 1100), "<u2", 0.001)
    sparse, _ = round_trip(tmp_path, make(tmp_path / "dense.h5", d=data), "--chunk", "2,500,300")
    found = np.loadtxt(done("dump", "--format", "coo", f"{sparse}:/sparse").splitlines(), "i8")
    assert np.array_equal(found[:, :3], np.argwhere(data))
    assert np.array_equal(found[:, 3], data[data > 0])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0), (0, 0, 3), (4, 0, 5), (4, 3, 0), (2**63 - 1, 0)])
def test_dump_of_nothing(tmp_path, shape):
    """An axis of length 0."""
    with h5py.File(tmp_path / "none.h5", "w") as file:
        file.create_dataset("d", shape, "u1", chunks=(1,) * len(shape), maxshape=(None,) * len(shape))
    for frame in [[], ["--frame=0"]] if len(shape) < 3 or shape[0] else [[]]:
        assert done("dump", *frame, f"{tmp_path / 'none.h5'}:/d").count("\n") == 1


def test_dump_fails(tmp_path):
    path = make(tmp_path / "dense.h5", text=(np.array(["x"], object), {"dtype": h5py.string_dtype()}))
    failed("dump", f"{path}:/none", says="no such dataset")


def test_prototype_files_are_read(tmp_path):
    files = sorted((DATA / "prototype").glob("*.h5"))
    if not files:
        pytest.skip("no files of the prototype here")
    for path in files:
        assert run("check", path).returncode == DONE, path
        dataset = only(path, "--chunks")
        lines = done("dump", "--format", "coo", f"{path}:/sparse").splitlines()
        assert len(lines) == dataset["defined_elements"]


# ---- check ----


def make_sparse_file(tmp_path, name, dims, maxdims, chunk):
    """A file with chunks in an index of the kind that the max dims make."""
    data = scattered(dims, share=0.3)
    source = make(tmp_path / "source.h5", d=(data, {
        "maxshape": maxdims, "chunks": True}))
    path = tmp_path / name
    done("import", source, path, "--chunk", chunk)
    return path


KINDS = {
    "single": ((8, 9), (8, 9), "8,9"), "fixed": ((8, 9), (8, 9), "2,3"),
    "extensible": ((20, 9), (None, 9), "2,3"), "btree": ((8, 9), (None, None), "2,3"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_check_finds_flipped_bytes(tmp_path, kind):
    """Of header, index and chunks each byte is under some check, but for those that the format
    leaves open; whatever is flipped, there is no crash. Some of them: each costs a process."""
    path = make_sparse_file(tmp_path, "sound.h5", *KINDS[kind])
    assert done("check", path).splitlines()[-1].startswith(f"{path}: sound")
    sound = path.read_bytes()
    damaged = tmp_path / "damaged.h5"
    codes = {}
    chunks = only(path, "--chunks")["chunks"]
    positions = set(range(0, len(sound), 97))
    for chunk in chunks:
        positions.update(range(chunk["address"], chunk["address"] + chunk["size"], 61))
    for at in sorted(positions):
        flipped = bytearray(sound)
        flipped[at] ^= 0xFF
        damaged.write_bytes(flipped)
        result = run("check", damaged)
        assert result.returncode in (DONE, FAILED, USAGE), (at, result.stderr)
        codes[at] = result.returncode
        if result.returncode == FAILED:
            assert "damaged: " in result.stdout or result.stderr.startswith("sparsectl: "), at
    in_selections = [at for c in chunks
                     for at in range(c["address"], c["address"] + c["section_size"][0])
                     if at in codes]
    assert in_selections and all(codes[at] == FAILED for at in in_selections)
    assert list(codes.values()).count(FAILED) > len(codes) / 2


def test_check_names_dataset_structure_and_address(tmp_path):
    path = make_sparse_file(tmp_path, "s.h5", *KINDS["fixed"])
    chunk = only(path, "--chunks")["chunks"][2]
    content = bytearray(path.read_bytes())
    content[chunk["address"] + 8] ^= 1
    path.write_bytes(content)
    result = run("check", path)
    assert result.returncode == FAILED
    line, summary = result.stdout.splitlines()
    assert line.startswith("damaged: /d: chunk (0,2) at address %d: " % chunk["address"])
    assert "damaged" in summary and "1 faults" in summary


def lookup3(data):
    """The checksum of HDF5's metadata."""
    def rotate(x, n):
        return (x << n | x >> 32 - n) & 0xFFFFFFFF

    mask = 0xFFFFFFFF
    a = b = c = 0xDEADBEEF + len(data) & mask
    words = np.frombuffer(data + bytes(-len(data) % 12), "<u4").astype(int).tolist()
    while len(words) > 3:
        a, b, c = (x + y & mask for x, y in zip((a, b, c), words))
        words = words[3:]
        a = (a - c & mask) ^ rotate(c, 4)
        c = c + b & mask
        b = (b - a & mask) ^ rotate(a, 6)
        a = a + c & mask
        c = (c - b & mask) ^ rotate(b, 8)
        b = b + a & mask
        a = (a - c & mask) ^ rotate(c, 16)
        c = c + b & mask
        b = (b - a & mask) ^ rotate(a, 19)
        a = a + c & mask
        c = (c - b & mask) ^ rotate(b, 4)
        b = b + a & mask
    a, b, c = (x + y & mask for x, y in zip((a, b, c), words))
    c = (c ^ b) - rotate(b, 14) & mask
    a = (a ^ c) - rotate(c, 11) & mask
    b = (b ^ a) - rotate(a, 25) & mask
    c = (c ^ b) - rotate(b, 16) & mask
    a = (a ^ c) - rotate(c, 4) & mask
    b = (b ^ a) - rotate(a, 14) & mask
    c = (c ^ b) - rotate(b, 24) & mask
    return c


def test_check_finds_chunks_over_each_other(tmp_path):
    """Two elements of a fixed array that are the same, under a right checksum."""
    path = make_sparse_file(tmp_path, "s.h5", *KINDS["fixed"])
    chunks = only(path, "--chunks")["chunks"]
    content = bytearray(path.read_bytes())
    block = content.index(b"FADB")
    first = content.index(chunks[0]["address"].to_bytes(8, "little"), block)
    size = content.index(chunks[1]["address"].to_bytes(8, "little"), block) - first
    content[first + size:first + 2 * size] = content[first:first + size]
    end = first + size * len(chunks)  # all chunks are stored
    assert int.from_bytes(path.read_bytes()[end:end + 4], "little") == \
        lookup3(path.read_bytes()[block:end])
    content[end:end + 4] = lookup3(bytes(content[block:end])).to_bytes(4, "little")
    path.write_bytes(content)
    result = run("check", path)
    assert result.returncode == FAILED
    assert result.stdout.splitlines()[0] == (
        "damaged: /d: chunk at address %d: it overlaps the chunk at address %d of /d"
        % (chunks[0]["address"], chunks[0]["address"]))


def test_check_counts_the_blocks_of_an_extensible_array(tmp_path):
    path = make_sparse_file(tmp_path, "s.h5", *KINDS["extensible"])
    content = bytearray(path.read_bytes())
    header = content.index(b"EAHD")
    content[header + 6 + 6 + 2 * 8] += 1  # the number of data blocks
    end = header + 6 + 6 + 7 * 8
    content[end:end + 4] = lookup3(bytes(content[header:end])).to_bytes(4, "little")
    path.write_bytes(content)
    result = run("check", path)
    assert result.returncode == FAILED
    assert "/d: extensible array header at address %d: number of data blocks" % header in result.stdout


def test_check_finds_a_short_file(tmp_path):
    path = make_sparse_file(tmp_path, "s.h5", *KINDS["btree"])
    content = path.read_bytes()
    path.write_bytes(content[:len(content) - 10])
    assert run("check", path).returncode == FAILED


def test_check_cannot_tell(tmp_path):
    failed("check", tmp_path / "none.h5", says="No such file", code=2)
    failed("check", tmp_path, code=2)
    path = make_sparse_file(tmp_path, "s.h5", *KINDS["single"])
    done("create", path, "/f", "--dims", "4,4", "--dtype", "u2", "--filter", "values:4=4,8")
    assert run("check", path).returncode == DONE


def test_check_of_what_is_no_hdf5(tmp_path):
    path = tmp_path / "text"
    path.write_text("this is no HDF5 file")
    failed("check", path, code=FAILED)


def test_import_cuts_chunks_of_very_many_blocks(tmp_path):
    """Every second element at random: more blocks in a frame than numbers of 2 bytes can count."""
    frames = (np.random.default_rng(1).random((2, 640, 640)) < 0.5).astype("u2")
    with h5py.File(tmp_path / "dense.h5", "w") as f:
        f.create_dataset("d", data=frames, chunks=(1, 640, 640))
    done("import", tmp_path / "dense.h5", tmp_path / "cut.h5", "--undefined", "0")
    done("import", tmp_path / "dense.h5", tmp_path / "whole.h5", "--undefined", "0", "--chunk",
         "1,640,640")
    cut, whole = only(tmp_path / "cut.h5"), only(tmp_path / "whole.h5")
    assert whole["chunk_dims"] == [1, 640, 640]
    assert cut["chunk_dims"][0] == 1 and cut["chunk_dims"][1] < 640
    assert cut["chunk_dims"][2] == 640  # rows stay whole
    assert cut["defined_elements"] == whole["defined_elements"] == frames.sum()
    done("export", tmp_path / "cut.h5", tmp_path / "back.h5")
    with h5py.File(tmp_path / "back.h5") as f:
        assert np.array_equal(f["d"][...], frames)


def preloaded(folder, source):
    """An environment in which a program's calls are these functions."""
    if not shutil.which("cc"):
        pytest.skip("cc is not installed")
    if "libasan" in subprocess.run(["ldd", SPARSECTL], capture_output=True, text=True, check=True).stdout:
        pytest.skip("nothing can be preloaded into a build with sanitizers")
    (folder / "calls.c").write_text("#define _GNU_SOURCE\n#include <dlfcn.h>\n" + source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "calls.so", folder / "calls.c", "-ldl"], check=True)
    return os.environ | {"LD_PRELOAD": str(folder / "calls.so")}


BAD_SECTOR = """
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>

static ssize_t read_at(const char *name, int fd, void *to, size_t n, off_t from)
{
    ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, name);
    off_t bad = atoll(getenv("BAD"));
    if (from <= bad && bad < from + (off_t)n) {
        errno = EIO;
        return -1;
    }
    return real(fd, to, n, from);
}

ssize_t pread(int fd, void *to, size_t n, off_t from)
{
    return read_at("pread", fd, to, n, from);
}

ssize_t pread64(int fd, void *to, size_t n, off_t from)
{
    return read_at("pread64", fd, to, n, from);
}
"""


def test_check_cannot_tell_of_what_the_disk_does_not_give(tmp_path):
    """Wherever that is: it is no fault of the file."""
    path = tmp_path / "bad.h5"
    with h5py.File(path, "w") as f:
        f["group/x"] = np.arange(5)
        f["group/x"].attrs["unit"] = "mm"
    done("create", path, "/sparse", "--dims", "10,10", "--dtype", "uint16", "--chunk", "5,5")
    environment = preloaded(tmp_path, BAD_SECTOR)
    codes = set()
    for at in range(200, path.stat().st_size, 100):
        result = run("check", path, env=environment | {"BAD": str(at)})
        assert "damaged" not in result.stdout + result.stderr, at
        codes.add(result.returncode)
    assert codes == {0, 2}


REMOVING = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
int unlinkat(int folder, const char *name, int flags)
{
    struct stat file, above;
    FILE *seen = fopen(getenv("SEEN"), "a");
    if (seen && fstatat(folder, name, &file, AT_SYMLINK_NOFOLLOW) == 0 && fstat(folder, &above) == 0)
        fprintf(seen, "%s %o %o\\n", name, above.st_mode & 07777, file.st_mode & 07777);
    if (seen)
        fclose(seen);
    return ((int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat"))(folder, name, flags);
}
"""


@pytest.mark.parametrize("options", [[], ["--fast"]], ids=["plain", "fast"])
def test_nobody_else_sees_what_filters_are_tried_on(tmp_path, options):
    """Where all may make files, and whatever is there: it holds elements of files that are one's own."""
    common, theirs = tmp_path / "common", tmp_path / "theirs"
    for folder in common, theirs:
        folder.mkdir()
        folder.chmod(0o1777)
    (common / "sparsectl.h5").symlink_to(theirs / "planted.h5")
    (common / "sample.h5").write_bytes(b"theirs")
    (common / "sample.h5").chmod(0o666)
    make(tmp_path / "dense.h5", d=(scattered((40, 8, 8)), {"chunks": (1, 8, 8)}))
    environment = preloaded(tmp_path, REMOVING) | {"SEEN": str(tmp_path / "seen"), "TMPDIR": str(common)}
    result = run("import", *options, tmp_path / "dense.h5", tmp_path / "sparse.h5", env=environment, umask=0)
    assert (result.returncode, result.stderr) == (DONE, "")
    removed = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    assert [modes for name, *modes in removed if "sparse.h5" not in name] == [["700", "600"]], removed
    assert {path.name for path in common.iterdir()} == {"sparsectl.h5", "sample.h5"}
    assert not list(theirs.iterdir())
    assert (common / "sample.h5").read_bytes() == b"theirs"


CLOSING = """
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
int close(int fd)
{
    struct stat closed, out;
    int is_out = fstat(fd, &closed) == 0 && fstat(STDOUT_FILENO, &out) == 0 && closed.st_dev == out.st_dev &&
                 closed.st_ino == out.st_ino;
    int result = ((int (*)(int))dlsym(RTLD_NEXT, "close"))(fd);
    errno = is_out ? EDQUOT : errno;
    return is_out ? -1 : result;
}
"""


@pytest.mark.parametrize("command, code", [
    ("--help", FAILED), ("info", FAILED), ("dump", FAILED), ("image", FAILED), ("check", 2), ("import", FAILED)])
def test_what_is_lost_when_the_output_is_closed_is_an_error(tmp_path, command, code):
    """File systems of a network say then that a server has no room."""
    environment = preloaded(tmp_path, CLOSING)
    path, new = make(tmp_path / "d.h5", d=scattered((2, 8, 8))), tmp_path / "new.h5"
    arguments = {"--help": [], "dump": [f"{path}:/d"], "import": ["--fast", path, new]}.get(command, [path])
    with open(tmp_path / "out", "w") as out:
        result = subprocess.run([SPARSECTL, command, *arguments], stdout=out, stderr=subprocess.PIPE, text=True,
                                env=environment, timeout=SECONDS)
    assert (result.returncode, result.stderr) == (code, "sparsectl: standard output: Disk quota exceeded\n")
    assert (tmp_path / "out").stat().st_size > 0 and not new.exists()


UNKNOWN_PROCESSORS = """
#include <unistd.h>
long sysconf(int name)
{
    return name == _SC_NPROCESSORS_ONLN ? -1 : ((long (*)(int))dlsym(RTLD_NEXT, "sysconf"))(name);
}
"""


def test_export_on_unknown_processors(tmp_path):
    """The system does not say how many there are: then one is assumed. The chunks are many more than there may be
    threads."""
    frames = scattered((400, 8, 8))
    make(tmp_path / "dense.h5", d=(frames, {"chunks": (1, 8, 8)}))
    done("import", tmp_path / "dense.h5", tmp_path / "sparse.h5", "--chunk", "1,8,8")
    result = run("export", tmp_path / "sparse.h5", tmp_path / "back.h5",
                 env=preloaded(tmp_path, UNKNOWN_PROCESSORS))
    assert (result.returncode, result.stderr) == (DONE, "")
    with h5py.File(tmp_path / "back.h5") as f:
        assert np.array_equal(f["d"][...], frames)


@pytest.mark.parametrize("command", ["info {}", "check {}", "recover {}", "import {} new.h5", "import dense.h5 {}",
                                     "export {} new.h5", "export sparse.h5 {}", "repack {} new.h5",
                                     "repack sparse.h5 {}"])
def test_what_is_no_file_is_not_opened(tmp_path, command):
    """A stranger's link may lead to a device, which opening alone sets going. Who writes to a pipe waits until it is
    opened."""
    make(tmp_path / "dense.h5", d=(scattered((4, 8, 8)), {"chunks": (1, 8, 8)}))
    done("import", tmp_path / "dense.h5", tmp_path / "sparse.h5")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.h5").symlink_to("pipe")
    writer = subprocess.Popen(["sh", "-c", "exec echo >pipe"], cwd=tmp_path)
    try:
        result = run(*command.format("link.h5").split(), cwd=tmp_path)
        assert result.returncode != DONE and "link.h5: " in result.stderr, result.stderr
        assert writer.poll() is None and stat.S_ISFIFO((tmp_path / "link.h5").stat().st_mode)
    finally:
        writer.kill()
        writer.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root unmounts /proc")
@pytest.mark.parametrize("command", ["info", "check", "recover"])
def test_files_are_opened_without_proc(tmp_path, command):
    make(tmp_path / "dense.h5", d=(scattered((4, 8, 8)), {"chunks": (1, 8, 8)}))
    done("import", tmp_path / "dense.h5", tmp_path / "sparse.h5")
    result = subprocess.run(["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh", SPARSECTL, command,
                             tmp_path / "sparse.h5"], capture_output=True, text=True, timeout=SECONDS)
    assert (result.returncode, result.stderr) == (DONE, ""), result.stderr
    assert "sparse.h5" in result.stdout


# ---- A real file ----

REAL = DATA / "real/ANSTO_PLP0006018.nx.hdf"
CHOICES = [[], ["--filter", "selection:deflate=9", "--filter", "values:shuffle", "--filter",
                "values:deflate=9"], ["--filter", "selection:none", "--filter", "values:none"]]


@pytest.mark.skipif(not REAL.exists(), reason="the file of an instrument is not here")
def test_a_real_file_is_smaller_than_dense(tmp_path):
    with h5py.File(REAL) as f:
        data, dense_bytes = f["entry1/data/hmm"][...], f["entry1/data/hmm"].id.get_storage_size()
    sizes = []
    for number, options in enumerate(CHOICES):
        path = tmp_path / f"{number}.h5"
        done("import", "--undefined", "0", *options, f"{REAL}:/entry1/data/hmm", f"{path}:/hmm")
        assert run("check", path).returncode == DONE
        sizes.append(path.stat().st_size)
        print(options, only(path)["stored_bytes"], "bytes; dense gzip", dense_bytes)
    assert sizes[0] <= dense_bytes
    done("export", tmp_path / "0.h5", tmp_path / "dense.h5")
    with h5py.File(tmp_path / "dense.h5") as f:
        assert np.array_equal(f["hmm"][...], data)
