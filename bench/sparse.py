"""Sparse datasets: bytes per frame against the best dense storage, reading frames and what is defined
in them, and files of very many frames."""

import contextlib
import json
import subprocess
import time

import h5py
import numpy as np

from harness import (CEILING_OF, CHUNK_CACHE, COLD, DEFAULT, DIRECT, LIBHDF5, MOUNTS, ONE, SIDE, TURN,
                     TWO, WARMING, Ratios, Sparsefs, measure_readers, mount_all, print_ratio,
                     print_table, rotated, row, touch_memory)

MEAN = 30  # of the values that are not zero
PATTERNS = ["points", "runs", "rectangle"]
DENSITIES = [0.001, 0.01, 0.1]
DEFINED, DEFINED_DIRECT = "defined", "defined d_io"  # N.defined instead of N.raw
DEFINED_OF = {DEFINED: DEFAULT, DEFINED_DIRECT: DIRECT}
SIZES = {"points": (0.60, 0.82, 1.0), "rectangle": (0.32, 0.80, 1.0)}  # of the best dense one
METADATA = 64  # bytes a chunk
DIRECT_GOALS = {"libdeflate": (0.38, 0.35, 0.50), "zlib": (0.40, 0.45, 0.65)}  # of libhdf5, gzip-1
FRESH = "fresh mount"  # nothing was read in it before, so that its memory was not used either
FRESH_GOALS = {"libdeflate": (0.35, 0.35, 0.45), "zlib": (None, None, None)}  # of libhdf5, gzip-1
DEFAULT_GOALS = (1.0, 0.85, 0.70)
DEFINED_GOALS = (0.25, 0.45, 0.65)  # of reading the frame itself
WARM_GOAL = 1.15  # of the ceiling
DENSE = {"gzip-4": {}, "shuffle+gzip-4": {"shuffle": True}}  # besides gzip-1, which is read, too
SMALL = 16  # side of the frames of which there are very many
FEW, MANY, TAKEN = 1000, 1_000_000, 1000  # frames in files, and read of them
IN_ORDER, AT_RANDOM = "in order", "at random"


def name_of(pattern, density):
    return f"{pattern}, {100 * density:g} %"


CASES = [(pattern, density, name_of(pattern, density))
         for pattern in PATTERNS for density in DENSITIES]


