"""Series: data_000001, data_000002, ... of a group as one dataset `data`, against h5py."""
import contextlib
import errno
import json
import os
import shutil
import subprocess

import h5py
import numpy as np
import pytest

from conftest import BUILD, TOP, wait_until

HIDDEN = "a_data_000002.h5"


def frames_of(shape, first, dtype="<u2"):
    return (np.arange(np.prod(shape)) + 7 * first).astype(dtype).reshape(shape)


def make_member(path, data, low=None, high=None, name="entry/data/data", **options):
    with h5py.File(path, "a", libver="latest") as f:
        filtered = {"chunks": (1, *data.shape[1:]), "compression": "gzip"} if data.size else {}
        made = f.create_dataset(name, data=data, **(options or filtered))
        for key, value in (("image_nr_low", low), ("image_nr_high", high)):
            if value is not None:
                made.attrs[key] = value


def make_master(folder, counts=(5, 5, 3), numbered=True, lows=None, frame=(6, 7), **options):
    """A master with external links, as a detector writes it; gives its path and all frames."""
    folder.mkdir(exist_ok=True)
    parts, low = [], 1
    with h5py.File(folder / "a_master.h5", "w", libver="latest") as master:
        group = master.create_group("entry/data")
        for i, n in enumerate(counts):
            data = frames_of((n, *frame), sum(counts[:i]))
            low = lows[i] if lows else low
            name = f"a_data_{i + 1:06}.h5"
            make_member(folder / name, data, *((np.int32(low), np.int32(low + n - 1)) if numbered else ()),
                        **options)
            group[f"data_{i + 1:06}"] = h5py.ExternalLink(name, "/entry/data/data")
            low += n
            parts.append(data)
        master["entry/pixel_mask"] = np.zeros(3, "u4")
    return folder / "a_master.h5", np.concatenate(parts)


def make_hard(path, members, group="entry/data"):
    for name, (data, *numbers) in members.items():
        make_member(path, data, *numbers, name=f"{group}/{name}")
    return path


def described(mount, path="entry/data/data"):
    return json.loads((mount / path / "dataset.json").read_text())


def states(mount, path="entry/data/data"):
    return [source["state"] for source in described(mount, path)["sources"]]


def read(mount, i, path="entry/data/data"):
    return (mount / path / f"frames/{i}.raw").read_bytes()


def check(mount, content, path="entry/data/data"):
    root, whole = mount / path, content.tobytes()
    assert len(os.listdir(root / "raw")) == len(content)
    for i in np.random.default_rng(3).permutation(len(content)):
        assert read(mount, i, path) == content[i].tobytes(), i
        assert np.array_equal(np.load(root / f"npy/{i:06}.npy"), content[i])
        assert (root / f"tiff/{i:06}.tif").read_bytes().endswith(content[i].tobytes())
    assert (root / "stack.raw").read_bytes() == whole
    assert np.array_equal(np.load(root / "stack.npy", mmap_mode="r"), content)
    with open(root / "stack.raw", "rb") as f:
        for at in range(0, len(whole), 129):
            assert os.pread(f.fileno(), 333, at) == whole[at:at + 333]
    assert np.fromfile(root / "csr/indptr.raw", "<i8")[-1] == content.size
    dims = described(mount, path)
    assert dims["dims"] == dims["max_dims"] == list(content.shape)
    assert (dims["dtype"], dims["layout"]) == (content.dtype.str, "virtual")


def refuses(mount, words, path="entry/data/data"):
    """It is there, cannot be read, and the log says why."""
    assert "data" in os.listdir((mount / path).parent)
    with pytest.raises(OSError) as error:
        os.listdir(mount / path)
    assert error.value.errno == errno.EIO
    assert words in mount.log()


def sparsectl(*arguments, code=0):
    done = subprocess.run([BUILD / "sparsectl", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize("counts", [(5, 5, 3), (1, 1, 1, 1), (4,)], ids=str)
@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "in order"])
@pytest.mark.parametrize("options", [(), ("rw",), ("follow=1",)], ids=["ro", "rw", "follow"])
def test_a_master(mounts, tmp_path, counts, numbered, options):
    path, content = make_master(tmp_path, counts, numbered)
    mount = mounts(path, *options)
    names = ["data", *(f"data_{i + 1:06}" for i in range(len(counts)))]
    assert sorted(os.listdir(mount / "entry/data")) == names
    check(mount, content)
    sources = described(mount)["sources"]
    assert [source["file"] for source in sources] == [f"a_{name}.h5" for name in names[1:]]
    assert {(source["dataset"], source["state"]) for source in sources} == {("/entry/data/data", "ok")}
    assert read(mount, 0, "entry/data/data_000001") == content[0].tobytes()
    assert os.stat(mount / "entry/data/data/frames/0.raw").st_mode & 0o222 == 0


