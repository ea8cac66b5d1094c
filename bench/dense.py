"""Dense datasets: reading frames, and listing 100,000 of them."""

import contextlib
import os
import statistics
import subprocess
import time

import h5py
import numpy as np

from harness import (CEILING, CEILING_OF, CHUNK_CACHE, COLD, DEFAULT, DIRECT, H5PY, LIBHDF5, MOUNTS,
                     ONE, PAGE_CACHE, TWO, WARMING, WARM_CACHE, Ceiling, CEILING_DIRECT, Ratios,
                     SIDE, Sparsefs, TURN, measure_readers,
                     mount_all, print_table, rotated, row, touch_memory)

BACKGROUND = 0.1  # mean counts per pixel
BRIGHT = 0.01  # share of bright pixels
BRIGHT_COUNTS = 300  # their mean
AGAIN = 8  # readings of a frame from the page cache, of which the best counts

GZIP_LAYOUTS = {
    "gzip-1": {"compression": 1},
    "gzip-4": {"compression": 4},
    "shuffle+gzip-4": {"compression": 4, "shuffle": True},
}
LAYOUTS = ["contiguous", *GZIP_LAYOUTS]
ANY = "any layout"

READERS = [DEFAULT, DIRECT, LIBHDF5, H5PY, CEILING, CEILING_DIRECT]

STAT_EACH = "stat of each name"
LISTINGS = {
    "ls": ["ls"],
    "ls -l": ["ls", "-l"],
    "find -printf %s": ["find", ".", "-printf", "%s\n"],
    STAT_EACH: None,
}


def read_h5py(hdf5, numbers, buffer):
    seconds = []
    with h5py.File(hdf5, "r") as file:
        dataset = file["d"]
        for number in numbers:
            start = time.perf_counter()
            dataset.read_direct(buffer, np.s_[number])
            seconds.append(time.perf_counter() - start)
    return seconds


def noisy_frame(random):
    frame = random.poisson(BACKGROUND, (SIDE, SIDE))
    bright = random.random((SIDE, SIDE)) < BRIGHT
    frame[bright] += random.exponential(BRIGHT_COUNTS, bright.sum()).astype(int)
    return frame.astype("<u2")


def make_frames(bench):
    """One HDF5 file per layout, and frames.raw: all with the same frames."""
    random = np.random.default_rng(1)
    made = bench.frames + WARMING
    shape = (made, SIDE, SIDE)
    with contextlib.ExitStack() as stack:
        datasets = []
        for layout in LAYOUTS:
            file = stack.enter_context(h5py.File(bench.directory / f"{layout}.h5", "w"))
            filters = GZIP_LAYOUTS.get(layout)
            chunks = (1, SIDE, SIDE) if filters else None
            filters = dict(filters, compression_opts=filters["compression"],
                           compression="gzip") if filters else {}
            datasets.append(file.create_dataset("d", shape, "<u2", chunks=chunks, **filters))
        raw = stack.enter_context(open(bench.directory / "frames.raw", "wb"))
        for number in range(made):
            frame = noisy_frame(random)
            raw.write(frame.tobytes())
            for dataset in datasets:
                dataset[number] = frame


def check(bench, hdf5, mounts):
    """All readers must have got the same bytes, or the times mean nothing."""
    raw = bench.directory / "frames.raw"
    frames = np.memmap(raw, "u1").reshape(bench.frames + WARMING, -1)
    for number in range(bench.frames):
        for who, mount in mounts.items():
            if (mount.files / f"{number:06d}.raw").read_bytes() != frames[number].tobytes():
                raise SystemExit(f"{who}, {hdf5.name}: frame {number} differs")
    bench.read_hdf5(hdf5, range(bench.frames), "-c", raw)


