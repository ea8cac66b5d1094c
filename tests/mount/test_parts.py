"""Datasets of elements that are not of one length, of any size: sequences as offsets.npy and values.npy, what
only text can show as lines.txt."""
import concurrent.futures
import errno
import json
import os
import pathlib
import re
import shutil
import subprocess

import h5py
import numpy as np
import pytest

import sparse_files
from conftest import BUILD
from test_worker import is_sanitized

STRING = h5py.special_dtype(vlen=str)
STRING_TYPE = h5py.h5t.C_S1.copy()
STRING_TYPE.set_size(h5py.h5t.VARIABLE)
STRING_TYPE.set_cset(h5py.h5t.CSET_UTF8)


def sequences(n, dtype, longest=20, seed=1):
    rng = np.random.default_rng(seed)
    out = np.empty(n, object)
    for i, length in enumerate(rng.integers(0, longest, n)):
        out[i] = rng.integers(0, 100, length).astype(dtype)
    return out


def ragged(d):
    """As Awkward Array has it: offsets and contents."""
    offsets, values = np.load(str(d / "offsets.npy")), np.load(str(d / "values.npy"))
    assert offsets.dtype == np.dtype("<i8") and offsets[0] == 0 and offsets[-1] == len(values)
    for name in "offsets.npy", "values.npy":
        assert len((d / name).read_bytes()) == (d / name).stat().st_size
    return [values[a:b] for a, b in zip(offsets[:-1], offsets[1:])]


def check_ragged(d, wanted, dtype):
    found = ragged(d)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        assert a.dtype == np.dtype(dtype) and a.tobytes() == np.asarray(b, dtype).tobytes()


def line(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def unescaped(text):
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "r": "\r", "\\": "\\"}[m.group(1)], text)


@pytest.mark.parametrize("options", [("ro",), (), ("rw",), ("ro", "direct_io"), ("ro", "hdf5=inside")])
def test_sequences(mounts, tmp_path, options):
    path = tmp_path / "a.h5"
    wanted = {}
    with h5py.File(path, "w") as f:
        for dtype in "u1", "<i4", ">i2", "<f8":
            for n in 0, 1, 5, 5000:
                name = f"{np.dtype(dtype).name}_{n}"
                data = f.create_dataset(name, (n,), h5py.special_dtype(vlen=np.dtype(dtype)))
                wanted[name] = sequences(n, dtype), dtype
                for i, one in enumerate(wanted[name][0]):
                    data[i] = one
    root = mounts(path, *options)
    for name, (data, dtype) in wanted.items():
        assert set(os.listdir(root / name)) >= {"offsets.npy", "values.npy"}
        assert "lines.txt" not in os.listdir(root / name)
        check_ragged(root / name, data, dtype)