@pytest.mark.parametrize("options", [{}, {"chunks": (2, 4, 5)}, {"maxshape": (None, 6, 7)}],
                         ids=["gzip", "cut", "unlimited"])
def test_how_members_are_stored(mounts, tmp_path, options):
    path, content = make_master(tmp_path, (5, 6, 2), **options)
    check(mounts(path), content)


def test_the_same_as_a_virtual_dataset(mounts, tmp_path):
    """As newer masters have it; where it is there it is shown, and no series."""
    path, content = make_master(tmp_path)
    layout = h5py.VirtualLayout(content.shape, content.dtype)
    for i in range(3):
        n = (5, 5, 3)[i]
        layout[5 * i:5 * i + n] = h5py.VirtualSource(f"a_data_{i + 1:06}.h5", "entry/data/data",
                                                     (n, 6, 7))[:]
    newer = tmp_path / "newer_master.h5"
    with h5py.File(newer, "w", libver="latest") as f:
        f.create_virtual_dataset("entry/data/data", layout)
    mount, other = mounts(path), mounts(newer)
    check(other, content)
    one, two = described(mount), described(other)
    for sources in one["sources"], two["sources"]:
        for source in sources:
            source["dataset"] = source["dataset"].lstrip("/")
    assert one == two


def test_what_is_in_the_file_is_shown_instead(mounts, tmp_path):
    data = frames_of((3, 4, 5), 0)
    path = make_hard(tmp_path / "a.h5", {"data_000001": (data,)})
    make_hard(path, {"data_000001": (data,)}, "soft")
    with h5py.File(path, "a") as f:
        f["entry/data/data"] = np.arange(6)
        f["soft/data"] = h5py.SoftLink("nowhere")
    mount = mounts(path)
    assert described(mount)["dims"] == [6]
    assert os.readlink(mount / "soft/data") == "nowhere"
    assert sorted(os.listdir(mount / "soft")) == ["data", "data_000001"]
    assert "no such dataset" in sparsectl("info", f"{path}:/soft/data", code=1)


@pytest.mark.parametrize("numbers", [(1, 2), (0, 1), (3, 11), (999999, 1000000)], ids=str)
def test_members_in_the_same_file(mounts, tmp_path, numbers):
    data = frames_of((7, 4, 5), 0)
    path = make_hard(tmp_path / "a.h5", {f"data_{numbers[1]:06}": (data[3:],),
                                         f"data_{numbers[0]:06}": (data[:3],)})
    with h5py.File(path, "a") as f:
        f["other"] = h5py.SoftLink("/entry/data/data")
    mount = mounts(path, "rw")
    check(mount, data)
    check(mount, data, "other")
    # What is written into a member is shown, and nothing is written through the series.
    changed = frames_of((4, 5), 100)
    (mount / f"entry/data/data_{numbers[1]:06}/frames/1.raw").write_bytes(changed.tobytes())
    data[4] = changed
    check(mount, data)
    with pytest.raises(OSError):
        open(mount / "entry/data/data/frames/0.raw", "r+b").write(b"1")
    with pytest.raises(OSError):
        open(mount / "entry/data/data/frames/7.raw", "wb")
    with pytest.raises(FileExistsError):
        os.mkdir(mount / "entry/data/data")
    with pytest.raises(OSError):
        os.rmdir(mount / "entry/data/data")
    check(mount, data)


def test_hard_members_of_a_followed_file_are_no_series(mounts, tmp_path):
    path = make_hard(tmp_path / "a.h5", {"data_000001": (frames_of((3, 4, 5), 0),)})
    mount = mounts(path, "follow=1")
    assert os.listdir(mount / "entry/data") == ["data_000001"]


@pytest.mark.parametrize("names", [("data_1", "data_2"), ("data_00001",), ("data_0000001",),
                                   ("image_000001", "image_000002"), ("data_000001x",)], ids=str)
def test_other_names_are_no_series(mounts, tmp_path, names):
    path = make_hard(tmp_path / "a.h5", {name: (frames_of((2, 3, 4), 0),) for name in names})
    mount = mounts(path)
    assert sorted(os.listdir(mount / "entry/data")) == sorted(names)
    assert not os.path.exists(mount / "entry/data/data")


