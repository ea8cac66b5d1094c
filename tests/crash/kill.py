#!/usr/bin/python3
"""Kills a writer with SIGKILL at random times, again and again: what it had flushed is there when the
file is opened next, and the file is sound.

    tests/crash/kill.py --rounds 200 [--build build] [--seed N]
"""
import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import h5py

THREADS = 4
HANG_SECONDS = 120


class Writer:
    """The process, and the rows that each of its threads has said to be flushed."""

    def __init__(self, program, path, rows):
        self.rows = rows
        self.has_flushed = threading.Event()
        self.process = subprocess.Popen([program, "write", path, str(THREADS)],
                                        stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.endswith("\n"):  # the last one may be cut
                thread, rows = map(int, line.split())
                self.rows[thread] = rows
                self.has_flushed.set()

    def kill(self):
        ended = self.process.poll()
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        return ended


def must(command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def read_dense(path):
    """What libhdf5 alone reads of it."""
    with h5py.File(path, "r") as f:
        for thread in f:
            if "last" in f[thread]:
                f[thread]["last"][...]


def run(arguments, directory):
    writer, sparsectl = arguments.build / "tests/crash/writer", arguments.build / "sparsectl"
    path = directory / "killed.h5"
    chance = random.Random(arguments.seed)
    rows, journals, flushed = [0] * THREADS, 0, 0
    for n in range(arguments.rounds):
        process = Writer(writer, path, rows)
        try:
            if n % 2:  # while it begins, and while it goes on, however slow the machine is
                process.has_flushed.wait(HANG_SECONDS)
            time.sleep(chance.choice((0.02, 0.1, 0.3)) * chance.random())
        finally:
            ended = process.kill()
        if ended is not None:
            sys.exit("the writer has ended by itself")
        journals += path.with_name(path.name + ".journal").exists()
        if not path.exists():  # killed before its first flush
            assert not any(rows), rows
            continue
        if chance.random() < 0.5:
            must([sparsectl, "recover", path])
            read_dense(path)
        must([writer, "check", path, *map(str, rows)])
        must([sparsectl, "check", path])
        if sum(rows) > 2000 or chance.random() < 0.1:  # begin with a new file
            flushed += sum(rows)
            rows[:] = [0] * THREADS
            for name in os.listdir(directory):
                (directory / name).unlink()
    flushed += sum(rows)
    print(f"seed {arguments.seed}: {arguments.rounds} kills, {flushed} rows flushed, "
          f"{journals} journals left, nothing lost")
    return flushed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # writer and folder go then, too
    with tempfile.TemporaryDirectory() as directory:
        if not run(arguments, pathlib.Path(directory)):
            sys.exit("nothing was ever flushed: that tests nothing")


if __name__ == "__main__":
    main()
