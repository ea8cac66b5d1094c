"""sparsectl recover and repack: what writers that died have left, and copies without free space.
h5py makes the sources, and says what a copy holds."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib

import h5py
import numpy as np
import pytest

from test_sparsectl import (BUILD, FAILED, SECONDS, SPARSECTL, TOP, USAGE, coordinates, done, failed, info, make,
                            scattered)

sys.path.insert(0, str(TOP / "tests/refused"))
import build  # noqa: E402

WRITER = BUILD / "tests/crash/writer"


def die_while_writing(path):
    """A program with h5py dies while it has the file open."""
    code = ("import h5py, os, sys; f = h5py.File(sys.argv[1], 'a', libver='latest');"
            "f['new'] = range(1000); f.flush(); os.kill(os.getpid(), 9)")
    result = subprocess.run([sys.executable, "-c", code, path])
    assert result.returncode == -signal.SIGKILL


# ---- recover ----


def test_nothing_to_recover(tmp_path):
    path = make(tmp_path / "a.h5", x=np.arange(4))
    before = path.read_bytes()
    assert done("recover", path) == f"{path}: there is nothing to recover\n"
    assert path.read_bytes() == before
    failed("recover", tmp_path / "missing.h5", says="No such file")
    failed("recover", code=USAGE, says="a FILE is wanted")
    (tmp_path / "text").write_text("no HDF5 at all")
    failed("recover", tmp_path / "text")


def test_the_mark_of_a_writer_is_cleared(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as f:
        f["x"] = np.arange(1000)
    die_while_writing(path)
    with pytest.raises(OSError):
        h5py.File(path, "r")
    failed("check", path, says="marked as open for writing", code=2)
    failed("create", path, "/d", "--dims", "3", "--dtype", "u1", says="marked as open for writing")
    assert "the mark of a writer was cleared" in done("recover", path)
    assert done("recover", path).endswith("there is nothing to recover\n")
    with h5py.File(path, "r") as f:
        assert f["x"][:].tolist() == list(range(1000))
        assert f["new"][:].tolist() == list(range(1000))
    assert "sound" in done("check", path)
    done("create", path, "/d", "--dims", "3", "--dtype", "u1")
    with h5py.File(path, "r") as f:
        assert f["new"][:].tolist() == list(range(1000))  # nothing was put over it


def test_a_file_that_is_too_short_is_refused(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as f:
        f["x"] = np.arange(1000)
    die_while_writing(path)
    os.truncate(path, path.stat().st_size - 5000)
    failed("recover", path, says="bytes are missing")


def has_unnamed(folder):
    return any(p.name.endswith(".sparsefs") for p in folder.iterdir())


def has_journal(folder):
    journal = folder / "a.h5.journal"
    return journal.exists() and journal.stat().st_size > 0


@pytest.mark.parametrize("left, says", ((has_unnamed, "removed"), (has_journal, "replayed")))
def test_what_a_killed_writer_leaves(tmp_path, left, says):
    """A file without its name yet, or a journal: seen while it writes, it is killed then, until it has left it."""
    path, said = tmp_path / "a.h5", ""
    for _ in range(10000):
        if says in said:
            break
        path.unlink(missing_ok=True)
        with subprocess.Popen([WRITER, "write", path, "1"], stdout=subprocess.DEVNULL) as writer:
            while not left(tmp_path):
                assert writer.poll() is None
            writer.kill()
        if not path.exists():
            if left(tmp_path):
                said = "removed"
                done("create", path, "/d", "--dims", "3", "--dtype", "u1")
            assert list(tmp_path.iterdir()) in ([], [path])
            continue
        unnamed = has_unnamed(tmp_path)
        said = done("recover", path)
        assert ("removed" in said) == unnamed
        assert not path.with_name("a.h5.journal").exists() and not has_unnamed(tmp_path)
        done("check", path)
    assert says in said


def test_files_of_that_name_that_somebody_writes_are_left_alone(tmp_path):
    path = make(tmp_path / "a.h5", x=np.arange(4))
    left = tmp_path / ".a.h5.0123ab.sparsefs"
    others = [tmp_path / name for name in (".a.h5.0123ab", ".a.h5.0123AB.sparsefs",
                                           ".b.h5.0123ab.sparsefs", ".a.h5.0123abc.sparsefs")]
    for file in (left, *others):
        file.touch()
    import fcntl
    with open(left) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert done("recover", path).endswith("nothing to recover\n")
    assert done("recover", path).endswith("removed: 1\n")
    assert not left.exists() and all(other.exists() for other in others)


# ---- repack ----


def everything(path):
    """All that h5py sees of a file: links, and objects by their first name. Of sparse datasets it sees
    links only."""
    links, objects = {}, {}

    def walk(group, prefix):
        objects[prefix] = ("group", dict(attributes(group)))
        for name in group:
            link = group.get(name, getlink=True)
            full = f"{prefix}/{name}"
            if not isinstance(link, h5py.HardLink):
                links[full] = (type(link).__name__, link.path, getattr(link, "filename", None))
                continue
            try:
                child = group[name]
            except (KeyError, OSError):
                links[full] = "sparse"
                continue
            first = seen.setdefault(h5py.h5o.get_info(child.id).addr, full)
            links[full] = first
            if first != full:
                continue
            if isinstance(child, h5py.Group):
                walk(child, full)
            elif isinstance(child, h5py.Datatype):
                # h5py 2 cannot read attributes of these.
                readable = h5py.version.version_tuple[0] >= 3
                objects[full] = ("datatype", repr(child.dtype), dict(attributes(child)) if readable else {})
            else:
                objects[full] = (child.shape, repr(child.dtype), child.id.get_type().committed(),
                                 child.shape and child.maxshape, child.chunks,  # h5py 2 has none of a null one
                                 child.compression, child.shuffle, child.fletcher32,
                                 repr(child[()]), dict(attributes(child)))

    def attributes(thing):
        for name in thing.attrs:
            yield name, repr(thing.attrs[name])

    with h5py.File(path, "r") as f:
        seen = {h5py.h5o.get_info(f.id).addr: "/"}
        walk(f, "")
    return links, objects


def make_rich(path):
    text = h5py.string_dtype()
    with h5py.File(path, "w") as f:
        f.attrs["title"] = "all of it"
        f.attrs["list"] = np.arange(5)
        deep = f.create_group("a/b c/d")
        deep.attrs["unit"] = np.array(["s", "m"], dtype=text)
        f["named"] = np.dtype([("x", "<f4"), ("y", ">i2")])
        f["named"].attrs["about"] = "points"
        deep.create_dataset("points", (7,), f["named"])
        deep["points"][...] = np.arange(7)
        f["plain"] = np.arange(5000, dtype=">u2")
        f["scalar"] = 3.5
        f["empty"] = h5py.Empty("f4")
        f["words"] = np.array(["one", "twenty", ""], dtype=text)
        f.create_dataset("packed", data=scattered((40, 300)), chunks=(8, 100), shuffle=True,
                         compression=4, fletcher32=True, maxshape=(None, 300))
        f.create_dataset("small", data=np.eye(3))
        f["a/again"] = f["plain"]
        f["a/loop"] = f["a"]
        f["soft"] = h5py.SoftLink("/a/b c/d/points")
        f["dangling"] = h5py.SoftLink("nowhere")
        f["outside"] = h5py.ExternalLink("other.h5", "/x")
        f["höhe"] = [1, 2]
    return path


def test_everything_is_copied(tmp_path):
    source, copy = make_rich(tmp_path / "a.h5"), tmp_path / "b.h5"
    for filters in ((), ("--filter", "selection:deflate", "--filter", "values:shuffle",
                         "--filter", "values:deflate=2")):
        done("import", *filters, f"{source}:/packed", f"{source}:/a/sparse{len(filters)}")
    done("create", source, "/never", "--dims", "0,5", "--dtype", "<f8", "--fill", "2.5",
         "--selection-version", "1")
    subprocess.run([WRITER, "check", source, "0"], check=True, capture_output=True)
    done("repack", source, copy)
    assert everything(source) == everything(copy)
    for name in ("/a/sparse0", "/a/sparse6", "/never"):
        assert coordinates(f"{source}:{name}") == coordinates(f"{copy}:{name}")

    def told(path):
        return [{k: v for k, v in d.items() if k != "address"}
                for d in info(path)["datasets"]]

    assert told(source) == told(copy)
    assert "sound" in done("check", copy)
    done("create", copy, "/more", "--dims", "3", "--dtype", "u1")
    assert "sound" in done("check", copy)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("n", [8, 9, 300])
def test_groups_with_many_links(tmp_path, libver, n):
    """Links that do not lie in the group's header any more."""
    source, copy = tmp_path / "a.h5", tmp_path / "b.h5"
    with h5py.File(source, "w", libver=libver) as f:
        for order in (False, True):
            group = f.create_group(f"group/{order}", track_order=order)
            for i in range(n):
                group.create_group(f"{n - i}/below")
    done("create", source, "/group/sparse", "--dims", "3,4", "--dtype", "u1")
    done("repack", source, copy)
    assert everything(source) == everything(copy)
    assert "sound" in done("check", copy)
    with h5py.File(copy, "a") as f:
        assert f["group/True"].id.get_create_plist().get_link_creation_order() & h5py.h5p.CRT_ORDER_TRACKED
        for name in ("group/True", "group/False"):
            f[name].create_group("one more")
    assert "sound" in done("check", copy)


