"""Frames as detectors of X-ray facilities write them, one in a chunk, compressed by filters for which
h5py wants a plugin; directly, and through a virtual dataset of four such files. Whoever reads goes
through all frames in order, in a fresh mount: what is read ahead for one takes no time of another.
A filter that h5py has no plugin for is read by the mounts alone."""

import contextlib
import multiprocessing
import os
import time

import h5py
import numpy as np

with contextlib.suppress(ImportError):
    import hdf5plugin  # noqa: F401: finds its plugins for h5py

from dense import read_h5py
from harness import (CEILING, CEILING_DIRECT, CEILING_OF, DEFAULT, DIRECT, H5PY, MOUNTS, ONE, TWO, Ceiling, Ratios,
                     Sparsefs, print_table, rotated, row, touch_memory)

ROWS, COLUMNS = 2167, 2070
BACKGROUND = 0.3  # mean counts per pixel
SPOTS = 500  # in a frame
SPOT_COUNTS = 2000  # mean of their peaks
MASKED = 0xFFFFFFFF  # gaps between modules
MODULE_ROWS, MODULE_COLUMNS, GAP_ROWS, GAP_COLUMNS = 512, 1030, 38, 10
MOST_FRAMES = 32  # a raw frame has 18 MB
SOURCES = 4  # of the virtual datasets

# The words of sparsectl, and the registered id, by which h5py finds the plugin.
FILTERS = {"bslz4": ("bitshuffle=lz4", 32008), "lz4": ("lz4", 32004), "zstd": ("zstd", 32015),
           "blosc": ("blosc", 32001)}
VIRTUAL = ", virtual"
OPTIONS = {DEFAULT: "", DIRECT: "direct_io"}
READERS = [DEFAULT, DIRECT, H5PY]
# Decoding alone, by all processors, and that and the way through FUSE one after the other, which is the
# least that two readers can take on two processors.
BARE = "bare decoding"
LEAST = {DEFAULT: "least", DIRECT: "least d_io"}
# The most of h5py's time that one reader may take, and the least of the throughput of two processes
# of h5py that two readers must have.
GOALS = {DIRECT: (0.65, 1.8), DEFAULT: (1.1, 1.2)}


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
    part = count(bench) // SOURCES
    parts = {f"-{i}": frames[i * part:(i + 1) * part] for i in range(SOURCES)}
    plain = bench.directory / "facility.h5"
    for suffix, some in {"": frames, **parts}.items():
        with h5py.File(plain, "w") as file:
            file.create_dataset("d", data=some, chunks=(1, ROWS, COLUMNS))
        for name, (words, _) in FILTERS.items():
            bench.run_sparsectl("export", "--filter", words, plain,
                                bench.directory / f"facility-{name}{suffix}.h5")
    plain.unlink()
    for name in FILTERS:
        layout = h5py.VirtualLayout(frames.shape, "<u4")
        for i in range(SOURCES):
            layout[i * part:(i + 1) * part] = h5py.VirtualSource(f"facility-{name}-{i}.h5", "d",
                                                                 (part, ROWS, COLUMNS))
        with h5py.File(bench.directory / f"facility-{name}{VIRTUAL}.h5", "w") as file:
            file.create_virtual_dataset("d", layout)
    return frames


def check(bench, hdf5, frames, with_h5py):
    for who, options in OPTIONS.items():
        with Sparsefs(bench, hdf5, options) as mount:
            for number, frame in enumerate(frames):
                if (mount.files / f"{number:06d}.raw").read_bytes() != frame.tobytes():
                    raise SystemExit(f"{who}, {hdf5.name}: frame {number} differs")
    if with_h5py:
        with h5py.File(hdf5, "r") as file:
            if not np.array_equal(file["d"][()], frames):
                raise SystemExit(f"{H5PY}, {hdf5.name}: frames differ")


def read_after(barrier, hdf5, numbers):
    buffer = np.zeros((ROWS, COLUMNS), "<u4")
    barrier.wait()
    read_h5py(hdf5, numbers, buffer)
    barrier.wait()


def time_h5py(hdf5, n, readers):
    """Seconds that so many processes take for all frames."""
    barrier = multiprocessing.Barrier(readers + 1)
    processes = [multiprocessing.Process(target=read_after, args=(barrier, hdf5, range(i, n, readers)))
                 for i in range(readers)]
    for process in processes:
        process.start()
    barrier.wait()
    start = time.perf_counter()
    barrier.wait()
    seconds = time.perf_counter() - start
    for process in processes:
        process.join()
    return seconds


