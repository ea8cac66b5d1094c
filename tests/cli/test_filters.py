"""sparsectl with filters of others, for which no plugin of libhdf5 is there: by name and by number,
of sparse datasets and of dense ones. Where there are plugins, h5py reads with them what was made."""
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from test_sparsectl import BUILD, TOP, USAGE, done, failed, info, only, run

sys.path.insert(0, str(TOP / "tests/refused"))
import build  # noqa: E402

PLUGINS = "/usr/lib/x86_64-linux-gnu/hdf5/serial/plugins"
PLUGIN_OF = {32008: "libh5bshuf.so", 32004: "libh5lz4.so", 32001: "libH5Zblosc.so", 307: "libh5bz2.so",
             32000: "liblzf_filter.so", 4: ""}
OPTION_OF = {"bitshuffle=lz4": "lz4", "lz4": "lz4", "bitshuffle=zstd": "zstd", "zstd": "zstd",
             "blosc": "blosc", "blosc2": "blosc2", "bzip2": "bzip2", "szip": "szip"}

# What is asked for: the id, the parameters that libhdf5's plugin makes of it for elements of 2 bytes in
# chunks of 3000, and those of a selection. The version of bitshuffle's plugin is not looked at.
NAMES = {
    "bitshuffle": (32008, [0, 4, 2, 0, 0], [0, 4, 1, 0, 0]),
    "bitshuffle=lz4": (32008, [0, 4, 2, 0, 2], [0, 4, 1, 0, 2]),
    "bitshuffle=zstd": (32008, [0, 4, 2, 0, 3, 3], [0, 4, 1, 0, 3, 3]),
    "bitshuffle=zstd:7": (32008, [0, 4, 2, 0, 3, 7], [0, 4, 1, 0, 3, 7]),
    "lz4": (32004, [], []),
    "lz4=4096": (32004, [4096], [4096]),
    "zstd": (32015, [3], [3]),
    "zstd=22": (32015, [22], [22]),
    "blosc": (32001, [2, 2, 2, 3000, 5, 1, 0], [2, 2, 12, 0, 5, 1, 0]),
    "blosc=lz4": (32001, [2, 2, 2, 3000, 5, 1, 1], [2, 2, 12, 0, 5, 1, 1]),
    "blosc=zstd:1": (32001, [2, 2, 2, 3000, 1, 1, 5], [2, 2, 12, 0, 1, 1, 5]),
    "blosc2": (32026, [1, 0, 2, 3000, 5, 1, 0], [1, 0, 12, 0, 5, 1, 0]),
    "blosc2=lz4": (32026, [1, 0, 2, 3000, 5, 1, 1], [1, 0, 12, 0, 5, 1, 1]),
    "blosc2=zstd:9": (32026, [1, 0, 2, 3000, 9, 1, 5], [1, 0, 12, 0, 9, 1, 5]),
    "bzip2": (307, [9], [9]),
    "bzip2=1": (307, [1], [1]),
    "lzf": (32000, [4, 0x0105, 3000], [0]),
    "szip": (4, [169, 8, 16, 50], [169, 8, 8, 256]),
    "szip=ec:32": (4, [141, 32, 16, 50], [141, 32, 8, 1024]),
}


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch, tmp_path):
    monkeypatch.setenv("HDF5_PLUGIN_PATH", str(tmp_path))


def is_built(name):
    """Whether the library of a filter was there when sparsefs was built."""
    known = OPTION_OF.get(name.split(":")[0], OPTION_OF.get(name.split("=")[0]))
    return known is None or f"#define HAVE_{known.upper()} 1\n" in (BUILD / "config.h").read_text()


def some(names):
    return [pytest.param(name, id=name) for name in names]


def detector(shape):
    random = np.random.default_rng(5)
    data = random.poisson(0.3, shape).astype("<u2")
    data[:, ::17, ::11] = 65535
    data[0, 3] = random.integers(0, 65536, shape[2])
    return data


def make(path, data, **options):
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=data, chunks=(1, *data.shape[1:]), **options)
    return path


def without_version(filter):
    values = list(filter["parameters"])
    return [0, 4, *values[2:]] if filter["id"] == 32008 else values


@pytest.mark.parametrize("name", some(NAMES))
def test_by_name(tmp_path, name):
    if not is_built(name):
        pytest.skip("built without its library")
    id, values, selection = NAMES[name]
    data = detector((3, 30, 50))
    source, sparse, dense = (tmp_path / f"{which}.h5" for which in ("source", "sparse", "dense"))
    make(source, data)
    done("import", "--filter", f"values:{name}", "--filter", f"selection:{name}", source, sparse)
    filters = only(sparse)["filters"]
    assert [(f["id"], without_version(f)) for f in filters["values"]] == [(id, values)]
    (found,) = filters["selection"]
    assert found["id"] == id and (id == 32000 or without_version(found) == selection)
    done("check", sparse)
    done("repack", sparse, tmp_path / "again.h5")
    assert [without_version(f) for f in only(tmp_path / "again.h5")["filters"]["values"]] == [values]
    done("check", tmp_path / "again.h5")

    done("export", "--filter", name, tmp_path / "again.h5", dense)
    done("export", dense, tmp_path / "plain.h5")
    with h5py.File(tmp_path / "plain.h5") as file:
        assert np.array_equal(file["d"], data)
    expect_plugin_reads(dense, id, name, data)
    done("export", "--filter", f"values:{name}", sparse, tmp_path / "named.h5")
    assert (tmp_path / "named.h5").stat().st_size == dense.stat().st_size
    failed("export", "--filter", f"selection:{name}", sparse, tmp_path / "none.h5",
           says="there is no such section", code=USAGE)
    assert not (tmp_path / "none.h5").exists()