def test_sparse_datasets_with_several_names(tmp_path):
    """Whose links libhdf5 counts in headers that it may not change otherwise, with and without room for that."""
    source, copy, again = (tmp_path / f"{name}.h5" for name in "abc")
    with h5py.File(tmp_path / "dense.h5", "w") as f:
        for i, n in enumerate((1, *range(100, 150, 7))):
            f[f"d{i}"] = scattered((20, 30), seed=i)
            f[f"d{i}"].attrs["a"] = np.arange(n, dtype=np.uint8)
    done("import", "--all", tmp_path / "dense.h5", source)
    with h5py.File(source, "a") as f:
        names = list(f)
        group = f.create_group("group/below")
        for name in names:
            f.id.links.create_hard(f"{name} again".encode(), f.id, name.encode())
            group.id.links.create_hard(name.encode(), f.id, name.encode())
    done("repack", source, copy)
    done("repack", copy, again)
    for path in (copy, again):
        assert "sound" in done("check", path)
        assert everything(source) == everything(path)
        with h5py.File(path) as f:
            for name in names:
                found = [h5py.h5g.get_objinfo(f.id, full.encode())
                         for full in (name, f"{name} again", f"group/below/{name}")]
                assert [(i.nlink, i.objno) for i in found] == 3 * [(3, found[0].objno)]
        for name in names:
            expected = coordinates(f"{source}:/{name}")
            for full in (name, f"{name} again", f"group/below/{name}"):
                assert coordinates(f"{path}:/{full}") == expected


