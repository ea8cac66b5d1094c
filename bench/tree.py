"""Section of the benchmark: listing a file of many datasets that refer to a dimension scale, with all
attributes, by whole commands in fresh mounts and again, beside h5py and the ceiling."""

import os
import subprocess
import sys
import time

import h5py

from harness import CEILING, COLD, DEFAULT, H5PY, Ceiling, Ratios, Sparsefs, print_table, rotated, row

DATASETS = 2000
AGAIN = "again"
COMMANDS = {"ls -lR": ["ls", "-lR"], "getfattr -R": ["getfattr", "-R", "."]}
GOAL = 2  # times h5py

LIST_ALL = """
import sys, h5py
with h5py.File(sys.argv[1], "r") as file:
    file.visititems(lambda _, node: list(node.attrs.items()) and None)
"""


def make_file(path):
    with h5py.File(path, "w") as file:
        scale = file.create_dataset("x", data=range(10))
        scale.make_scale("x")
        for number in range(DATASETS):
            dataset = file.create_dataset(f"d{number:04}", data=[number] * 10)
            dataset.dims[0].attach_scale(scale)
            dataset.attrs["units"] = "mm"


def time_command(command, directory=None):
    start = time.perf_counter()
    subprocess.run(command, cwd=directory, env=dict(os.environ, LC_ALL="C"), check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure_tree(bench):
    hdf5, raw = bench.directory / "tree.h5", bench.directory / "tree.raw"
    make_file(hdf5)
    raw.write_bytes(b"0")
    for turn in range(bench.rounds):
        for what, command in COMMANDS.items():
            for who in rotated((DEFAULT, CEILING), turn):
                mount = Sparsefs(bench, hdf5) if who == DEFAULT else Ceiling(
                    bench, raw, 1, f"directories={DATASETS + 1}")
                with mount:
                    for state in (COLD, AGAIN):
                        bench.add(what, state, who, [time_command(command, mount.path)])
            seconds = time_command([sys.executable, "-c", LIST_ALL, hdf5])
            bench.add(what, COLD, H5PY, [seconds])


def report_tree(bench):
    columns = [DEFAULT, H5PY, CEILING]
    print_table(f"ms, {DATASETS + 1} datasets", columns,
                [(f"{what}, {state}", row(bench, what, state, columns))
                 for what in COMMANDS for state in (COLD, AGAIN)])
    ratios = Ratios(bench)
    for what in COMMANDS:
        ratios.below(what, COLD, DEFAULT, H5PY, GOAL)
        ratios.below(what, COLD, DEFAULT, CEILING)


SECTIONS = {"tree": (measure_tree, report_tree)}