def run_with_tables(script, path):
    """PyTables has the filter Blosc2, and gives it to h5py, which has the same libhdf5. None: it is not here."""
    check = "import tables, sys; sys.exit(tables.which_lib_version('blosc2') is None)"
    if subprocess.run(["/usr/bin/python3", "-c", check], stderr=subprocess.DEVNULL).returncode != 0:
        return None
    return subprocess.run(["/usr/bin/python3", "-c", f"import tables, h5py, sys; {script}", path],
                          stdout=subprocess.PIPE, check=True).stdout


def expect_plugin_reads(path, id, name, data):
    if id == 32026:
        got = run_with_tables("sys.stdout.buffer.write(h5py.File(sys.argv[1])['d'][()].tobytes())", path)
        assert got in (None, data.tobytes())
        return
    if id not in PLUGIN_OF or "zstd" in name or not os.path.exists(f"{PLUGINS}/{PLUGIN_OF[id]}"):
        return
    script = ("import h5py, sys; f = h5py.File(sys.argv[1]); s = f['d'].id;"
              "sys.stdout.buffer.write(f['d'][()].tobytes());"
              "assert any(s.read_direct_chunk((i, 0, 0))[0] == 0 for i in range(3))")
    got = subprocess.run(["/usr/bin/python3", "-c", script, path], stdout=subprocess.PIPE, check=True,
                         env=dict(os.environ, HDF5_PLUGIN_PATH=PLUGINS)).stdout
    assert got == data.tobytes()


def test_by_number(tmp_path):
    """Parameters as H5Pset_filter takes them."""
    path = tmp_path / "new.h5"
    done("create", path, "/d", "--dims", "3,30,50", "--dtype", "u2", "--filter", "values:32008",
         "--filter", "selection:32008")
    filters = only(path)["filters"]
    assert [without_version(f) for f in filters["values"]] in ([[0, 4, 2]], [[0, 4, 2, 0, 0]])
    assert [without_version(f) for f in filters["selection"]] == [[0, 4, 1, 0, 0]]
    done("repack", path, tmp_path / "copy.h5")
    assert only(tmp_path / "copy.h5")["filters"] == filters


def test_names_are_no_orders_to_a_terminal(tmp_path):
    """Those in the file, which may be longer than what is kept of them."""
    name = "\x1b[31mbits\n\x9bof" + 60 * "x"
    filters = (0, [(1, 6)]), (1, [((32008, name.encode()), 0, 4, 4), (1, 6)])
    path = tmp_path / "f.h5"
    path.write_bytes(build.filtered(filters=filters, masks=(0, 0)).content)
    assert "  values:     ?[31mbits???ofxx" in done("info", f"{path}:/bad")
    (bad,) = [d for d in info(path)["datasets"] if d["path"] == "/bad"]
    assert bad["filters"]["values"][0]["name"] == name[:62]


@pytest.mark.parametrize("chunks", [(1, 60, 50), (3, 16, 33), (2, 60, 50)], ids=str)
@pytest.mark.parametrize("parameters", ["0,0,0,0,5,1,5", "0,256,0,0,9,2,1", "0,8,0,0,1,0,0"])
def test_blosc2_of_others(tmp_path, parameters, chunks):
    """Chunks that are compressed block by block, as PyTables does it with all that have more axes than one."""
    if not is_built("blosc2"):
        pytest.skip("built without libblosc2")
    data = detector((5, 60, 50))
    theirs, plain = tmp_path / "theirs.h5", tmp_path / "plain.h5"
    np.save(tmp_path / "data.npy", data)
    if run_with_tables(f"import numpy; f = h5py.File(sys.argv[1], 'w'); d = numpy.load({str(tmp_path / 'data.npy')!r});"
                       f"f.create_dataset('d', data=d, chunks={chunks}, compression=32026,"
                       f"compression_opts=({parameters})); f.close()", theirs) is None:
        pytest.skip("there is no PyTables with Blosc2")
    with h5py.File(theirs) as file:
        assert len(file["d"].id.get_create_plist().get_filter(0)[2]) == 7 + 1 + data.ndim
    done("export", theirs, plain)
    with h5py.File(plain) as file:
        assert np.array_equal(file["d"], data)


