"""sparsectl import with regions that change, thresholds, masks, and full frames: against what NumPy
makes of the same data."""
import h5py
import numpy as np
import pytest

from test_sparsectl import (DONE, FAILED, USAGE, coordinates, done, failed, files_in, info, make, run,
                            scattered)

INTEGERS = ["<u1", "<u2", ">u2", "<u4", ">u4", "<u8", ">u8", "<i1", "<i2", ">i2", "<i4", ">i4", "<i8",
            ">i8"]
FLOATS = ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]


def defined(path, shape):
    """The mask of what a sparse dataset has."""
    mask = np.zeros(shape, bool)
    for at in coordinates(path):
        mask[at] = True
    return mask


def values_of(path, shape, dtype):
    """What it reads as, undefined elements as -1 (or 255 ...)."""
    data = np.full(shape, -1).astype(dtype)
    for at, value in coordinates(path).items():
        data[at] = np.array(value).astype(dtype)
    return data


def imported(tmp_path, source, *options, undefined="none"):
    """The sparse dataset that options make, which check finds sound."""
    sparse = tmp_path / "sparse.h5"
    sparse.unlink(missing_ok=True)
    done("import", "--undefined", undefined, *options, source, f"{sparse}:/d")
    assert run("check", sparse).returncode == DONE
    return f"{sparse}:/d"


def good(data, masked=None):
    """What has a value: not masked, no NaN, infinity, or 2^n - 1."""
    if data.dtype.kind == "f":
        result = np.isfinite(data)
    elif data.dtype.kind == "u":
        result = data != np.iinfo(data.dtype).max
    else:
        result = np.ones(data.shape, bool)
    return result if masked is None else result & ~masked


# ---- Regions ----


def test_regions_of_ranges_of_frames(tmp_path):
    regions = tmp_path / "regions.txt"
    regions.write_text("# frames rectangles\n"
                       "4:6 1:3,2:50   5:9,0:4 8:30,2:17 # overlap\n"
                       "\n"
                       "  :2\t10:20,:\n"
                       "8:  :,48:#\n"
                       "3 39:,49:\n")
    data = scattered((10, 40, 50), share=0.7)
    kept = np.zeros(data.shape, bool)
    kept[:2, 10:20] = kept[3, 39:, 49:] = kept[8:, :, 48:] = True
    kept[4:6, 1:3, 2:50] = kept[4:6, 5:9, :4] = kept[4:6, 8:30, 2:17] = True
    source = make(tmp_path / "dense.h5", d=data)
    for chunk in ("1,40,50", "3,40,50", "10,7,9", "2,13,50"):
        sparse = imported(tmp_path, source, "--roi", regions, "--chunk", chunk)
        assert np.array_equal(defined(sparse, data.shape), kept)
    sparse = imported(tmp_path, source, "--roi", regions, undefined="0")
    assert np.array_equal(defined(sparse, data.shape), kept & (data > 0))
    assert np.array_equal(values_of(sparse, data.shape, data.dtype)[kept & (data > 0)],
                          data[kept & (data > 0)])


def test_regions_points_and_rectangles_together(tmp_path):
    regions, points = tmp_path / "a:b.txt", tmp_path / "points.txt"
    regions.write_text("0 5:9,5:9 5:9,7:20\n2: 0:1,0:50\n")
    points.write_text("0 5 4\n0 5 19\n0 5 30\n1 39 49\n2 0 3\n")
    kept = np.zeros((3, 40, 50), bool)
    kept[0, 5:9, 5:20] = kept[2:, 0] = kept[:, 6:8, 3:8] = True
    kept[0, 5, 4] = kept[0, 5, 30] = kept[1, 39, 49] = True
    source = make(tmp_path / "dense.h5", d=scattered(kept.shape))
    sparse = imported(tmp_path, source, "--points", points, "--roi", regions, "--roi", "6:8,3:8")
    assert np.array_equal(defined(sparse, kept.shape), kept)