def test_layouts_and_shapes(mounts, tmp_path):
    """Chunked and compressed, two dims in row-major order, chunks that nobody has written, null sequences."""
    path, wanted = tmp_path / "a.h5", {}
    with h5py.File(path, "w") as f:
        dtype = h5py.special_dtype(vlen=np.dtype("<i4"))
        for name, more in {"plain": {}, "chunks": {"chunks": (3, 4)},
                           "gzip": {"chunks": (3, 4), "compression": "gzip"}}.items():
            data = f.create_dataset(name, (7, 9), dtype, **more)
            flat = sequences(63, "<i4")
            for i in range(63):
                if i % 9 < 5:
                    data[i // 9, i % 9] = flat[i]
                else:
                    flat[i] = np.empty(0, "<i4")
            wanted[name] = flat
        f.create_dataset("empty", (5, 6), dtype, chunks=(2, 2))
        f.create_dataset("grows", (0,), dtype, maxshape=(None,), chunks=(10,))
        f.create_dataset("scalar", (), dtype)
        f["null"] = h5py.Empty(np.dtype("f8"))
    root = mounts(path, "ro")
    for name, data in wanted.items():
        check_ragged(root / name, data, "<i4")
    check_ragged(root / "empty", [[]] * 30, "<i4")
    check_ragged(root / "grows", [], "<i4")
    for name in "scalar", "null":
        assert not set(os.listdir(root / name)) & {"offsets.npy", "values.npy", "lines.txt"}


def test_sequences_of_compounds_and_arrays(mounts, tmp_path):
    path = tmp_path / "a.h5"
    base = np.dtype([("x", "<f4"), ("n", "<u2")])
    one, two = np.array([(1.5, 2), (3.5, 4)], base), np.array([], base)
    with h5py.File(path, "w") as f:
        data = f.create_dataset("d", (3,), h5py.special_dtype(vlen=base))
        space = h5py.h5t.py_create(base)
        assert space.get_size() == base.itemsize
        if not write_sequences(data, [one, two, one[:1]]):
            pytest.skip("this h5py does not write sequences of compounds")
    check_ragged(mounts(path, "ro") / "d", [one, two, one[:1]], base)


def write_sequences(data, arrays):
    try:
        for i, array in enumerate(arrays):
            data[i] = array
        return True
    except (TypeError, ValueError, OSError):
        return False


def test_strings(mounts, tmp_path):
    """One for each line, of any kind: what ends lines, and backslashes, are escaped."""
    path = tmp_path / "a.h5"
    texts = ["", "plain", "two\nlines", "back\\slash", "\\n", "cr\r\n", "ümläut €", " spaces ", "tab\t", "'\"",
             "x" * 5000]
    long = np.array([f"entry {i} \\ of\nmany" * (i % 7) for i in range(20000)], object)
    with h5py.File(path, "w") as f:
        f.create_dataset("vlen", data=np.array(texts, object), dtype=STRING)
        f.create_dataset("chunked", data=long, dtype=STRING, chunks=(77,), compression="gzip")
        f.create_dataset("square", data=np.array(texts[:9], object).reshape(3, 3), dtype=STRING)
        f.create_dataset("fixed", data=np.array([t.encode() for t in texts[:9]], "S12"))
        f.create_dataset("fixed_chunks", data=np.array([b"%d" % i for i in range(100000)], "S8"), chunks=(1000,),
                         compression="gzip")
        f.create_dataset("unwritten", (1000,), STRING, chunks=(10,))
        f["scalar"] = "one"
    root = mounts(path, "ro")
    wanted = {"vlen": texts, "chunked": list(long), "square": texts[:9], "fixed": texts[:9],
              "fixed_chunks": [str(i) for i in range(100000)], "unwritten": [""] * 1000}
    for name, strings in wanted.items():
        content = (root / name / "lines.txt").read_bytes()
        assert content.decode() == "".join(line(s) + "\n" for s in strings), name
        assert [unescaped(s) for s in content.decode().split("\n")[:-1]] == strings
        assert (root / name / "lines.txt").stat().st_size == len(content)
    with open(root / "chunked/lines.txt", "rb") as file:  # at any place
        content = file.read()
        rng = np.random.default_rng(1)
        for at in rng.integers(0, len(content), 50):
            file.seek(at)
            assert file.read(1000) == content[at:at + 1000]
    assert "lines.txt" not in os.listdir(root / "scalar")


def test_what_else_only_text_can_show(mounts, tmp_path):
    """References are paths, nested sequences lists, compounds as value.txt has them."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f["x/y"] = np.arange(5)
        refs = f.create_dataset("refs", (3,), h5py.special_dtype(ref=h5py.Reference))
        refs[0], refs[2] = f["x/y"].ref, f["x"].ref
        record = np.dtype([("name", STRING), ("n", "<i4")])
        records = f.create_dataset("records", (2,), record)
        records[0], records[1] = ("a\nb", 1), ("c", 2)
        inner = h5py.h5t.vlen_create(h5py.h5t.NATIVE_INT32)
        space = h5py.h5s.create_simple((2,))
        h5py.h5d.create(f.id, b"nested", h5py.h5t.vlen_create(inner), space)
    root = mounts(path, "ro")
    assert (root / "refs/lines.txt").read_text() == "/x/y\nnull\n/x\n"
    assert (root / "records/lines.txt").read_text() == '{name: "a\\u000ab", n: 1}\n{name: "c", n: 2}\n'
    assert (root / "nested/lines.txt").read_text() == "[]\n[]\n"
    assert "offsets.npy" not in os.listdir(root / "nested")


def test_more_than_value_txt(mounts, tmp_path):
    """Two million strings and sequences, in pieces: the daemon and libhdf5's process stay small."""
    path, n = tmp_path / "a.h5", 2_000_000
    with h5py.File(path, "w") as f:
        f.create_dataset("s", (n,), STRING, chunks=(50_000,))
        f.create_dataset("v", (n,), h5py.special_dtype(vlen=np.dtype("<i4")), chunks=(50_000,))
        for at in range(0, n, 500_000):
            f["s"][at:at + 500_000] = np.array([b"%d" % i for i in range(at, at + 500_000)], object)
    root = mounts(path, "ro", "hdf5_memory=200M")
    assert "value.txt" not in os.listdir(root / "s")
    assert (root / "s/lines.txt").read_bytes() == b"".join(b"%d\n" % i for i in range(n))
    assert (np.load(str(root / "v/offsets.npy")) == 0).all() and len(np.load(str(root / "v/values.npy"))) == 0
    status = (root / ".sparsefs/pid").read_text().strip()
    peak = int(re.search(r"VmHWM:\s*(\d+)", open(f"/proc/{status}/status").read()).group(1))
    assert peak < 300 << 10, peak


def test_large_elements(mounts, tmp_path):
    """Elements of some MiB each: pieces of single ones."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        v = f.create_dataset("v", (12,), h5py.special_dtype(vlen=np.dtype("<i4")))
        s = f.create_dataset("s", (12,), STRING)
        for i in range(12):
            v[i] = np.arange(i * 300_000, dtype="<i4")
            s[i] = chr(97 + i) * (i * 1_000_000)
    root = mounts(path, "ro", "hdf5_memory=512M")
    check_ragged(root / "v", [np.arange(i * 300_000, dtype="<i4") for i in range(12)], "<i4")
    lines = (b"%c" % (97 + i) * (i * 1_000_000) + b"\n" for i in range(12))
    assert (root / "s/lines.txt").read_bytes() == b"".join(lines)
    mapped = np.load(str(root / "v/values.npy"), mmap_mode="r")
    assert mapped[-1] == 11 * 300_000 - 1


def test_elements_larger_than_thought(mounts, tmp_path):
    """The lines of some of them have a hundred KiB, as line feeds are escaped; those of others next to nothing."""
    path, record = tmp_path / "a.h5", np.dtype([("text", STRING), ("n", "<i4")])
    sizes = [0] * 300 + [24_000] * 100 + [1] * 300
    texts = {n: "\n" * n for n in sizes}
    with h5py.File(path, "w") as f:
        f.create_dataset("records", data=np.array([(texts[n], n) for n in sizes], record))
    root = mounts(path, "ro")
    lines = {n: b'{text: "%s", n: %d}\n' % (b"\\u000a" * n, n) for n in sizes}
    with open(root / "records/lines.txt", "rb") as file:
        assert all(file.read(len(lines[n])) == lines[n] for n in sizes)
        assert file.read() == b""


@pytest.mark.parametrize("program", ["cp -r . {}", "tar -cf {0}/a.tar . && tar -C {0} -xf {0}/a.tar",
                                     "/usr/bin/python3 -m tarfile -c {0}/a.tar . && tar -C {0} -xf {0}/a.tar",
                                     "rsync -a ./ {}"])
def test_copies_by_programs_that_believe_stat(mounts, tmp_path, program):
    """Archivers do not open what has no bytes, and take no more than the bytes that stat(2) has: each program is
    the first to ask. A listing of names alone reads nothing."""
    path, copy = tmp_path / "a.h5", tmp_path / "copy"
    copy.mkdir()
    with h5py.File(path, "w") as f:
        f.create_dataset("s", data=np.array([f"text {i}" for i in range(50000)], object), dtype=STRING)
        v = f.create_dataset("v", (20000,), h5py.special_dtype(vlen=np.dtype("<i4")))
        v[...] = np.array([np.arange(i % 3, dtype="<i4") for i in range(20000)], object)
        f["one"] = "x" * 100_000
    root = mounts(path, "ro")
    assert set(os.listdir(root / "s")) == {"dataset.json", "value.txt", "lines.txt"}
    subprocess.run(["sh", "-c", "cd " + str(root.root) + " && " + program.format(copy)], check=True)
    assert (copy / "s/lines.txt").read_text() == "".join(f"text {i}\n" for i in range(50000))
    assert (copy / "s/value.txt").read_text() == " ".join(f'"text {i}"' for i in range(50000)) + "\n"
    assert (copy / "one/value.txt").read_text() == "x" * 100_000 + "\n"
    check_ragged(copy / "v", [np.arange(i % 3, dtype="<i4") for i in range(20000)], "<i4")
    for name in "s/lines.txt", "s/value.txt", "v/values.npy", "v/offsets.npy", "one/value.txt":
        assert (root / name).stat().st_size == (copy / name).stat().st_size, name


def test_they_are_not_written(mounts, tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("v", (2,), h5py.special_dtype(vlen=np.dtype("<i4")))
        f.create_dataset("s", data=np.array(["a", "b"], object), dtype=STRING)
    root = mounts(path, "rw", expect_log=True)
    for name in "v/offsets.npy", "v/values.npy", "s/lines.txt":
        with pytest.raises(PermissionError):
            open(root / name, "r+b")
    assert os.geteuid() or "this file is computed" in root.log()  # else the kernel refuses by mode


def test_views_by_their_words(mounts, tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("v", (2,), h5py.special_dtype(vlen=np.dtype("<i4")))
        f.create_dataset("s", data=np.array(["a", "b"], object), dtype=STRING)
    root = mounts(path, "ro", "views=ragged")
    assert set(os.listdir(root / "v")) == {"dataset.json", "offsets.npy", "values.npy"}
    assert set(os.listdir(root / "s")) == {"dataset.json"}
    assert set(os.listdir(mounts(path, "ro", "views=lines") / "s")) == {"dataset.json", "lines.txt"}


def test_they_grow(mounts, tmp_path):
    """A file that is followed: what was appended is there, and what there was is the same."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as f:
        v = f.create_dataset("v", (3,), h5py.special_dtype(vlen=np.dtype("<i4")), maxshape=(None,), chunks=(4,))
        for i in range(3):
            v[i] = np.arange(i)
    root = mounts(path, "ro")
    check_ragged(root / "v", [np.arange(i) for i in range(3)], "<i4")
    root.unmount()
    with h5py.File(path, "r+") as f:
        f["v"].resize((9,))
        for i in range(3, 9):
            f["v"][i] = np.arange(i)
    check_ragged(mounts(path, "ro") / "v", [np.arange(i) for i in range(9)], "<i4")


def test_hostile_lengths(mounts, tmp_path):
    """Lengths that the heap does not have: an error for who reads values, and nothing else happens."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        v = f.create_dataset("v", (4,), h5py.special_dtype(vlen=np.dtype("<i4")))
        for i in range(4):
            v[i] = np.full(1234, 7)
        f["x"] = np.arange(10)
        where = v.id.get_offset()
    with open(path, "r+b") as file:
        file.seek(where + 16)
        assert file.read(4) == (1234).to_bytes(4, "little")
        file.seek(where + 16)
        file.write(b"\xff\xff\xff\xff")
    root = mounts(path, "ro", expect_log=True)
    offsets = np.load(str(root / "v/offsets.npy"))
    assert offsets.tolist() == [0, 1234, 1234 + 2**32 - 1, 2 * 1234 + 2**32 - 1, 3 * 1234 + 2**32 - 1]
    with open(root / "v/values.npy", "rb", buffering=0) as file:
        head = file.read(128)
        assert b"(%d,)" % offsets[-1] in head
        assert np.frombuffer(file.read(3000), "<i4").tolist() == [7] * 750  # the page before
        file.seek(1 << 20)
        with pytest.raises(OSError) as error:
            file.read(1000)
        assert error.value.errno in (errno.EIO, errno.EFBIG)
    assert np.load(str(root / "x/npy/000000.npy")).tolist() == list(range(10))


# ---- Sparse datasets ----

SEQUENCE = {dtype: h5py.h5t.vlen_create(h5py.h5t.py_create(np.dtype(dtype))) for dtype in ("<i4", ">i2", "<f8", "u1")}


def sparse_strings(shape, seed=3):
    rng = np.random.default_rng(seed)
    words = ["", "plain", "two\nlines", "back\\slash", "tab\tand\rreturn", "µ" * 40, "x" * 3000]
    texts = np.empty(shape, object)
    texts[...] = [[words[i].encode() for i in row] for row in rng.integers(0, len(words), shape)]
    return texts, rng.random(shape) < 0.6


def add_sparse(file, name, shape, chunks, dtype, form, seed, **options):
    """Adds a dataset, and returns what is to be found in it."""
    rng = np.random.default_rng(seed)
    arrays, defined = sequences(int(np.prod(shape)), dtype, seed=seed).reshape(shape), rng.random(shape) < 0.5
    file.add_ragged(name, arrays, defined, chunks, SEQUENCE[dtype], form=form, **options)
    return [one if there else np.zeros(0, dtype) for one, there in zip(arrays.ravel(), defined.ravel())]


@pytest.mark.parametrize("form", ["set", "rfc"])
@pytest.mark.parametrize("options", [("ro",), (), ("ro", "direct_io"), ("ro", "hdf5=inside")])
def test_sparse_datasets(mounts, tmp_path, options, form):
    """All chunks of all ranks, with filters and without, also where nothing is defined, or all is empty."""
    cases = {"line": ((5000,), (300,), "<i4", (0, 0, 0)), "plane": ((37, 41), (8, 16), ">i2", (0, 0, 0)),
             "packed": ((6, 20, 30), (1, 20, 30), "<f8", (4, 4, 4)), "mixed": ((300,), (64,), "u1", (0, 6, 0)),
             "heap": ((300,), (300,), "<i4", (0, 0, 9))}
    file, wanted = sparse_files.File(*cases, "none", "empty", "words"), {}
    for seed, (name, (shape, chunks, dtype, deflate)) in enumerate(cases.items()):
        wanted[name] = add_sparse(file, name, shape, chunks, dtype, form, seed, deflate=deflate), dtype
    nothing = np.full((30,), None, object)
    file.add_ragged("none", nothing, np.zeros(30, bool), (8,), SEQUENCE["<i4"], form=form)
    for i in range(30):
        nothing[i] = np.zeros(0, "<i4")
    file.add_ragged("empty", nothing, np.ones(30, bool), (8,), SEQUENCE["<i4"], form=form)
    wanted["none"] = wanted["empty"] = nothing, "<i4"
    texts, there = sparse_strings((50, 12))
    file.add_ragged("words", texts, there, (7, 5), STRING_TYPE, form=form, deflate=(0, 0, 5))
    file.save(tmp_path / "a.h5")
    root = mounts(tmp_path / "a.h5", *options).root
    for name, (data, dtype) in wanted.items():
        check_ragged(root / name, data, dtype)
    lines = (root / "words/lines.txt").read_bytes().decode().split("\n")
    assert lines.pop() == "" and [unescaped(one) for one in lines] == \
        [text.decode() if here else "" for text, here in zip(texts.ravel(), there.ravel())]
    assert set(os.listdir(root / "words")) == {"dataset.json", "frames", "lines.txt"}
    assert subprocess.run([BUILD / "sparsectl", "check", tmp_path / "a.h5"], check=False).returncode == 0


GOLDEN_REFERENCES = pathlib.Path(__file__).parent.parent / "cli" / "golden_references.h5"


@pytest.mark.parametrize("options", [("ro",), ("ro", "hdf5=inside"), ("rw",)])
def test_sparse_references(mounts, tmp_path, options):
    """They are shown as ordinary ones to the same; what is not defined is null."""
    path = tmp_path / "a.h5"
    shutil.copy(GOLDEN_REFERENCES, path)
    with h5py.File(path, "r+") as f:
        x = f["group/x"]
        objects = np.full(8, h5py.Reference(), h5py.ref_dtype)
        regions = f.create_dataset("r", (8,), h5py.regionref_dtype)
        objects[1:4] = [f["group"].ref, x.ref, f["type"].ref]
        f["o"] = objects
        regions[2] = x.regionref[2:5, 3:7]
        regions[3] = x.regionref[0:6:2]
        points = np.zeros((6, 10), bool)
        points[[5, 0, 2], [1, 9, 2]] = True
        regions[5] = x.regionref[points]
        regions[6] = x.regionref[...]
    root = mounts(path, *options)
    lines = {name: (root / name / "lines.txt").read_text().split("\n") for name in ("objects", "regions", "o", "r")}
    assert lines["o"][2] == "/group/x" and lines["o"][4] == "null"
    assert lines["objects"] == [*lines["o"][:7], "/records", ""]
    assert lines["r"][5:7] == ["/group/x {(0,1)-(5,9)}", "/group/x {(0,0)-(5,9)}"]
    assert lines["regions"] == lines["r"]
    assert (root / "dense/lines.txt").read_text() == "/dense\n/objects\nnull\nnull\n"


@pytest.mark.parametrize("options", [("ro",), ("ro", "hdf5=inside"), ("rw",)])
def test_sparse_references_beside_other_parts(mounts, tmp_path, options):
    """Whatever their objects are called, and what leads nowhere is null."""
    path, name = tmp_path / "a.h5", 'n "1"\\\n\r'
    shutil.copy(GOLDEN_REFERENCES, path)
    with h5py.File(path, "r+") as f:
        f.move("group/x", f"group/{name}")
    lines = (mounts(path, *options) / "records/lines.txt").read_text().split("\n")
    x = [json.dumps(text).replace(r"\n", r"\u000a").replace(r"\r", r"\u000d")
         for text in (f"/group/{name} {{(2,3)-(4,6)}}", f"/group/{name}")]
    shown = {1: f'{{first: 17, pair: ["/group", null], parts: [{{n: 513, region: {x[0]}, object: {x[1]}}}, '
                '{n: 3, region: null, object: "/records"}], last: 34}',
             14: '{first: 51, pair: ["/group", "/dense"], parts: [], last: 68}'}
    undefined = "{first: 0, pair: [null, null], parts: [], last: 0}"
    assert lines == [*[shown.get(i, undefined) for i in range(15)], ""]


@pytest.mark.parametrize("options", [("ro",), ("ro", "hdf5=inside"), ("rw",)])
def test_nested_elements(mounts, tmp_path, options):
    """Compounds and arrays with strings and sequences in structured chunks are shown as ordinary ones."""
    plain, made = tmp_path / "plain.h5", tmp_path / "made.h5"
    text, numbers = h5py.string_dtype(), h5py.vlen_dtype(np.dtype("<f4"))
    inner = np.dtype([("t", text), ("x", ">f8")])
    kinds = {
        "record": np.dtype([("a", ">u2"), ("s", text), ("v", numbers), ("n", inner)]),
        "array": np.dtype([("q", text, (2,)), ("k", "<i8")]),
    }
    with h5py.File(plain, "w") as file:
        record = file.create_dataset("record", (90,), kinds["record"])
        array = file.create_dataset("array", (5, 4), kinds["array"])
        for i in range(1, 90):
            record[i] = i * 3, f"a \"{i}\" \\ \n" if i % 2 else "", np.arange(i % 9) / 4, ("t" * (i % 5), i * 1.5)
        for i in range(20):
            array[i // 4, i % 4] = [f"p{i}", "r" * i], -i
    for name in kinds:
        subprocess.check_call([BUILD / "sparsectl", "import", f"{plain}:/{name}", f"{made}:/{name}"])
        subprocess.check_call([BUILD / "sparsectl", "import", "--dense", f"{plain}:/{name}", f"{made}:/{name}2"])
    wanted, root = mounts(plain, "ro"), mounts(made, *options)
    for name in kinds:
        lines = (wanted / name / "lines.txt").read_bytes()
        assert lines.count(b"\n") == (90 if name == "record" else 20)
        assert (root / name / "lines.txt").read_bytes() == lines
        assert (root / f"{name}2/lines.txt").read_bytes() == lines


def test_dense_datasets_in_structured_chunks(mounts, tmp_path):
    """They show what the ordinary datasets show that they were made from, and no element is undefined."""
    plain, dense = tmp_path / "plain.h5", tmp_path / "dense.h5"
    arrays, (texts, _) = sequences(700, "<i4", seed=11), sparse_strings((30, 8))
    with h5py.File(plain, "w") as file:
        file.create_dataset("ragged", (700,), h5py.vlen_dtype("<i4"))[...] = arrays
        file.create_dataset("words", (30, 8), h5py.string_dtype())[...] = texts
    for name in "ragged", "words":
        subprocess.check_call([BUILD / "sparsectl", "import", "--dense", f"{plain}:/{name}", dense])
    root, wanted = mounts(dense, "ro").root, mounts(plain, "ro").root
    check_ragged(root / "ragged", list(arrays), "<i4")
    assert (root / "words/lines.txt").read_bytes() == (wanted / "words/lines.txt").read_bytes()
    for name, views in ("ragged", {"offsets.npy", "values.npy"}), ("words", {"lines.txt"}):
        assert set(os.listdir(root / name)) == {"dataset.json", *views}
        shown = json.loads((root / name / "dataset.json").read_text())
        assert shown["layout"] == "structured" and "selection" not in shown["filters"]
        assert shown["defined_elements"] == np.prod(shown["dims"])


def test_many_sparse_datasets_take_the_memory_of_one(mounts, tmp_path):
    """Of a hundred whose chunks are 3 MB and stored in a few KB, one chunk is kept; two readers at a time."""
    names = [f"d{i}" for i in range(100)]
    file, arrays = sparse_files.File(*names), np.empty(30, object)
    for i in range(30):
        arrays[i] = np.zeros(100_000, "u1")
    for name in names:
        file.add_ragged(name, arrays, np.ones(30, bool), (30,), SEQUENCE["u1"], form="rfc", deflate=(0, 0, 9))
    file.save(tmp_path / "a.h5")
    mount = mounts(tmp_path / "a.h5", "ro", "cache_size=16M")

    def read(name):
        return np.load(str(mount / f"{name}/values.npy")).tobytes() == bytes(3_000_000)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert all(pool.map(read, names))
    peak = int(re.search(r"VmHWM:\s*(\d+)", open(f"/proc/{mount.process.pid}/status").read()).group(1))
    assert peak < 128 << 10 or is_sanitized(), peak


def longer(number, section):
    """The first element has one more than there are."""
    return bytes([section[0] + 1]) + section[1:] if number == 1 else section


def elsewhere(number, section):
    """The first element has an object that there is not, or lies behind the end."""
    return section[:4] + b"\xff\xff\xff\x7f" + section[8:] if number == 1 else section


@pytest.mark.parametrize("form, change, reason", [
    ("set", longer, "has a sequence of"), ("set", elsewhere, "which there is not"),
    ("rfc", elsewhere, "of its variable-length data, which has"),
    ("set", lambda n, s: s if n == 1 else s[:12] + b"\xff" * 8 + s[20:], "lies outside"),
    ("set", lambda n, s: s if n == 1 else s[:8] + b"\xff\xff\xff\x7f" + s[12:], "head of its variable-length data"),
    ("set", lambda n, s: s if n == 1 else s.replace(b"GCOL", b"GCOR", 1), "collection 0"),
    ("set", lambda n, s: s if n == 1 else s[:-8], "lies outside"),
    ("rfc", lambda n, s: s if n == 1 else b"\xff\xff\xff\x7f" + s[4:], "is unused"),
    ("rfc", lambda n, s: s if n == 1 else s[:-3], "of its variable-length data, which has"),
    ("set", lambda n, s: s if n == 1 else b"", "of its variable-length data, which has"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_damaged_sparse_datasets(mounts, tmp_path, form, change, reason):
    """It is told which chunk it is, and the others are read."""
    file = sparse_files.File("bad", "good")
    arrays = np.empty(40, object)
    for i in range(40):
        arrays[i] = np.arange(i % 5 + 1, dtype="<i4")
    for name, changed in (("bad", change), ("good", None)):
        file.add_ragged(name, arrays, np.ones(40, bool), (40,), SEQUENCE["<i4"], form=form, change=changed)
    file.save(tmp_path / "a.h5")
    mount = mounts(tmp_path / "a.h5", "ro", expect_log=True)
    with pytest.raises(OSError) as raised:
        (mount / "bad/values.npy").read_bytes()
    assert raised.value.errno == errno.EIO and reason in mount.log() and "chunk (0)" in mount.log()
    check_ragged(mount / "good", arrays, "<i4")
    checked = subprocess.run([BUILD / "sparsectl", "check", tmp_path / "a.h5"], check=False, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert checked.returncode == 1 and reason in checked.stdout