@pytest.mark.parametrize("wrong", some([
    "bitshuffle=lz4:3", "bitshuffle=3", "bitshuffle=gzip", "bitshuffle=zstd:0", "bitshuffle=zstd:23",
    "bitshuffle=zstd:", "bitshuffle=", "lz4=0", "lz4=x", "lz4=fast", "zstd=0", "zstd=23", "zstd=3,4",
    "blosc=5", "blosc=gzip", "blosc=lz4:10", "blosc=lz4:", "blosc2=snappy",
    "blosc2=5", "blosc2=zstd:10", "bzip2=0", "bzip2=10", "lzf=1", "szip=8",
    "szip=nn:7", "szip=nn:34", "szip=xx", "bit", "zstandard"]))
def test_wrong_parameters(tmp_path, wrong):
    failed("create", tmp_path / "f.h5", "d", "--dims", "3", "--dtype", "u1", "--filter",
           f"values:{wrong}", code=USAGE, says=wrong)
    assert not (tmp_path / "f.h5").exists()


def test_damage_is_found(tmp_path):
    data = detector((3, 30, 50))
    sparse = tmp_path / "sparse.h5"
    done("import", "--filter", "values:lzf", make(tmp_path / "source.h5", data), sparse)
    chunk = only(sparse, "--chunks")["chunks"][1]
    with open(sparse, "r+b") as file:
        file.seek(chunk["address"] + chunk["section_size"][0] + 5)
        file.write(b"\xff" * 8)
    result = run("check", sparse)
    assert result.returncode == 1 and "damaged" in result.stdout + result.stderr


def variable_length(path, **options):
    """Strings and lists of so many lengths that chunks become larger and smaller."""
    with h5py.File(path, "w") as file:
        strings = file.create_dataset("strings", (50,), h5py.string_dtype(), chunks=(4,), **options)
        strings[...] = [f"text {i}" for i in range(50)]
        lists = file.create_dataset("lists", (50,), h5py.vlen_dtype("i4"), chunks=(4,), **options)
        for i in range(50):
            lists[i] = np.arange(i % 7)
    return path


def test_variable_length_behind_lzf_is_repacked(tmp_path):
    """libhdf5 undoes our filter there to have what the chunks lead to; without parameters, which such
    datasets do not have, too."""
    path, copy = variable_length(tmp_path / "x.h5", compression="lzf"), tmp_path / "y.h5"
    done("repack", path, copy)
    done("check", copy)
    with h5py.File(path) as file, h5py.File(copy) as made:
        assert made["strings"].compression == made["lists"].compression == "lzf"
        assert file["strings"][...].tolist() == made["strings"][...].tolist()
        for old, new in zip(file["lists"], made["lists"]):
            assert old.tolist() == new.tolist()


@pytest.mark.parametrize("left_out", [False, True])
def test_variable_length_behind_what_only_a_plugin_undoes(tmp_path, left_out):
    """libhdf5 would crash. It is refused in words, unless no chunk was made by the filter."""
    path, copy = tmp_path / "x.h5", tmp_path / "y.h5"
    texts = [f"text {i}".encode() for i in range(8)]
    with h5py.File(path, "w") as file:
        plain = file.create_dataset("plain", (8,), h5py.string_dtype(), chunks=(4,))
        plain[...] = texts
        file.flush()
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(480, h5py.h5z.FLAG_OPTIONAL, ())
        made = h5py.h5d.create(file.id, b"strings", plain.id.get_type(), plain.id.get_space(), plist)
        for at, mask in (0, 1), (4, int(left_out)):
            made.write_direct_chunk((at,), plain.id.read_direct_chunk((at,))[1], mask)
    if left_out:
        done("repack", path, copy)
        with h5py.File(copy) as file:
            for name in "strings", "plain":  # older versions of h5py give str
                assert [text if isinstance(text, bytes) else text.encode() for text in file[name]] == texts
    else:
        failed("repack", path, copy, says="libhdf5 cannot undo their filter 480 here")
        assert not copy.exists()


def test_as_many_filters_as_a_pipeline_takes(tmp_path):
    """32, each of which is undone again, of both sections; one more is refused."""
    plain, sparse, dense = tmp_path / "plain.h5", tmp_path / "sparse.h5", tmp_path / "dense.h5"
    data = detector((4, 60, 50))
    with h5py.File(str(plain), "w") as file:
        file.create_dataset("d", data=data, chunks=(1, 60, 50))
    words = [word for i in range(32) for section in ("values", "selection")
             for word in ("--filter", f"{section}:" + ("shuffle", "fletcher32", "deflate=1")[i % 3])]
    done("import", *words, plain, sparse)
    described = only(sparse)
    assert [len(described["filters"][section]) for section in ("selection", "values")] == [32, 32]
    done("check", sparse)
    done("export", sparse, dense)
    with h5py.File(str(dense), "r") as file:
        assert np.array_equal(file["d"][...], data)
    failed("create", *words, "--filter", "values:shuffle", "--dims=4,4", "--dtype=<u2",
           tmp_path / "more.h5", "/d", says="too many filters", code=USAGE)
    assert not (tmp_path / "more.h5").exists()