def test_regions_that_change_with_every_frame(tmp_path):
    """One rectangle for each frame, as they follow a beam."""
    random = np.random.default_rng(7)
    kept, lines = np.zeros((500, 30, 40), bool), []
    for frame in random.permutation(500):
        y, x = random.integers(0, 20), random.integers(0, 30)
        kept[frame, y:y + 10, x:x + 10] = True
        lines.append(f"{frame} {y}:{y + 10},{x}:{x + 10}\n")
    regions = tmp_path / "regions.txt"
    regions.write_text("".join(lines))
    data = np.arange(kept.size, dtype="<u4").reshape(kept.shape) + 1
    source = make(tmp_path / "dense.h5", d=data)
    dense = tmp_path / "back.h5"
    done("export", imported(tmp_path, source, "--roi", regions), f"{dense}:/d")
    with h5py.File(dense) as f:
        assert np.array_equal(f["d"][...], np.where(kept, data, 0))


def test_regions_of_an_image_and_of_modules(tmp_path):
    regions = tmp_path / "regions.txt"
    regions.write_text("0 1:3,4:6\n")
    sparse = imported(tmp_path, make(tmp_path / "image.h5", d=scattered((8, 9))), "--roi", regions)
    assert sorted(coordinates(sparse)) == [(1, 4), (1, 5), (2, 4), (2, 5)]
    regions.write_text("1: 7:,0:1\n")
    sparse = imported(tmp_path, make(tmp_path / "modules.h5", d=scattered((2, 3, 8, 9))), "--roi",
                      regions)
    assert sorted(coordinates(sparse)) == [(1, module, 7, 0) for module in range(3)]


@pytest.mark.parametrize("text, says", [
    ("0:1\n", "line 1: not"), ("# no\n\nx 0:1,0:1\n", "line 3: not"), ("0:1 0:1\n", "line 1: not"),
    ("0:1 0:1,0:1x\n", "line 1: not"), ("0:1 0:1,0:1 2\n", "line 1: not"), ("1:1 0:1,0:1\n", "line 1: not"),
    ("2:1 0:1,0:1\n", "line 1: not"), ("0 2:2,0:1\n", "line 1: not"), ("-1 0:1,0:1\n", "line 1: not"),
    ("0,0:1,0:1\n", "line 1: not"), ("0: 0:1,-1:1\n", "line 1: not"), ("0:1:2 0:1,0:1\n", "line 1: not"),
    ("99999999999999999999 0:1,0:1\n", "line 1: not"), ("18446744073709551615 0:1,0:1\n", "line 1: not"),
    ("0 0:18446744073709551616,0:1\n", "line 1: not"), ("0 0:1,0:1\0\n", "line 1: not"),
    ("0:3 0:1,0:1\n2 0:1,0:1\n", "line 2: frame 2 is in line 1, too"),
    ("3: 0:1,0:1\n0:2 0:1,0:1\n:1 0:1,0:1\n", "line 3: frame 0 is in line 2, too"),
    ("4 0:1,0:1\n3:9 0:1,0:1\n", "line 2: frame 4 is in line 1, too"),
    ("0:6 0:1,0:1\n", "line 1: /d has only 5 frames"), ("0 0:1,0:1\n5 0:1,0:1\n", "line 2: /d has only 5"),
    ("0 0:1,0:1\n1:3 0:1,0:1 0:9,0:1\n", "line 2: rectangle 2 does not lie"),
    ("0 0:1,9:10\n", "line 1: rectangle 1 does not lie in the frames of /d, 8 x 9"),
    ("0 8:,:\n", "line 1: rectangle 1 does not lie"),
])
def test_lines_that_are_refused(tmp_path, text, says):
    source, regions = make(tmp_path / "dense.h5", d=scattered((5, 8, 9))), tmp_path / "regions.txt"
    regions.write_bytes(text.encode())
    failed("import", source, tmp_path / "new.h5", "--roi", regions, says=f"regions.txt: {says}")
    assert files_in(tmp_path) == ["dense.h5", "regions.txt"]