def test_what_has_no_frames_is_no_series(mounts, tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f.create_group("groups/data_000001")
        f.create_group("groups/data_000002")
        f["curves/data_000001"] = np.arange(5)
        f["texts/data_000001"] = np.array([["a", "b"]], h5py.special_dtype(vlen=str))
        f["texts/data_000002"] = f["texts/data_000001"]
    mount = mounts(path)
    for group in "groups", "curves", "texts":
        assert "data" not in os.listdir(mount / group)
        assert not os.path.exists(mount / group / "data")


def test_four_axes_and_two(mounts, tmp_path):
    four, two = frames_of((5, 2, 3, 4), 0, "<f4"), frames_of((5, 4), 0, ">i8")
    path = make_hard(tmp_path / "a.h5", {"data_000001": (four[:2],), "data_000002": (four[2:],)}, "four")
    make_hard(path, {"data_000001": (two[:4],), "data_000002": (two[4:],)}, "two")
    mount = mounts(path)
    assert described(mount, "four/data")["dims"] == [5, 2, 3, 4]
    for i in range(5):
        assert read(mount, i, "four/data") == four[i].tobytes()
    assert read(mount, 0, "two/data") == two.tobytes()


def test_members_without_elements(mounts, tmp_path):
    data = frames_of((3, 4, 5), 0)
    path = make_hard(tmp_path / "a.h5", {"data_000001": (data[:0],), "data_000002": (data,),
                                         "data_000003": (data[:0],)}, "some")
    make_hard(path, {"data_000001": (data[:0],)}, "none")
    make_hard(path, {"data_000001": (data[:, :0],), "data_000002": (data[:, :0],)}, "flat")
    mount = mounts(path)
    check(mount, data, "some/data")
    assert states(mount, "some/data") == ["ok"] * 3
    for group, dims in ("none", [0, 4, 5]), ("flat", [6, 0, 5]):
        assert described(mount, f"{group}/data")["dims"] == dims
        assert (mount / group / "data/stack.raw").read_bytes() == b""


def test_numbers_of_images_decide(mounts, tmp_path):
    """Not the names of members: and the lowest is frame 0."""
    path, content = make_master(tmp_path, (5, 4), lows=(105, 101))
    check(mounts(path), np.concatenate([content[5:], content[:5]]))


@pytest.mark.parametrize("form", [np.int64, lambda n: np.array([n], ">u2"), float, str],
                         ids=["scalar", "array", "float", "text"])
def test_forms_of_numbers(mounts, tmp_path, form):
    data = frames_of((5, 3, 4), 0)
    check(mounts(make_hard(tmp_path / "a.h5", {"data_000001": (data[3:], form(4)),
                                               "data_000002": (data[:3], form(1))})), data)


@pytest.mark.parametrize("value", [1.5, -1, "one", 2 ** 63, np.array([1, 2]), h5py.Empty(np.dtype("i4"))],
                         ids=str)
def test_what_is_no_number(mounts, tmp_path, value):
    path = make_hard(tmp_path / "a.h5", {"data_000001": (frames_of((2, 3, 4), 0), 1),
                                         "data_000002": (frames_of((2, 3, 4), 0),)})
    with h5py.File(path, "a") as f:
        f["entry/data/data_000002"].attrs["image_nr_low"] = value
    refuses(mounts(path, expect_log=True), "data_000002: it")


def is_missing(mount, i):
    with pytest.raises(OSError) as error:
        read(mount, i)
    return error.value.errno == errno.EIO


def test_gaps_between_images(mounts, tmp_path):
    """The member before it has less than it should."""
    path, content = make_master(tmp_path, (5, 5, 3), lows=(1, 8, 13))
    whole = np.concatenate([content[:5], np.zeros((2, 6, 7), "<u2"), content[5:]])
    mount = mounts(path, expect_log=True)
    assert len(os.listdir(mount / "entry/data/data/raw")) == 15
    for i in range(15):
        assert is_missing(mount, i) if i in (5, 6) else read(mount, i) == whole[i].tobytes(), i
    assert states(mount) == ["too short", "ok", "ok"]
    assert "has not all that is mapped" in mount.log()
    check(mounts(path, "missing=fill", expect_log=True), whole)


def test_a_member_that_no_link_leads_to(mounts, tmp_path):
    path, content = make_master(tmp_path)
    with h5py.File(path, "a") as f:
        del f["entry/data/data_000002"]
    whole = content.copy()
    whole[5:10] = 0
    mount = mounts(path, expect_log=True)
    for i in range(13):
        assert is_missing(mount, i) if 5 <= i < 10 else read(mount, i) == whole[i].tobytes(), i
    assert "data_000002 in this file does not exist" in mount.log()
    check(mounts(path, "missing=fill", expect_log=True), whole)


@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
def test_a_file_that_is_missing(mounts, tmp_path, which):
    path, content = make_master(tmp_path)
    name = f"a_data_{which + 1:06}.h5"
    os.rename(tmp_path / name, tmp_path / "away")
    whole = content.copy()
    whole[5 * which:5 * which + 5] = 0
    mount = mounts(path, expect_log=True)
    filled = mounts(path, "missing=fill", expect_log=True)
    for i in range(13):
        assert (is_missing(mount, i) if 5 * which <= i < 5 * which + 5
                else read(mount, i) == whole[i].tobytes()), i
    assert states(mount) == ["missing" if i == which else "ok" for i in range(3)]
    assert f"in {name} does not exist" in mount.log()
    check(filled, whole)
    # It may come later, if it is what it must be.
    os.rename(tmp_path / "away", tmp_path / name)
    assert read(mount, 5 * which + 1) == content[5 * which + 1].tobytes()


@pytest.mark.parametrize("data", [frames_of((5, 6, 8), 0), frames_of((6, 6, 7), 0),
                                  frames_of((5, 6, 7), 0, "<u4")], ids=["wide", "long", "type"])
def test_what_comes_later_must_fit(mounts, tmp_path, data):
    path, content = make_master(tmp_path)
    os.remove(tmp_path / HIDDEN)
    mount = mounts(path, expect_log=True)
    assert is_missing(mount, 5)
    make_member(tmp_path / HIDDEN, data, 6, 10)
    assert is_missing(mount, 5) and is_missing(mount, 9)
    assert read(mount, 10) == content[10].tobytes()


def test_the_last_file_is_missing(mounts, tmp_path):
    """Nobody knows how many frames it has."""
    path, content = make_master(tmp_path)
    os.remove(tmp_path / "a_data_000003.h5")
    mount = mounts(path, expect_log=True)
    check(mount, content[:10])
    assert states(mount) == ["ok", "ok", "missing"]
    assert "data_000003 cannot be opened, and nothing behind it: the series ends" in mount.log()


def test_all_files_are_missing(mounts, tmp_path):
    path, _ = make_master(tmp_path)
    for i in range(3):
        os.remove(tmp_path / f"a_data_{i + 1:06}.h5")
    mount = mounts(path)
    assert "data" not in os.listdir(mount / "entry/data")
    assert not os.path.exists(mount / "entry/data/data")


def test_without_numbers_nobody_knows_what_is_missing(mounts, tmp_path):
    path, _ = make_master(tmp_path, numbered=False)
    os.remove(tmp_path / HIDDEN)
    refuses(mounts(path, expect_log=True),
            "data_000003: one before it is missing, and it has no image_nr_low")


def test_a_damaged_file(mounts, tmp_path):
    path, content = make_master(tmp_path)
    (tmp_path / HIDDEN).write_bytes(b"no HDF5 file")
    mount = mounts(path, expect_log=True)
    assert is_missing(mount, 5) and read(mount, 10) == content[10].tobytes()
    assert states(mount) == ["ok", "unreadable", "ok"]


@pytest.mark.parametrize("second, words", [
    (frames_of((2, 4, 6), 0), "data_000002: its frames have other dims"),
    (frames_of((2, 4, 5, 1), 0), "data_000002: its frames have other dims"),
    (frames_of((2, 4, 5), 0, ">u2"), "data_000002: it has another datatype"),
    (np.array(5), "data_000002: its frames have other dims")], ids=["dims", "rank", "type", "scalar"])
def test_members_that_do_not_fit(mounts, tmp_path, second, words):
    path = make_hard(tmp_path / "a.h5", {"data_000001": (frames_of((2, 4, 5), 0),)})
    with h5py.File(path, "a") as f:
        f["entry/data/data_000002"] = second
    mount = mounts(path, expect_log=True)
    refuses(mount, words)
    assert read(mount, 1, "entry/data/data_000001") == frames_of((2, 4, 5), 0)[1].tobytes()
    assert words in sparsectl("info", f"{path}:/entry/data/data", code=1)
    assert "data_000002" in sparsectl("info", path)


def test_images_that_two_members_have(mounts, tmp_path):
    path, _ = make_master(tmp_path, (5, 5), lows=(1, 5))
    refuses(mounts(path, expect_log=True), "data_000002: other members have images of its numbers")


def test_circles(mounts, tmp_path):
    """A member that leads to the series itself is missing."""
    data = frames_of((2, 3, 4), 0)
    for name, members in (("a.h5", {}), ("b.h5", {"data_000003": (data, 5, 6)})):
        with h5py.File(tmp_path / name, "w") as f:
            f["entry/data/data_000001"] = h5py.ExternalLink(name, "/entry/data/data")
            f["entry/data/data_000002"] = h5py.SoftLink("/entry/data/data")
        make_hard(tmp_path / name, members)
    mount = mounts(tmp_path / "a.h5")
    assert "data" not in os.listdir(mount / "entry/data")
    mount = mounts(tmp_path / "b.h5", expect_log=True)
    for i in range(6):
        assert is_missing(mount, i) if i < 4 else read(mount, i) == data[i - 4].tobytes()


def test_a_dot_is_no_file(mounts, tmp_path):
    path = tmp_path / "a.h5"
    make_member(path, frames_of((2, 3, 4), 0), name="d")
    with h5py.File(path, "a") as f:
        f["g/data_000001"] = h5py.ExternalLink(".", "/d")
    assert sorted(os.listdir(mounts(path) / "g")) == ["data_000001", "group.json"]


def test_files_elsewhere(mounts, tmp_path):
    """As sources of virtual datasets: in the folder of the master, or where that is allowed."""
    path, content = make_master(tmp_path / "run")
    os.rename(tmp_path / "run" / HIDDEN, tmp_path / "elsewhere.h5")
    os.symlink("../elsewhere.h5", tmp_path / "run" / HIDDEN)
    refuses(mounts(path, expect_log=True), f"its file, {HIDDEN}, may not be opened")
    check(mounts(path, f"external_files={tmp_path}"), content)
    os.rename(tmp_path / "run/a_data_000001.h5", tmp_path / "first.h5")
    os.symlink("../first.h5", tmp_path / "run/a_data_000001.h5")
    assert "data" not in os.listdir(mounts(path, expect_log=True) / "entry/data")


def test_a_master_behind_a_link(mounts, tmp_path):
    _, content = make_master(tmp_path / "below")
    with h5py.File(tmp_path / "top.h5", "w") as f:
        f["group"] = h5py.ExternalLink("below/a_master.h5", "/entry/data")
        f["one"] = h5py.ExternalLink("below/a_master.h5", "/entry/data/data")
    mount = mounts(tmp_path / "top.h5")
    check(mount, content, "group/data")
    check(mount, content, "one")


def test_another_mount_shows_what_has_come(mounts, tmp_path):
    path, content = make_master(tmp_path)
    late = tmp_path / "a_data_000003.h5"
    os.rename(late, tmp_path / "late.h5")
    mount = mounts(path, expect_log=True)
    check(mount, content[:10])
    os.rename(tmp_path / "late.h5", late)
    mount.unmount()
    check(mounts(path), content)


def shows(mount, content, path="entry/data/data"):
    """Waits until the series has as many frames, and looks at all of them."""
    wait_until(lambda: (mount / path / "frames").exists()
               and len(os.listdir(mount / path / "frames")) == 2 * len(content) and
               described(mount, path)["frames"] == len(content))
    check(mount, content, path)


def shown(mount, content, path="entry/data/data"):
    """Waits until the bytes are these, of as many frames as there were."""
    wait_until(lambda: (mount / path / "stack.raw").read_bytes() == content.tobytes())
    check(mount, content, path)


class Arriving:
    """A master whose data files are elsewhere at first."""

    def __init__(self, folder, counts, **options):
        self.path, self.content = make_master(folder, counts, **options)
        self.folder, self.away = folder, folder / "away"
        self.ends = np.cumsum(counts)
        self.away.mkdir()
        for i in range(len(counts)):
            os.rename(self.folder / f"a_data_{i + 1:06}.h5", self.away / f"{i + 1}.h5")

    def bring(self, i):
        os.rename(self.away / f"{i}.h5", self.folder / f"a_data_{i:06}.h5")
        return self.content[:self.ends[i - 1]]


FOLLOW = "follow=0.05"


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "in order"])
@pytest.mark.parametrize("options", [(), ("hdf5=inside",)], ids=["apart", "inside"])
def test_members_come(mounts, tmp_path, numbered, options):
    """Into a series that is there, is open, and is cached by the kernel."""
    made = Arriving(tmp_path, (4, 5, 1, 3), numbered=numbered)
    made.bring(1)
    mount = mounts(made.path, FOLLOW, *options, expect_log=True)
    root = mount / "entry/data/data"
    with open(root / "frames/0.raw", "rb") as frame, open(root / "stack.raw", "rb") as stack:
        for i in 2, 3, 4:
            content = made.bring(i)
            shows(mount, content)
            assert os.fstat(stack.fileno()).st_size == content.nbytes
            assert os.pread(stack.fileno(), content.nbytes, 0) == content.tobytes()
            assert states(mount) == ["ok"] * i + ["missing"] * (4 - i)
        assert frame.read() == made.content[0].tobytes()
    assert os.listdir(mount / "entry/data").count("data") == 1