def measure_layout(bench, layout):
    hdf5 = bench.directory / f"{layout}.h5"
    buffer = np.zeros((SIDE, SIDE), "<u2")
    with contextlib.ExitStack() as stack:
        mounts = mount_all(bench, hdf5, bench.directory / "frames.raw", stack)
        readers = {who: lambda numbers, mount=mount: bench.read_files(mount, numbers)[0]
                   for who, mount in mounts.items()}
        readers[LIBHDF5] = lambda numbers: bench.read_hdf5(hdf5, numbers)
        readers[H5PY] = lambda numbers: read_h5py(hdf5, numbers, buffer)
        for who, read in readers.items():  # all in order: what is read ahead for one takes no
            bench.add(layout, COLD, who, read(range(bench.frames)))  # time of another
        for turn in range(bench.frames // TURN):
            numbers = range(turn * TURN, (turn + 1) * TURN)
            twice = [number for number in numbers for _ in range(2)]
            for who, mount in rotated(mounts.items(), turn):
                seconds = bench.read_files(mount, twice, "-d")[0]
                bench.add(layout, CHUNK_CACHE, who, seconds[1::2])
            again = {DEFAULT: [], CEILING: []}
            for repeat in range(AGAIN):
                for who in rotated(again, repeat):
                    again[who].append(readers[who](numbers))
            for who, seconds in again.items():  # the best of each frame: nothing is left to chance
                bench.add(layout, PAGE_CACHE, who, np.min(seconds, axis=0))
        check(bench, hdf5, mounts)


def measure_frames(bench):
    touch_memory(bench)  # before anything is put into the page cache, too
    make_frames(bench)
    os.sync()  # or the writing of the inputs to the disk goes on beside the measurements
    for layout in LAYOUTS:
        measure_layout(bench, layout)
        measure_readers(bench, layout, bench.directory / f"{layout}.h5",
                        bench.directory / "frames.raw")


def time_listing(directory, command, names):
    """Seconds of a listing command, or without one of a stat of each name: a LOOKUP each."""
    environment = dict(os.environ, LC_ALL="C")
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        start = time.perf_counter()
        if command:
            subprocess.run(command, cwd=directory, env=environment, check=True,
                           stdout=subprocess.DEVNULL)
        else:
            for name in names:
                os.stat(name, dir_fd=descriptor)
        return time.perf_counter() - start
    finally:
        os.close(descriptor)


def measure_listings(bench):
    raw, hdf5 = bench.directory / "small.raw", bench.directory / "small.h5"
    frames = np.arange(bench.listed * 64, dtype="<u2").reshape(bench.listed, 8, 8)
    frames.tofile(raw)
    with h5py.File(hdf5, "w") as file:
        file["d"] = frames
    names = [f"{number:06d}.raw" for number in range(bench.listed)]
    for turn in range(bench.rounds):
        for listing, command in LISTINGS.items():
            for who in rotated((DEFAULT, CEILING), turn):
                mount = Sparsefs(bench, hdf5) if who == DEFAULT else Ceiling(bench, raw, 128)
                with mount:
                    seconds = time_listing(mount.files, command, names)
                bench.add(listing, COLD, who, [seconds])


def report_frames(bench):
    print(f"\n{bench.frames} frames of {SIDE} x {SIDE} uint16 (8 MiB): Poisson background of mean "
          f"{BACKGROUND}, {BRIGHT:.0%} bright\npixels (exponential, mean {BRIGHT_COUNTS}); chunk = "
          "frame; medians")
    for layout in LAYOUTS:
        size = (bench.directory / f"{layout}.h5").stat().st_size / (bench.frames + WARMING) / 2**20
        print(f"  {layout}: {size:.2f} MiB per frame")
    print_table("ms/frame", READERS,
                [(f"{layout}, {state}", row(bench, layout, state, READERS))
                 for layout in LAYOUTS for state in (COLD, CHUNK_CACHE, PAGE_CACHE)])
    print_table("ms/frame, throughput", list(MOUNTS),
                [(f"{layout}, {state}", row(bench, layout, state, MOUNTS))
                 for layout in LAYOUTS for state in (ONE, TWO)])
    ratios = Ratios(bench)
    for who, ceiling in CEILING_OF.items():
        ratios.below("contiguous", COLD, who, ceiling, 1.3)
    for layout in GZIP_LAYOUTS:
        ratios.below(layout, COLD, DIRECT, LIBHDF5, 1.0 if "shuffle" not in layout else None)
        ratios.below(layout, COLD, DEFAULT, LIBHDF5)
        ratios.below(layout, COLD, DEFAULT, H5PY)
    # No request reaches the daemon then, so that the layout cannot matter: one goal for them all.
    for who in (DEFAULT, CEILING):
        bench.add(ANY, PAGE_CACHE, who, [time for layout in LAYOUTS
                                         for time in bench.seconds[layout, PAGE_CACHE, who]])
    ratios.below(ANY, PAGE_CACHE, DEFAULT, CEILING, 1.05)
    for layout in LAYOUTS:
        ratios.below(layout, PAGE_CACHE, DEFAULT, CEILING)
        for who, ceiling in CEILING_OF.items():
            ratios.below(layout, CHUNK_CACHE, who, ceiling)
    for layout in LAYOUTS:
        for who in CEILING_OF:
            goal = layout in ("gzip-1", "gzip-4") and who == DIRECT
            ratios.speedup(layout, who, 1.5 if goal else None)
    for who in CEILING_OF.values():
        ratios.speedup("contiguous", who)


def report_listings(bench):
    print_table(f"ms, {bench.listed} frames, first", [DEFAULT, CEILING],
                [(listing, row(bench, listing, COLD, [DEFAULT, CEILING])) for listing in LISTINGS])
    ratios = Ratios(bench)
    goals = {"ls": 1.1, "ls -l": 1.2}
    for listing in LISTINGS:
        ratios.below(listing, COLD, DEFAULT, CEILING, goals.get(listing))

SECTIONS = {"frames": (measure_frames, report_frames), "list": (measure_listings, report_listings)}
