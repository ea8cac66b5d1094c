"""Every filter that is built in, on frames as detectors write them (facility.py): the bytes that it
makes, and what reading and writing a frame costs, of dense frames and of the values of sparse ones.
With import: what --fast and --small choose, and import beside decoding and encoding alone."""

import contextlib
import json
import os
import resource
import subprocess
import time

import h5py
import numpy as np

import facility
from facility import COLUMNS, ROWS, frame_of
from harness import COLD, Sparsefs, print_ratio, touch_memory

FRAMES = 8
CHUNK_ROWS = 121  # of a sparse one: less than 65,536 blocks of elements
DENSE, SPARSE = "dense", "sparse"

PIPELINES = ["none", "shuffle", "bitshuffle", "deflate=4", "shuffle deflate=1", "shuffle deflate=4",
             "shuffle deflate=9", "bitshuffle deflate=4", "bitshuffle=lz4", "bitshuffle=zstd:3",
             "lz4", "shuffle lz4", "zstd=3", "shuffle zstd=1", "shuffle zstd=3", "shuffle zstd=9",
             "blosc=blosclz:5", "blosc=lz4:5", "blosc=zstd:3", "bzip2=9", "shuffle bzip2=9", "lzf",
             "shuffle lzf", "szip=nn", "szip=ec"]


def count(bench):
    return FRAMES // 2 if bench.quick else FRAMES


def make_frames(bench, path, background):
    usual, facility.BACKGROUND = facility.BACKGROUND, background
    random = np.random.default_rng(6)
    frames = np.array([frame_of(random) for _ in range(count(bench))])
    facility.BACKGROUND = usual
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=frames, chunks=(1, ROWS, COLUMNS))
    return frames


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make(bench, kind, words, source, path):
    """The seconds of all processors that this took."""
    options = []
    for word in words.split():
        options += ["--filter", f"values:{word}" if kind == SPARSE else word]
    if words == "none" and kind == DENSE:
        options = []
    if kind == SPARSE:  # all is given: nothing is tried
        options += ["--undefined", "0", "--chunk", f"1,{CHUNK_ROWS},{COLUMNS}", "--filter",
                    "selection:shuffle=6", "--filter", "selection:deflate=4"]
    before = processor_seconds()
    bench.run_sparsectl("import" if kind == SPARSE else "export", *options, source, path)
    return processor_seconds() - before


def stored_bytes(path):
    with open(path, "rb") as file:
        return os.fstat(file.fileno()).st_size


def values_bytes(bench, path):
    (dataset,) = json.loads(bench.run_sparsectl("info", "--json", path))["datasets"]
    return dataset["value_bytes"]