def test_a_member_comes_before_others(mounts, tmp_path):
    """By the numbers of its images it has a place, where frames were missing."""
    made = Arriving(tmp_path, (2, 3, 2))
    made.bring(1), made.bring(3)
    mount = mounts(made.path, FOLLOW, expect_log=True)
    wait_until(lambda: described(mount)["frames"] == 7)
    with pytest.raises(OSError):
        read(mount, 3)
    assert read(mount, 6) == made.content[6].tobytes()
    made.bring(2)
    shown(mount, made.content)


def test_the_first_member_comes(mounts, tmp_path):
    made = Arriving(tmp_path, (3, 2))
    mount = mounts(made.path, FOLLOW, expect_log=True)
    assert "data" not in os.listdir(mount / "entry/data")
    assert not (mount / "entry/data/data").exists()
    for i in 1, 2:
        shows(mount, made.bring(i))
    assert "data" in os.listdir(mount / "entry/data")


def grow(dataset, frames):
    n = len(dataset)
    dataset.resize(n + len(frames), axis=0)
    dataset[n:] = frames


@pytest.mark.parametrize("high", [None, 8, 20], ids=["", "reached", "not reached"])
def test_the_last_member_grows(mounts, tmp_path, high):
    """By a detector's writer in SWMR mode, which says before how many images it is to have."""
    frames = frames_of((9, 6, 7), 0)
    path, _ = make_master(tmp_path, (2, 1), maxshape=(None, 6, 7), chunks=(1, 6, 7))
    for i, numbers in (1, (0, 1)), (2, (2, high)):
        with h5py.File(tmp_path / f"a_data_{i:06}.h5", "r+", libver="latest") as f:
            data = f["entry/data/data"]
            data[:] = frames[2 * (i - 1):][:len(data)]
            for key in list(data.attrs):
                del data.attrs[key]
            for key, value in zip(("image_nr_low", "image_nr_high"), numbers):
                if high is not None:
                    data.attrs[key] = value
    with h5py.File(tmp_path / "a_data_000002.h5", "r+", libver="latest") as f:
        f.swmr_mode = True
        f.flush()
        mount = mounts(path, FOLLOW)
        shows(mount, frames[:3])
        data = f["entry/data/data"]
        for end in 4, 7, 9:
            grow(data, frames[2 + len(data):end])
            f.flush()
            shows(mount, frames[:end])
        frames[4] += 1  # one that was cached
        data[2] = frames[4]
        f.flush()
        shown(mount, frames)
    check(mount, frames)


