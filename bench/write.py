"""Writing: dense frames into a mounted sparse dataset, making them durable, small writes, erasing,
sparse frames by the library, and what a file grows by when frames are written again and again."""

import contextlib
import os

import numpy as np

from dense import noisy_frame
from harness import (CEILING_OF, DEFAULT, LIBHDF5, MOUNTS, SIDE, Ceiling, Ratios, Sparsefs,
                     print_ratio, print_table, rotated, row, touch_memory)
from sparse import DENSITIES, name_of, sparse_frame

LEVEL = 1  # of deflate, everywhere
FRAME_BYTES = SIDE * SIDE * 2
BLOCK = 1 << 20  # of dd
SMALL = 4096
LIBRARY, ENCODER = "libsparsefs C", "one thread"

FRAME, FSYNC, SMALL_WRITE, PUNCH = "a frame", "fsync", "4 KiB at random", "punching a frame"
WRITING = "writing"

FRAME_GOAL, SMALL_GOAL, PUNCH_GOAL = 1.25, 3, 3  # of the ceiling
FSYNC_GOALS = {1: 1.1, 2: 0.65}  # of one thread, by worker threads (2: and more)
SPARSE_GOALS = {"libdeflate": (0.08, 0.25, 0.55), "zlib": (0.15, 0.45, 0.95)}  # of libhdf5

# Frames that are written again and again, each time with other contents.
GROWTH_FRAMES, GROWTH_SIDE = 16, 256
GROWTH_ROUNDS, QUICK_ROUNDS = (10, 100, 700), (5, 20, 70)  # after which the file is looked at
GROWTH_GOAL = 1.1  # the last size, of the second


def create(bench, path, frames, side=SIDE):
    """A sparse dataset /d without any elements, chunk = frame."""
    path.unlink(missing_ok=True)
    bench.run_sparsectl("create", path, "/d", "--dims", f"{frames},{side},{side}", "--dtype", "uint16",
                        "--chunk", f"1,{side},{side}", "--filter", f"selection:deflate={LEVEL}",
                        "--filter", f"values:deflate={LEVEL}")
    return path


def writing(bench, hdf5, options=""):
    """A mount of the file that commits only when it is told to."""
    return Sparsefs(bench, hdf5, ",".join(filter(None, ["commit_interval=0", options])), "rw")


def names(mount, count):
    return [mount.files / f"{number:06d}.raw" for number in range(count)]


def check(who, mount, raw, count):
    """What was written is what is there, or the times mean nothing."""
    frames = np.memmap(raw, "u1").reshape(-1, FRAME_BYTES)
    for number, name in enumerate(names(mount, count)):
        if name.read_bytes() != frames[number].tobytes():
            raise SystemExit(f"{who}: frame {number} is not what was written")


def make_raw(path, count, frame_of):
    with open(path, "wb") as out:
        for _ in range(count):
            out.write(frame_of().tobytes())
    return path


# ---- Through the mount ----


def mount_writable(bench, raw, stack):
    mounts = {}
    for who, options in MOUNTS.items():
        if who in CEILING_OF:
            hdf5 = create(bench, bench.directory / f"{who}.h5", bench.written)
            mount = writing(bench, hdf5, options)
        else:
            mount = Ceiling(bench, raw, FRAME_BYTES, ",".join(filter(None, ["writable", options])))
        mounts[who] = stack.enter_context(mount)
    for who, ceiling in CEILING_OF.items():
        mounts[ceiling].tune_like(mounts[who])
    return mounts


def write_frames(bench, mount, raw, who):
    *each, fsync = bench.run_tool("write_files", "frames", BLOCK, raw,
                                  *names(mount, bench.written)).split("\n")[:-1]
    bench.add(FRAME, WRITING, who, [float(seconds) for seconds in each])
    bench.add(FSYNC, WRITING, who, [float(fsync.split()[1])])


def encode_frames(bench, raw):
    """Seconds of one thread for what the fsync of all frames has to do."""
    out = bench.directory / "encoded"
    lines = bench.run_tool("encode_frames", raw, FRAME_BYTES, bench.written, LEVEL, out)
    bench.add(FSYNC, WRITING, ENCODER, [sum(float(line.split()[1]) for line in lines.splitlines())])
    out.unlink()


def measure_mounts(bench):
    random = np.random.default_rng(1)
    raw = make_raw(bench.directory / "frames.raw", bench.written, lambda: noisy_frame(random))
    with contextlib.ExitStack() as stack:
        mounts = mount_writable(bench, raw, stack)
        for turn in range(bench.rounds):
            for who, mount in rotated(mounts.items(), turn):
                write_frames(bench, mount, raw, who)
            encode_frames(bench, raw)
        for who, mount in mounts.items():
            check(who, mount, raw, bench.written)
        for turn in range(bench.rounds):
            for who, mount in rotated(mounts.items(), turn):
                seconds = bench.run_tool("write_files", "random", SMALL, bench.small_writes,
                                         *names(mount, bench.written)).split()
                bench.add(SMALL_WRITE, WRITING, who, [float(each) for each in seconds])


# ---- By the library ----


def total(output):
    """Seconds of all frames and of the flush."""
    return sum(float(line.split()[-1]) for line in output.splitlines())


