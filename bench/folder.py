"""Section of the benchmark: the first `ls -R` of a folder of HDF5 files, beside the same tree of directories
and empty files behind another filesystem in user space, which has nothing to read for it."""

import os
import resource
import shutil
import subprocess

import h5py
import numpy as np

from harness import COLD, Mount, Ratios, Sparsefs, print_table, rotated, row

OWN, INSIDE, BINDFS = "sparsefs", "hdf5=inside", "bindfs"
DAEMON, LISTING = "daemon", "ls"
FILES = 300


def make_folder(path, number):
    """As h5py writes them: two groups, three datasets, one of them chunked."""
    path.mkdir()
    for i in range(number):
        with h5py.File(path / f"{i:05}.h5", "w") as file:
            file["entry/x"], file["instrument/distance"] = np.arange(1000.0), 0.25
            file.create_dataset("entry/frames", (10, 64, 64), "<u2", chunks=(1, 64, 64), compression="gzip")


def make_tree(path, mount):
    """The names that a mount has, without contents."""
    for directory, names, files in os.walk(mount):
        here = path / os.path.relpath(directory, mount)
        here.mkdir(exist_ok=True)
        for name in files:
            (here / name).touch()
        if ".sparsefs" in names:
            names.remove(".sparsefs")


class Bindfs(Mount):
    def __init__(self, bench, source):
        super().__init__(["bindfs", "-f", source], bench.directory)


def seconds():
    """Of processors, of all that was started and has ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def list_tree(mount):
    """Seconds of the filesystem, from mounting it to its end, and of who lists."""
    begun = seconds()
    with mount:
        before = seconds()
        subprocess.run(["ls", "-R", mount.path], check=True, stdout=subprocess.DEVNULL)
        listing = seconds() - before
    return seconds() - begun - listing, listing


def mounts_of(bench, folder, tree):
    mounts = {OWN: lambda: Sparsefs(bench, folder), INSIDE: lambda: Sparsefs(bench, folder, "hdf5=inside")}
    if shutil.which("bindfs"):
        mounts[BINDFS] = lambda: Bindfs(bench, tree)
    return mounts


def measure_folder(bench):
    files = FILES // 5 if bench.quick else FILES
    folder, tree = bench.directory / "folder", bench.directory / "tree"
    make_folder(folder, files)
    with Sparsefs(bench, folder) as mount:
        make_tree(tree, mount.path)
    for turn in range(bench.rounds):
        for who, make in rotated(mounts_of(bench, folder, tree).items(), turn):
            daemon, listing = list_tree(make())
            bench.add(DAEMON, COLD, who, [daemon / files])
            bench.add(LISTING, COLD, who, [listing / files])


def report_folder(bench):
    columns = [who for who in (OWN, INSIDE, BINDFS) if (DAEMON, COLD, who) in bench.seconds]
    rows = [(what, row(bench, what, COLD, columns)) for what in (DAEMON, LISTING)]
    print_table("ms of processors for a file", columns, rows)
    ratios = Ratios(bench)
    ratios.below(DAEMON, COLD, OWN, INSIDE, 1.0)
    if BINDFS in columns:
        ratios.below(DAEMON, COLD, OWN, BINDFS, None)


SECTIONS = {"folder": (measure_folder, report_folder)}