def test_files_of_regions_that_cannot_be_read(tmp_path):
    source = make(tmp_path / "dense.h5", d=scattered((5, 8, 9)), line=np.arange(4))
    regions = tmp_path / "regions.txt"
    regions.write_text("0 0:1,0:1\n")
    new = tmp_path / "new.h5"
    failed("import", f"{source}:/d", new, "--roi", tmp_path / "none", says="none: No such file")
    failed("import", f"{source}:/d", new, "--roi", tmp_path, says="Is a directory")
    failed("import", f"{source}:/line", new, "--roi", regions, says="rank 2")
    failed("import", f"{source}:/d", new, "--roi", regions, "--roi", regions, says="only one file",
           code=USAGE)
    assert files_in(tmp_path) == ["dense.h5", "regions.txt"]


# ---- Thresholds ----


def extremes(dtype, shape=(3, 30, 40), seed=3):
    """Data with the least, the greatest and all kinds of values."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        data = random.normal(0, 3, shape).astype(dtype)
        special = [np.nan, np.inf, -np.inf, 0, -0.0, np.finfo(dtype).max, np.finfo(dtype).tiny, 3, -3]
    else:
        data = random.integers(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype)
        limits = np.iinfo(dtype)
        special = [limits.min, limits.max, limits.max - 1, limits.max - 2, limits.min + 1]
    for value in special:
        data.flat[random.choice(data.size, 20)] = value
    return data


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_above(tmp_path, dtype):
    data = extremes(dtype)
    source = make(tmp_path / "dense.h5", d=data)
    for above in (3, -3, 2.5, -2.5, 0, 1e30):
        kept = good(data) & (data.astype(float) > above if data.dtype.kind == "f" else
                             np.array([int(v) > above for v in data.flat]).reshape(data.shape))
        sparse = imported(tmp_path, source, "--above", above)
        assert np.array_equal(defined(sparse, data.shape), kept), above


@pytest.mark.parametrize("dtype", ["<u8", ">u8", "<i8", ">i8"])
def test_above_of_integers_that_doubles_do_not_hold(tmp_path, dtype):
    data = extremes(dtype)
    limits = np.iinfo(dtype)
    source = make(tmp_path / "dense.h5", d=data)
    for above in (limits.max - 2, limits.max - 1, limits.max, limits.min, limits.min - 1, limits.max + 1,
                  limits.min + 1, -10**25, 10**25):
        kept = good(data) & np.array([int(v) > above for v in data.flat]).reshape(data.shape)
        sparse = imported(tmp_path, source, "--above", above, "--chunk", "1,30,40")
        assert np.array_equal(defined(sparse, data.shape), kept), above


def test_above_leaves_undefined_what_is_undefined(tmp_path):
    data = extremes("<i2")
    source = make(tmp_path / "dense.h5", d=data)
    sparse = imported(tmp_path, source, "--above", "-5", "--roi", "0:9,0:40", undefined="2")
    kept = (data > -5) & (data != 2)
    kept[:, 9:] = False
    assert np.array_equal(defined(sparse, data.shape), kept)


def window_sums(values, reach):
    """Sums over squares around every element."""
    padded = np.pad(values, reach)
    sums = np.zeros(values.shape)
    for y in range(2 * reach + 1):
        for x in range(2 * reach + 1):
            sums += padded[y:y + values.shape[0], x:x + values.shape[1]]
    return sums


def stands_out(image, usable, background, sigma):
    """More than so many sigma above the mean of a ring: 15 x 15 without the 7 x 7 in its middle. Sums of
    what tests have are exact; what comes then is done in the order of above_sigma.c."""
    values = np.where(background, image, 0).astype(float)
    n, total, squares = (window_sums(a, 7) - window_sums(a, 3)
                         for a in (background.astype(float), values, values * values))
    with np.errstate(all="ignore"):
        mean, squares = total / n, squares / n
        variance = np.maximum(squares - mean * mean, 1e-14 * squares)
        above = np.where(usable, image, 0) - mean
        return usable & (n >= 8) & (above > 0) & (above * above > sigma * sigma * variance)


def spots(data, sigma, masked=None):
    """What --sigma keeps."""
    usable = good(data, masked)
    kept = np.zeros(data.shape, bool)
    for at in np.ndindex(data.shape[:-2]):
        image = data[at].astype(float)
        bright = stands_out(image, usable[at], usable[at], 2.5)
        kept[at] = stands_out(image, usable[at], usable[at] & ~bright, sigma)
    return kept


def detector(dtype, shape=(3, 90, 110), seed=5):
    """Frames with a background that is not the same everywhere, spots, and pixels that are none."""
    random = np.random.default_rng(seed)
    y, x = np.indices(shape[-2:])
    level = 4 + 10 * np.exp(-((y - 40) ** 2 + (x - 50) ** 2) / 500)
    data = random.poisson(np.broadcast_to(level, shape)).astype(float)
    for at in np.ndindex(shape[:-2]):
        for _ in range(15):
            cy, cx = random.integers(0, shape[-2]), random.integers(0, shape[-1])
            data[at] += np.rint(60 * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / 2))
    dtype = np.dtype(dtype)
    if dtype.kind != "u":
        data = data - 20
    if dtype.kind == "f" and dtype.itemsize > 2:
        data = data / 8
    data = np.clip(data, None, 120).astype(dtype)
    holes = random.choice(data.size, data.size // 50)
    if dtype.kind == "f":
        data.flat[holes] = np.resize([np.nan, np.inf, -np.inf], holes.size)
    elif dtype.kind == "u":
        data.flat[holes] = np.iinfo(dtype).max
    return data


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_sigma(tmp_path, dtype):
    data = detector(dtype)
    kept = spots(data, 5)
    assert 100 < np.count_nonzero(kept) < data.size / 20
    source = make(tmp_path / "dense.h5", d=data)
    sparse = imported(tmp_path, source, "--sigma", "5")
    assert np.array_equal(defined(sparse, data.shape), kept)


@pytest.mark.parametrize("chunk", ["1,90,110", "3,90,110", "2,7,110", "1,90,11", "3,5,6"])
@pytest.mark.parametrize("source_chunk", [None, (1, 90, 110), (3, 20, 30)])
def test_sigma_does_not_depend_on_chunks(tmp_path, chunk, source_chunk):
    data = detector("<u2")
    options = {"chunks": source_chunk, "compression": "gzip"} if source_chunk else {}
    source = make(tmp_path / "dense.h5", d=(data, options))
    sparse = imported(tmp_path, source, "--sigma", "4.5", "--chunk", chunk)
    assert np.array_equal(defined(sparse, data.shape), spots(data, 4.5))


def test_sigma_of_blocks_that_are_parts_of_a_frame(tmp_path):
    """A frame of more than what is looked at together: what surrounds a part is looked at, too."""
    data = detector("<f8", (1, 2300, 600))
    source = make(tmp_path / "dense.h5", d=data)
    dense = tmp_path / "back.h5"
    expected = np.where(spots(data, 6), data, 0)
    for chunk in ("1,64,600", "1,300,300"):
        dense.unlink(missing_ok=True)
        sparse = imported(tmp_path, source, "--sigma", "6", "--chunk", chunk)
        done("export", sparse, f"{dense}:/d")
        with h5py.File(dense) as f:
            assert np.array_equal(f["d"][...], expected)


def test_sigma_above_and_a_region_together(tmp_path):
    data = detector("<u2", (2, 3, 60, 70))
    source = make(tmp_path / "dense.h5", d=data)
    sparse = imported(tmp_path, source, "--sigma", "4", "--above", "40", "--roi", "5:50,:")
    kept = spots(data, 4) & (data > 40)
    kept[:, :, :5] = kept[:, :, 50:] = False
    assert kept.any()
    assert np.array_equal(defined(sparse, data.shape), kept)


def test_sigma_where_there_is_nothing_to_compare_with(tmp_path):
    """A flat background has no deviation: what is above it stands out, and nothing of it does. Frames
    of less than a background have none."""
    data = np.full((1, 40, 40), 0.1)
    data[0, 20, 20] = 0.2
    source = make(tmp_path / "flat.h5", d=data)
    assert list(coordinates(imported(tmp_path, source, "--sigma", "3"))) == [(0, 20, 20)]
    small = np.arange(16.).reshape(1, 4, 4)
    assert coordinates(imported(tmp_path, make(tmp_path / "small.h5", d=small), "--sigma", "1")) == {}
    nothing = make(tmp_path / "nothing.h5", d=np.full((2, 30, 30), 65535, "<u2"))
    assert coordinates(imported(tmp_path, nothing, "--sigma", "1")) == {}
    empty = make(tmp_path / "empty.h5", d=np.zeros((0, 30, 30), "<u2"))
    assert coordinates(imported(tmp_path, empty, "--sigma", "1")) == {}


def test_spots_beside_each_other_do_not_hide_one_another(tmp_path):
    """A grid of equal ones, each of which has eight others in its ring."""
    data = np.random.default_rng(1).poisson(10, (1, 60, 60)).astype("<u2")
    at = [(y, x) for y in range(10, 45, 8) for x in range(10, 45, 8)]
    for y, x in at:
        data[0, y:y + 3, x:x + 3] = 400
    kept = coordinates(imported(tmp_path, make(tmp_path / "dense.h5", d=data), "--sigma", "6"))
    assert {(0, y + i, x + j) for y, x in at for i in range(3) for j in range(3)} <= set(kept)


# ---- Masks ----


def nexus(path, data, mask=None, name="pixel_mask", where="entry/instrument/detector"):
    with h5py.File(path, "w") as f:
        f["entry/data/data"] = data
        detector = f.create_group(where)
        detector.attrs["NX_class"] = "NXdetector"
        if mask is not None:
            detector[name] = mask
    return path


def a_mask(shape=(90, 110)):
    masked = np.random.default_rng(2).random(shape) < 0.1
    masked[30:36] = True
    return masked


@pytest.mark.parametrize("name", ["pixel_mask", "detectorSpecific/pixel_mask"])
def test_the_pixel_mask_of_the_detector(tmp_path, name):
    data, masked = detector("<u2"), a_mask()
    source = nexus(tmp_path / "run.h5", data, np.where(masked, 1 << 8, 0).astype("<u4"), name)
    sparse = imported(tmp_path, f"{source}:/entry/data/data", "--sigma", "4")
    assert np.array_equal(defined(sparse, data.shape), spots(data, 4, np.broadcast_to(masked, data.shape)))
    sparse = imported(tmp_path, f"{source}:/entry/data/data", "--above", "9")
    assert np.array_equal(defined(sparse, data.shape), good(data, masked) & (data > 9))
    sparse = imported(tmp_path, f"{source}:/entry/data/data", "--above", "9", "--mask", "none")
    assert np.array_equal(defined(sparse, data.shape), data > 9)


def test_another_mask(tmp_path):
    data, masked = detector("<u2"), a_mask()
    source = nexus(tmp_path / "run.h5", data, np.ones((90, 110), "<u4"))
    with h5py.File(tmp_path / "mask.h5", "w") as f:
        f["mask"] = masked
        f["modules"] = np.repeat(masked[None], 3, axis=0).astype("i1")
    mask = f"{tmp_path}/mask.h5:/mask"
    sparse = imported(tmp_path, f"{source}:/entry/data/data", "--above", "9", "--mask", mask)
    assert np.array_equal(defined(sparse, data.shape), good(data, masked) & (data > 9))
    sparse = imported(tmp_path, f"{source}:/entry/data/data", "--mask", mask)
    assert np.array_equal(defined(sparse, data.shape), good(data, masked))


def test_a_mask_of_modules(tmp_path):
    data = detector("<u2", (4, 3, 60, 70))
    masked = np.random.default_rng(4).random((3, 60, 70)) < 0.1
    make(tmp_path / "mask.h5", mask=masked.astype("<i4"))
    source = make(tmp_path / "dense.h5", d=data)
    for chunk in ("1,3,60,70", "2,1,20,70", "4,2,60,35"):
        sparse = imported(tmp_path, source, "--mask", f"{tmp_path}/mask.h5:/mask", "--sigma", "4", "--chunk",
                          chunk)
        kept = spots(data, 4, np.broadcast_to(masked, data.shape))
        assert np.array_equal(defined(sparse, data.shape), kept)


def test_a_mask_of_the_detector_that_does_not_fit_is_none(tmp_path):
    data = detector("<u2")
    for mask in (np.ones((90, 111), "u4"), np.ones((90, 110), "f4"), np.ones(90, "u4")):
        source = nexus(tmp_path / "run.h5", data, mask)
        sparse = imported(tmp_path, f"{source}:/entry/data/data", "--above", "9")
        assert np.array_equal(defined(sparse, data.shape), good(data) & (data > 9))


def test_thresholds_fail(tmp_path):
    complex_type = np.zeros((2, 8, 9), "c8")
    source = make(tmp_path / "dense.h5", d=scattered((2, 8, 9)), line=np.arange(4), c=complex_type,
                  wrong=np.zeros((9, 8), "u1"), real=np.zeros((8, 9), "f4"))
    new = tmp_path / "new.h5"
    for option, value in (("--above", "x"), ("--above", "nan"), ("--above", "inf"), ("--above", ""),
                          ("--above", "3x"), ("--sigma", "0"), ("--sigma", "-1"), ("--sigma", "nan"),
                          ("--sigma", "5,3"), ("--mask", "mask.h5"), ("--mask", "nothing"), ("--mask", ":/b")):
        failed("import", f"{source}:/d", new, option, value, says=option[2:] if value != ":/b" else ":/b",
               code=USAGE)
    for options in (["--above", "3"], ["--sigma", "3"], ["--mask", f"{source}:/d"]):
        failed("import", f"{source}:/line", new, *options, says="rank 2")
        failed("import", f"{source}:/c", new, *options, says="want integers or floating-point")
    failed("import", f"{source}:/d", new, "--mask", f"{source}:/none", says="no such dataset")
    failed("import", f"{source}:/d", new, "--mask", f"{tmp_path}/none.h5:/d", says="No such file")
    for name in ("wrong", "real", "line", "d"):
        failed("import", f"{source}:/d", new, "--mask", f"{source}:/{name}", says="dims of a frame")
    assert files_in(tmp_path) == ["dense.h5"]


# ---- Full frames ----


def selected(path):
    with h5py.File(path) as f:
        return f["d_selected"][...]


def full(kept, every):
    """What is defined when so many-th frames are full, and what of them was selected."""
    defined_too, of_full = kept.copy(), np.zeros(kept.shape, "u1")
    defined_too[::every] = True
    of_full[::every] = kept[::every]
    return defined_too, of_full


@pytest.mark.parametrize("chunk", ["1,90,110", "4,90,110", "3,20,50"])
def test_what_was_selected_of_full_frames(tmp_path, chunk):
    data = detector("<u2", (7, 90, 110))
    source = make(tmp_path / "dense.h5", d=data)
    for options, kept in ((["--roi", "10:30,20:40"], None), (["--sigma", "5"], spots(data, 5)),
                          (["--above", "20", "--sigma", "4"], spots(data, 4) & (data > 20))):
        if kept is None:
            kept = np.zeros(data.shape, bool)
            kept[:, 10:30, 20:40] = True
        sparse = imported(tmp_path, source, "--full-every", "3", "--chunk", chunk, *options)
        expected, of_full = full(kept, 3)
        assert np.array_equal(defined(sparse, data.shape), expected)
        found = selected(tmp_path / "sparse.h5")
        assert found.dtype == "u1" and np.array_equal(found, of_full)
        # as a user has it: the region of any frame, and what is in it
        for frame in range(7):
            region = found[frame] == 1 if frame % 3 == 0 else defined(sparse, data.shape)[frame]
            assert np.array_equal(region, kept[frame])


def test_what_was_selected_by_a_value(tmp_path):
    data = scattered((7, 40, 50))
    source = make(tmp_path / "dense.h5", d=data)
    sparse = imported(tmp_path, source, "--full-every", "2", undefined="0")
    expected, of_full = full(data > 0, 2)
    assert np.array_equal(defined(sparse, data.shape), expected)
    assert np.array_equal(selected(tmp_path / "sparse.h5"), of_full)


def test_every_frame_full(tmp_path):
    data = detector("<i4", (4, 60, 70))
    source = make(tmp_path / "dense.h5", d=data)
    imported(tmp_path, source, "--full-every", "1", "--sigma", "4")
    assert np.array_equal(selected(tmp_path / "sparse.h5"), spots(data, 4))


def test_what_was_selected_of_an_image(tmp_path):
    data = scattered((40, 50))
    imported(tmp_path, make(tmp_path / "dense.h5", d=data), "--full-every", "5", "--roi", "2:9,3:4")
    expected = np.zeros(data.shape, "u1")
    expected[2:9, 3] = 1
    assert np.array_equal(selected(tmp_path / "sparse.h5"), expected)


def test_what_was_selected_of_a_sparse_source(tmp_path):
    data = scattered((5, 40, 50), share=0.3)
    first = tmp_path / "first.h5"
    done("import", make(tmp_path / "dense.h5", d=data), f"{first}:/d")
    sparse = imported(tmp_path, first, "--full-every", "2", "--above", "50")
    kept = data > 50
    expected = kept.copy()
    expected[::2] = data[::2] > 0
    assert np.array_equal(defined(sparse, data.shape), expected)
    assert np.array_equal(selected(tmp_path / "sparse.h5"), full(kept, 2)[1])


def test_frames_that_are_not_full_take_no_room_in_what_was_selected(tmp_path):
    data = detector("<u2", (9, 90, 110))
    imported(tmp_path, make(tmp_path / "dense.h5", d=data), "--full-every", "4", "--sigma", "5")
    with h5py.File(tmp_path / "sparse.h5") as f:
        assert f["d_selected"].chunks == (1, 90, 110)
        assert f["d_selected"].id.get_storage_size() < 3 * 2000


def test_what_was_selected_of_all_datasets(tmp_path):
    data = scattered((5, 40, 50))
    source = make(tmp_path / "dense.h5", **{"one/a": data, "one/b": data[:4]})
    new = tmp_path / "new.h5"
    done("import", "--all", source, new, "--full-every", "2", "--above", "50")
    with h5py.File(new) as f:
        assert np.array_equal(f["one/a_selected"][...], full(data > 50, 2)[1])
        assert np.array_equal(f["one/b_selected"][...], full(data[:4] > 50, 2)[1])


def test_a_name_that_is_there_already_is_refused(tmp_path):
    source = make(tmp_path / "dense.h5", d=scattered((5, 40, 50)))
    new = make(tmp_path / "new.h5", d_selected=np.arange(3))
    before = new.read_bytes()
    failed("import", source, new, "--full-every", "2", says="/d_selected: ")
    assert new.read_bytes() == before
