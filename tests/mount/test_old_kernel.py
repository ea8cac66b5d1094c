"""Kernels that offer less: what a newer one has is found out at run time, and not missed. The kernel
is this one, of which old_kernel.c hides what Linux of that time did not know of FUSE."""
import errno
import mmap
import os
import re

import h5py
import numpy as np
import pytest

import model
from conftest import BUILD, wait_until
from test_export import forget, handle_of, look_by_handle, opens_handles

# The minor version and the flags of FUSE_INIT: those that include/uapi/linux/fuse.h of the time had.
KERNELS = {
    "Linux 3.10": (22, 0xffff),  # RHEL 7
    "Linux 4.18": (27, 0x3fffff),  # RHEL 8: no names or directories kept, 128 KiB a request
    "Linux 5.14": (34, 0x3fffffff),  # RHEL 9
    "nothing": (12, 0),  # the least with which writes have the size that they have now
}
EXPORT = 1 << 4  # FUSE_EXPORT_SUPPORT


@pytest.fixture(params=KERNELS)
def old(request):
    """The environment in which a mount meets an older kernel."""
    minor, flags = KERNELS[request.param]
    preloaded = [str(BUILD / "tests/mount/libold_kernel.so"), *os.environ.get("LD_PRELOAD", "").split()]
    return {"LD_PRELOAD": " ".join(preloaded), "FUSE_MINOR": str(minor), "FUSE_FLAGS": str(flags),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


def meets(mount, old):
    found = re.search(r"kernel: FUSE 7\.(\d+) of 7\.(\d+)\n", mount.log())
    assert int(found[1]) == min(int(old["FUSE_MINOR"]), int(found[2]))


@pytest.fixture
def images(tmp_path):
    path = tmp_path / "images.h5"
    pixels = np.random.default_rng(3).integers(0, 9, (300, 64, 96), "<u2")
    with h5py.File(path, "w") as f:
        f.create_dataset("entry/images", data=pixels, chunks=(1, 64, 96), compression="gzip")
        f["entry/images"].attrs["unit"] = "counts"
    return path, pixels


@pytest.mark.parametrize("option", ["threads=4", "direct_io"])
def test_reading(mounts, images, old, option):
    path, pixels = images
    mount = mounts(path, option, expect_log=True, environment=old)
    folder = mount / "entry/images"
    assert sorted(os.listdir(folder / "frames")) == sorted(f"{i}.{kind}" for i in range(300)
                                                           for kind in ("raw", "defined"))
    meets(mount, old)
    for entry in os.scandir(folder / "npy"):
        assert entry.stat().st_size == 128 + 64 * 96 * 2
    for i in range(0, 300, 7):
        assert (folder / f"frames/{i}.raw").read_bytes() == pixels[i].tobytes()
    stack = (folder / "stack.raw").read_bytes()
    assert stack == pixels.tobytes()
    assert os.getxattr(folder, "user.unit") == b"counts"
    assert np.array_equal(np.load(folder / "npy/000299.npy"), pixels[299])
    os.statvfs(folder)


@pytest.mark.parametrize("option", ["rw", "rw,direct_io"])
def test_writing(mounts, images, old, option):
    """Other views and other descriptors see it at once, as beside the newest kernel."""
    path, pixels = images
    mount = mounts(path, option, expect_log=True, environment=old)
    folder = mount / "entry/images"
    with open(folder / "npy/000005.npy", "rb") as other:
        assert other.read()[128:] == pixels[5].tobytes()
        (folder / "frames/5.raw").write_bytes(pixels[6].tobytes())
        other.seek(0)
        assert other.read()[128:] == pixels[6].tobytes()
    with open(folder / "frames/7.raw", "r+b", buffering=0) as frame:
        frame.seek(1000)
        frame.write(b"\7" * 5000)
        os.fsync(frame.fileno())
        os.truncate(folder / "frames/7.raw", 3000)
        frame.seek(0)
        assert frame.read() == pixels[7].tobytes()[:1000] + b"\7" * 2000 + b"\0" * (64 * 96 * 2 - 3000)
    os.mkdir(mount / "made")
    assert "made" in os.listdir(mount.root)
    os.rmdir(mount / "made")
    assert "made" not in os.listdir(mount.root)
    mount.unmount()
    with h5py.File(path) as f:
        assert np.array_equal(f["entry/images"][5], pixels[6])
        assert f["entry/images"][7].tobytes()[:3000] == pixels[7].tobytes()[:1000] + b"\7" * 2000
        assert "made" not in f


def test_maps(mounts, images, old):
    path, pixels = images
    mount = mounts(path, "rw", expect_log=True, environment=old)
    with open(mount / "entry/images/frames/9.raw", "r+b") as frame, mmap.mmap(frame.fileno(), 0) as pages:
        assert pages[:] == pixels[9].tobytes()
        pages[10:20] = b"\1" * 10
        pages.flush()
        assert (mount / "entry/images/npy/000009.npy").read_bytes()[138:148] == b"\1" * 10
        (mount / "entry/images/frames/9.raw").write_bytes(pixels[1].tobytes())
        assert pages[:] == pixels[1].tobytes()


def test_many_processes(tmp_path, old):
    assert model.run(tmp_path, 2, 3, workers=3, environment=old) > 0


def test_followed(mounts, images, old):
    path, pixels = images
    mount = mounts(path, "follow", expect_log=True, environment=old)
    assert (mount / "entry/images/frames/4.raw").read_bytes() == pixels[4].tobytes()
    with h5py.File(path, "r+") as f:
        f["entry/images"][4] = pixels[5]
    wait_until(lambda: (mount / "entry/images/frames/4.raw").read_bytes() == pixels[5].tobytes())


@opens_handles
def test_handles(mounts, images, old, tmp_path):
    """A server of NFS asks for what the kernel has forgotten only if that knows how to ask."""
    path, _ = images
    mount = mounts(path, expect_log=True, environment=old)
    handle = handle_of(mount / "entry/images/frames/3.raw")
    assert look_by_handle(mount, handle) == 0
    forget(mount)
    assert look_by_handle(mount, handle) == (0 if int(old["FUSE_FLAGS"]) & EXPORT else errno.ESTALE)
