"""Every kind of datatype, layout, dataspace, group and file version, all views, against h5py."""
import ctypes
import errno
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest

import files
from compare import check_copies, check_dataset, check_mount
from conftest import BUILD, START_SECONDS, counting_plugin


@pytest.mark.parametrize("make", [files.make_types, files.make_pointers, files.make_shapes,
                                  files.make_layouts, files.make_unshown],
                         ids=lambda f: f.__name__)
@pytest.mark.parametrize("options", [(), ("direct_io", "cache_size=64K")], ids=["cached", "direct"])
def test_file(mounts, tmp_path, make, options):
    path = tmp_path / "file.h5"
    make(path)
    # One source of a virtual dataset is missing.
    mount = mounts(path, "missing=fill", *options)
    assert check_mount(mount.root, path) > 0


@pytest.mark.parametrize("make", [files.make_types, files.make_pointers, files.make_shapes,
                                  files.make_layouts, files.make_groups, files.make_unshown],
                         ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", ["default", "ro"])
def test_programs_that_copy(mounts, tmp_path, make, mode):
    path = tmp_path / "file.h5"
    make(path)
    mount = mounts(path, mode, "missing=fill")
    check_copies(mount.root, tmp_path)


@pytest.mark.parametrize("libver", ["earliest", "v108", "v110", "latest"])
def test_file_versions(mounts, tmp_path, libver):
    """Symbol tables and dense groups, old and new object headers, superblocks 0 to 3."""
    path = tmp_path / "groups.h5"
    files.make_groups(path, libver=(libver, "latest"))
    mount = mounts(path)
    assert check_mount(mount.root, path) > 10


@pytest.mark.parametrize("libver", ["earliest", "v110"])
def test_chunk_indexes(mounts, tmp_path, libver):
    """All of libhdf5's chunk indexes, with more chunks than their first blocks hold."""
    path = tmp_path / "indexes.h5"
    data = files.integers((40, 6, 7), "<u2")
    with h5py.File(path, "w", libver=(libver, "latest")) as f:
        for name, maxshape in (("fixed", (40, 6, 7)), ("one unlimited", (None, 6, 7)),
                               ("two unlimited", (None, None, 7)), ("other axis", (40, 6, None))):
            for options in ({}, {"compression": "gzip"}):
                f.create_dataset(f"{name} {options}", data=data, maxshape=maxshape,
                                 chunks=(1, 2, 3), **options)
        f.create_dataset("single", data=data, chunks=data.shape, compression="gzip")
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_chunk((4, 6, 7))
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        files.create(f, "implicit", h5py.h5s.create_simple(data.shape), h5py.h5t.STD_U16LE,
                     early)[...] = data
    mount = mounts(path)
    assert check_mount(mount.root, path) == 10


def test_user_block(mounts, tmp_path):
    path = tmp_path / "block.h5"
    with h5py.File(path, "w", userblock_size=1024) as f:
        f["plain"] = files.integers((3, 4, 5))
        f.create_dataset("gzip", data=files.integers((3, 40, 50)), chunks=(1, 40, 50),
                         compression="gzip")
        f.create_dataset("large", data=files.integers((3, 1000, 500)), chunks=(1, 1000, 500))
        f.create_dataset("never written", shape=(3, 4, 5), dtype="<i4", fillvalue=7)
        f.create_dataset("empty", shape=(0, 4, 5), dtype="<i4")
    mount = mounts(path)
    assert check_mount(mount.root, path) == 5


def sparsectl(*arguments, **more):
    return subprocess.run([BUILD / "sparsectl", *map(str, arguments)], capture_output=True,
                          check=True, **more).stdout


@pytest.fixture(params=[("earliest", 512), ("v108", 4096), ("v110", 2**20)],
                ids=lambda p: f"{p[0]}-{p[1]}")
def jammed(request, tmp_path):
    """A file of dense and sparse datasets that h5jam has put a user block before: its superblock still
    says that addresses count from the beginning of the file."""
    libver, size = request.param
    plain, notes, path = (tmp_path / name for name in ("plain.h5", "notes.txt", "jammed.h5"))
    with h5py.File(plain, "w", libver=(libver, "latest")) as f:
        f["group/plain"] = files.integers((3, 4, 5))
        f.create_dataset("gzip", data=files.integers((3, 40, 50)), chunks=(1, 40, 50),
                         compression="gzip")
    sparsectl("create", plain, "/sparse", "--dims", "0,4,5", "--maxdims", "inf,4,5", "--dtype", "<u2")
    notes.write_bytes(os.urandom(size))
    subprocess.run(["h5jam", "-u", notes, "-i", plain, "-o", path], check=True)
    assert path.read_bytes() == notes.read_bytes() + plain.read_bytes()
    return path


def test_user_block_put_before(mounts, tmp_path, jammed):
    plain, notes = tmp_path / "plain.h5", (tmp_path / "notes.txt").read_bytes()
    assert sparsectl("check", jammed).endswith(b"5 groups and datasets sound, 0 faults\n")
    with h5py.File(plain) as f:
        for name in "group/plain", "gzip":
            assert sparsectl("dump", f"{jammed}:/{name}") == sparsectl("dump", f"{plain}:/{name}")
        mount = mounts(jammed)
        for name in "group/plain", "gzip":
            check_dataset(mount / name, f[name], "/" + name)
    mount.unmount()
    assert jammed.read_bytes() == notes + plain.read_bytes()


def test_user_block_put_before_what_is_written(mounts, tmp_path, jammed):
    """What was flushed is there after the death of the daemon, and libhdf5 sees it."""
    notes = (tmp_path / "notes.txt").read_bytes()
    frames = [files.integers((4, 5), "<u2").tobytes() for _ in range(3)]
    dense, packed = files.integers((4, 5)).tobytes(), files.integers((40, 50)).tobytes()
    mount = mounts(jammed, "rw,commit_interval=0", expect_log=True)
    for i, frame in enumerate(frames):
        (mount / f"sparse/frames/{i}.raw").write_bytes(frame)
    (mount / "group/plain/frames/1.raw").write_bytes(dense)
    (mount / "gzip/frames/2.raw").write_bytes(packed)
    os.fsync(folder := os.open(mount.root, os.O_RDONLY))
    os.close(folder)
    mount.process.kill()
    mount.process.wait()
    mount.process.returncode = 0
    assert b"replayed" in sparsectl("recover", jammed)
    assert sparsectl("check", jammed).endswith(b" sound, 0 faults\n")
    with h5py.File(jammed) as f:
        assert f["group/plain"][1].tobytes() == dense and f["gzip"][2].tobytes() == packed
    assert jammed.read_bytes().startswith(notes + b"\x89HDF")

    # So do copies of it, and what is left when the user block is taken away again.
    (tmp_path / "image.h5").write_bytes(sparsectl("image", jammed))
    sparsectl("repack", jammed, tmp_path / "repacked.h5")
    sparsectl("import", f"{jammed}:/sparse", f"{tmp_path}/imported.h5:/sparse")
    sparsectl("export", f"{jammed}:/sparse", f"{tmp_path}/exported.h5:/sparse")
    (tmp_path / "unjammed.h5").write_bytes(jammed.read_bytes()[len(notes):])
    for name in "image", "repacked", "imported", "exported", "unjammed":
        path = tmp_path / f"{name}.h5"
        assert sparsectl("check", path).endswith(b" sound, 0 faults\n"), name
        again = mounts(path)
        assert (again / "sparse/stack.raw").read_bytes() == b"".join(frames)
        again.unmount()


@pytest.mark.parametrize("frame_rank, first", [(0, 0), (1, 1), (2, 1), (3, 0), (4, 1), (9, 0)])
def test_frame_rank_and_first(mounts, tmp_path, frame_rank, first):
    path = tmp_path / "frames.h5"
    with h5py.File(path, "w") as f:
        f["d"] = files.integers((2, 3, 4, 5), ">u2")
        f.create_dataset("c", data=files.integers((3, 4, 5)), chunks=(2, 3, 2), compression="gzip")
    mount = mounts(path, f"frame_rank={frame_rank},first={first}")
    with h5py.File(path) as f:
        for name in f:
            check_dataset(mount / name, f[name], "/" + name, frame_rank, first)


VIEWS = {"raw": {"frames", "raw"}, "defined": {"frames"}, "npy": {"npy"}, "tiff": {"tiff"}, "values": {"values"},
         "stack": {"stack.raw", "stack.npy"}, "csr": {"csr"}, "text": {"value.txt"}}


@pytest.mark.parametrize("views", [*VIEWS, "raw+tiff", "defined+text+csr", "+".join(VIEWS), "raw+default"])
def test_views_of_ones_choice(mounts, tmp_path, views):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["d"] = files.integers((3, 4, 5))
        f["scalar"] = 7
    every = mounts(tmp_path / "a.h5", "ro")
    mount = mounts(tmp_path / "a.h5", "ro", f"views={views}")
    kinds = set(VIEWS) if "default" in views else set(views.split("+"))
    for dataset in "d", "scalar":
        there = set(os.listdir(every / dataset))
        wanted = {name for kind in kinds for name in VIEWS[kind]} | {"dataset.json"}
        assert set(os.listdir(mount / dataset)) == there & wanted
        for name in there - wanted:
            assert not (mount / dataset / name).exists()
    for name in (every / "d/frames").iterdir():
        is_shown = (mount / "d/frames" / name.name).exists()
        assert is_shown == (name.suffix[1:] in kinds), name
        if is_shown:
            assert (mount / "d/frames" / name.name).read_bytes() == name.read_bytes()
    if "frames" in os.listdir(mount / "d"):
        assert all((mount / "d/frames" / name).exists() for name in os.listdir(mount / "d/frames"))
        assert len(os.listdir(mount / "d/frames")) == 3 * len(kinds & {"raw", "defined"})


def test_frames_are_made_in_views_that_are_shown(mounts, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("d", (1, 4, 5), "<u2", chunks=(1, 4, 5), maxshape=(None, 4, 5))
    mount = mounts(tmp_path / "a.h5", "rw", "views=npy+raw")
    (mount / "d/raw/3.raw").write_bytes(bytes(range(40)))
    with pytest.raises(OSError) as refusal:
        open(mount / "d/frames/4.defined", "wb")
    assert refusal.value.errno == errno.EOPNOTSUPP
    assert np.load(mount / "d/npy/000003.npy").tobytes() == bytes(range(40))


def test_sizes_past_limits(mounts, tmp_path):
    """Datasets whose views are larger than a file can be are shown without those views."""
    path = tmp_path / "huge.h5"
    with h5py.File(path, "w") as f:
        huge = h5py.h5s.create_simple((2**40, 2**20, 2**20), (2**40, 2**20, 2**20))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((1, 1024, 1024))
        plist.set_fill_value(np.array(7, "<u2"))
        files.create(f, "huge", huge, h5py.h5t.STD_U16LE, plist)
        wide = h5py.h5s.create_simple((3, 2**62, 2000), (3, 2**62, 2000))
        files.create(f, "wide", wide, h5py.h5t.STD_U16LE, plist)
    mount = mounts(path)
    assert "stack.raw" not in os.listdir(mount / "huge")
    frame = mount / "huge/frames" / f"{2**34 - 1}.raw"
    assert frame.stat().st_size == 2**41
    with open(frame, "rb") as raw:
        raw.seek(2**41 - 4)
        assert raw.read() == b"\7\0\7\0"
    with pytest.raises(OSError):
        os.stat(mount / "huge/frames" / f"{2**34}.raw")
    for name in (f"{2**40}.raw", f"{2**64}.raw", "99999999999999999999999.raw"):
        assert not (mount / "huge/frames" / name).exists()
    assert os.listdir(mount / "wide") == ["dataset.json"]


def test_headers_past_limits(mounts, tmp_path):
    """A view that is too large only with its header is not shown either."""
    path = tmp_path / "huge.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("d", (2**63 - 1,), "u1", chunks=(1024,), maxshape=(None,))
    mount = mounts(path)
    names = os.listdir(mount / "d")
    assert "stack.raw" in names and "stack.npy" not in names and "npy" not in names
    assert all((mount / "d" / name).stat() for name in names)
    assert (mount / "d/frames/0.raw").stat().st_size == 2**63 - 1


@pytest.mark.parametrize("libver", ["earliest", "v110"])
def test_many_references(mounts, tmp_path, libver):
    """As MATLAB's cell arrays and netCDF's dimension scales have them. Looking through the file
    for each would take ten minutes and more."""
    path = tmp_path / "references.h5"
    n = 20000
    with h5py.File(path, "w", libver=(libver, "latest")) as f:
        group = f.create_group("#refs#")
        targets = [group.create_group(f"c{i:05}") for i in range(n)]
        cells = f.create_dataset("cells", (n,), h5py.ref_dtype)
        cells[...] = [target.ref for target in targets]
        scale = f.create_dataset("scale", data=np.arange(n))
        back = np.zeros(n, [("dataset", h5py.ref_dtype), ("dimension", "i4")])
        back["dataset"] = [target.ref for target in targets]
        scale.attrs["list"] = back[:3]
        lists = f.create_dataset("lists", (3,), h5py.vlen_dtype(h5py.ref_dtype))
        lists[1] = [target.ref for target in targets[:2]]
        scale.attrs["nothing"] = h5py.Reference()
        scale.attrs["root"] = f.ref
        group["again"] = f["scale"]
        scale.attrs["itself"] = scale.ref
    mount = mounts(path)
    run = dict(check=True, capture_output=True, text=True, timeout=START_SECONDS)
    text = subprocess.run(["cat", mount / "cells/value.txt"], **run).stdout
    assert text.split() == [f'"/#refs#/c{i:05}"' for i in range(n)]
    described = json.loads((mount / "scale/dataset.json").read_text())["attributes"]
    assert described["list"] == [{"dataset": f"/#refs#/c{i:05}", "dimension": 0} for i in range(3)]
    assert described["nothing"] is None and described["root"] == "/"
    assert described["itself"] in ("/scale", "/#refs#/again")
    assert (mount / "lists/value.txt").read_text().split() == \
        ["[]", '["/#refs#/c00000",', '"/#refs#/c00001"]', "[]"]
    subprocess.run(["ls", "-l", mount.root / "cells", mount.root / "scale"], **run)


def test_long_soft_links(mounts, tmp_path):
    path = tmp_path / "links.h5"
    with h5py.File(path, "w") as f:
        f["fits"] = h5py.SoftLink("/".join(["x" * 90] * 45))
        f["too long"] = h5py.SoftLink("/".join(["x" * 90] * 46))
    mount = mounts(path)
    assert os.readlink(mount / "fits") == "/".join(["x" * 90] * 45)
    with pytest.raises(OSError, match="too long"):
        os.readlink(mount / "too long")


def test_one_file_for_any_padding(mounts, tmp_path):
    path = tmp_path / "padding.h5"
    with h5py.File(path, "w") as f:
        f["d"] = files.integers((12, 4, 5))
    mount = mounts(path)
    inode = (mount / "d/frames/7.raw").stat().st_ino
    for name in ("frames/007.raw", "frames/000000007.raw", "raw/000007.raw", "raw/7.raw"):
        assert (mount / "d" / name).stat().st_ino == inode
    for name in ("+7.raw", "-7.raw", " 7.raw", "7.RAW", "7.raw ", ".raw", "7", "7.npy", "12.raw",
                 "0x7.raw", "7.raw.raw"):
        assert not (mount / "d/frames" / name).exists(), name


def test_hard_links_and_cycles(mounts, tmp_path):
    path = tmp_path / "groups.h5"
    files.make_groups(path)
    mount = mounts(path)
    assert os.readlink(mount / "a/up") == "."
    assert os.readlink(mount / "a/b/to a") == ".."
    assert os.readlink(mount / "a/b/to root") == "../.."
    assert os.readlink(mount / "a/b/absolute") == "../../a/b/c/data"
    assert os.readlink(mount / "a/b/relative") == "%2E%2E/nowhere"
    assert os.readlink(mount / "outside").startswith("external:")
    assert (mount / "hard/frames/0.raw").read_bytes() == (mount / "a/data/stack.raw").read_bytes()[:80]
    walked = [name for _, names, _ in os.walk(mount.root) for name in names]
    assert len(walked) < 3000


def make_linked(folder):
    """A master file and one that it links to, and names of links by where they lead."""
    (folder / "data").mkdir(parents=True)
    with h5py.File(folder / "data/d1.h5", "w") as f:
        f.create_dataset("entry/data", data=files.integers((4, 6, 7)), chunks=(1, 6, 7),
                         compression="gzip")
        f["entry/absolute"] = h5py.SoftLink("/entry/data")
        f["entry/relative"] = h5py.SoftLink("data")
        f["back"] = h5py.ExternalLink("../master.h5", "/")
    with h5py.File(folder / "master.h5", "w") as f:
        f["data_000001"] = h5py.ExternalLink("data/d1.h5", "/entry/data")
        f["group"] = h5py.ExternalLink(str(folder / "data/d1.h5"), "/entry")
        f["whole"] = h5py.ExternalLink("data/../data/d1.h5", "/")
        f["no file"] = h5py.ExternalLink("data/d2.h5", "/entry")
        f["no object"] = h5py.ExternalLink("data/d1.h5", "/nothing")
        f["fifo"] = h5py.ExternalLink("fifo", "/")
    os.mkfifo(folder / "fifo")


@pytest.mark.parametrize("options", [(), ("external_links",)], ids=["below", "all"])
def test_external_links(mounts, tmp_path, options):
    """As libhdf5 finds them: beside the linking file."""
    make_linked(tmp_path / "run")
    os.symlink("run/master.h5", tmp_path / "master.h5")
    mount = mounts(tmp_path / "master.h5", *options, expect_log=True)
    with h5py.File(tmp_path / "run/data/d1.h5") as f:
        check_dataset(mount / "data_000001", f["entry/data"], "/data_000001")
        check_dataset(mount / "group/data", f["entry/data"], "/group/data")
        check_dataset(mount / "group/absolute", f["entry/data"], "/group/absolute")
        check_dataset(mount / "group/relative", f["entry/data"], "/group/data")
    assert os.readlink(mount / "whole/back") == ".."
    for name in ("no file", "no object", "fifo"):
        assert os.readlink(mount / name).startswith("external:")
        assert not os.path.exists(mount / name)
    assert "leads out" not in mount.log()


def test_external_links_that_lead_out(mounts, tmp_path):
    """Of the folder of the file, in all ways that there are: followed only if asked for."""
    make_linked(tmp_path / "other")
    (tmp_path / "run/below").mkdir(parents=True)
    os.symlink(tmp_path / "other", tmp_path / "run/way")
    os.symlink("../other/data/d1.h5", tmp_path / "run/d1.h5")
    os.symlink("/proc/self/cwd", tmp_path / "run/magic")
    outside = tmp_path / "other/data/d1.h5"
    links = {"up": "../other/data/d1.h5", "absolute": str(outside), "folder": "way/data/d1.h5",
             "file": "d1.h5", "round": "below/../../other/data/d1.h5",
             "magic": f"magic/{os.path.relpath(outside, '/')}"}
    with h5py.File(tmp_path / "run/below/next.h5", "w") as f:
        f["up"] = h5py.ExternalLink("../../other/data/d1.h5", "/entry")
        f["inside"] = h5py.ExternalLink("../master.h5", "/made")
    with h5py.File(tmp_path / "run/master.h5", "w") as f:
        for name, target in links.items():
            f[name] = h5py.ExternalLink(target, "/entry")
        f["next"] = h5py.ExternalLink("below/next.h5", "/")
        f["made/x"] = 7
        # What a link says leads nowhere, whatever else there is.
        f["external:made/y"] = 1
        f["forged"] = h5py.ExternalLink("made/../../../../../../../../../etc/passwd", "/")
    # An absolute name that is elsewhere now: libhdf5 looks beside the file.
    with h5py.File(tmp_path / "run/moved.h5", "w") as f:
        f["moved"] = h5py.ExternalLink("/no such folder/master.h5", "/made")

    mount = mounts(tmp_path / "run/master.h5", expect_log=True)
    for name in (*links, "next/up", "forged"):
        said = os.readlink(mount / name)
        assert said.startswith("external:") and "/" not in said, (name, said)
        assert not os.path.exists(mount / name), name
    log = mount.log()
    for target in links.values():
        assert f"leads out of its folder, to {target}: -o external_links" in log
    assert (mount / "next/inside/x/value.txt").read_text() == "7\n"
    mount.unmount()
    mount = mounts(tmp_path / "run/moved.h5")
    assert (mount / "moved/x/value.txt").read_text() == "7\n"
    mount.unmount()

    mount = mounts(tmp_path / "run/master.h5", "external_links", expect_log=True)
    for name in set(links) - {"magic"}:
        assert (mount / name / "data/frames/0.raw").stat().st_size == 168, name


def outcomes(group):
    """name: state, why and option, as the group's group.json has it."""
    said = json.loads((group / "group.json").read_text())
    assert list(said) == ["path", "external_links"]
    return said["path"], {link["name"]: (link["state"], link.get("why"), link.get("option"))
                          for link in said["external_links"]}


def test_groups_say_which_links_are_not_followed(mounts, tmp_path):
    """In a file that only such groups have, and that is nobody's link."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/no.h5").write_text("this is no HDF5 file")
    for name in ("out.h5", "run/beside.h5"):
        with h5py.File(tmp_path / name, "w") as f:
            f["x"] = 1
    with h5py.File(tmp_path / "run/master.h5", "w") as f:
        f["sound/beside"] = h5py.ExternalLink("beside.h5", "/x")
        f["sound/soft"] = h5py.SoftLink("/nothing")
        f["g/sub/x"] = 1
        for name, file, at in (("beside", "beside.h5", "/x"), ("gone", "gone.h5", "/x"),
                               ("no object", "beside.h5", "/y"),
                               ("no", "no.h5", "/x"), ("out", "../out.h5", "/x"),
                               ('"', "/no/where", "/x")):  # and one that JSON escapes
            f["g"][name] = h5py.ExternalLink(file, at)
        f["taken/gone"] = h5py.ExternalLink("gone.h5", "/x")
        f["taken/group.json"] = 5
    lost = ("missing", "there is no such file, or no such object in it", None)
    out = ("refused", "it leads out of the folder of the HDF5 file", "external_links or external_files=DIR")
    found = {"beside": ("followed", None, None), "gone": lost, "no object": lost,
             "no": ("unreadable", "it is no HDF5 file, or damaged", None)}
    for options in ("ro",), ("rw", "external_links"), ("default", f"external_files={tmp_path}"):
        mount = mounts(tmp_path / "run/master.h5", *options, expect_log=True)
        links = {**found, "out": out if "ro" in options else ("followed", None, None),
                 '"': lost if "rw" in options else out}
        assert outcomes(mount / "g") == ("/g", links), options
        assert sorted(os.listdir(mount / "g")) == sorted([*links, "sub", "group.json"])
        assert os.listdir(mount / "sound") == ["beside", "soft"]
        for group in ("sound", "g/sub", "."):
            assert not os.path.lexists(mount / group / "group.json")
        assert sorted(os.listdir(mount / "taken")) == ["gone", "group.json"]
        assert (mount / "taken/group.json/value.txt").read_text() == "5\n"
        path = mount / "g/group.json"
        assert path.stat().st_size == len(path.read_bytes()) and not os.listxattr(path)
        for refused in (lambda: path.write_text("{}"), path.unlink, lambda: path.rename(mount / "g/other")):
            with pytest.raises(OSError) as error:
                refused()
            by_mode = [errno.EACCES] if os.geteuid() else []  # the kernel looks at the modes first
            assert error.value.errno in [errno.EROFS if "ro" in options else errno.EPERM] + by_mode
        shutil.copytree(mount.root, tmp_path / f"copy {options[0]}", symlinks=True)
        assert json.loads((tmp_path / f"copy {options[0]}/g/group.json").read_text())["path"] == "/g"
        mount.unmount()


def test_links_that_lead_nowhere_say_what_they_are(mounts, tmp_path):
    """By a text that no other link has, and that is nobody's name."""
    names = [("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("a", "b/c"), ("a", "b%2Fc"), ("a", "b\nc"), ("a/b", "c"),
             ("a", "b%0Ac"), ("a", ":"), (":", "a"), ("gone.h5", "d")]
    with h5py.File(tmp_path / "x.h5", "w") as f:
        for i, (file, path) in enumerate(names):
            f[f"e{i}"] = h5py.ExternalLink(file, path)
        for text in ("external:gone.h5:d", "external:", "user-defined-link", "too-many-levels-of-groups"):
            f[text] = 1
            f[f"soft {text}"] = h5py.SoftLink(text)
            f[f"g/soft {text}"] = h5py.SoftLink("/" + text)
    mount = mounts(tmp_path / "x.h5")
    texts = [os.readlink(mount / f"e{i}") for i in range(len(names))]
    assert len(set(texts)) == len(names) and texts[-1] == "external:gone.h5:d"
    for i, text in enumerate(texts):
        assert text.startswith("external:") and text.count(":") == 2 and text.isprintable(), text
        assert not os.path.exists(mount / f"e{i}"), text
    for name in os.listdir(mount.root):
        assert name[0] == "%" or not name.startswith(("external:", "user-defined", "too-many")), name
    for text in ("external:gone.h5:d", "external:", "user-defined-link", "too-many-levels-of-groups"):
        shown = f"%{ord(text[0]):02X}{text[1:]}"
        for link in mount / f"soft {text}", mount / f"g/soft {text}":
            assert os.readlink(link).endswith(shown) and (link / "value.txt").read_text() == "1\n"
        assert not os.path.lexists(mount / text)


def test_external_links_without_an_end(mounts, tmp_path):
    """So many files lead one to the next, and no more."""
    for i in range(50):
        with h5py.File(tmp_path / f"{i}.h5", "w") as f:
            f["next"] = h5py.ExternalLink(f"{i + 1}.h5", "/")
    mount = mounts(tmp_path / "0.h5", expect_log=True)
    depth, name = 0, mount / "next"
    while not name.is_symlink():
        depth, name = depth + 1, name / "next"
    assert depth == 32 and os.readlink(name) == "external:33.h5:%2F"


def test_external_links_to_very_many_files(mounts, tmp_path):
    """They take no more than a part of what may be open: the rest of the file can be read."""
    n, descriptors = 44, 160
    values = np.arange(16, dtype="<u2").reshape(1, 4, 4)
    with h5py.File(tmp_path / "0.h5", "w") as f:
        f["data"] = values
    for i in range(1, n):
        shutil.copy(tmp_path / "0.h5", tmp_path / f"{i}.h5")
    with h5py.File(tmp_path / "master.h5", "w") as f:
        f["own"] = values
        for i in range(n):
            f[f"link{i}"] = h5py.ExternalLink(f"{i}.h5", "data")
        f["the first again"] = h5py.ExternalLink("0.h5", "data")
    mount = mounts(tmp_path / "master.h5", expect_log=True)
    resource.prlimit(mount.process.pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))
    followed = [i for i in range(n) if not (mount / f"link{i}").is_symlink()]
    assert followed == list(range(descriptors // 4))
    for name in ["own", *(f"link{i}" for i in followed)]:
        assert (mount / name / "frames/0.raw").read_bytes() == values.tobytes()
    assert "external links lead to 40 files" in mount.log()
    libc = ctypes.CDLL(None)
    events = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert libc.inotify_add_watch(events, os.fsencode(tmp_path / f"{n - 1}.h5"), 0x20) > 0  # IN_OPEN
    assert (mount / f"link{n - 1}").is_symlink()
    with pytest.raises(BlockingIOError):  # it is not opened to be closed again
        os.read(events, 4096)
    os.close(events)
    assert (mount / "the first again/frames/0.raw").read_bytes() == values.tobytes()


def test_changed_working_directory(mounts, tmp_path, monkeypatch):
    """FILE and MOUNTPOINT may be relative; external raw data lie beside the file."""
    files.make_layouts(tmp_path / "layouts.h5")
    monkeypatch.chdir(tmp_path)
    mount = mounts(pathlib.Path("layouts.h5"), expect_log=True)
    with h5py.File(tmp_path / "layouts.h5") as f:
        check_dataset(mount / "external", f["external"], "/external")


# ---- How often chunks are decoded ----

COUNTING = 480  # counting_filter.c
TILES, TILE = 4, 256  # tiles along an axis, and elements along one of them


def make_counted(path, array, chunk):
    """The filter, which changes nothing, need not be there for that."""
    with h5py.File(path, "w", libver="latest") as f:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk(chunk)
        plist.set_filter(COUNTING, h5py.h5z.FLAG_OPTIONAL, ())
        data = h5py.h5d.create(f.id, b"data", h5py.h5t.STD_U16LE, h5py.h5s.create_simple(array.shape), plist)
        for start in np.ndindex(*(dim // length for dim, length in zip(array.shape, chunk))):
            start = tuple(i * length for i, length in zip(start, chunk))
            part = array[tuple(slice(i, i + length) for i, length in zip(start, chunk))]
            data.write_direct_chunk(start, np.ascontiguousarray(part).tobytes(), 0)


def make_mosaic(path, source, frames):
    """Every tile of a frame of the source stands apart from the others, as those of detectors do."""
    side = TILES * TILE
    layout = h5py.VirtualLayout((frames, side + 30, side + 30), "<u2")
    from_source = h5py.VirtualSource(source.name, "data", (frames, side, side))
    for y, x in np.ndindex(TILES, TILES):
        there = np.s_[:, y * (TILE + 10):y * (TILE + 10) + TILE, x * (TILE + 10):x * (TILE + 10) + TILE]
        here = np.s_[:, y * TILE:y * TILE + TILE, x * TILE:x * TILE + TILE]
        layout[there] = from_source[here]
    with h5py.File(path, "w", libver="latest") as f:
        f.create_virtual_dataset("data", layout, fillvalue=11)


def mosaic_of(array):
    frames, side = len(array), TILES * TILE
    mosaic = np.full((frames, side + 30, side + 30), 11, "<u2")
    for y, x in np.ndindex(TILES, TILES):
        mosaic[:, y * (TILE + 10):y * (TILE + 10) + TILE, x * (TILE + 10):x * (TILE + 10) + TILE] = \
            array[:, y * TILE:y * TILE + TILE, x * TILE:x * TILE + TILE]
    return mosaic


@pytest.mark.parametrize("kind, chunk, options", [
    ("plugin", (1, 512, 512), "ro"), ("virtual", (1, 1024, 1024), "ro"), ("virtual", (1, 512, 512), "ro"),
    ("virtual", (1, 1024, 1024), "rw"), ("virtual", (1, 1024, 1024), "ro,cache_size=16M")])
def test_no_chunk_is_decoded_twice_for_a_frame(mounts, tmp_path, kind, chunk, options):
    frames = 3
    array = np.random.default_rng(2).integers(0, 1000, (frames, 1024, 1024), "<u2")
    path, counter = tmp_path / "source.h5", tmp_path / "decoded"
    make_counted(path, array, chunk)
    if kind == "virtual":
        source, path, array = path, tmp_path / "virtual.h5", mosaic_of(array)
        make_mosaic(path, source, frames)
    counter.write_bytes(bytes(4))
    mount = mounts(path, options, environment=counting_plugin(tmp_path) |
                   {"SPARSEFS_TEST_DECODED": str(counter)})
    for frame in range(frames):
        with open(mount / f"data/frames/{frame}.raw", "rb", buffering=0) as file:
            content = b"".join(iter(lambda: file.read(65536), b""))
        assert content == array[frame].tobytes()
        assert np.array_equal(np.load(mount / f"data/npy/{frame:06}.npy"), array[frame])
        decoded = int.from_bytes(counter.read_bytes(), sys.byteorder)
        chunks = (1024 // chunk[1]) ** 2  # and those of frames that are read ahead
        assert (frame + 1) * chunks <= decoded <= frames * chunks
