"""What cannot be mounted or read: one clear line, the right exit code, and nothing else suffers."""
import contextlib
import json
import os
import re
import shutil
import struct
import stat
import subprocess

import h5py
import numpy as np
import pytest

import files
from compare import check_dataset
from conftest import BUILD, counting_plugin
from conftest import is_mounted

USAGE, MOUNT_FAILED = 1, 32


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.h5"
    with h5py.File(path, "w") as f:
        f["d"] = files.integers((3, 4, 5))
    return path


@pytest.fixture
def mountpoint(tmp_path):
    path = tmp_path / "mnt"
    path.mkdir()
    yield path
    while is_mounted(path):
        subprocess.run(["umount", "-i", "-l", path], check=True)


def refused(process, code, *words):
    """It ended with this code and one line that holds these words."""
    assert process.returncode == code, process.stderr
    assert process.stderr.count("\n") == 1, process.stderr
    for word in words:
        assert word in process.stderr
    assert process.stdout == ""


@pytest.mark.parametrize("foreground", [[], ["-f"]], ids=["daemon", "foreground"])
def test_files_that_cannot_be_mounted(run, tmp_path, good, mountpoint, foreground):
    empty = tmp_path / "empty.h5"
    empty.touch()
    text = tmp_path / "text.h5"
    text.write_text("This is no HDF5 file.\n" * 100)
    with h5py.File(tmp_path / "latest.h5", "w", libver="latest") as f:
        f["d"] = np.arange(1000)
    for source in (good, tmp_path / "latest.h5"):
        whole = source.read_bytes()
        for size in (1, 8, 47, 95, len(whole) // 2, len(whole) - 1):
            cut = tmp_path / "cut.h5"
            cut.write_bytes(whole[:size])
            refused(run(*foreground, cut, mountpoint), MOUNT_FAILED, "cut.h5")
    refused(run(*foreground, empty, mountpoint), MOUNT_FAILED, "empty.h5", "signature")
    refused(run(*foreground, text, mountpoint), MOUNT_FAILED, "text.h5", "signature")
    refused(run(*foreground, "/dev/null", mountpoint), MOUNT_FAILED, "not a regular file")
    refused(run(*foreground, tmp_path / "missing.h5", mountpoint), MOUNT_FAILED, "missing.h5",
            "No such file")
    assert not is_mounted(mountpoint)


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root")
def test_unreadable_file_and_mount_point(tmp_path, good, mountpoint):
    good.chmod(0)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    from conftest import SPARSEFS
    readable = tmp_path / "sparsefs"
    shutil.copy(SPARSEFS, readable)
    mountpoint.chmod(0o777)
    command = ["setpriv", "--reuid=65534", "--clear-groups", readable, good, mountpoint]
    process = subprocess.run(command, capture_output=True, text=True)
    refused(process, USAGE, "good.h5", "Permission denied")
    good.chmod(0o444)
    mountpoint.chmod(0o700)
    process = subprocess.run(command, capture_output=True, text=True)
    refused(process, USAGE, mountpoint.name, "Permission denied")


def test_file_open_for_writing(run, good, mountpoint):
    with h5py.File(good, "a"):
        refused(run(good, mountpoint), MOUNT_FAILED, "good.h5", "open for writing")
    assert run(good, mountpoint).returncode == 0


def test_file_left_open_by_a_crash(run, tmp_path, mountpoint):
    """libhdf5's own mark of a writer that never closed."""
    path = tmp_path / "marked.h5"
    with h5py.File(path, "w", libver="latest") as f:
        f["d"] = np.arange(10)
        f.swmr_mode = True
        f.flush()
        shutil.copy(path, tmp_path / "left.h5")
    refused(run(tmp_path / "left.h5", mountpoint), MOUNT_FAILED, "left.h5", "open for writing",
            "h5clear")


def test_mount_points_that_cannot_be_used(run, tmp_path, good, mountpoint):
    refused(run(good, tmp_path / "nothing"), MOUNT_FAILED, "nothing", "No such file")
    refused(run(good, good), MOUNT_FAILED, "not a directory")
    (mountpoint / "something").touch()
    refused(run(good, mountpoint), MOUNT_FAILED, "not empty")
    assert run("-o", "nonempty", good, mountpoint).returncode == 0
    assert (mountpoint / "d").is_dir()
    refused(run(good, mountpoint), MOUNT_FAILED, "busy")
    refused(run("-o", "nonempty", good, mountpoint), MOUNT_FAILED, "busy")


@pytest.mark.parametrize("arguments", [
    ["-o", "no_such_option"], ["-o", "frame_rank=x"], ["-o", "frame_rank=33"], ["-o", "first=2"],
    ["-o", "cache_size=0"], ["-o", "cache_size=12Q"], ["-o", "cache_size=99999999999T"],
    ["-o", "threads=0"], ["-o", "umask=9"], ["-o", "uid=root"], ["-o", "follow=never"],
    ["-o", "image_size=0"], ["--log=loud"], ["--no-such-option"], ["-z"], ["-o", "ro,nonsense"]],
    ids=" ".join)
def test_options_that_do_not_exist(run, good, mountpoint, arguments):
    refused(run(*arguments, good, mountpoint), USAGE, arguments[-1].split(",")[-1])
    assert not is_mounted(mountpoint)


def test_wrong_number_of_arguments(run, good, mountpoint):
    refused(run(), USAGE, "FILE")
    refused(run(good), USAGE, "MOUNTPOINT")
    refused(run(good, mountpoint, mountpoint), USAGE, "too much")


def test_missing_filter_hides_nothing_else(mounts, tmp_path):
    """A filter through a plugin that is there, and not there."""
    path = tmp_path / "filters.h5"
    data = files.integers((3, 40, 50), "<u2")
    plugins = counting_plugin(tmp_path)["HDF5_PLUGIN_PATH"]
    script = ("import h5py, numpy, sys\n"
              "f = h5py.File(sys.argv[1], 'w')\n"
              "d = numpy.fromfile(sys.argv[2], '<u2').reshape(3, 40, 50)\n"
              "f.create_dataset('counted', data=d, chunks=(1, 40, 50), compression=480)\n"
              "f.create_dataset('few', data=d[0, 0, :5], chunks=(5,), compression=480)\n"
              "f.create_dataset('good', data=d)\n")
    data.tofile(tmp_path / "data.raw")
    subprocess.run(["/usr/bin/python3", "-c", script, path, tmp_path / "data.raw"], check=True,
                   env=dict(os.environ, HDF5_PLUGIN_PATH=plugins))

    with_plugin = mounts(path, environment={"HDF5_PLUGIN_PATH": plugins})
    assert (with_plugin / "counted/stack.raw").read_bytes() == data.tobytes()

    without = mounts(path, environment={"HDF5_PLUGIN_PATH": str(tmp_path)}, expect_log=True)
    assert set(os.listdir(without.root)) == {"counted", "few", "good", ".sparsefs"}
    assert (without / "good/stack.raw").read_bytes() == data.tobytes()
    # Listings do not depend on data, of which one line in the log says why they cannot be read.
    subprocess.run(["ls", "-lR", without.root], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["du", "-a", without.root], check=True, stdout=subprocess.DEVNULL)
    assert os.stat(without / "counted/frames/0.raw").st_size == 4000
    assert without.log() == ""
    described = json.loads((without / "counted/dataset.json").read_text())
    assert described["missing_filter"]["id"] == 480
    assert "counting" in described["missing_filter"]["name"]
    assert "missing_filter" not in json.loads((with_plugin / "counted/dataset.json").read_text())
    assert "missing_filter" not in json.loads((without / "good/dataset.json").read_text())
    for name in ("counted/frames/1.raw", "counted/stack.npy", "few/frames/0.raw", "few/value.txt"):
        with pytest.raises(OSError, match="Input/output error"):
            (without / name).read_bytes()
    assert len(re.findall(r"/counted: chunk \(1,0,0\) at address \d+: filter 480 is not available",
                          without.log())) == 1
    assert without.log().count("\n") == 2
    # tar(1) does not open files of no bytes, and would leave out silently what is one of them.
    archived = subprocess.run(["tar", "-C", without / "few", "-cf", tmp_path / "a.tar", "."],
                              capture_output=True, text=True, check=False)
    assert archived.returncode == 2 and "value.txt: Cannot open: Input/output error" in archived.stderr


def test_damaged_chunks_hide_nothing_else(mounts, tmp_path):
    """A flipped byte in compressed or checksummed data, a chunk beyond the end of the file."""
    path = tmp_path / "damaged.h5"
    data = files.integers((4, 50, 60), "<u4")
    with h5py.File(path, "w", libver="latest") as f:
        for name, options in (("gzip", {"compression": "gzip"}), ("sum", {"fletcher32": True})):
            f.create_dataset(name, data=data, chunks=(1, 50, 60), **options)
        places = {name: files.stored_chunks(f[name])[2] for name in f}
    content = bytearray(path.read_bytes())
    for place in places.values():
        content[place.byte_offset + place.size // 2] ^= 0x55
    path.write_bytes(content)
    mount = mounts(path, expect_log=True)
    for name, place in places.items():
        for frame in (0, 1, 3):
            assert (mount / name / "frames" / f"{frame}.raw").read_bytes() == data[frame].tobytes()
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output error"):
                (mount / name / "frames/2.raw").read_bytes()
        assert f"/{name}: chunk (2,0,0) at address {place.byte_offset}: " in mount.log()


def test_absurd_stored_size(mounts, tmp_path):
    """A chunk of 8 KiB that claims to be stored in 3 GiB, which are in the file, is not read."""
    path = tmp_path / "absurd.h5"
    with h5py.File(path, "w") as f:
        d = f.create_dataset("d", (2, 64, 64), "u2", chunks=(1, 64, 64), compression=1)
        d[...] = 7
        chunk = files.stored_chunks(d)[1]
    content = bytearray(path.read_bytes())
    key = struct.pack("<IIQQQQQ", chunk.size, 0, 1, 0, 0, 0, chunk.byte_offset)
    at = content.index(key)
    content[at:at + 4] = struct.pack("<I", 3 << 30)
    content[40:48] = struct.pack("<Q", 5 << 30)  # end of file in a superblock of version 0
    path.write_bytes(content)
    os.truncate(path, 5 << 30)
    mount = mounts(path, expect_log=True)
    assert (mount / "d/frames/0.raw").read_bytes() == b"\7\0" * 4096
    with pytest.raises(OSError, match="Input/output error"):
        (mount / "d/frames/1.raw").read_bytes()
    assert "/d: chunk (1,0,0)" in mount.log() and "stored size is absurd" in mount.log()


def test_damaged_object_hides_nothing_else(mounts, tmp_path):
    """A dataset whose header does not check: it is listed, and reading it is EIO."""
    path = tmp_path / "damaged.h5"
    with h5py.File(path, "w", libver="latest") as f:
        f["bad"] = files.integers((3, 4, 5))
        f["good"] = files.integers((3, 4, 5))
        f["bad"].attrs["units"] = "counts"
        address = h5py.h5o.get_info(f["bad"].id).addr
    content = bytearray(path.read_bytes())
    content[address + 20] ^= 0xFF
    path.write_bytes(content)
    mount = mounts(path, expect_log=True)
    assert set(os.listdir(mount.root)) == {"bad", "good", ".sparsefs"}
    assert subprocess.run(["ls", "-lR", mount / "good"], check=True, capture_output=True)
    with pytest.raises(OSError, match="Input/output error"):
        os.listdir(mount / "bad")
    for call in lambda: os.listxattr(mount / "bad"), lambda: os.getxattr(mount / "bad", "user.units"):
        with pytest.raises(OSError, match="Input/output error"):
            call()
    assert f"at address {address}: " in mount.log() and "checksum" in mount.log()
    with h5py.File(path) as f:
        check_dataset(mount / "good", f["good"], "/good")


@pytest.mark.parametrize("options", ["ro", "rw", "ro,follow", "ro,hdf5=inside"])
@pytest.mark.parametrize("name", ["dataset", "group"])
def test_what_can_be_read_again_is_looked_up_again(mounts, tmp_path, name, options):
    """It could not be read when it was looked up, and can be when it is listed."""
    path = tmp_path / "passing.h5"
    with h5py.File(path, "w", libver="earliest") as f:
        f["dataset"] = files.integers((3, 4, 5))
        f.create_group("group/inside")
        address = h5py.h5o.get_info(f[name].id).addr
    mount = mounts(path, options, expect_log=True)
    with open(path, "r+b", buffering=0) as file:
        header = os.pread(file.fileno(), 64, address)
        os.pwrite(file.fileno(), bytes(64), address)
        fd = os.open(mount / name, os.O_PATH)
        os.pwrite(file.fileno(), header, address)
    try:
        with contextlib.suppress(OSError):  # who has it open may have to open it again
            os.listdir(f"/proc/self/fd/{fd}")
        assert ("frames" if name == "dataset" else "inside") in os.listdir(mount / name)
    finally:
        os.close(fd)


def test_damaged_group_is_not_an_empty_one(mounts, tmp_path):
    """Whoever lists or copies it is told so, with handles of directories (follow) or without."""
    path = tmp_path / "damaged.h5"
    with h5py.File(path, "w", libver="latest") as f:
        f.create_group("bad/inside")
        f.create_group("good/inside")
        address = h5py.h5o.get_info(f["bad"].id).addr
    content = bytearray(path.read_bytes())
    content[address + 10] ^= 0xFF
    path.write_bytes(content)
    for options in ("ro", "ro,follow"):
        mount = mounts(path, options, expect_log=True)
        for command in ("ls", "-R"), ("find",), ("du",), ("tar", "cf", "-", "--exclude=.sparsefs"):
            done = subprocess.run([*command, mount.root], check=False, capture_output=True)
            assert done.returncode != 0 and b"/bad" in done.stderr, command
            assert b"Input/output error" in done.stderr and b"/good" not in done.stderr
        with pytest.raises(OSError, match="Input/output error"):
            shutil.copytree(mount / "bad", tmp_path / "copy")
        mount.unmount()


def can_be_listed(path, group):
    """Whether libhdf5 does not take the group for damaged: releases differ."""
    with h5py.File(path) as f:
        try:
            list(f[group])
        except RuntimeError:
            return False
    return True


@pytest.mark.parametrize("name", [b"\0\0\0\0\0", b"a/c/e"])
@pytest.mark.parametrize("options", ["ro", "rw", "ro,follow", "ro,hdf5=inside"])
def test_links_without_a_name_are_left_out(mounts, tmp_path, name, options):
    path = tmp_path / "nameless.h5"
    with h5py.File(path, "w", libver="earliest") as f:
        group = f.create_group("group")
        for link in ("abcde", "good", "other"):
            group[link] = files.integers((3, 4))
    content = path.read_bytes()
    at = content.index(b"abcde")
    assert content.count(b"abcde") == 1
    path.write_bytes(content[:at] + name + content[at + 5:])
    listed = can_be_listed(path, "group")
    mount = mounts(path, options, expect_log=True)
    if listed:
        assert set(os.listdir(mount / "group")) == {"good", "other"}
        assert "their names are empty, or have a slash" in mount.log()
    else:
        with pytest.raises(OSError, match="Input/output error"):
            os.listdir(mount / "group")
    assert (mount / "group/good/frames").is_dir()


def test_deep_groups_end(mounts, tmp_path):
    """Who walks a tree without an end does not keep the daemon busy with each level for longer."""
    path = tmp_path / "deep.h5"
    with h5py.File(path, "w", libver="latest", driver="core") as f:
        group = f.id
        for _ in range(200_000):
            group = h5py.h5g.create(group, b"g")
    root = mounts(path, "ro")
    fd, levels = os.open(root.root, os.O_RDONLY), 0
    try:
        while stat.S_ISDIR(os.stat("g", dir_fd=fd, follow_symlinks=False).st_mode):
            inner = os.open("g", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd, levels = inner, levels + 1
        assert levels == 4096 and os.listdir(fd) == ["g"]
        assert os.readlink("g", dir_fd=fd) == "too-many-levels-of-groups"
    finally:
        os.close(fd)


def test_attribute_of_endless_empty_lists(mounts, tmp_path):
    """Dims of 2^40 and 0: no element, but as text 2^40 pairs of brackets."""
    path = tmp_path / "brackets.h5"
    with h5py.File(path, "w") as f:
        f["d"] = 1
        space = h5py.h5s.create_simple((2**40, 0))
        h5py.h5a.create(f["d"].id, b"brackets", h5py.h5t.NATIVE_INT32, space)
        f["d"].attrs["few"] = np.zeros((2, 0), "i4")
    mount = mounts(path, expect_log=True)
    assert os.listxattr(mount / "d") == ["user.few"]
    assert json.loads((mount / "d/dataset.json").read_text())["attributes"] == {
        "brackets": None, "few": [[], []]}
    assert "is left out, as it is too large: brackets" in mount.log()


def test_file_that_shrinks_under_the_mount(mounts, tmp_path):
    """Large contiguous data is served from a mapping: the reader gets EIO, the daemon lives."""
    path = tmp_path / "shrinks.h5"
    with h5py.File(path, "w") as f:
        f["small"] = files.integers((3, 4, 5))
        f["large"] = files.integers((4, 1000, 1000), "<u4")
    mount = mounts(path, "direct_io", expect_log=True)
    frame = (mount / "large/frames/0.raw").read_bytes()
    os.truncate(path, 8 << 20)
    assert (mount / "large/frames/0.raw").read_bytes() == frame
    with pytest.raises(OSError):
        (mount / "large/frames/3.raw").read_bytes()
    assert (mount / "small/frames/0.raw").stat().st_size == 80


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bytes(mounts, tmp_path, seed):
    """Random damage anywhere in our own decoding's reach (the chunks): right values or EIO."""
    path = tmp_path / "flipped.h5"
    data = files.integers((8, 30, 40), "<u2")
    random = np.random.default_rng(seed)
    with h5py.File(path, "w", libver="latest") as f:
        f.create_dataset("d", data=data, chunks=(1, 10, 40), shuffle=True, compression="gzip",
                         fletcher32=True)
        chunks = files.stored_chunks(f["d"])
    content = bytearray(path.read_bytes())
    for chunk in random.choice(len(chunks), 8, replace=False):
        for _ in range(random.integers(1, 4)):
            at = chunks[chunk].byte_offset + random.integers(chunks[chunk].size)
            content[at] ^= int(random.integers(1, 256))
    path.write_bytes(content)
    mount = mounts(path, expect_log=True)
    refused_frames = 0
    for n in range(8):
        try:
            assert (mount / "d/frames" / f"{n}.raw").read_bytes() == data[n].tobytes()
        except OSError as error:
            assert "Input/output" in str(error)
            refused_frames += 1
    assert 0 < refused_frames <= 8