def measure_library(bench, density):
    case = name_of("points", density)
    random = np.random.default_rng(1)
    raw = make_raw(bench.directory / "frames.raw", bench.written,
                   lambda: sparse_frame(random, "points", density))
    sparse, dense = bench.directory / "library.h5", bench.directory / "dense.h5"

    def write_sparse():
        create(bench, sparse, bench.written)
        return bench.run_tool("write_sparse", raw, sparse, "/d", bench.written)

    def write_hdf5():
        return bench.run_tool("write_hdf5", raw, dense, "/d", bench.written, SIDE, SIDE, LEVEL)

    for turn in range(bench.rounds):
        for who, write in rotated([(LIBRARY, write_sparse), (LIBHDF5, write_hdf5)], turn):
            bench.add(case, WRITING, who, [total(write()) / bench.written])
    with Sparsefs(bench, sparse) as mount:
        check(LIBRARY, mount, raw, bench.written)
    bench.read_hdf5(dense, range(bench.written), "-c", raw)
    measure_punching(bench, case, sparse, raw)


# ---- Erasing ----


def punch(bench, mount):
    return [float(seconds) for seconds in
            bench.run_tool("write_files", "punch", *names(mount, bench.written)).split()]


def measure_punching(bench, case, sparse, raw):
    """Every frame of the file, in a mount that has read none of them."""
    with writing(bench, sparse) as mount, Ceiling(bench, raw, FRAME_BYTES, "writable") as ceiling:
        ceiling.tune_like(mount)
        bench.add(case, PUNCH, DEFAULT, punch(bench, mount))
        bench.add(case, PUNCH, CEILING_OF[DEFAULT], punch(bench, ceiling))
        for name in names(mount, bench.written):
            if any(name.read_bytes()):
                raise SystemExit(f"{name.name} is not empty after it was punched")


# ---- Growing ----


def measure_growth(bench):
    random = np.random.default_rng(1)
    shape = (GROWTH_SIDE, GROWTH_SIDE)
    contents = [random.poisson(mean, shape).astype("<u2").tobytes()
                for mean in random.exponential(5, 4 * GROWTH_FRAMES)]
    hdf5 = create(bench, bench.directory / "growth.h5", GROWTH_FRAMES, GROWTH_SIDE)
    bench.growth = {}
    with writing(bench, hdf5) as mount:
        descriptors = [os.open(name, os.O_WRONLY) for name in names(mount, GROWTH_FRAMES)]
        rounds = QUICK_ROUNDS if bench.quick else GROWTH_ROUNDS
        for turn in range(1, rounds[-1] + 1):
            for number, descriptor in enumerate(descriptors):
                os.pwrite(descriptor, contents[(turn * 7 + number) % len(contents)], 0)
            os.fsync(descriptors[0])
            if turn in rounds:
                bench.growth[turn] = hdf5.stat().st_size
        for descriptor in descriptors:
            os.close(descriptor)


def measure_write(bench):
    bench.written = 4 if bench.quick else 16
    bench.small_writes = 1000 if bench.quick else 10_000
    touch_memory(bench)
    measure_mounts(bench)
    for density in DENSITIES:
        measure_library(bench, density)
    measure_growth(bench)


def report_write(bench):
    print(f"\n{bench.written} frames of {SIDE} x {SIDE} uint16, chunk = frame, deflate {LEVEL}, into a "
          "mounted sparse dataset\nwith 1 MiB a write, then one fsync; medians. One thread: it encodes "
          "these frames, writes them\nto one file, and calls fsync")
    columns = [*MOUNTS, ENCODER]
    print_table("ms", columns, [(what, row(bench, what, WRITING, columns))
                                for what in (FRAME, FSYNC, SMALL_WRITE)])
    cases = [name_of("points", density) for density in DENSITIES]
    print_table("ms/frame, with the flush", [LIBRARY, LIBHDF5],
                [(case, row(bench, case, WRITING, [LIBRARY, LIBHDF5])) for case in cases])
    both = [DEFAULT, CEILING_OF[DEFAULT]]
    print_table("ms, " + PUNCH, both, [(case, row(bench, case, PUNCH, both)) for case in cases])
    ratios = Ratios(bench)
    for who, ceiling in CEILING_OF.items():
        ratios.below(FRAME, WRITING, who, ceiling, FRAME_GOAL)
    for who in CEILING_OF:
        ratios.below(FSYNC, WRITING, who, ENCODER, FSYNC_GOALS[min(2, os.cpu_count())])
    for who, ceiling in CEILING_OF.items():
        ratios.below(SMALL_WRITE, WRITING, who, ceiling, SMALL_GOAL)
    for case, goal in zip(cases, SPARSE_GOALS[bench.inflater()]):
        ratios.below(case, WRITING, LIBRARY, LIBHDF5, goal)
    for case in cases:
        ratios.below(case, PUNCH, *both, PUNCH_GOAL)
    second, last = list(bench.growth)[1:]
    for rounds, size in bench.growth.items():
        print(f"file of {GROWTH_FRAMES} frames, written {rounds} times: {size} bytes")
    ratio = bench.growth[last] / bench.growth[second]
    print_ratio(f"size after writing {last} times / {second} times", ratio, f"<= {GROWTH_GOAL}",
                ratio <= GROWTH_GOAL)


SECTIONS = {"write": (measure_write, report_write)}
