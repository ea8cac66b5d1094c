"""Frames as detectors of X-ray facilities write them, one in a chunk, compressed by filters for which
h5py wants a plugin. The readers take turns in fresh mounts; a filter that h5py has no plugin for is
read by the mounts alone."""

import contextlib
import os

import h5py
import numpy as np

from dense import read_h5py
from harness import (COLD, DEFAULT, DIRECT, H5PY, TURN, Ratios, Sparsefs, print_table, rotated, row,
                     touch_memory)

ROWS, COLUMNS = 2167, 2070
BACKGROUND = 0.3  # mean counts per pixel
SPOTS = 500  # in a frame
SPOT_COUNTS = 2000  # mean of their peaks
MASKED = 0xFFFFFFFF  # gaps between modules
MODULE_ROWS, MODULE_COLUMNS, GAP_ROWS, GAP_COLUMNS = 512, 1030, 38, 10
MOST_FRAMES = 16  # a raw frame has 18 MB

# The words of sparsectl, and the registered id, by which h5py finds the plugin.
FILTERS = {"bslz4": ("bitshuffle=lz4", 32008), "lz4": ("lz4", 32004), "zstd": ("zstd", 32015),
           "blosc": ("blosc", 32001)}
READERS = [DEFAULT, DIRECT, H5PY]


def frame_of(random):
    frame = random.poisson(BACKGROUND, (ROWS, COLUMNS)).astype("<u4")
    y, x = random.integers(2, ROWS - 2, SPOTS), random.integers(2, COLUMNS - 2, SPOTS)
    peaks = random.exponential(SPOT_COUNTS, SPOTS)
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            frame[y + dy, x + dx] += random.poisson(peaks / 2 ** (abs(dy) + abs(dx))).astype("<u4")
    for first in range(MODULE_ROWS, ROWS, MODULE_ROWS + GAP_ROWS):
        frame[first:first + GAP_ROWS] = MASKED
    for first in range(MODULE_COLUMNS, COLUMNS, MODULE_COLUMNS + GAP_COLUMNS):
        frame[:, first:first + GAP_COLUMNS] = MASKED
    return frame


def count(bench):
    return min(bench.frames, MOST_FRAMES)


def make_files(bench):
    random = np.random.default_rng(6)
    frames = np.array([frame_of(random) for _ in range(count(bench))])
    plain = bench.directory / "facility.h5"
    with h5py.File(plain, "w") as file:
        file.create_dataset("d", data=frames, chunks=(1, ROWS, COLUMNS))
    for name, (words, _) in FILTERS.items():
        bench.run_sparsectl("export", "--filter", words, plain, bench.directory / f"facility-{name}.h5")
    plain.unlink()
    return frames


def check(frames, hdf5, mounts, with_h5py):
    for who, mount in mounts.items():
        for number, frame in enumerate(frames):
            if (mount.files / f"{number:06d}.raw").read_bytes() != frame.tobytes():
                raise SystemExit(f"{who}, {hdf5.name}: frame {number} differs")
    if with_h5py:
        with h5py.File(hdf5, "r") as file:
            if not np.array_equal(file["d"][()], frames):
                raise SystemExit(f"{H5PY}, {hdf5.name}: frames differ")


def measure_filter(bench, name, frames):
    hdf5 = bench.directory / f"facility-{name}.h5"
    with_h5py = h5py.h5z.filter_avail(FILTERS[name][1])
    buffer = np.zeros((ROWS, COLUMNS), "<u4")
    for repeat in range(bench.rounds):
        with contextlib.ExitStack() as stack:
            mounts = {who: stack.enter_context(Sparsefs(bench, hdf5, options))
                      for who, options in ((DEFAULT, ""), (DIRECT, "direct_io"))}
            readers = {who: lambda numbers, mount=mount: bench.read_files(mount, numbers)[0]
                       for who, mount in mounts.items()}
            if with_h5py:
                readers[H5PY] = lambda numbers: read_h5py(hdf5, numbers, buffer)
            for turn in range(len(frames) // TURN):
                numbers = range(turn * TURN, (turn + 1) * TURN)
                for who, read in rotated(readers.items(), turn + repeat):
                    bench.add(name, COLD, who, read(numbers))
            if repeat == 0:
                check(frames, hdf5, mounts, with_h5py)


def measure(bench):
    touch_memory(bench)
    frames = make_files(bench)
    os.sync()  # or the writing of the inputs to the disk goes on beside the measurements
    for name in FILTERS:
        measure_filter(bench, name, frames)


def report(bench):
    print(f"\n{count(bench)} frames of {ROWS} x {COLUMNS} uint32 (17.1 MiB): Poisson background of mean "
          f"{BACKGROUND}, {SPOTS} spots,\ngaps of {MASKED}; chunk = frame; fresh mounts; medians")
    for name in FILTERS:
        size = (bench.directory / f"facility-{name}.h5").stat().st_size / count(bench) / 2**20
        print(f"  {name}: {size:.2f} MiB per frame")
    print_table("ms/frame", READERS,
                [(f"{name}, {COLD}", row(bench, name, COLD, READERS)) for name in FILTERS])
    ratios = Ratios(bench)
    for name in FILTERS:
        if (name, COLD, H5PY) in bench.seconds:
            for who in (DIRECT, DEFAULT):
                ratios.below(name, COLD, who, H5PY)


SECTIONS = {"facility": (measure, report)}
