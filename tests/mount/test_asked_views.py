"""Views that are there only if -o views= asks for them, read by the programs that they are for where those are
installed, otherwise by their specifications; and that the default tree has none of them."""
import errno
import os
import struct

import h5py
import numpy as np
import pytest

import files

ASKED = {"stack.tif": "stack.tif"}  # by the word, what is in the directory of a dataset


def images(shape, dtype):
    """All values that the type has, in any order."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return files.RNG.normal(0, 1000, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return files.RNG.integers(limits.min, limits.max, shape, dtype.newbyteorder("="),
                              endpoint=True).astype(dtype)


def make(path, **datasets):
    with h5py.File(path, "w") as f:
        for name, array in datasets.items():
            f[name] = array
    return datasets


def refuses_writing(mount, path):
    """Creating, truncating, writing: refused, with a line that says what to do."""
    before = path.read_bytes()
    for how in "r+b", "wb", "ab":
        with pytest.raises(PermissionError):
            open(path, how)
    assert "this file is computed" in mount.log()
    assert path.read_bytes() == before


def test_what_is_asked_for_is_there(mounts, tmp_path):
    make(tmp_path / "a.h5", d=images((3, 4, 5), "<u2"))
    default = set(os.listdir(mounts(tmp_path / "a.h5") / "d"))
    assert default == {"dataset.json", "frames", "raw", "npy", "tiff", "values", "stack.raw", "stack.npy", "csr",
                       "value.txt"}
    for word, name in ASKED.items():
        assert set(os.listdir(mounts(tmp_path / "a.h5", f"views={word}") / "d")) == {"dataset.json", name}
        assert set(os.listdir(mounts(tmp_path / "a.h5", f"views=default+{word}") / "d")) == default | {name}
    assert set(os.listdir(mounts(tmp_path / "a.h5", "views=all") / "d")) == default | set(ASKED.values())


# ---- Colours ----

COLOURS = {"rgb": ((3, 6, 5, 3), "u1"), "rgba": ((2, 6, 5, 4), "u1"), "rgb16": ((2, 6, 5, 3), "<u2"),
           "rgba16_big_endian": ((2, 6, 5, 4), ">u2")}


def test_colours_in_tiff(mounts, tmp_path):
    tifffile = pytest.importorskip("tifffile")
    arrays = make(tmp_path / "a.h5", **{name: images(*kind) for name, kind in COLOURS.items()})
    mount = mounts(tmp_path / "a.h5", "rw")
    for name, array in arrays.items():
        for frame, expected in enumerate(array):
            with tifffile.TiffFile(mount / name / f"tiff/{frame:06}.tif") as tiff:
                page = tiff.pages[0]
                assert page.photometric == tifffile.TIFF.PHOTOMETRIC.RGB
                assert list(page.extrasamples) == [2] * (array.shape[3] - 3)
                assert np.array_equal(page.asarray(), expected)
    # Written as other frames are.
    path = mount / "rgb16/tiff/000001.tif"
    content = path.read_bytes()
    path.write_bytes(content[:-60] + bytes(60))
    assert (mount / "rgb16/raw/000001.raw").read_bytes() == content[512:-60] + bytes(60)


def test_colours_by_pillow(mounts, tmp_path):
    image = pytest.importorskip("PIL.Image")
    arrays = make(tmp_path / "a.h5", **{name: images(*kind) for name, kind in COLOURS.items()})
    mount = mounts(tmp_path / "a.h5")
    for name, array in arrays.items():
        with image.open(mount / name / "tiff/000001.tif") as opened:
            assert opened.mode == "RGBA"[:array.shape[3]]
            assert opened.size == (5, 6)
            pixels = np.asarray(opened)
        assert np.array_equal(pixels, array[1] >> (8 if array.itemsize == 2 else 0))  # it takes 8 bits of 16


def test_what_is_no_colour(mounts, tmp_path):
    make(tmp_path / "a.h5", float=images((2, 6, 5, 3), "<f4"), signed=images((2, 6, 5, 3), "<i2"),
         two=images((2, 6, 5, 2), "u1"), five=images((2, 6, 5, 5), "u1"), wide=images((2, 6, 5, 3), "<u4"))
    mount = mounts(tmp_path / "a.h5", "views=default+stack.tif")
    for name in os.listdir(mount.root):
        if name != ".sparsefs":
            assert not {"tiff", "stack.tif"} & set(os.listdir(mount / name)), name


# ---- stack.tif ----

STACKS = {"grey": ((5, 7, 9), "<u2"), "big_endian": ((4, 7, 9), ">i4"), "odd": ((4, 3, 3), "u1"),
          "float": ((3, 4, 5), "<f8"), "one": ((6, 5), "<f4"), **COLOURS}


def pages_of(path):
    """Offset of the strip, and of the directory, of every page, as TIFF 6.0 and BigTIFF have it."""
    with open(path, "rb") as file:
        head = file.read(16)
        order = "<" if head[:2] == b"II" else ">"
        big = struct.unpack(order + "H", head[2:4])[0] == 43
        at = struct.unpack(order + "Q", head[8:])[0] if big else struct.unpack(order + "I", head[4:8])[0]
        while at:
            file.seek(at)
            n = struct.unpack(order + "Q", file.read(8))[0] if big else struct.unpack(order + "H", file.read(2))[0]
            entries = file.read(n * (20 if big else 12))
            tags = {}
            for tag, kind, count, value in struct.iter_unpack(order + ("HHQ8s" if big else "HHI4s"), entries):
                size = {2: 1, 3: 2, 4: 4, 16: 8}[kind]
                tags[tag] = int.from_bytes(value[:size], "little" if order == "<" else "big")
            yield at, tags
            at = struct.unpack(order + ("Q" if big else "I"), file.read(8 if big else 4))[0]


def test_stack_is_one_series(mounts, tmp_path):
    tifffile = pytest.importorskip("tifffile")
    arrays = make(tmp_path / "a.h5", **{name: images(*kind) for name, kind in STACKS.items()})
    mount = mounts(tmp_path / "a.h5", "views=stack.tif+stack")
    for name, array in arrays.items():
        with tifffile.TiffFile(mount / name / "stack.tif") as tiff:
            assert len(tiff.series) == 1
            assert tiff.series[0].shape == array.shape
            assert np.array_equal(tiff.asarray(), array)
            frames = array.reshape((-1,) + array.shape[-2 - (name in COLOURS):])
            assert len(tiff.pages) == len(frames)
            for page, frame in zip(tiff.pages, frames):
                assert np.array_equal(page.asarray(), frame)
        assert np.array_equal(tifffile.memmap(mount / name / "stack.tif", mode="r"), array)


def test_stack_of_a_grid(mounts, tmp_path):
    tifffile = pytest.importorskip("tifffile")
    arrays = make(tmp_path / "a.h5", d=images((2, 3, 4, 7, 8), "<u2"))
    mount = mounts(tmp_path / "a.h5", "views=stack.tif", "frame_rank=2")
    with tifffile.TiffFile(mount / "d/stack.tif") as tiff:
        assert len(tiff.pages) == 24
        assert np.array_equal(tiff.asarray(), arrays["d"])


def test_stack_by_the_specification(mounts, tmp_path):
    arrays = make(tmp_path / "a.h5", **{name: images(*kind) for name, kind in STACKS.items()})
    mount = mounts(tmp_path / "a.h5", "views=stack.tif")
    for name, array in arrays.items():
        frames = array.reshape((-1,) + array.shape[-2 - (name in COLOURS):])
        content = (mount / name / "stack.tif").read_bytes()
        assert len(content) == (mount / name / "stack.tif").stat().st_size
        pages = list(pages_of(mount / name / "stack.tif"))
        assert len(pages) == len(frames)
        for (at, tags), frame in zip(pages, frames):
            assert at % 2 == 0 and at < len(content)
            assert (tags[256], tags[257], tags[278]) == (frame.shape[1], frame.shape[0], frame.shape[0])
            assert content[tags[273]:tags[273] + tags[279]] == frame.tobytes()
        # Any piece by itself: computed as when all is read.
        with open(mount / name / "stack.tif", "rb", buffering=0) as file:
            for _ in range(50):
                at = int(files.RNG.integers(0, len(content)))
                n = int(files.RNG.integers(1, len(content) + 9 - at))
                assert os.pread(file.fileno(), n, at) == content[at:at + n]


def test_stack_of_a_million_pages(mounts, tmp_path):
    """16 GB: its last pages are read without those before, and nothing is kept for any of them."""
    with h5py.File(tmp_path / "a.h5", "w") as f:
        d = f.create_dataset("d", (10**6, 64, 128), "<u2", chunks=(1, 64, 128))
        d[999999] = 7
        d[250000, 5, 6] = 9
    mount = mounts(tmp_path / "a.h5", "views=stack.tif")
    path = mount / "d/stack.tif"
    directory, frame = 8 + 20 * 10 + 8, 64 * 128 * 2
    assert path.stat().st_size == 512 + 10**6 * frame + (10**6 - 1) * directory
    before = int(open(f"/proc/{mount.process.pid}/status").read().split("VmRSS:")[1].split()[0])
    with open(path, "rb") as file:
        assert file.read(4) == b"II\x2b\0"
        for page, value in (999999, 7), (250000, 9), (500000, 0):
            at = 512 + 10**6 * frame + (page - 1) * directory
            file.seek(at)
            assert struct.unpack("<Q", file.read(8))[0] == 10
            tags = {tag: struct.unpack("<Q", rest)[0]
                    for tag, _, _, rest in struct.iter_unpack("<HHQ8s", file.read(200))}
            assert tags[273] == 512 + page * frame and tags[279] == frame
            assert struct.unpack("<Q", file.read(8))[0] == (at + directory if page < 999999 else 0)
            file.seek(tags[273])
            assert np.frombuffer(file.read(frame), "<u2").max() == value
        file.seek(512 + 10**6 * frame)
        while file.read(1 << 20):  # all directories: 216 MB
            pass
    after = int(open(f"/proc/{mount.process.pid}/status").read().split("VmRSS:")[1].split()[0])
    assert after - before < 64 << 10, (before, after)  # KiB


def test_stack_shows_what_is_written(mounts, tmp_path):
    tifffile = pytest.importorskip("tifffile")
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("d", data=images((3, 4, 5), "<u2"), chunks=(1, 4, 5), maxshape=(None, 4, 5))
    mount = mounts(tmp_path / "a.h5", "rw", "views=default+stack.tif", expect_log=True)
    assert tifffile.imread(mount / "d/stack.tif").shape == (3, 4, 5)
    new = images((4, 5), "<u2")
    for frame in 1, 3:
        (mount / f"d/raw/{frame:06}.raw").write_bytes(new.tobytes())
        stack = tifffile.imread(mount / "d/stack.tif")
        assert stack.shape == (max(3, frame + 1), 4, 5)
        assert np.array_equal(stack[frame], new)
    refuses_writing(mount, mount / "d/stack.tif")
    for name in "stack.tiff", "stack.tif.tmp":
        with pytest.raises(OSError) as error:
            open(mount / "d" / name, "wb")
        assert error.value.errno in (errno.EPERM, errno.EACCES)


def test_no_stack_of_what_is_no_image(mounts, tmp_path):
    make(tmp_path / "a.h5", line=images((20,), "<u2"), scalar=np.uint16(7), text=np.full((3, 4), b"abc"),
         empty=np.zeros((3, 0, 5), "<u2"), none=np.zeros((0, 4, 5), "<u2"))
    mount = mounts(tmp_path / "a.h5", "views=all")
    for name in "line", "scalar", "text", "empty", "none":
        assert "stack.tif" not in os.listdir(mount / name), name