def test_members_grow_between_closings(mounts, tmp_path):
    """Also another than the last one, which are not numbered: what is behind it moves."""
    path, content = make_master(tmp_path, (2, 3), numbered=False, maxshape=(None, 6, 7), chunks=(1, 6, 7))
    mount = mounts(path, FOLLOW, expect_log=True)
    check(mount, content)
    more = frames_of((4, 6, 7), 50)
    for i, place in (2, 5), (1, 2):
        with h5py.File(tmp_path / f"a_data_{i:06}.h5", "r+", libver="latest") as f:
            grow(f["entry/data/data"], more[2 * i - 2:2 * i])
        content = np.concatenate([content[:place], more[2 * i - 2:2 * i], content[place:]])
        shows(mount, content)


def test_a_member_is_replaced_by_a_longer_one(mounts, tmp_path):
    """As rsync does it."""
    path, content = make_master(tmp_path, (2, 2))
    mount = mounts(path, FOLLOW, expect_log=True)
    with open(mount / "entry/data/data/stack.raw", "rb") as stack:
        assert stack.read() == content.tobytes()
        content = np.concatenate([content, frames_of((3, 6, 7), 90)])
        make_member(tmp_path / "new.h5", content[2:], 3, 7)
        os.rename(tmp_path / "new.h5", tmp_path / "a_data_000002.h5")
        shows(mount, content)
        assert os.pread(stack.fileno(), content.nbytes, 0) == content.tobytes()