def positions(random, pattern, density):
    """Which elements of a frame are not zero."""
    wanted = int(density * SIDE * SIDE)
    if pattern == "points":
        return random.choice(SIDE * SIDE, wanted, replace=False)
    if pattern == "runs":  # of 5 to 10 pixels
        first = random.integers(0, SIDE * SIDE - 10, wanted // 7)
        length = random.integers(5, 11, first.size)
        return np.unique(np.concatenate([first[length > k] + k for k in range(10)]))
    height = int(SIDE * density**0.5)
    y, x = random.integers(0, SIDE - height, 2)
    return ((y + np.arange(height))[:, None] * SIDE + x + np.arange(height)).ravel()


def import_sparse(bench, source, path):
    path.unlink(missing_ok=True)
    bench.run_sparsectl("import", f"{source}:/d", f"{path}:/d", "--undefined", "0")


def sparse_frame(random, pattern, density):
    frame = np.zeros(SIDE * SIDE, "<u2")
    at = positions(random, pattern, density)
    frame[at] = 1 + random.exponential(MEAN, at.size).astype("<u2")
    return frame


def make_case(bench, pattern, density):
    """dense.h5 with /d as gzip-1, and for their size /gzip-4 and so on of some frames; frames.raw; and
    sparse.h5, which sparsectl makes. Returns the bytes of a frame in each."""
    random = np.random.default_rng(1)
    made, sized = bench.frames + WARMING, min(4, bench.frames)
    dense, raw, sparse = (bench.directory / name
                          for name in ("dense.h5", "frames.raw", "sparse.h5"))
    with h5py.File(dense, "w") as file, open(raw, "wb") as out:
        options = {"chunks": (1, SIDE, SIDE), "compression": "gzip"}
        first = file.create_dataset("d", (made, SIDE, SIDE), "<u2", compression_opts=1, **options)
        others = [file.create_dataset(name, (sized, SIDE, SIDE), "<u2", compression_opts=4,
                                      **options, **more) for name, more in DENSE.items()]
        for number in range(made):
            frame = sparse_frame(random, pattern, density)
            out.write(frame.tobytes())
            for dataset in [first] + (others if number < sized else []):
                dataset[number] = frame.reshape(SIDE, SIDE)
        sizes = {"gzip-1": first.id.get_storage_size() / made}
        sizes |= {name: data.id.get_storage_size() / sized for name, data in zip(DENSE, others)}
    import_sparse(bench, dense, sparse)
    sizes["sparse"] = sparse.stat().st_size / made
    return sizes


def read_defined(bench, mount, numbers):
    files = [mount.path / "d" / "frames" / f"{number}.defined" for number in numbers]
    return [float(line) for line in bench.run_tool("read_files", *files).split("\n")[:-2]]


def check(bench, mounts):
    frames = np.memmap(bench.directory / "frames.raw", "u1").reshape(bench.frames + WARMING, -1)
    for number in range(bench.frames):
        for who, mount in mounts.items():
            if (mount.files / f"{number:06d}.raw").read_bytes() != frames[number].tobytes():
                raise SystemExit(f"{who}: frame {number} differs")


def measure_case(bench, case):
    sparse, raw = bench.directory / "sparse.h5", bench.directory / "frames.raw"
    dense = bench.directory / "dense.h5"
    with contextlib.ExitStack() as stack:
        mounts = mount_all(bench, sparse, raw, stack, "cache_size=64M")
        readers = {who: lambda numbers, mount=mount: bench.read_files(mount, numbers)[0]
                   for who, mount in mounts.items()}
        readers[LIBHDF5] = lambda numbers: bench.read_hdf5(dense, numbers)
        for who, whole in DEFINED_OF.items():
            options = ",".join(filter(None, [MOUNTS[whole], "cache_size=64M"]))
            mount = stack.enter_context(Sparsefs(bench, sparse, options))
            readers[who] = lambda numbers, mount=mount: read_defined(bench, mount, numbers)
        warming = range(bench.frames, bench.frames + WARMING)
        for read in readers.values():
            read(warming)
        for who, read in readers.items():  # all in order: what is read ahead for one takes no
            bench.add(case, COLD, who, read(range(bench.frames)))  # time of another
        for turn in range(bench.frames // TURN):
            numbers = range(turn * TURN, (turn + 1) * TURN)
            twice = [number for number in numbers for _ in range(2)]
            for who, mount in rotated(mounts.items(), turn):
                bench.add(case, CHUNK_CACHE, who, bench.read_files(mount, twice, "-d")[0][1::2])
        check(bench, mounts)


def measure_fresh(bench, case):
    """The frames in order by direct_io, in a mount of its own each time."""
    sparse, dense = bench.directory / "sparse.h5", bench.directory / "dense.h5"
    for turn in range(bench.rounds):
        for who in rotated([DIRECT, LIBHDF5], turn):
            if who == LIBHDF5:
                seconds = bench.read_hdf5(dense, range(bench.frames))
            else:
                with Sparsefs(bench, sparse, "direct_io") as mount:
                    seconds = bench.read_files(mount, range(bench.frames))[0]
            bench.add(case, FRESH, who, seconds)


def measure_sparse(bench):
    touch_memory(bench)
    bench.sizes = {}
    for pattern, density, case in CASES:
        bench.sizes[case] = make_case(bench, pattern, density)
        subprocess.run(["sync"], check=True)
        measure_case(bench, case)
        if pattern == "points":
            measure_fresh(bench, case)
            measure_readers(bench, case, bench.directory / "sparse.h5",
                            bench.directory / "frames.raw")


def report_sparse(bench):
    print(f"\n{bench.frames} frames of {SIDE} x {SIDE} uint16: scattered points, runs of 5 to 10 "
          f"pixels, or one rectangle,\nof 1 + exponential values of mean {MEAN}; chunk = frame; "
          "libhdf5 reads them dense, gzip-1; medians")
    columns = ["sparse", "gzip-1", *DENSE]
    print(f"\n{'bytes/frame':32}" + "".join(f"{column:>16}" for column in columns))
    for case, sizes in bench.sizes.items():
        print(f"{case:32}" + "".join(f"{sizes[column]:16.0f}" for column in columns))
    readers = [DEFAULT, DIRECT, LIBHDF5, *DEFINED_OF, *CEILING_OF.values()]
    print_table("ms/frame", readers, [(f"{case}, {state}", row(bench, case, state, readers))
                                      for _, _, case in CASES for state in (COLD, CHUNK_CACHE)])
    print_table("ms/frame, throughput", list(MOUNTS),
                [(f"{case}, {state}", row(bench, case, state, MOUNTS))
                 for pattern, _, case in CASES if pattern == "points" for state in (ONE, TWO)])
    print_table("ms/frame, all in order", [DIRECT, LIBHDF5],
                [(f"{case}, {FRESH}", row(bench, case, FRESH, [DIRECT, LIBHDF5]))
                 for pattern, _, case in CASES if pattern == "points"])
    ratios = Ratios(bench)
    for pattern, density, case in CASES:
        level = DENSITIES.index(density)
        sizes = bench.sizes[case]
        best = min(sizes[name] for name in DENSE)
        goal = SIZES.get(pattern, (None,) * 3)[level]
        print_ratio(f"{case}: bytes of sparse / best dense", sizes["sparse"] / best,
                    f"<= {goal}" if goal else "", not goal or sizes["sparse"] / best <= goal)
    for pattern, density, case in CASES:
        if pattern == "points":
            goal = FRESH_GOALS[bench.inflater()][DENSITIES.index(density)]
            ratios.below(case, FRESH, DIRECT, LIBHDF5, goal)
    for _, density, case in CASES:
        level = DENSITIES.index(density)
        ratios.below(case, COLD, DIRECT, LIBHDF5, DIRECT_GOALS[bench.inflater()][level])
        ratios.below(case, COLD, DEFAULT, LIBHDF5, DEFAULT_GOALS[level])
        ratios.below(case, COLD, DEFINED, DEFAULT, DEFINED_GOALS[level])
        ratios.below(case, COLD, DEFINED_DIRECT, DIRECT)
    for _, _, case in CASES:
        for who, ceiling in CEILING_OF.items():
            ratios.below(case, CHUNK_CACHE, who, ceiling, WARM_GOAL)
    for pattern, _, case in CASES:
        if pattern == "points":
            ratios.speedup(case, DIRECT, 1.5)
            ratios.speedup(case, DEFAULT)


def make_many(bench, frames):
    """A sparse file of so many small frames, each with one element defined."""
    dense, sparse = bench.directory / "many.h5", bench.directory / f"many{frames}.h5"
    with h5py.File(dense, "w") as file:
        data = file.create_dataset("d", (frames, SMALL, SMALL), "u1", maxshape=(None, SMALL, SMALL),
                                   chunks=(min(frames, 1000), SMALL, SMALL))
        for first in range(0, frames, 10_000):
            block = np.zeros((min(10_000, frames - first), SMALL * SMALL), "u1")
            block[np.arange(len(block)), np.arange(len(block)) % block.shape[1]] = 1
            data[first:first + len(block)] = block.reshape(-1, SMALL, SMALL)
    bench.run_sparsectl("import", f"{dense}:/d", f"{sparse}:/d", "--undefined", "0", "--chunk",
                        f"1,{SMALL},{SMALL}")
    dense.unlink()
    return sparse


def time_mounting(bench, hdf5):
    """Seconds from the command to the mount working, which is when the command returns."""
    path = bench.directory / "mounting"
    path.mkdir(exist_ok=True)
    start = time.perf_counter()
    subprocess.run([bench.sparsefs, "-o", "ro", hdf5, path], check=True)
    seconds = time.perf_counter() - start
    subprocess.run(["fusermount3", "-u", path], check=True)
    return seconds


def measure_many(bench):
    random = np.random.default_rng(2)
    bench.many = {frames: make_many(bench, frames)
                  for frames in (1, FEW, bench.listed * 10 if bench.quick else MANY)}
    files = list(bench.many.items())
    for turn in range(3 * bench.rounds):
        for frames, hdf5 in rotated(files, turn):
            bench.add("mount", COLD, str(frames), [time_mounting(bench, hdf5)])
    for turn in range(bench.rounds):
        for frames, hdf5 in rotated(files[1:], turn):
            start = int(random.integers(0, frames - TAKEN + 1))
            orders = {IN_ORDER: range(start, start + TAKEN),
                      AT_RANDOM: random.choice(frames, TAKEN, replace=False)}
            for order, numbers in orders.items():
                with Sparsefs(bench, hdf5, "direct_io") as mount:
                    bench.add(order, COLD, str(frames), bench.read_files(mount, numbers)[0])


def metadata_per_chunk(bench, hdf5):
    info = json.loads(bench.run_sparsectl("info", "--json", f"{hdf5}:/d"))
    stored = info["datasets"][0]
    return (hdf5.stat().st_size - stored["stored_bytes"]) / stored["stored_chunks"]


def report_many(bench):
    one, few, many = map(str, bench.many)
    print_table("ms", [f"{frames} frames" for frames in bench.many],
                [("mounting", row(bench, "mount", COLD, [one, few, many])),
                 *((f"a frame {order}", [None, *row(bench, order, COLD, [few, many])])
                   for order in (IN_ORDER, AT_RANDOM))])
    ratios = Ratios(bench)
    slower = 1000 * (bench.median("mount", COLD, many) - bench.median("mount", COLD, one))
    print_ratio(f"mounting {many} frames, ms more than one", slower, "<= 5", slower <= 5)
    ratios.below(IN_ORDER, COLD, many, few, 1.1)
    ratios.below(AT_RANDOM, COLD, many, few, 1.7)
    extra = metadata_per_chunk(bench, bench.many[int(many)])
    print_ratio(f"{many} chunks: bytes a chunk besides their own", extra, f"<= {METADATA}",
                extra <= METADATA)


SECTIONS = {"sparse": (measure_sparse, report_sparse), "many": (measure_many, report_many)}