def time_mount(bench, hdf5, options, n, readers):
    with Sparsefs(bench, hdf5, options) as mount:
        return bench.read_files(mount, range(n), "-j", readers)[1]


def time_ceiling(bench, name, raw, options, readers):
    """With the settings of the kernel that a mount of such a file has."""
    hdf5 = bench.directory / f"facility-{name}.h5"
    with Sparsefs(bench, hdf5, options) as mount, Ceiling(bench, raw, ROWS * COLUMNS * 4, options) as ceiling:
        ceiling.tune_like(mount)
        return bench.read_files(ceiling, range(count(bench)), "-j", readers)[1]


def has_plugin(name):
    return h5py.h5z.filter_avail(FILTERS[name][1])


def readers_of(name):
    return [(name + suffix, who) for who in (READERS if has_plugin(name) else OPTIONS) for suffix in ("", VIRTUAL)]


def measure_filter(bench, name, raw):
    """All that is compared takes turns: a frame by each way to read it, and what bounds them."""
    n = count(bench)
    for repeat in range(bench.rounds):
        for what, who in rotated(readers_of(name), repeat):
            hdf5 = bench.directory / f"facility-{what}.h5"
            for state, readers in ((ONE, 1), (TWO, 2)):
                seconds = (time_h5py(hdf5, n, readers) if who == H5PY else
                           time_mount(bench, hdf5, OPTIONS[who], n, readers))
                bench.add(what, state, who, [seconds / n])
        for who in (CEILING, CEILING_DIRECT):
            for state, readers in ((ONE, 1), (TWO, 2)):
                bench.add(name, state, who, [time_ceiling(bench, name, raw, MOUNTS[who], readers) / n])
        elapsed, _ = map(float, bench.run_tool("bare_filters", bench.directory / f"facility-{name}.h5", n, n,
                                               os.cpu_count()).split())
        bench.add(name, TWO, BARE, [elapsed / n])
    for who, least in LEAST.items():
        bench.add(name, TWO, least, [bench.median(name, TWO, BARE) + bench.median(name, TWO, CEILING_OF[who])])


def measure(bench):
    touch_memory(bench)
    frames = make_files(bench)
    raw = bench.directory / "facility.raw"
    frames.tofile(raw)
    os.sync()  # or the writing of the inputs to the disk goes on beside the measurements
    for name in FILTERS:
        for suffix in ("", VIRTUAL):
            check(bench, bench.directory / f"facility-{name}{suffix}.h5", frames, has_plugin(name))
        measure_filter(bench, name, raw)


def report(bench):
    print(f"\n{count(bench)} frames of {ROWS} x {COLUMNS} uint32 (17.1 MiB): Poisson background of mean "
          f"{BACKGROUND}, {SPOTS} spots,\ngaps of {MASKED}; chunk = frame; {VIRTUAL[2:]}: {SOURCES} files; all "
          "in order, in fresh mounts; medians")
    for name in FILTERS:
        size = (bench.directory / f"facility-{name}.h5").stat().st_size / count(bench) / 2**20
        print(f"  {name}: {size:.2f} MiB per frame")
    cases = [name + suffix for name in FILTERS for suffix in ("", VIRTUAL)]
    columns = [*READERS, CEILING, CEILING_DIRECT, BARE]
    print_table("ms/frame", columns,
                [(f"{what}, {state}", row(bench, what, state, columns))
                 for what in cases for state in (ONE, TWO)])
    ratios = Ratios(bench)
    for name in FILTERS:
        for who, (one, two) in GOALS.items():
            if (name, ONE, H5PY) in bench.seconds and (who == DIRECT or name == "bslz4"):
                ratios.below(name, ONE, who, H5PY, one)
                ratios.faster(name, TWO, who, H5PY, two)
                ratios.faster(name, TWO, LEAST[who], H5PY, two)
        for who, least in LEAST.items():
            ratios.below(name, TWO, who, least)
        for who in OPTIONS:
            for state in (ONE, TWO):
                ratios.within(name + VIRTUAL, name, state, who, 1.15)


SECTIONS = {"facility": (measure, report)}