def test_the_master_gets_another_link(mounts, tmp_path):
    path, content = make_master(tmp_path, (2, 2, 2))
    with h5py.File(path, "r+", libver="latest") as f:
        del f["entry/data/data_000003"]
    mount = mounts(path, FOLLOW, expect_log=True)
    shows(mount, content[:4])
    with h5py.File(path, "r+", libver="latest") as f:
        f["entry/data/data_000003"] = h5py.ExternalLink("a_data_000003.h5", "/entry/data/data")
    shows(mount, content)


def test_a_member_that_goes_counts(mounts, tmp_path):
    """Who reads numbers of frames is not told fewer; what it had cannot be read."""
    path, content = make_master(tmp_path, (2, 2, 2))
    mount = mounts(path, FOLLOW, expect_log=True)
    check(mount, content)
    os.rename(tmp_path / "a_data_000002.h5", tmp_path / "gone.h5")

    def is_gone():
        try:
            return bool(read(mount, 2)) and False
        except OSError:
            return True
    wait_until(is_gone)
    assert described(mount)["frames"] == 6
    assert read(mount, 5) == content[5].tobytes()
    os.rename(tmp_path / "gone.h5", tmp_path / "a_data_000002.h5")
    wait_until(lambda: not is_gone())
    shown(mount, content)


def test_what_does_not_fit_is_left_out(mounts, tmp_path):
    path, content = make_master(tmp_path, (2, 2))
    with h5py.File(path, "r+", libver="latest") as f:
        f["entry/data/data_000003"] = h5py.ExternalLink("late.h5", "/entry/data/data")
    mount = mounts(path, FOLLOW, expect_log=True)
    check(mount, content)
    make_member(tmp_path / "odd.h5", frames_of((2, 3, 3), 0), 5, 6)
    os.rename(tmp_path / "odd.h5", tmp_path / "late.h5")
    wait_until(lambda: "data_000003: its frames have other dims than those of the first" in mount.log())
    check(mount, content)
    right = frames_of((2, 6, 7), 4)
    make_member(tmp_path / "odd.h5", right, 5, 6)
    os.rename(tmp_path / "odd.h5", tmp_path / "late.h5")
    shows(mount, np.concatenate([content, right]))
    assert mount.log().count("the series stays as it is") == 1


