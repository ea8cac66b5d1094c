"""Images that h5py has made, with more than sparse data: however often sparse data are overwritten, each time in
a session of its own, the image keeps its size, and everything else stays as it was to the byte."""
import hashlib
import subprocess
import sys

import h5py
import numpy as np
import pytest

import image_sessions
from read_again import sparsectl

ROWS, COLUMNS, SESSIONS = 40, 200, 50
VERSIONS = ("earliest", "latest")


def chunked(file):
    data = np.arange(6000, dtype="<u4").reshape(60, 100)
    file.create_dataset("chunks", data=data, chunks=(1, 10))
    file.create_dataset("packed", data=data, chunks=(1, 10), compression=1, shuffle=True)
    file.create_dataset("one", data=data, chunks=(60, 100))
    file.create_dataset("one_packed", data=data, chunks=(60, 100), compression=1)
    file.create_dataset("many", data=np.arange(9000, dtype="<u2"), chunks=(4,))
    file.create_dataset("grows", data=data, chunks=(1, 10), maxshape=(None, 100))
    file.create_dataset("grows_packed", data=data, chunks=(1, 10), maxshape=(None, 100), compression=1)
    file.create_dataset("both", data=data, chunks=(2, 10), maxshape=(None, None))
    file.create_dataset("both_packed", data=data, chunks=(2, 10), maxshape=(None, None), fletcher32=True)
    file.create_dataset("empty", (100, 100), "<u4", chunks=(10, 10))
    early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    early.set_chunk((10, 10))
    early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    h5py.h5d.create(file.id, b"early", h5py.h5t.STD_U32LE, h5py.h5s.create_simple((60, 95)), early)
    file["early"][...] = data[:, :95]


def attributes(file):
    for name in ("a", "b"):
        group = file.create_group(name, track_order=name == "b")
        for i in range(100):
            group.attrs[f"number{i}"] = np.arange(i % 50)
            group.attrs[f"text{i}"] = f"text {i}"
    file["a/links"] = np.arange(10)
    file["a/links"].attrs["group"] = file["b"].ref
    file["a/links"].attrs["region"] = file["a/links"].regionref[2:5]
    file["a/links"].attrs.create("mixed", np.array([(1, "one")], [("n", "<i4"), ("text", h5py.string_dtype())]))
    for i in range(0, 100, 3):
        del file["a"].attrs[f"text{i}"], file["b"].attrs[f"number{i}"]


def links(file):
    for name in ("a", "b"):
        group = file.create_group(name, track_order=name == "b")
        for i in range(600):
            group[f"link{i}"] = h5py.SoftLink("/a")
        for i in range(20):
            group.create_group(f"group{i}")["data"] = np.arange(i)
        for i in range(0, 600, 3):
            del group[f"link{i}"]


def variable(file):
    texts = [f"text {'x' * (i % 70)}{i}" for i in range(500)]
    file.create_dataset("texts", data=texts, dtype=h5py.string_dtype())
    file.create_dataset("chunks", data=texts, dtype=h5py.string_dtype(), chunks=(7,))
    file.create_dataset("packed", data=texts, dtype=h5py.string_dtype(), chunks=(50,), compression=1)
    sequences = file.create_dataset("sequences", (100,), h5py.vlen_dtype("<i4"))
    for i in range(100):
        sequences[i] = np.arange(i)


def references(file):
    file["target"] = np.arange(100)
    objects = file.create_dataset("objects", (50,), h5py.ref_dtype)
    regions = file.create_dataset("regions", (50,), h5py.regionref_dtype)
    for i in range(50):
        objects[i], regions[i] = file["target"].ref, file["target"].regionref[i:i + 3]


def all_kinds(file):
    for kind in (chunked, attributes, links, variable, references):
        for number in ("first", "second"):
            kind(file.create_group(f"{kind.__name__}/{number}"))


KINDS = (chunked, attributes, links, variable, references, all_kinds)


def digest(path):
    """Of all that h5py sees, but for the sparse dataset."""
    seen = {}

    def value(item):
        if isinstance(item, h5py.RegionReference):
            return repr((file[item].name, np.array(h5py.h5r.get_region(item, file.id).get_select_bounds()).tolist()))
        if isinstance(item, h5py.Reference):
            return file[item].name
        if isinstance(item, np.void):
            return repr([value(part) for part in item])
        return item.tobytes().hex() if isinstance(item, (np.ndarray, np.generic)) else repr(item)

    def content(array):
        array = np.asarray(array)
        return repr([value(item) for item in array.flat]) if array.dtype.hasobject else array.tobytes()

    def look(name, item):
        found = hashlib.sha256()
        if isinstance(item, h5py.Dataset):
            array = content(item[()])
            found.update(array.encode() if isinstance(array, str) else array)
        else:
            found.update(repr(sorted(item)).encode())
        for key in sorted(item.attrs):
            attribute = item.attrs[key]
            text = value(attribute) if isinstance(attribute, h5py.Reference) else content(attribute)
            found.update(key.encode() + (text.encode() if isinstance(text, str) else text))
        seen[name] = found.hexdigest()

    def walk(group, name):
        look(name, group)
        for link in group:
            if group.get(link, getlink=True).__class__ is not h5py.HardLink or (name, link) == ("/", "sparse"):
                continue
            item = group[link]
            (walk if isinstance(item, h5py.Group) else lambda it, na: look(na, it))(item, f"{name}{link}/")

    with h5py.File(path, "r") as file:
        walk(file, "/")
    return seen


def make(path, kind, **options):
    with h5py.File(path, "w", **options) as file:
        kind(file)
    result = sparsectl("create", path, "/sparse", "--dims", f"{ROWS},{COLUMNS}", "--chunk", f"1,{COLUMNS}",
                       "--dtype", "<u2", "--maxdims", f"inf,{COLUMNS}")
    assert result.returncode == 0, result.stderr


def expect_size(path):
    """The sessions are in a process of their own: h5py may have another libhdf5 than ours."""
    before, size = digest(path), path.stat().st_size
    result = subprocess.run([sys.executable, image_sessions.__file__, path, "/sparse", str(SESSIONS), str(ROWS),
                             str(COLUMNS)], capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    assert max(map(int, result.stdout.split())) <= size + most_growth(), result.stdout + result.stderr[:2000]
    assert digest(path) == before
    result = sparsectl("check", path)
    assert result.returncode == 0, result.stdout + result.stderr


def most_growth():
    """All chunks have at most so many bytes, and what is between them a third of it; and an index."""
    return ROWS * (2 * COLUMNS + 100) * 4 // 3 + 4096


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_image_keeps_its_size(tmp_path, kind, version):
    path = tmp_path / "file.h5"
    make(path, kind, libver=version)
    assert len(digest(path)) > 2
    expect_size(path)


@pytest.mark.parametrize("strategy", ("fsm", "aggregate", "none"))
def test_a_superblock_may_have_an_extension(tmp_path, strategy):
    """That says how space is managed, and keeps nothing of it in the file: others are not written."""
    path = tmp_path / "file.h5"
    make(path, all_kinds, libver="latest", fs_strategy=strategy, fs_threshold=3)
    expect_size(path)
