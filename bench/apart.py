"""Section of the benchmark: what it costs that libhdf5 works in a process of its own, beside the same
daemon with it inside."""

import os
import pathlib
import time

import h5py
import numpy as np

from harness import COLD, Ratios, Sparsefs, print_table, rotated, row
from tree import COMMANDS, make_file, time_command

APART, INSIDE = "own process", "inside"
HOW = {APART: "hdf5=worker", INSIDE: "hdf5=inside"}
MOUNTING, LISTING, FRAMES = "mount", "ls -l, many groups", "frames, gzip-1"
WRITING, MAKING = "frames written", "mkdir"
GOALS = {MOUNTING: 1.3, **dict.fromkeys(COMMANDS, 1.3), LISTING: 1.3, FRAMES: 1.02, WRITING: None, MAKING: None}
SIDE = 1024
GROUPS = 200


def make_groups(path, number):
    with h5py.File(path, "w", libver="latest") as file:
        for i in range(number):
            file.create_group(f"g{i:06}")


def make_frames(path, number):
    frame = np.random.default_rng(1).poisson(3, (SIDE, SIDE)).astype("<u2")
    with h5py.File(path, "w", libver="latest") as file:
        dataset = file.create_dataset("d", (number, SIDE, SIDE), "<u2", chunks=(1, SIDE, SIDE),
                                      compression="gzip", compression_opts=1)
        for i in range(number):
            dataset[i] = np.roll(frame, i)


def timed(bench, what, who, action):
    start = time.perf_counter()
    action()
    bench.add(what, COLD, who, [time.perf_counter() - start])


def measure_reading(bench, who, tree, groups, frames):
    start = time.perf_counter()
    with Sparsefs(bench, tree, HOW[who]) as mount:
        bench.add(MOUNTING, COLD, who, [time.perf_counter() - start])
        for what, command in COMMANDS.items():
            bench.add(what, COLD, who, [time_command(command, mount.path)])
    with Sparsefs(bench, groups, HOW[who]) as mount:
        bench.add(LISTING, COLD, who, [time_command(["ls", "-l"], mount.path)])
    with Sparsefs(bench, frames, HOW[who]) as mount:
        bench.add(FRAMES, COLD, who, bench.read_files(mount, range(bench.frames))[0])


def measure_writing(bench, who, frames):
    content = os.urandom(2 * SIDE * SIDE)
    with Sparsefs(bench, frames, HOW[who], "rw") as mount:
        def write():
            for i in range(bench.frames):
                (mount.files / f"{i:06}.raw").write_bytes(content)
            os.sync()

        def make():
            for i in range(GROUPS):
                os.mkdir(mount.path / f"new{i}")
        timed(bench, WRITING, who, write)
        timed(bench, MAKING, who, make)


def measure_apart(bench):
    tree, groups, frames = (bench.directory / f"{name}.h5" for name in ("tree", "groups", "frames"))
    make_file(tree)
    make_groups(groups, bench.listed)
    make_frames(frames, bench.frames)
    for turn in range(bench.rounds):
        for who in rotated(HOW, turn):
            measure_reading(bench, who, tree, groups, frames)
        for who in rotated(HOW, turn):
            make_frames(frames, bench.frames)
            measure_writing(bench, who, frames)
        make_frames(frames, bench.frames)


def report_apart(bench):
    columns = list(HOW)
    print_table(f"ms; {bench.listed} groups, {bench.frames} frames of {SIDE} x {SIDE} uint16, {GROUPS} x mkdir",
                columns, [(what, row(bench, what, COLD, columns)) for what in GOALS])
    ratios = Ratios(bench)
    for what, goal in GOALS.items():
        ratios.below(what, COLD, APART, INSIDE, goal)


# ---- Files of instruments ----

ALL = "all of them"
TIMES = 3  # small files take a few ms, of which one round says little


def instrument_files():
    """Extra test data, if present beside the repository."""
    beside = pathlib.Path(__file__).resolve().parents[1].parent / "shared/data"
    folder = pathlib.Path(os.environ.get("SPARSEFS_TEST_DATA", beside)) / "real"
    return sorted(p for p in folder.glob("*") if p.suffix in (".h5", ".hdf", ".hdf5", ".nx5"))


def measure_instrument(bench, who, path):
    """Seconds of mounting and of each command."""
    start = time.perf_counter()
    with Sparsefs(bench, path, HOW[who]) as mount:
        seconds = {MOUNTING: time.perf_counter() - start}
        for what, command in COMMANDS.items():
            seconds[what] = time_command(command, mount.path)
    for what, taken in seconds.items():
        bench.add(f"{what}, {path.name}", COLD, who, [taken])
    return seconds


def measure_instruments(bench):
    for turn in range(TIMES * bench.rounds):
        for who in rotated(HOW, turn):
            files = [measure_instrument(bench, who, path) for path in instrument_files()]
            for what in (MOUNTING, *COMMANDS):
                bench.add(f"{what}, {ALL}", COLD, who, [sum(seconds[what] for seconds in files)])


def report_instruments(bench):
    columns, names = list(HOW), [*(path.name for path in instrument_files()), ALL]
    if len(names) == 1:
        print("no files of instruments are beside the repository, or in SPARSEFS_TEST_DATA")
        return
    rows = [f"{what}, {name}" for what in (MOUNTING, *COMMANDS) for name in names]
    print_table("ms; files of instruments", columns, [(what, row(bench, what, COLD, columns)) for what in rows])
    ratios = Ratios(bench)
    for what in (MOUNTING, *COMMANDS):
        ratios.below(f"{what}, {ALL}", COLD, APART, INSIDE, GOALS[what])


SECTIONS = {"apart": (measure_apart, report_apart), "instruments": (measure_instruments, report_instruments)}