def test_free_space_is_left_out(tmp_path):
    source, copy = tmp_path / "a.h5", tmp_path / "b.h5"
    dense = make(tmp_path / "dense.h5", x=scattered((50, 100, 100), seed=3))
    with h5py.File(source, "w") as f:
        f["gone"] = np.zeros(3_000_000, np.uint8)
    done("import", dense, source)
    with h5py.File(source, "a") as f:
        del f["gone"]
        f["left"] = 1
    before = coordinates(f"{source}:/x")
    done("repack", source, copy)
    assert coordinates(f"{copy}:/x") == before
    assert copy.stat().st_size < source.stat().st_size - 2_900_000
    again = tmp_path / "c.h5"
    done("repack", copy, again)
    assert abs(again.stat().st_size - copy.stat().st_size) < 10_000


def test_references_lead_to_the_copies(tmp_path):
    source, copy = tmp_path / "a.h5", tmp_path / "b.h5"
    dense = make(tmp_path / "dense.h5", sparse=scattered((9, 9)))
    with h5py.File(source, "w") as f:
        f["gone"] = np.zeros(100_000)
        f["x"] = np.arange(12).reshape(3, 4)
        f["scale"] = [1.0, 2, 4]
        f["scale"].make_scale("height")
        f["x"].dims[0].attach_scale(f["scale"])  # references in sequences and in compounds
        f["g/y"] = [7, 8, 9]
    done("import", dense, source)
    with h5py.File(source, "a") as f:
        del f["gone"]
        f.create_dataset("to", data=[f["x"].ref, f["g"].ref, f["g/y"].ref, h5py.Reference()],
                         dtype=h5py.ref_dtype)
        f.create_dataset("regions", (2,), h5py.regionref_dtype)
        f["regions"][0] = f["g/y"].regionref[1:]
        to_sparse = h5py.h5r.create(f.id, b"/sparse", h5py.h5r.OBJECT)
        f.create_dataset("to sparse", data=to_sparse, dtype=h5py.ref_dtype)
        f["x"].attrs["see"] = f["g/y"].ref
        f["g"].attrs["see"] = f["x"].ref
    warning = f"sparsectl: {copy}: attribute see is left out: references mean nothing elsewhere\n"
    done("repack", source, copy, stderr=warning)
    with h5py.File(copy) as f:
        names = [f[ref].name if ref else None for ref in f["to"]]
        assert names == ["/x", "/g", "/g/y", None]
        assert f["to sparse"][()]  # libhdf5 cannot open it to say which it is
        region = f["regions"][0]
        assert f[region].name == "/g/y" and f["g/y"][region].tolist() == [8, 9]
        assert not f["regions"][1]
        assert f[f["x"].attrs["see"]].name == "/g/y"
        assert f["x"].dims[0][0].name == "/scale" and f["x"].dims[0]["height"][2] == 4
        assert f[f["scale"].attrs["REFERENCE_LIST"][0][0]].name == "/x"
    assert "sound" in done("check", copy)


