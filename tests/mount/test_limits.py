"""What a file can claim, and how far it is believed: memory and time of what it costs to look."""
import errno
import functools
import itertools
import pathlib
import zlib

import h5py
import numpy as np
import pytest

DEFLATE, SHUFFLE, FLETCHER32, SZIP = 1, 2, 3, 4
LZF = 32000
KIB, MIB = 1 << 10, 1 << 20


def peak(pid):
    """The most memory that a process has had, in bytes."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * KIB


def with_filters(file, name, data, chunks, filters):
    """A dataset whose filters stand in this order, which h5py's own keywords do not give."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(chunks)
    for number in filters:
        if number == DEFLATE:
            plist.set_filter(DEFLATE, h5py.h5z.FLAG_MANDATORY, (6,))
        elif number == SZIP:
            plist.set_szip(h5py.h5z.SZIP_NN_OPTION_MASK, 8)
        elif number == SHUFFLE:
            plist.set_shuffle()
        elif number == FLETCHER32:
            plist.set_fletcher32()
        else:
            plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL)
    space = h5py.h5s.create_simple(data.shape)
    dataset = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(data.dtype),
                                           space, plist))
    dataset[...] = data
    return dataset


ORDERS = [order for n in (2, 3) for order in
          itertools.product((DEFLATE, LZF, SHUFFLE, FLETCHER32), repeat=n)
          if sum(number in (DEFLATE, LZF) for number in order) > 1]
ORDERS += [(SZIP, DEFLATE), (SZIP, LZF, FLETCHER32), (SHUFFLE, SZIP, DEFLATE),
           (DEFLATE,) * 6, (FLETCHER32, LZF, SHUFFLE, DEFLATE, FLETCHER32, DEFLATE)]


def test_filters_that_compress_one_behind_the_other(mounts, tmp_path):
    """What libhdf5 has made of them, in every order."""
    path = tmp_path / "nested.h5"
    random = np.random.default_rng(1)
    kinds = {"smooth": np.arange(6000, dtype="u2").reshape(3, 40, 50) // 7,
             "noise": random.integers(0, 65536, (3, 40, 50), "u2")}
    with h5py.File(path, "w", libver="latest") as file:
        for i, order in enumerate(ORDERS):
            for kind, data in kinds.items():
                with_filters(file, f"{kind}{i}", data, (2, 30, 50), order)
    mount = mounts(path)
    with h5py.File(path) as file:
        for i in range(len(ORDERS)):
            for kind, data in kinds.items():
                assert (file[f"{kind}{i}"][...] == data).all()
                assert (mount / f"{kind}{i}/stack.raw").read_bytes() == data.tobytes(), ORDERS[i]


@functools.lru_cache
def zeros(size, times):
    """Zeros in `times` zlib streams, one in the other."""
    stream, piece = zlib.compressobj(9), bytes(16 * MIB)
    stored = b"".join(stream.compress(piece) for _ in range(size // len(piece))) + stream.flush()
    for _ in range(times - 1):
        stored = zlib.compress(stored, 9)
    return stored


def bombs(path, chunk, times):
    """A small chunk of which stored bytes make 512 MiB, and a sound one."""
    stored = zeros(512 * MIB, times)
    with h5py.File(path, "w") as file:
        data = np.arange(np.prod(chunk), dtype="u1").reshape(chunk)
        good = with_filters(file, "good", data, chunk, (DEFLATE,) * times)
        bad = with_filters(file, "bad", np.zeros(chunk, "u1"), chunk, (DEFLATE,) * times)
        bad.id.write_direct_chunk((0,) * len(chunk), stored)
        assert good.shape == bad.shape
    return data, len(stored)


@pytest.mark.parametrize("options", ["ro", "ro,hdf5=inside", "default"])
def test_little_that_becomes_gigabytes(mounts, tmp_path, options):
    path = tmp_path / "bomb.h5"
    data, size = bombs(path, (1, 64, 64), 3)
    assert size < 16 * KIB
    mount = mounts(path, options, expect_log=True)
    with pytest.raises(OSError) as error:
        (mount / "bad/frames/0.raw").read_bytes()
    assert error.value.errno == errno.EIO
    assert "/bad: chunk (0,0,0)" in mount.log() and "compressed data are damaged" in mount.log()
    assert (mount / "good/frames/0.raw").read_bytes() == data.tobytes()
    assert peak(mount.process.pid) < 128 * MIB
