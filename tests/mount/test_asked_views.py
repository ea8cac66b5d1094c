"""Views that are there only if -o views= asks for them, read by the programs that they are for where those are
installed, otherwise by their specifications; and that the default tree has none of them."""
import base64
import csv
import errno
import hashlib
import json
import os
import pathlib
import re
import struct
import subprocess
import zlib

import h5py
import numpy as np
import pytest

import files
from conftest import wait_until

SPARSECTL = pathlib.Path(os.environ.get("SPARSEFS_BUILD", "build")).absolute() / "sparsectl"
# By the word, what is in the directory of a dataset.
ASKED = {"stack.tif": "stack.tif", "png": "png", "cbf": "cbf", "csv": "table.csv", "zarr": "zarr"}


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
    """Creating, truncating, writing: refused, with a line that says what to do; who is no root has
    no mode to write it, and the kernel refuses him before us."""
    before = path.read_bytes()
    for how in "r+b", "wb", "ab":
        with pytest.raises(PermissionError):
            open(path, how)
    assert os.geteuid() or "this file is computed" in mount.log()
    assert path.read_bytes() == before


def test_what_is_asked_for_is_there(mounts, tmp_path):
    make(tmp_path / "a.h5", d=images((3, 4, 5), "<u2"), table=np.ones((5, 3)))
    default = set(os.listdir(mounts(tmp_path / "a.h5") / "d"))
    assert default == {"dataset.json", "frames", "raw", "npy", "tiff", "values", "stack.raw", "stack.npy", "csr",
                       "value.txt"}
    for word, name in ASKED.items():
        dataset = "table" if word == "csv" else "d"
        assert set(os.listdir(mounts(tmp_path / "a.h5", f"views={word}") / dataset)) == {"dataset.json", name}
        shown = set(os.listdir(mounts(tmp_path / "a.h5", f"views=default+{word}") / dataset))
        assert shown == default | {name}
    shown = os.listdir(mounts(tmp_path / "a.h5", "views=all") / "d")
    assert set(shown) == default | set(ASKED.values()) - {"table.csv"}


def make_sparse(path, dims, dtype="uint16", name="d"):
    subprocess.run([SPARSECTL, "create", path, "/" + name, "--dims", ",".join(map(str, dims)), "--dtype", dtype,
                    "--chunk", ",".join(map(str, (1,) + tuple(dims[1:])))], check=True, timeout=60)


def chunks_decoded(mount):
    return json.loads((mount / ".sparsefs/stats.json").read_text())["chunks_decoded"]


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
                assert int(page.photometric) == 2  # RGB
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


# ---- png ----