def test_a_mount_writes_a_member(mounts, tmp_path):
    path, content = make_master(tmp_path, (2, 1), numbered=False)
    subprocess.run([BUILD / "sparsectl", "create", tmp_path / "new.h5", "/entry/data/data", "--dims", "0,6,7",
                    "--maxdims", "inf,6,7", "--chunk", "1,6,7", "--dtype", "uint16"], check=True)
    os.rename(tmp_path / "new.h5", tmp_path / "a_data_000002.h5")
    writer, mount = mounts(tmp_path / "a_data_000002.h5", "rw"), mounts(path, FOLLOW)
    shows(mount, content[:2])
    content = content[:2]
    for i in range(3):
        frame = frames_of((1, 6, 7), 70 + i)
        (writer / f"entry/data/data/frames/{i}.raw").write_bytes(frame.tobytes())
        descriptor = os.open(writer.root, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        content = np.concatenate([content, frame])
        shows(mount, content)


def test_a_series_without_follow_stays(mounts, tmp_path):
    made = Arriving(tmp_path, (2, 2))
    content = made.bring(1)
    mount = mounts(made.path, expect_log=True)
    check(mount, content)
    made.bring(2)
    check(mount, content)


def test_a_followed_master_is_written(mounts, tmp_path):
    """The series stays what it was, and all else goes on."""
    path, content = make_master(tmp_path, (5, 5))
    subprocess.run([BUILD / "sparsectl", "create", tmp_path / "b_master.h5", "/new", "--dims", "0,4,4",
                    "--maxdims", "inf,4,4", "--chunk", "1,4,4", "--dtype", "uint16"], check=True)
    with h5py.File(tmp_path / "b_master.h5", "a") as f:
        for i in 1, 2:
            f[f"data_{i:06}"] = h5py.ExternalLink(f"a_data_{i:06}.h5", "/entry/data/data")
    writer, mount = mounts(tmp_path / "b_master.h5", "rw"), mounts(tmp_path / "b_master.h5", "follow=0.05")
    check(mount, content, "data")
    with open(mount / "data/frames/0.raw", "rb") as held:
        for i in range(3):
            (writer / f"new/frames/{i}.raw").write_bytes(bytes([i]) * 32)
            os.sync()
            descriptor = os.open(writer.root, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            wait_until((mount / f"new/frames/{i}.raw").exists)
            check(mount, content, "data")
        assert held.read() == content[0].tobytes()


def test_many_files(mounts, tmp_path):
    """More than are kept open, and a thread for each."""
    path, content = make_master(tmp_path, (2,) * 150, frame=(30, 40))
    check(mounts(path), content)


def test_listing_opens_no_file_but_the_first(mounts, tmp_path):
    """Those that are opened anyway are: by who asks what their links lead to."""
    data = frames_of((6, 50, 60), 0)
    path = make_hard(tmp_path / "a.h5", {f"data_{i + 1:06}": (data[i:i + 1],) for i in range(6)})
    with h5py.File(path, "a") as f:
        f["entry/data/data_000003"].attrs["image_nr_low"] = "none"  # found when it is opened
    mount = mounts(path, expect_log=True)
    assert len(os.listdir(mount / "entry/data")) == 7
    assert os.stat(mount / "entry/data/data").st_nlink >= 1
    assert not mount.log()
    refuses(mount, "data_000003: its image_nr_low is no number")


def test_commands(tmp_path):
    path, content = make_master(tmp_path)
    series = f"{path}:/entry/data/data"
    assert "13 x 6 x 7" in sparsectl("info", series)
    whole = sparsectl("info", path)
    assert whole.count(": virtual") == 1 and "/entry/data/data: virtual" in whole
    listed = json.loads(sparsectl("info", "--json", path))
    assert "/entry/data/data" in json.dumps(listed)
    for command, options in (("export", ()), ("import", ("--undefined", "0"))):
        for source in series, path:  # it is the only one of the file
            made = tmp_path / "made.h5"
            sparsectl(command, source, made, *options)
            again = tmp_path / "again.h5"
            if command == "import":
                sparsectl("export", made, again)
            with h5py.File(again if command == "import" else made) as f:
                assert np.array_equal(f["entry/data/data"][()], content)
            for name in made, again:
                name.unlink(missing_ok=True)
    dumped = [line.split(",") for line in sparsectl("dump", series).splitlines()]
    values = [int(line[-1]) for line in dumped if line[0].isdigit()]
    assert values == [int(value) for value in content.ravel()] or len(values) == np.count_nonzero(content)
    assert "sound" in sparsectl("check", path)
    sparsectl("repack", path, tmp_path / "copy_master.h5")
    assert sparsectl("info", f"{tmp_path}/copy_master.h5:/entry/data/data").count("13 x 6 x 7") == 1


def test_a_series_stands_for_its_members(tmp_path):
    data = frames_of((5, 3, 4), 0)
    path = make_hard(tmp_path / "a.h5", {"data_000001": (data[:2],), "data_000002": (data[2:],)})
    sparsectl("export", path, tmp_path / "made.h5")
    with h5py.File(tmp_path / "made.h5") as f:
        assert np.array_equal(f["entry/data/data"][()], data)
    for wrong in "/data", "/entry/data/data/data", "/nowhere/data":
        assert "there is no such dataset" in sparsectl("info", f"{path}:{wrong}", code=1)


def test_sparsectl_says_which_series_cannot_be_shown(tmp_path):
    path = make_hard(tmp_path / "d.h5", {"data_000001": (frames_of((2, 3, 4), 0),),
                                         "data_000002": (frames_of((2, 3, 5), 0),)})
    done = subprocess.run([BUILD / "sparsectl", "info", path], capture_output=True, text=True)
    assert done.returncode == 0 and "/entry/data/data_000002" in done.stdout
    said = done.stderr.splitlines()
    assert len(said) == 1 and f"{path}: /entry/data/data: the series cannot be shown: " in said[0]
    assert "the series cannot be shown" not in sparsectl("info", f"{path}:/nowhere", code=1)


# Nothing is installed or built here: that is shown on machines that lack it (tests/machines).
READY = "".join(f"{name}() {{ :; }}\n" for name in ("install_missing", "install_offered", "provide_mtab", "build_into"))


@contextlib.contextmanager
def quickstart(folder, file):
    """What it prints, and where it has mounted the file; its temporary files are in folder / "tmp"."""
    top, temporary = folder / "top", folder / "tmp"
    for path in top, temporary:
        path.mkdir(exist_ok=True)
    shutil.copy(TOP / "quickstart.sh", top)
    (top / "setup.sh").write_text(READY + "build_packages= codec_packages= show_packages=\n")
    (top / "build").symlink_to(BUILD.absolute())
    before = set(temporary.iterdir())
    done = subprocess.run(["sh", top / "quickstart.sh", file.name], cwd=file.parent, capture_output=True, text=True,
                          env={**os.environ, "TMPDIR": str(temporary)})
    made = set(temporary.iterdir()) - before
    try:
        assert done.returncode == 0, done.stderr
        mountpoint, = made
        yield done.stdout, mountpoint
    finally:
        for path in filter(os.path.ismount, map(os.path.realpath, temporary.iterdir())):
            subprocess.run(["umount" if os.geteuid() == 0 else "fusermount3", *(["-u"] if os.geteuid() else []),
                            path], check=True)


def test_quickstart_presents_the_series(tmp_path):
    master, content = make_master(tmp_path / "measured")
    with quickstart(tmp_path, master) as (said, mountpoint):
        assert f"$ ls {mountpoint}/entry/data/data\n" in said
        assert '"source_count": 3' in said
        check(mountpoint, content)


def test_quickstart_of_a_file_of_another_user(tmp_path):
    """Who has made a link of the name that others would expect, and names that are for the terminal."""
    name = "a\x1b]0;b\x07\u009bc\u202ed"
    (tmp_path / "tmp").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / f"tmp/sparsefs-{name}.h5").symlink_to(tmp_path / "victim")
    with h5py.File(tmp_path / f"{name}.h5", "w") as file:
        file[name] = np.zeros((4, 8, 8), "u2")
    with quickstart(tmp_path, tmp_path / f"{name}.h5") as (said, mountpoint):
        shown = [line for line in said.splitlines() if line.startswith("$ ") or "mount" in line]
        assert len(shown) > 4 and not set("".join(shown)) & set("\x1b\x07\u009b\u202e"), shown
        assert mountpoint.stat().st_dev != (tmp_path / "victim").stat().st_dev == tmp_path.stat().st_dev


def test_quickstart_of_names_that_are_options(tmp_path):
    """The second line of such a name would be an option of sed, which writes to the file that the rest of it names."""
    mine, evil = tmp_path / "mine", tmp_path / "evil"
    mine.write_text("mine")
    evil.mkdir()
    (evil / "dataset.json").symlink_to(mine)
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file[f"a\n-ew {evil}"] = np.zeros((40, 8, 8), "u2")
        file["plain"] = np.zeros((4, 8, 8), "u2")
    with quickstart(tmp_path, tmp_path / "f.h5") as (said, mountpoint):
        assert f"$ ls {mountpoint}/plain\n" in said
    assert mine.read_text() == "mine"