def test_repack_is_all_or_nothing(tmp_path):
    source, copy = make_rich(tmp_path / "a.h5"), tmp_path / "b.h5"
    copy.write_text("mine")
    failed("repack", source, copy, says="File exists")
    assert copy.read_text() == "mine"
    failed("repack", source, source, says="File exists")
    failed("repack", source, code=USAGE, says="a SRC and a DST are wanted")
    failed("repack", tmp_path / "missing.h5", tmp_path / "c.h5", says="No such file")
    failed("repack", source, tmp_path / "no folder/c.h5", says="No such file")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5", "b.h5"]


def test_an_interrupted_repack_leaves_nothing(tmp_path):
    source, copy = tmp_path / "a.h5", tmp_path / "b.h5"
    with h5py.File(source, "w") as f:
        for i in range(3000):
            f[f"g{i % 7}/d{i}"] = np.arange(100)
    process = subprocess.Popen([SPARSECTL, "repack", source, copy], stderr=subprocess.PIPE, text=True)
    while not any(p.name.startswith(".b.h5.") for p in tmp_path.iterdir()):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == FAILED
    assert "interrupted, nothing is changed" in process.stderr.read()
    process.stderr.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5"]


def interrupted(tmp_path, n, *command):
    """What it says; it is sent SIGTERM when it has written n bytes. It must not go on to the end first."""
    with subprocess.Popen([SPARSECTL, *command], stderr=subprocess.PIPE, text=True) as process:
        try:
            while not any(p.stat().st_blocks * 512 >= n for p in tmp_path.glob(".b.h5.*")):
                assert process.poll() is None
                time.sleep(0.001)
            process.terminate()
            assert process.wait(SECONDS) == FAILED
        finally:
            process.kill()
        return process.stderr.read()