def decode_png(content):
    """Pixels with red, green, blue, alpha of a PNG image of 8 bits, not interlaced."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = [], 8
    while at < len(content):
        n, kind = struct.unpack(">I4s", content[at:at + 8])
        data = content[at + 8:at + 8 + n]
        assert struct.unpack(">I", content[at + 8 + n:at + 12 + n])[0] == zlib.crc32(kind + data)
        chunks.append((kind, data))
        at += 12 + n
    assert at == len(content) and chunks[0][0] == b"IHDR" and chunks[-1] == (b"IEND", b"")
    chunks = dict(chunks)
    width, height, depth, colour, compression, filters, interlace = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, compression, filters, interlace) == (8, 0, 0, 0)
    samples = {2: 3, 3: 1, 6: 4}[colour]
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), "u1").reshape(height, 1 + width * samples)
    assert not rows[:, 0].any()  # no filter
    pixels = rows[:, 1:].reshape(height, width, samples)
    if colour == 3:
        palette = np.full((256, 4), 255, "u1")
        palette[:, :3] = np.frombuffer(chunks[b"PLTE"], "u1").reshape(256, 3)
        palette[:len(chunks[b"tRNS"]), 3] = list(chunks[b"tRNS"])
        pixels = palette[pixels[:, :, 0]]
    elif colour == 2:
        pixels = np.dstack([pixels, np.full((height, width), 255, "u1")])
    return pixels


def read_png(path):
    content = path.read_bytes()
    assert len(content) == path.stat().st_size
    return decode_png(content)


def counts(shape=(20, 30), dtype="<u2"):
    """Low counts everywhere, some high ones."""
    image = files.RNG.poisson(3, shape).astype(dtype)
    image[5, 6:20] = np.arange(14) * 500
    return image


@pytest.mark.parametrize("dtype", ["u1", "<u2", ">u2", "<u4", ">u8", "<i2", ">i4", "<f2", ">f4", "<f8"])
def test_png_of_numbers(mounts, tmp_path, dtype):
    """Larger numbers are lighter; the least are black and the largest white."""
    image = counts()
    image[5] = image[5].clip(0, 100)
    make(tmp_path / "a.h5", d=np.stack([image, image + 1]).astype(dtype), two=image.astype(dtype))
    mount = mounts(tmp_path / "a.h5", "views=png")
    for path, expected in ("d/png/000000.png", image), ("d/png/000001.png", image + 1), ("two/png/000000.png", image):
        pixels = read_png(mount / path)
        assert pixels.shape == image.shape + (4,) and (pixels[:, :, 3] == 255).all()
        grey = pixels[:, :, 0].astype(int)
        assert (pixels[:, :, :3] == pixels[:, :, :1]).all()
        order = np.argsort(expected, axis=None, kind="stable")
        assert (np.diff(grey.ravel()[order]) >= 0).all()
        assert grey.min() == 0 and grey.max() == 255
        assert len(np.unique(grey)) > 8  # not only the largest are seen


def test_png_of_a_few_hot_pixels(mounts, tmp_path):
    """They do not make all else black; and numbers that are all the same are no error."""
    image = counts((100, 100))
    image[0, :5] = 60000
    make(tmp_path / "a.h5", d=image, same=np.full((4, 5), 7.5), zero=np.zeros((4, 5), "u1"), one=np.ones((1, 1), "<i8"),
         far=np.array([[1e308, -1e308, 0, np.inf, -np.inf]]), near=np.array([[0, 5e-324, 1e-323]]),
         large=np.array([[2**63 - 1, -2**63, 0]]))
    mount = mounts(tmp_path / "a.h5", "views=png")
    grey = read_png(mount / "d/png/000000.png")[:, :, 0]
    assert len(np.unique(grey[20:])) > 6 and grey[0, 0] == 255
    for name in "same", "zero", "one", "far", "near", "large":
        pixels = read_png(mount / name / "png/000000.png")
        assert (pixels[:, :, 3] == 255).all()
    assert list(read_png(mount / "far/png/000000.png")[0, [1, 4], 0]) == [0, 0]


def test_png_without_what_is_no_measurement(mounts, tmp_path):
    """All bits of unsigned integers set, NaN, and what the pixel mask has: transparent."""
    for number, (mask, data) in enumerate([
            ("entry/instrument/detector/pixel_mask", "entry/data/data"),
            ("entry/instrument/detector/detectorSpecific/pixel_mask", "entry/data/data_1"),
            ("entry/instrument/detector/pixel_mask", "entry/instrument/detector/data"),
            ("entry/instrument/camera/pixel_mask", "entry/data/x/y/z")]):
        path = tmp_path / f"{number}.h5"
        image = counts()
        image[3, 4] = 65535
        bad = np.zeros(image.shape, "<u4")
        bad[:, 7], bad[9, 9] = 1, 16
        with h5py.File(path, "w") as f:
            f[data], f[mask] = np.stack([image, image]), bad
            f["entry/instrument"].create_group("a_beam")
            if "camera" in mask:
                f["entry/instrument/camera"].attrs["NX_class"] = "NXdetector"
            if data.startswith("entry/instrument"):
                f["entry/instrument/detector"].attrs["NX_class"] = np.bytes_("NXdetector")
        alpha = read_png(mounts(path, "views=png") / data / "png/000001.png")[:, :, 3]
        wanted = np.full(image.shape, 255)
        wanted[3, 4] = wanted[9, 9] = 0
        wanted[:, 7] = 0
        assert np.array_equal(alpha, wanted), mask


def test_png_masks_that_do_not_fit(mounts, tmp_path):
    nan = counts(dtype="<f4")
    nan[1, 2] = np.nan
    make(tmp_path / "a.h5", **{"entry/data/data": nan, "entry/instrument/detector/pixel_mask": np.ones((20, 31), "u1"),
                               "float": nan, "instrument/detector/pixel_mask": np.ones((20, 30))})
    mount = mounts(tmp_path / "a.h5", "views=png")
    for name in "entry/data/data", "float":
        alpha = read_png(mount / name / "png/000000.png")[:, :, 3]
        assert alpha[1, 2] == 0 and (alpha == 0).sum() == 1


def test_png_of_sparse_frames(mounts, tmp_path):
    make_sparse(tmp_path / "a.h5", (3, 20, 30))
    mount = mounts(tmp_path / "a.h5", "rw", "views=default+png")
    image = counts()
    with open(mount / "d/frames/1.raw", "r+b") as raw:
        raw.seek(2 * (30 * 4 + 5))
        raw.write(image.tobytes()[:2 * 100])
    for frame in range(3):
        alpha = read_png(mount / f"d/png/{frame:06}.png")[:, :, 3].ravel()
        there = np.zeros(600, bool)
        there[125:225] = frame == 1
        assert np.array_equal(alpha == 255, there)
    # What is written and erased is seen at once.
    with open(mount / "d/frames/2.raw", "r+b") as raw:
        raw.write(image.tobytes())
    assert (read_png(mount / "d/png/000002.png")[:, :, 3] == 255).all()
    os.truncate(mount / "d/frames/2.raw", 2 * 300)
    assert (read_png(mount / "d/png/000002.png")[:, :, 3] == 255).sum() == 300


def test_png_of_colours(mounts, tmp_path):
    arrays = make(tmp_path / "a.h5", **{name: images(*kind) for name, kind in COLOURS.items()})
    mount = mounts(tmp_path / "a.h5", "views=png")
    for name, array in arrays.items():
        for frame, expected in enumerate(array):
            pixels = read_png(mount / name / f"png/{frame:06}.png")
            wanted = expected if array.itemsize == 1 else np.round(expected.astype(float) / 257)
            assert np.array_equal(pixels[:, :, :array.shape[3]], wanted)
            assert array.shape[3] == 4 or (pixels[:, :, 3] == 255).all()


def test_png_of_sparse_colours(mounts, tmp_path):
    make_sparse(tmp_path / "a.h5", (2, 6, 5, 3), "uint8")
    mount = mounts(tmp_path / "a.h5", "rw", "views=default+png")
    with open(mount / "d/frames/0.raw", "r+b") as raw:
        raw.write(bytes(range(1, 32)))  # ten pixels and a third of one
    pixels = read_png(mount / "d/png/000000.png").reshape(30, 4)
    assert (pixels[:10, 3] == 255).all() and not pixels[10:].any()
    assert pixels[:10, :3].tobytes() == bytes(range(1, 31))


def test_png_sizes_need_no_data(mounts, tmp_path):
    """Of a listing with sizes nothing is decoded; of an image its frame, once, whatever is read of it."""
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("d", data=np.stack([counts((300, 400))] * 200), chunks=(1, 300, 400), compression="gzip")
    mount = mounts(tmp_path / "a.h5", "views=png")
    sizes = {entry.stat().st_size for entry in os.scandir(mount / "d/png")}
    assert len(sizes) == 1 and chunks_decoded(mount) == 0
    with open(mount / "d/png/000100.png", "rb", buffering=0) as png:
        content = b"".join(iter(lambda: png.read(5000), b""))
    assert {len(content)} == sizes
    assert decode_png(content).shape == (300, 400, 4)
    assert 1 <= chunks_decoded(mount) < 10  # and of frames behind it, which are decoded ahead


def test_png_by_other_programs(mounts, tmp_path):
    image = pytest.importorskip("PIL.Image")
    make(tmp_path / "a.h5", d=counts())
    mount = mounts(tmp_path / "a.h5", "views=png")
    with image.open(mount / "d/png/000000.png") as opened:
        assert np.array_equal(np.asarray(opened.convert("RGBA")), read_png(mount / "d/png/000000.png"))


def test_png_is_only_read(mounts, tmp_path):
    make(tmp_path / "a.h5", d=counts())
    mount = mounts(tmp_path / "a.h5", "rw", "views=default+png", expect_log=True)
    refuses_writing(mount, mount / "d/png/000000.png")
    with pytest.raises(PermissionError):
        open(mount / "d/png/000001.png", "wb")


def test_no_png_of_what_is_no_image(mounts, tmp_path):
    make(tmp_path / "a.h5", line=images((20,), "<u2"), scalar=np.uint16(7), text=np.full((3, 4), b"abc"),
         empty=np.zeros((3, 0, 5), "<u2"), none=np.zeros((0, 4, 5), "<u2"), volume=images((2, 3, 4, 5), "<u2"),
         complex=np.zeros((3, 4), "c8"))
    mount = mounts(tmp_path / "a.h5", "views=all")
    for name in os.listdir(mount.root):
        if name != ".sparsefs":
            assert "png" not in os.listdir(mount / name), name


# ---- cbf ----

def decode_cbf(content):
    """The header's lines, and the pixels, as XDS and DIALS read them: by the lines of the binary section, what
    follows the magic bytes, and the sum of differences."""
    head, _, rest = content.partition(b"\x0c\x1a\x04\xd5")
    assert content.startswith(b"###CBF: VERSION") and b"\r\n\r\n" in head
    text = head.decode("ascii").replace("\r\n", "\n")
    mime = dict(re.findall("^(X-Binary-[A-Za-z-]+|Content-[A-Za-z0-9-]+): *(.*)$", text, re.M))
    assert mime["Content-Transfer-Encoding"] == "BINARY"
    assert 'conversions="x-CBF_BYTE_OFFSET"' in text
    assert mime["X-Binary-Element-Type"] == '"signed 32-bit integer"'
    assert mime["X-Binary-Element-Byte-Order"] == "LITTLE_ENDIAN"
    n, padding = int(mime["X-Binary-Size"]), int(mime["X-Binary-Size-Padding"])
    packed = rest[:n]
    assert rest[n:n + padding] == bytes(padding)
    assert rest[n + padding:] == b"\r\n--CIF-BINARY-FORMAT-SECTION----\r\n;\r\n\r\n"
    if "Content-MD5" in mime:  # if it was built with nettle
        assert base64.b64decode(mime["Content-MD5"]) == hashlib.md5(packed).digest()
    pixels, value, at = [], 0, 0
    while at < n:
        for size, mark in ((1, -2**7), (2, -2**15), (4, -2**31), (8, None)):
            difference = int.from_bytes(packed[at:at + size], "little", signed=True)
            at += size
            if difference != mark:
                break
        value += difference
        pixels.append(value)
    assert at == n
    shape = int(mime["X-Binary-Size-Second-Dimension"]), int(mime["X-Binary-Size-Fastest-Dimension"])
    assert len(pixels) == int(mime["X-Binary-Number-of-Elements"])
    contents = text.partition("_array_data.header_contents\n;\n")[2].partition("\n;\n")[0]
    assert max(map(len, text.split("\n"))) <= 80
    return [line for line in contents.split("\n") if line], np.array(pixels).reshape(shape)


def read_cbf(path):
    content = path.read_bytes()
    assert len(content) == path.stat().st_size
    return decode_cbf(content)


@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", ">u2", "<i2", ">u4", "<u4", "<i4"])
def test_cbf_of_integers(mounts, tmp_path, dtype):
    limits = np.iinfo(dtype)
    edges = np.zeros((20, 30), dtype)
    edges[:, ::2] = limits.max - (limits.min == 0)  # the largest differences that there are
    edges[:, 1::2] = limits.min
    low = counts(dtype=dtype) if np.dtype(dtype).itemsize > 1 else counts().clip(0, 120).astype(dtype)
    array = np.stack([images((20, 30), dtype), edges, low])
    make(tmp_path / "a.h5", d=array)
    mount = mounts(tmp_path / "a.h5", "views=cbf")
    sizes = {entry.stat().st_size for entry in os.scandir(mount / "d/cbf")}
    assert len(sizes) == 1
    for frame, expected in enumerate(array):
        lines, pixels = read_cbf(mount / f"d/cbf/{frame:06}.cbf")
        assert lines == []
        expected = expected.astype(np.int64)
        if limits.min == 0:
            expected[expected == limits.max] = -1
        assert np.array_equal(pixels, np.minimum(expected, 2**31 - 3 if dtype[1:] == "u4" else limits.max)), frame


def write_eiger(path, shape=(20, 30), **more):
    """What EIGER detectors write of themselves, as far as headers of CBF files have it."""
    array = np.stack([counts(shape) + i for i in range(3)])
    array[:, 3, 4] = 65535
    with h5py.File(path, "w") as f:
        f["entry/data/data"] = array
        facts = {"detector/description": "Dectris EIGER 4M", "detector/detector_number": "E-08-0102",
                 "detector/x_pixel_size": 7.5e-5, "detector/y_pixel_size": 7.5e-5, "detector/count_time": 0.0099,
                 "detector/frame_time": 0.01, "detector/sensor_thickness": 4.5e-4, "detector/sensor_material": "Si",
                 "detector/detector_distance": 0.2, "detector/beam_center_x": 1030.5,
                 "detector/beam_center_y": 1064.25,
                 "detector/detectorSpecific/countrate_correction_count_cutoff": 12440,
                 "beam/incident_wavelength": 0.9794, **more}
        for name, value in facts.items():
            if value is not None:
                f["entry/instrument/" + name] = value
        f["entry/sample/goniometer/omega"] = np.array([10, 10.5, 11])
        f["entry/sample/goniometer/omega_range_average"] = 0.5
    return array


def test_cbf_header_of_an_eiger(mounts, tmp_path):
    array = write_eiger(tmp_path / "a.h5")
    mount = mounts(tmp_path / "a.h5", "views=cbf")
    for frame in range(3):
        lines, pixels = read_cbf(mount / f"entry/data/data/cbf/{frame:06}.cbf")
        assert lines == ["# Detector: Dectris EIGER 4M, S/N E-08-0102",
                         "# Pixel_size 75e-6 m x 75e-6 m",
                         "# Silicon sensor, thickness 0.000450 m",
                         "# Exposure_time 0.009900 s",
                         "# Exposure_period 0.010000 s",
                         "# Count_cutoff 12440 counts",
                         "# Wavelength 0.979400 A",
                         "# Detector_distance 0.200000 m",
                         "# Beam_xy (1030.50, 1064.25) pixels",
                         f"# Start_angle {10 + frame / 2:.6f} deg.",
                         "# Angle_increment 0.500000 deg."]
        expected = array[frame].astype(int)
        expected[3, 4] = -1
        assert np.array_equal(pixels, expected)


@pytest.mark.parametrize("name", ["entry/instrument", "entry/instrument/detector", "detector"])
def test_images_named_as_a_detector(mounts, tmp_path, name):
    """Neither a dense nor a sparse dataset is the group of a detector, which has that name by the rules."""
    image = counts()
    make_sparse(tmp_path / "a.h5", (3, 20, 30), name=name)
    make(tmp_path / "b.h5", **{name: image[np.newaxis]})
    views = mounts(tmp_path / "a.h5", "rw", "views=default+png+cbf") / name
    (views / "frames/0.raw").write_bytes(image.tobytes())
    for folder in views, mounts(tmp_path / "b.h5", "views=png+cbf") / name:
        assert (read_png(folder / "png/000000.png")[:, :, 3] == 255).all()
        lines, pixels = read_cbf(folder / "cbf/000000.cbf")
        assert lines == [] and np.array_equal(pixels, image)


def test_cbf_header_of_a_followed_file(mounts, tmp_path):
    """What the writer says later of the measurement is there, also in a frame that was read before."""
    write_eiger(tmp_path / "a.h5", **{"beam/incident_wavelength": None})
    path = mounts(tmp_path / "a.h5", "follow=0.1", "views=cbf") / "entry/data/data/cbf/000000.cbf"
    before, pixels = read_cbf(path)
    with h5py.File(tmp_path / "a.h5", "r+") as f:
        f["entry/instrument/beam/incident_wavelength"] = 0.9794
        f["entry/instrument/detector/detector_distance"][...] = 0.3
    wait_until(lambda: read_cbf(path)[0] != before)
    lines, same = read_cbf(path)
    assert "# Wavelength 0.979400 A" in lines and "# Detector_distance 0.300000 m" in lines
    assert len(lines) == len(before) + 1 and np.array_equal(same, pixels)


def test_cbf_units_and_odd_texts(mounts, tmp_path):
    """Units that are said are converted, unknown ones leave the line out; no text breaks the header."""
    write_eiger(tmp_path / "a.h5", **{"detector/description": "a;b\r\n;\n_loop " + "x" * 3000,
                                      "detector/sensor_material": np.bytes_("CdTe"), "detector/count_time": None})
    with h5py.File(tmp_path / "a.h5", "r+") as f:
        for name, units in (("x_pixel_size", "um"), ("y_pixel_size", "mm"), ("detector_distance", "mm"),
                            ("frame_time", "fortnight")):
            f["entry/instrument/detector/" + name].attrs["units"] = units
        f["entry/instrument/beam/incident_wavelength"].attrs["units"] = "nm"
    lines, _ = read_cbf(mounts(tmp_path / "a.h5", "views=cbf") / "entry/data/data/cbf/000000.cbf")
    assert lines[0].startswith("# Detector: a?b") and len(lines[0]) < 100
    assert lines[1:6] == ["# Pixel_size 7.5e-05e-6 m x 0.075e-6 m", "# CdTe sensor, thickness 0.000450 m",
                          "# Count_cutoff 12440 counts", "# Wavelength 9.794000 A", "# Detector_distance 0.000200 m"]


def test_cbf_with_a_mask(mounts, tmp_path):
    """1 is a gap, -1; everything else -2. With a mask the largest number is a number."""
    array = write_eiger(tmp_path / "a.h5")
    mask = np.zeros(array.shape[1:], "<u4")
    mask[:, 7], mask[2, 2], mask[9, 9] = 1, 2, 32
    with h5py.File(tmp_path / "a.h5", "r+") as f:
        f["entry/instrument/detector/detectorSpecific/pixel_mask"] = mask
    _, pixels = read_cbf(mounts(tmp_path / "a.h5", "views=cbf") / "entry/data/data/cbf/000002.cbf")
    expected = array[2].astype(int)
    expected[:, 7], expected[2, 2], expected[9, 9] = -1, -2, -2
    assert expected[3, 4] == 65535 and np.array_equal(pixels, expected)


def test_a_mask_that_is_written(mounts, tmp_path):
    """Previews and CBF files have the new one, also where they are open."""
    array = write_eiger(tmp_path / "a.h5")
    mask = np.zeros(array.shape[1:], "<u4")
    with h5py.File(tmp_path / "a.h5", "r+") as f:
        f["entry/instrument/detector/pixel_mask"] = mask
    mount = mounts(tmp_path / "a.h5", "rw", "views=default+png+cbf")
    data = mount / "entry/data/data"
    with open(data / "cbf/000001.cbf", "rb") as cbf, open(data / "png/000001.png", "rb") as png:
        for row in range(4, 8):
            _, pixels = decode_cbf(cbf.read())
            old = png.read()
            assert (pixels[row] >= 0).all()
            mask[row] = 2
            (mount / "entry/instrument/detector/pixel_mask/frames/0.raw").write_bytes(mask.tobytes())
            cbf.seek(0)
            png.seek(0)
            _, pixels = decode_cbf(cbf.read())
            assert np.array_equal(pixels == -2, mask == 2)
            assert np.array_equal(read_png(data / "png/000001.png")[:, :, 3] == 0, (mask == 2) | (array[1] == 65535))
            assert png.read() == (data / "png/000001.png").read_bytes() != old
            assert np.array_equal(read_cbf(data / "cbf/000002.cbf")[1] == -2, mask == 2)
            cbf.seek(0)
            png.seek(0)


def test_cbf_of_a_bit_depth(mounts, tmp_path):
    write_eiger(tmp_path / "a.h5", **{"detector/bit_depth_image": 9})
    with h5py.File(tmp_path / "a.h5", "r+") as f:
        f["entry/data/data"][0, 0, :2] = 511, 512
    _, pixels = read_cbf(mounts(tmp_path / "a.h5", "views=cbf") / "entry/data/data/cbf/000000.cbf")
    assert list(pixels[0, :2]) == [-1, 512] and pixels[3, 4] == 65535


def test_cbf_padding_is_a_hole(mounts, tmp_path):
    """Sizes need no data, and copies are as small as what is in them."""
    array = np.stack([counts((500, 500))] * 5)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("d", data=array, chunks=(1, 500, 500), compression="gzip")
    mount = mounts(tmp_path / "a.h5", "views=cbf")
    for entry in os.scandir(mount / "d/cbf"):
        assert entry.stat().st_size > 7 * 500 * 500 and entry.stat().st_blocks * 512 < 300 * 1000
    assert chunks_decoded(mount) == 0
    path = mount / "d/cbf/000003.cbf"
    content = path.read_bytes()
    used = content.rindex(b"\0") + 1 - int(re.search(b"X-Binary-Size-Padding: ([0-9]+)", content)[1])
    with open(path, "rb") as file:
        fd = file.fileno()
        assert os.lseek(fd, 0, os.SEEK_DATA) == 0
        assert os.lseek(fd, 0, os.SEEK_HOLE) == os.lseek(fd, used - 1, os.SEEK_HOLE) == used
        data = os.lseek(fd, used, os.SEEK_DATA)
        assert content[used:data] == bytes(data - used) and content[data:].startswith(b"\r\n--CIF")
        assert os.lseek(fd, data, os.SEEK_DATA) == data
        assert os.lseek(fd, data, os.SEEK_HOLE) == len(content)
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            with pytest.raises(OSError):
                os.lseek(fd, len(content), whence)
    subprocess.run(["cp", path, tmp_path / "copy.cbf"], check=True)
    assert (tmp_path / "copy.cbf").read_bytes() == content
    assert np.array_equal(decode_cbf(content)[1], array[3])
    with open(path, "rb", buffering=0) as file:
        for _ in range(50):
            at, n = int(files.RNG.integers(0, len(content))), int(files.RNG.integers(1, 100000))
            assert os.pread(file.fileno(), n, at) == content[at:at + n]


def test_cbf_by_fabio(mounts, tmp_path):
    fabio = pytest.importorskip("fabio")
    array = write_eiger(tmp_path / "a.h5")
    mount = mounts(tmp_path / "a.h5", "views=cbf")
    for frame in range(3):
        opened = fabio.open(str(mount / f"entry/data/data/cbf/{frame:06}.cbf"))
        expected = array[frame].astype(int)
        expected[3, 4] = -1
        assert np.array_equal(opened.data, expected)
        assert "# Wavelength 0.979400 A" in opened.header["_array_data.header_contents"]


def test_cbf_by_cbflib(mounts, tmp_path):
    """Which checks the sum of what is packed."""
    pycbf = pytest.importorskip("pycbf")
    array = write_eiger(tmp_path / "a.h5")
    mount = mounts(tmp_path / "a.h5", "views=cbf")
    for frame in range(3):
        handle = pycbf.cbf_handle_struct()
        handle.read_widefile(os.fsencode(mount / f"entry/data/data/cbf/{frame:06}.cbf"), pycbf.MSG_DIGEST)
        handle.rewind_datablock()
        handle.find_category(b"array_data")
        handle.find_column(b"data")
        handle.select_row(0)
        expected = array[frame].astype("i4")
        expected[3, 4] = -1
        assert handle.get_integerarray_as_string() == expected.tobytes()


def test_cbf_by_dials(mounts, tmp_path):
    """Its rules for EIGER detectors: one sweep, with what the header says, and what is masked. They know detectors
    by their size, and where the gaps of one are; this one has none."""
    lists = pytest.importorskip("dxtbx.model.experiment_list")
    array = write_eiger(tmp_path / "a.h5", (195, 487))
    mask = np.zeros(array.shape[1:], "<u4")
    mask[:, 7], mask[2, 2] = 1, 2
    with h5py.File(tmp_path / "a.h5", "r+") as f:
        f["entry/instrument/detector/detectorSpecific/pixel_mask"] = mask
    mount = mounts(tmp_path / "a.h5", "views=cbf", "first=1")
    paths = [str(mount / f"entry/data/data/cbf/{frame:06}.cbf") for frame in (1, 2, 3)]
    experiment, = lists.ExperimentListFactory.from_filenames(paths)
    assert experiment.imageset.get_format_class().__name__ == "FormatCBFMiniEiger"
    assert (experiment.scan.get_image_range(), experiment.scan.get_oscillation()) == ((1, 3), (10, 0.5))
    assert experiment.beam.get_wavelength() == 0.9794
    panel, = experiment.detector
    assert panel.get_pixel_size() == (0.075, 0.075) and panel.get_material() == "Si"
    assert abs(panel.get_distance() - 200) < 1e-9 and abs(panel.get_thickness() - 0.45) < 1e-9
    assert panel.get_beam_centre_px(experiment.beam.get_s0()) == pytest.approx((1030.5, 1064.25))
    for frame in range(3):
        pixels = experiment.imageset.get_raw_data(frame)[0].as_numpy_array()
        usable = experiment.imageset.get_mask(frame)[0].as_numpy_array()
        assert np.array_equal(pixels[mask == 0], array[frame][mask == 0])
        assert not usable[mask != 0].any() and usable[(mask == 0) & (array[frame] < 12440)].all()


def test_cbf_is_only_read(mounts, tmp_path):
    make(tmp_path / "a.h5", d=counts())
    mount = mounts(tmp_path / "a.h5", "rw", "views=default+cbf", expect_log=True)
    before = (mount / "d/cbf/000000.cbf").read_bytes()
    refuses_writing(mount, mount / "d/cbf/000000.cbf")
    (mount / "d/frames/0.raw").write_bytes(bytes(1200))
    assert not decode_cbf((mount / "d/cbf/000000.cbf").read_bytes())[1].any()
    assert decode_cbf(before)[1].any()


def test_no_cbf_of_what_is_no_count(mounts, tmp_path):
    make(tmp_path / "a.h5", line=images((20,), "<u2"), scalar=np.uint16(7), float=np.ones((3, 4)),
         long=np.ones((3, 4), "<i8"), empty=np.zeros((3, 0, 5), "<u2"), colours=images((2, 6, 5, 3), "u1"))
    mount = mounts(tmp_path / "a.h5", "views=all")
    for name in os.listdir(mount.root):
        if name != ".sparsefs":
            assert "cbf" not in os.listdir(mount / name), name


# ---- csv ----

def read_csv(path):
    content = path.read_bytes()
    assert len(content) == path.stat().st_size
    assert content.endswith(b"\n") and b"\r" not in content.replace(b'"a\r"', b"")
    return list(csv.reader(content.decode().splitlines(keepends=True)))


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">u4", ">i8", "<u8", "<f2", ">f4", "<f8", "?"])
def test_csv_of_numbers(mounts, tmp_path, dtype):
    """Reading them gives the same numbers again, of floats the same bits."""
    table = files.RNG.integers(0, 2, (40, 7)).astype("?") if dtype == "?" else images((40, 7), dtype)
    if table.dtype.kind == "f":
        table[0] = 0, np.nan, np.inf, -np.inf, np.finfo(dtype).tiny, np.finfo(dtype).max, -0.1
    make(tmp_path / "a.h5", table=table, line=table[:, 0])
    mount = mounts(tmp_path / "a.h5", "views=csv")
    for name, expected in ("table", table), ("line", table[:, :1]):
        rows = read_csv(mount / name / "table.csv")
        kind = float if table.dtype.kind == "f" else int
        again = np.array([[kind(field) for field in row] for row in rows], object).astype(dtype)
        np.testing.assert_array_equal(again, expected)
        if kind == float:
            np.testing.assert_array_equal(np.loadtxt(mount / name / "table.csv", delimiter=",", ndmin=2).astype(dtype),
                                          expected)


def test_csv_of_compounds(mounts, tmp_path):
    inner = np.dtype([("x", "<f4"), ('q"uote', "<i2")])
    kind = np.dtype([("n", ">u2"), ("name, it is", "S6"), ("in", inner), ("list", "u1", (2, 2)), ("raw", "V2")])
    rows = np.zeros(3, kind)
    rows["n"] = 1, 2, 65535
    rows["name, it is"] = b"a,b", b' c"', b""
    rows["in"]["x"] = 0.1, 1e30, -2
    rows["in"]['q"uote'] = -1, 0, 1
    rows["list"] = np.arange(12).reshape(3, 2, 2)
    rows["raw"] = b"\x01\xff"
    make(tmp_path / "a.h5", d=rows, one=rows[1])
    mount = mounts(tmp_path / "a.h5", "views=csv")
    head = ["n", "name, it is", "in.x", 'in.q"uote', "list[0]", "list[1]", "list[2]", "list[3]", "raw"]
    lines = [["1", "a,b", "0.1", "-1", "0", "1", "2", "3", "01ff"],
             ["2", ' c"', "1e+30", "0", "4", "5", "6", "7", "01ff"],
             ["65535", "", "-2", "1", "8", "9", "10", "11", "01ff"]]
    assert read_csv(mount / "d/table.csv") == [head, *lines]
    assert read_csv(mount / "one/table.csv") == [head, lines[1]]


def test_csv_of_strings(mounts, tmp_path):
    words = np.array([[b"plain", b"a,b"], [b'say "x"', b"two\nlines"], [b" space ", b""]])
    make(tmp_path / "a.h5", d=words)
    assert read_csv(mounts(tmp_path / "a.h5", "views=csv") / "d/table.csv") \
        == [[word.decode() for word in row] for row in words.tolist()]


def test_csv_of_sparse_elements(mounts, tmp_path):
    make_sparse(tmp_path / "a.h5", (4, 3), "int32")
    mount = mounts(tmp_path / "a.h5", "rw", "views=default+csv", expect_log=True)
    assert read_csv(mount / "d/table.csv") == [["", "", ""]] * 4
    with open(mount / "d/frames/0.raw", "r+b") as raw:
        raw.seek(4 * 4)
        raw.write(np.array([-5, 0, 7], "<i4").tobytes())
    assert read_csv(mount / "d/table.csv") == [["", "", ""], ["", "-5", "0"], ["7", "", ""], ["", "", ""]]
    refuses_writing(mount, mount / "d/table.csv")


def test_csv_is_not_made_by_listing(mounts, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("d", data=np.ones((9000, 100)), chunks=(9000, 1), compression="gzip")
    mount = mounts(tmp_path / "a.h5", "views=csv")
    assert [entry.name for entry in os.scandir(mount / "d")] == ["dataset.json", "table.csv"]
    assert chunks_decoded(mount) == 0
    size = (mount / "d/table.csv").stat().st_size
    assert size == 9000 * 200 and chunks_decoded(mount) == 100
    assert len((mount / "d/table.csv").read_bytes()) == size and chunks_decoded(mount) == 100


def test_csv_of_what_is_small(mounts, tmp_path):
    make(tmp_path / "a.h5", rows=np.zeros(10000), more=np.zeros(10001), square=np.zeros((1024, 1024), "u1"),
         fields=np.zeros((1025, 1024), "u1"), volume=np.zeros((2, 3, 4)), scalar=np.float32(3), empty=np.zeros((0, 3)),
         grid=np.zeros((2, 2), [("a", "u1")]))
    with h5py.File(tmp_path / "a.h5", "r+") as f:
        f["none"] = h5py.Empty(np.dtype("<f4"))
        f.create_dataset("strings", data=np.array(["a", "b"], object), dtype=h5py.string_dtype())
    mount = mounts(tmp_path / "a.h5", "views=csv")
    there = {name for name in os.listdir(mount.root) if name != ".sparsefs" and (mount / name / "table.csv").exists()}
    assert there == {"rows", "square"}
    assert (mount / "square/table.csv").read_bytes() == (b"0," * 1023 + b"0\n") * 1024


# ---- zarr ----

def read_zarr(folder):
    """An array by version 2 of the specification, and its attributes."""
    meta = json.loads((folder / ".zarray").read_text())
    assert meta["zarr_format"] == 2 and meta["order"] == "C"
    assert meta["compressor"] is None and meta["filters"] is None
    assert set(meta) == {"zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters"}
    array = np.empty(meta["shape"], meta["dtype"])
    grid = [-(-n // c) for n, c in zip(meta["shape"], meta["chunks"])]
    names = set()
    for place in np.ndindex(*grid):
        name = ".".join(map(str, place)) or "0"
        content = (folder / name).read_bytes()
        assert len(content) == (folder / name).stat().st_size
        where = tuple(slice(i * c, (i + 1) * c) for i, c in zip(place, meta["chunks"]))
        array[where] = np.frombuffer(content, meta["dtype"]).reshape(meta["chunks"])
        names.add(name)
    assert set(os.listdir(folder)) == names | {".zarray", ".zattrs"}
    return array, meta, json.loads((folder / ".zattrs").read_text())


def zarr_arrays():
    strings = np.array([[b"ab", b"c"], [b"", b"def"]])
    return {"stack": images((12, 4, 5), "<u2"), "big_endian": images((3, 4, 5), ">i4"), "table": images((4, 5), "<f8"),
            "line": images((7,), "<f4"), "scalar": np.float32(2.5), "half": images((3, 2), "<f2"), "strings": strings,
            "bool": np.array([[True, False]]), "complex": np.ones((2, 3, 4), "<c8") * (1 + 2j),
            "colours": images((2, 6, 5, 3), "u1")}


def test_zarr_by_the_specification(mounts, tmp_path):
    arrays = make(tmp_path / "a.h5", **zarr_arrays())
    with h5py.File(tmp_path / "a.h5", "r+") as f:
        f["stack"].attrs["units"] = "counts"
        f["stack"].attrs["offsets"] = np.array([1.5, 2])
    mount = mounts(tmp_path / "a.h5", "views=zarr", "first=1")
    for name, expected in arrays.items():
        array, meta, attributes = read_zarr(mount / name / "zarr")
        np.testing.assert_array_equal(array, expected)
        assert array.dtype == np.asarray(expected).dtype
        assert attributes == ({"units": "counts", "offsets": [1.5, 2]} if name == "stack" else {})
    assert json.loads((mount / "stack/zarr/.zarray").read_text())["chunks"] == [1, 4, 5]
    for wrong in "12.0.0", "00.0.0", "1.0", "1.0.0.0", "1.1.0", "1.0.1", "-1.0.0", "1.0.0x", "0.0.", "1", ".zgroup", \
            "18446744073709551617.0.0":
        assert not (mount / "stack/zarr" / wrong).exists(), wrong


def test_zarr_by_zarr(mounts, tmp_path):
    zarr = pytest.importorskip("zarr")
    arrays = make(tmp_path / "a.h5", **zarr_arrays())
    mount = mounts(tmp_path / "a.h5", "views=zarr")
    for name, expected in arrays.items():
        opened = zarr.open(str(mount / name / "zarr"), mode="r")
        assert opened.shape == np.shape(expected)
        np.testing.assert_array_equal(opened[...], expected)


def test_zarr_by_tensorstore(mounts, tmp_path):
    tensorstore = pytest.importorskip("tensorstore")
    arrays = make(tmp_path / "a.h5", **zarr_arrays())
    mount = mounts(tmp_path / "a.h5", "views=zarr")
    for name in "stack", "big_endian", "table", "colours":
        spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(mount / name / "zarr")}}
        opened = tensorstore.open(spec, read=True).result()
        np.testing.assert_array_equal(opened.read().result(), arrays[name])


@pytest.mark.parametrize("frame_rank", [1, 2, 3, 5])
def test_zarr_of_a_grid(mounts, tmp_path, frame_rank):
    arrays = make(tmp_path / "a.h5", d=images((2, 3, 4, 7, 8), "<u2"))
    mount = mounts(tmp_path / "a.h5", "views=zarr", f"frame_rank={frame_rank}")
    array, meta, _ = read_zarr(mount / "d/zarr")
    np.testing.assert_array_equal(array, arrays["d"])
    assert meta["chunks"] == [1] * (5 - frame_rank) + [2, 3, 4, 7, 8][5 - frame_rank:]


def test_zarr_fill_values(mounts, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        for name, dtype, fill, said in (("a", "<f4", np.nan, "NaN"), ("b", "<f8", -np.inf, "-Infinity"),
                                        ("c", "<f8", 0.1, 0.1), ("d", ">i2", -5, -5),
                                        ("e", "<u8", 2**64 - 1, 2**64 - 1),
                                        ("f", "S3", b"xyz", None)):
            f.create_dataset(name, (2, 3, 4), dtype, fillvalue=fill).attrs["said"] = json.dumps(said)
    mount = mounts(tmp_path / "a.h5", "views=zarr")
    for name in "abcdef":
        _, meta, attributes = read_zarr(mount / name / "zarr")
        assert meta["fill_value"] == json.loads(attributes["said"])


def test_zarr_shows_what_is_written(mounts, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("d", data=images((3, 4, 5), "<u2"), chunks=(1, 4, 5), maxshape=(None, 4, 5))
    mount = mounts(tmp_path / "a.h5", "rw", "views=default+zarr", expect_log=True)
    assert read_zarr(mount / "d/zarr")[0].shape == (3, 4, 5)
    new = images((4, 5), "<u2")
    for frame in 1, 4:
        (mount / f"d/raw/{frame:06}.raw").write_bytes(new.tobytes())
        array = read_zarr(mount / "d/zarr")[0]
        assert array.shape == (max(3, frame + 1), 4, 5) and np.array_equal(array[frame], new)
    for name in ".zarray", ".zattrs", "1.0.0":
        refuses_writing(mount, mount / "d/zarr" / name)
    for name in "9.0.0", "9", ".zgroup", "0.0.0.tmp":
        with pytest.raises(PermissionError):
            open(mount / "d/zarr" / name, "wb")


def test_no_zarr_of_other_types(mounts, tmp_path):
    make(tmp_path / "a.h5", compound=np.zeros(3, [("a", "u1"), ("b", "<f4")]), opaque=np.zeros(3, "V3"),
         empty=np.zeros((3, 0, 5)))
    with h5py.File(tmp_path / "a.h5", "r+") as f:
        f.create_dataset("strings", data=np.array(["a", "b"], object), dtype=h5py.string_dtype())
    mount = mounts(tmp_path / "a.h5", "views=zarr")
    for name in os.listdir(mount.root):
        if name != ".sparsefs":
            assert os.listdir(mount / name) == ["dataset.json"], name


def test_no_zarr_without_a_name_for_each_chunk(mounts, tmp_path):
    """To Zarr a missing file is a chunk of fill values."""
    n = 2**34
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as f:
        for name, frames in ("all", n), ("more", n + 1):
            f.create_dataset(name, (frames, 2, 2), "<u2", chunks=(2**20, 2, 2))[-1] = 7
    mount = mounts(tmp_path / "a.h5", "views=default+zarr")
    last = np.full(4, 7, "<u2").tobytes()
    assert (mount / f"all/zarr/{n - 1}.0.0").read_bytes() == last == (mount / f"all/frames/{n - 1}.raw").read_bytes()
    assert "zarr" not in os.listdir(mount / "more") and not (mount / "more/zarr").exists()
    with pytest.raises(OSError) as error:
        open(mount / f"more/frames/{n}.raw", "rb")
    assert error.value.errno == errno.EOVERFLOW
    with open(mount / "more/stack.raw", "rb") as file:
        file.seek(-8, os.SEEK_END)
        assert file.read() == last