def measure_pipeline(bench, words, source, frames):
    for kind in (DENSE, SPARSE):
        path = bench.directory / f"filters-{kind}.h5"
        for _ in range(bench.rounds // 3):
            path.unlink(missing_ok=True)
            seconds = make(bench, kind, words, source, path)
            bench.add(words, "write", kind, [seconds / len(frames)])
        bench.sizes[words, kind] = stored_bytes(path) if kind == DENSE else values_bytes(bench, path)
        for repeat in range(bench.rounds):
            with Sparsefs(bench, path, "direct_io") as mount:
                bench.add(words, COLD, kind, bench.read_files(mount, range(len(frames)))[0])
                if repeat == 0:
                    check(mount, frames, words, kind)
        path.unlink()


def check(mount, frames, words, kind):
    for number, frame in enumerate(frames):
        if (mount.files / f"{number:06d}.raw").read_bytes() != frame.tobytes():
            raise SystemExit(f"{kind}, {words}: frame {number} differs")


def is_built_in(bench, words):
    path = bench.directory / "built-in.h5"
    options = [option for word in words.split() for option in ("--filter", f"values:{word}")]
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    command = [bench.sparsectl, "create", "--dims", "1,8,8", "--dtype", "u4", *options, path, "d"]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def measure_filters(bench):
    touch_memory(bench)
    source = bench.directory / "filters.h5"
    frames = make_frames(bench, source, facility.BACKGROUND)
    os.sync()
    bench.sizes = {}
    for words in PIPELINES:
        if is_built_in(bench, words):
            measure_pipeline(bench, words, source, frames)
    source.unlink()


def least(bench, *key):
    return 1000 * min(bench.seconds[key])


def report_filters(bench):
    print(f"\n{count(bench)} frames of {ROWS} x {COLUMNS} uint32 as in the section facility. dense: all "
          "elements, chunk = frame. sparse:\n0 is undefined; the values alone are filtered so, and "
          "counted, selections by shuffle=6 deflate=4.\nread: ms until a frame is read for the first "
          "time in a fresh mount (direct_io), medians. write: ms of\nprocessors for a frame, of "
          "sparsectl export and import from an uncompressed file\n")
    print(f"{'':24}{'dense: MiB':>12}{'read':>8}{'write':>8}{'sparse: MiB':>14}{'read':>8}"
          f"{'write':>8}")
    for words in PIPELINES:
        if (words, DENSE) not in bench.sizes:
            print(f"{words:24}{'not built in':>12}")
            continue
        cells = ""
        for kind, width in ((DENSE, 12), (SPARSE, 14)):
            cells += f"{bench.sizes[words, kind] / count(bench) / 2**20:>{width}.2f}"
            cells += f"{least(bench, words, COLD, kind):>8.1f}{least(bench, words, 'write', kind):>8.1f}"
        print(f"{words:24}{cells}")


# ---- Import ----

BACKGROUNDS = {"1 %": 0.0065, "10 %": 0.095, "26 %": facility.BACKGROUND}  # mean counts
TIMES = 30  # each frame is in the source so often
ROUNDS = 3
CHOICES = {"default": [], "--fast": ["--fast"]}
# What bare_filters does for a choice: filters alone, or making the sections as well, which is the
# least that import can take.
BOUNDS = {"bare": [], "least": ["-w"]}


def make_source(bench, background, source):
    """The chunks of a few frames again and again: a file of all that they hold would be large."""
    some, deflated = bench.directory / "some.h5", bench.directory / "deflated.h5"
    frames = make_frames(bench, some, background)
    n = len(frames)
    with h5py.File(deflated, "w") as file:
        dataset = file.create_dataset("d", (TIMES * n, ROWS, COLUMNS), "<u4", chunks=(1, ROWS, COLUMNS),
                                      compression="gzip", compression_opts=1)
        dataset[:n] = frames
        for i in range(n, TIMES * n):
            mask, chunk = dataset.id.read_direct_chunk((i % n, 0, 0))
            dataset.id.write_direct_chunk((i, 0, 0), chunk, mask)
    source.unlink(missing_ok=True)
    bench.run_sparsectl("export", "--filter", "bitshuffle=lz4", deflated, source)
    some.unlink()
    deflated.unlink()
    os.sync()


def measure_bounds(bench, name, choice, path, source):
    frames = TIMES * count(bench)
    for bound, options in BOUNDS.items():
        elapsed, processors = map(float, bench.run_tool("bare_filters", *options, "-s", path, source,
                                                        count(bench), frames, os.cpu_count()).split())
        bench.add(name, "elapsed", f"{bound} {choice}", [elapsed / frames])
        bench.add(name, "processors", f"{bound} {choice}", [processors / frames])


def measure_import_of(bench, name):
    source = bench.directory / "source.h5"
    make_source(bench, BACKGROUNDS[name], source)
    frames = TIMES * count(bench)
    for _ in range(ROUNDS):
        for choice, options in CHOICES.items():
            path = bench.directory / f"imported{choice}.h5"
            path.unlink(missing_ok=True)
            before, start = processor_seconds(), time.monotonic()
            said = bench.run_sparsectl("import", "--undefined", "0", *options, source, path)
            seconds = time.monotonic() - start
            processors = processor_seconds() - before
            bench.add(name, "elapsed", choice, [seconds / frames])
            bench.add(name, "processors", choice, [processors / frames])
            bench.said[name, choice] = " ".join(said.split()[1:]).replace("--filter ", "")
            bench.sizes[name, choice] = stored_bytes(path) / frames
            measure_bounds(bench, name, choice, path, source)


def measure_import(bench):
    touch_memory(bench)
    bench.sizes, bench.said = {}, {}
    for name in BACKGROUNDS:
        measure_import_of(bench, name)


def print_import(bench, name, choice):
    rows = bench.seconds[name, "elapsed", choice], bench.seconds[name, "processors", choice]
    busy = max(used / elapsed for elapsed, used in zip(*rows)) / os.cpu_count()
    cells = "".join(f"{least(bench, name, kind, who):>{width}.1f}"
                    for kind, first in (("elapsed", 9), ("processors", 12))
                    for who, width in ((choice, first), (f"bare {choice}", 8), (f"least {choice}", 8)))
    print(f"{name + ', ' + choice:16}{cells}{100 * busy:>6.0f} %{bench.sizes[name, choice] / 2**20:>7.2f}  "
          f"{bench.said[name, choice]}")


def report_import(bench):
    print(f"\n{TIMES * count(bench)} frames of {ROWS} x {COLUMNS} uint32, bitshuffle with LZ4, made "
          "sparse. bare: decoding them and encoding\nthe sections by the filters alone, on all "
          f"processors; least: making these sections, too. ms a frame,\nthe least of {ROUNDS} runs\n")
    print(f"{'':16}{'elapsed':>9}{'bare':>8}{'least':>8}{'processors':>12}{'bare':>8}{'least':>8}{'busy':>8}"
          f"{'MiB':>7}")
    for name in BACKGROUNDS:
        for choice in CHOICES:
            print_import(bench, name, choice)
    print(f"\n{'ratios':58}{'':8}  {'goal':8}")
    for name in BACKGROUNDS:
        for kind in ("elapsed", "processors"):
            imported, bare, bound = (least(bench, name, kind, who)
                                     for who in ("default", "bare default", "least default"))
            print_ratio(f"{name}: import / bare, {kind}", imported / bare, "<= 1.3", imported / bare <= 1.3)
            print_ratio(f"{name}: least / bare, {kind}", bound / bare)
            print_ratio(f"{name}: import / least, {kind}", imported / bound)
        for who in ("", "least "):
            ratio = (least(bench, name, "processors", f"{who}--fast") /
                     least(bench, name, "processors", f"{who}default"))
            goals = ("<= 0.6", ratio <= 0.6) if name == "10 %" and not who else ()
            print_ratio(f"{name}: {who}--fast / default, processors", ratio, *goals)
        ratio = bench.sizes[name, "--fast"] / bench.sizes[name, "default"]
        print_ratio(f"{name}: --fast / default, bytes", ratio, "<= 1.15", ratio <= 1.15)


SECTIONS = {"filters": (measure_filters, report_filters), "import": (measure_import, report_import)}