def test_copying_one_large_dataset_is_interrupted(tmp_path):
    """libhdf5 copies it in one call, which knows no way to stop."""
    source, copy = tmp_path / "a.h5", tmp_path / "b.h5"
    with h5py.File(source, "w") as f:
        f.create_dataset("d", (shutil.disk_usage(tmp_path).free // 2,), "u1")[-1] = 1  # of which the disk has a block
    assert "b.h5:/d: interrupted, nothing is changed" in interrupted(tmp_path, 1 << 22, "repack", source, copy)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5"]


def test_importing_groups_is_interrupted(tmp_path):
    """Of which there may be more than anybody waits for."""
    source, copy = tmp_path / "a.h5", tmp_path / "b.h5"
    with h5py.File(source, "w") as f:
        for i in range(20000):
            f.create_group(f"g/{i}")
    said = interrupted(tmp_path, 0, "import", "--all", source, copy)
    assert re.search(r"(a|b)\.h5:/(g/\d+|g)?: interrupted, nothing is changed", said), said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5"]


def cpu_seconds(pid):
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def test_an_interrupted_import_to_tiny_chunks_leaves_nothing(tmp_path):
    """Of which millions are written as one block: it has begun long before a second of work is done."""
    source = tmp_path / "large.h5"
    with h5py.File(str(source), "w") as file:
        file.create_dataset("d", (1 << 30, 2), "u1")
    with subprocess.Popen([SPARSECTL, "--chunk-memory=128M", "import", "--undefined", "1", "--chunk", "1,2",
                           f"{source}:/d", tmp_path / "out.h5"], stderr=subprocess.PIPE, text=True) as process:
        try:
            while process.poll() is None and cpu_seconds(process.pid) < 1:
                time.sleep(0.02)
            process.terminate()
            assert process.wait(60) == FAILED
        finally:
            process.kill()
        assert "interrupted, nothing is changed" in process.stderr.read()
    assert [path.name for path in tmp_path.iterdir()] == ["large.h5"]


def test_sparse_datasets_get_other_filters(tmp_path):
    """What is asked for, of the sections that it is asked for; elements that are defined stay so, also zeros."""
    path, copy = tmp_path / "a.h5", tmp_path / "b.h5"
    array = np.arange(6 * 40 * 30, dtype="<u2").reshape(6, 40, 30) % 7
    with h5py.File(path, "w") as f:
        f.create_dataset("dense", data=array, chunks=(1, 40, 30), compression="gzip")
    done("import", f"{path}:/dense", f"{path}:/sparse", "--undefined", "6", "--chunk", "2,40,30")

    def sparse(file):
        (found,) = [d for d in info(file)["datasets"] if d["path"] == "/sparse"]
        return found, {s: [f["id"] for f in found["filters"][s]] for s in found["filters"]}

    before, filters = sparse(path)
    assert before["defined_elements"] == (array != 6).sum() and filters["selection"] == [2, 1]
    done("repack", "--filter", "values:deflate=1", path, copy)
    after, filters = sparse(copy)
    assert filters == {"selection": [2, 1], "values": [1]}
    assert after["filters"]["selection"] == before["filters"]["selection"]
    assert after["defined_elements"] == before["defined_elements"]
    assert coordinates(f"{copy}:/sparse") == coordinates(f"{path}:/sparse")
    copy.unlink()
    done("repack", "--filter", "selection:none", "--filter", "values:none", path, copy)
    assert sparse(copy)[1] == {"selection": [], "values": []}
    assert coordinates(f"{copy}:/sparse") == coordinates(f"{path}:/sparse")
    with h5py.File(copy) as f:
        assert np.array_equal(f["dense"][...], array) and f["dense"].compression == "gzip"
    done("check", copy)
    copy.unlink()
    failed("repack", "--filter", "deflate", path, copy, code=USAGE)
    failed("repack", "--filter", "values:32999=1", path, copy)
    assert not copy.exists()


def shuffled(values, size):
    whole = len(values) // size * size
    return b"".join(values[k:whole:size] for k in range(size)) + values[whole:]


def bits_shuffled(values):
    """Of elements of a byte: eight of them, then those that are left as they are."""
    bits = np.unpackbits(np.frombuffer(values[:8], np.uint8), bitorder="little").reshape(8, 8)
    return np.packbits(bits.T, bitorder="little").tobytes() + values[8:]


@pytest.mark.parametrize("filter, encode, copied", [
    ((2, 1), lambda values: values, [4]),
    ((2, 2), lambda values: shuffled(values, 2), [4]),
    ((2, 8), lambda values: shuffled(values, 8), [4]),
    ((2, 4), lambda values: shuffled(values, 4), [4]),
    ((32008, 0, 4, 1), bits_shuffled, [0, 4, 4]),
    ((32008, 0, 3, 1, 0, 0), bits_shuffled, [0, 4, 4, 0, 0]),
], ids=["bytes", "of 2", "of 8", "as they are", "bits", "bits of blocks"])
def test_filters_that_libhdf5_gives_other_parameters(tmp_path, monkeypatch, filter, encode, copied):
    """Which those of a copy are: what was encoded with the source's is encoded again."""
    monkeypatch.setenv("HDF5_PLUGIN_PATH", str(tmp_path))
    path, copy = tmp_path / "a.h5", tmp_path / "b.h5"
    stored = [zlib.compress(build.summed(build.THREE)), zlib.compress(encode(build.int32(*build.VALUES)))]
    path.write_bytes(build.filtered(stored=stored, filters=((0, [(1, 6)]), (1, [filter, (1, 6)])),
                                    masks=(0, 0)).content)
    expected = {(i + 1,): str(value) for i, value in enumerate(build.VALUES)}
    assert coordinates(f"{path}:/bad") == expected
    done("repack", path, copy)
    assert coordinates(f"{copy}:/bad") == expected
    (bad,) = [d for d in info(copy)["datasets"] if d["path"] == "/bad"]
    assert [f["parameters"] for f in bad["filters"]["values"]] == [copied, [6]]
    assert "sound" in done("check", copy)
