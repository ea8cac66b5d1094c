"""What the sections of the benchmark share: mounts in processes of their own, measured times, tables
and ratios."""

import contextlib
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

# Who reads. The names are also the columns of the tables.
DEFAULT, DIRECT = "sparsefs", "direct_io"
LIBHDF5, H5PY = "libhdf5 C", "h5py"
CEILING, CEILING_DIRECT = "ceiling", "ceiling d_io"
MOUNTS = {DEFAULT: "", DIRECT: "direct_io", CEILING: "", CEILING_DIRECT: "direct_io"}
CEILING_OF = {DEFAULT: CEILING, DIRECT: CEILING_DIRECT}

SIDE = 2048  # of a frame
TURN = 4  # frames read before it is the next one's turn
WARMING = 16  # frames behind the measured ones, read before readers are counted
# Holds fewer, so that measured frames go into memory used before; and one frame is decoded by one
# thread: what is counted is whether readers hinder each other.
WARM_CACHE = "cache_size=64M,workers=1"

# What is read.
COLD, CHUNK_CACHE, PAGE_CACHE = "first", "chunk cache", "page cache"
ONE, TWO = "1 reader", "2 readers"


STOPPING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@contextlib.contextmanager
def unstopped():
    """A signal that ends the run comes when this is done: an unmounting that it cuts short leaves the mount."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Mount:
    """A filesystem in a process of its own, from entering the context to leaving it."""

    def __init__(self, command, parent):
        self.command = command
        self.parent = parent

    def __enter__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(dir=self.parent))
        self.process = subprocess.Popen([*self.command, self.path], start_new_session=True)
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait(self):
        deadline = time.monotonic() + 60
        while not os.path.ismount(self.path):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("cannot mount: " + " ".join(map(str, self.command)))
            time.sleep(0.002)

    def __exit__(self, *_):
        with unstopped():
            self.end()

    def end(self):
        if self.process.poll() is not None:
            print(f"{self.command[0]} ended by itself: {self.process.returncode}", file=sys.stderr)
        while os.path.ismount(self.path) and self.process.poll() is None:
            done = subprocess.run(["fusermount3", "-u", self.path], stderr=subprocess.DEVNULL)
            if done.returncode:
                subprocess.run(["umount", "-l", self.path], check=True)
        try:
            self.process.wait(60)  # one that was written to commits first
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if os.path.ismount(self.path):
            subprocess.run(["umount", "-l", self.path], check=True)
        self.path.rmdir()

    def tunables(self):
        """The kernel's settings of this mount, as far as the kernel lets us see them."""
        minor = os.minor(os.stat(self.path).st_dev)
        connection = pathlib.Path(f"/sys/fs/fuse/connections/{minor}")
        files = [pathlib.Path(f"/sys/class/bdi/0:{minor}/read_ahead_kb")]
        files += [connection / "max_background", connection / "congestion_threshold"]
        return {file.name: file for file in files if file.exists()}

    def tune_like(self, other):
        mine = self.tunables()
        for name, file in other.tunables().items():
            value = file.read_text()
            if mine[name].read_text() != value:
                mine[name].write_text(value)


class Sparsefs(Mount):
    def __init__(self, bench, hdf5, options="", access="ro"):
        options = ",".join(filter(None, [access, f"threads={bench.threads}", options]))
        super().__init__([bench.sparsefs, "-f", "-o", options, hdf5], bench.directory)

    @property
    def files(self):
        return self.path / "d" / "raw"


class Ceiling(Mount):
    def __init__(self, bench, source, file_bytes, options=""):
        options = ",".join(filter(None, [f"source={source}", f"file_bytes={file_bytes}",
                                         f"threads={bench.threads}", options]))
        super().__init__([bench.tools / "memfs", "-o", options], bench.directory)

    @property
    def files(self):
        return self.path


class Bench:
    """Where things are, and the seconds measured so far: (what, state, who) -> list."""

    def __init__(self, arguments, directory):
        self.sparsefs = (arguments.sparsefs or arguments.build / "sparsefs").resolve()
        self.sparsectl = arguments.build.resolve() / "sparsectl"
        self.tools = arguments.build.resolve() / "bench"
        self.quick = arguments.quick
        self.directory = directory
        self.threads = max(2, os.cpu_count())
        self.frames = 8 if arguments.quick else 32
        self.listed = 10_000 if arguments.quick else 100_000
        self.rounds = 3 if arguments.quick else 7
        self.seconds = {}

    def add(self, what, state, who, seconds):
        self.seconds.setdefault((what, state, who), []).extend(seconds)

    def median(self, *key):
        return statistics.median(self.seconds[key])

    def run_tool(self, name, *arguments):
        command = [self.tools / name, *map(str, arguments)]
        return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout

    def run_sparsectl(self, *arguments):
        command = [self.sparsectl, *map(str, arguments)]
        return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout

    def libraries(self):
        """Those that this build runs filters with, and their versions."""
        version = subprocess.run([self.sparsefs, "-V"], check=True, text=True,
                                 stdout=subprocess.PIPE).stdout
        return version.splitlines()[1]

    def inflater(self):
        """The library that this build inflates with."""
        return "libdeflate" if " libdeflate " in self.libraries() else "zlib"

    def read_files(self, mount, numbers, *options):
        """Seconds per file, and seconds in all."""
        files = [mount.files / f"{number:06d}.raw" for number in numbers]
        *each, total = self.run_tool("read_files", *options, *files).split("\n")[:-1]
        return [float(seconds) for seconds in each], float(total.split()[1])

    def read_hdf5(self, hdf5, numbers, *options):
        output = self.run_tool("read_hdf5", *options, hdf5, "/d", numbers[0], len(numbers))
        return [float(seconds) for seconds in output.split()]


def rotated(items, turn):
    """The items in another order each turn, since one that follows a slow one may be slower."""
    items = list(items)
    turn %= len(items)
    return items[turn:] + items[:turn]


def touch_memory(bench):
    """Takes and gives back as much memory as the run needs at once: where a virtual machine's host
    provides memory at first use, whoever is measured first would pay for it."""
    np.ones(8 * bench.frames * SIDE * SIDE, "<u2")


def mount_all(bench, hdf5, raw, stack, cache_size=""):
    """Everything in MOUNTS, each on the same frames, with the same settings of the kernel."""
    mounts = {}
    for who, options in MOUNTS.items():
        mount = (Sparsefs(bench, hdf5, ",".join(filter(None, [options, cache_size])))
                 if who in CEILING_OF else
                 Ceiling(bench, raw, SIDE * SIDE * 2, options))
        mounts[who] = stack.enter_context(mount)
    for who, ceiling in CEILING_OF.items():
        mounts[ceiling].tune_like(mounts[who])
    return mounts


def measure_readers(bench, what, hdf5, raw):
    """One reader of one half of the frames, two of the other half, in fresh mounts each time. The
    daemons have read other frames before, so that nobody pays for the first use of memory."""
    half = bench.frames // 2
    for turn in range(bench.rounds):
        with contextlib.ExitStack() as stack:
            mounts = mount_all(bench, hdf5, raw, stack, WARM_CACHE)
            for mount in mounts.values():
                bench.read_files(mount, range(bench.frames, bench.frames + WARMING), "-j", 2)
            for state, readers in ((ONE, 1), (TWO, 2)):
                numbers = range((readers - 1) * half, readers * half)
                for who, mount in rotated(mounts.items(), turn):
                    total = bench.read_files(mount, numbers, "-j", readers)[1]
                    bench.add(what, state, who, [total / half])


def linked_libraries(program):
    """The files that the libraries of a program resolve to: their names hold the versions."""
    wanted = ("libfuse3", "libhdf5", "libz", "libdeflate")
    lines = subprocess.run(["ldd", program], text=True, stdout=subprocess.PIPE).stdout.split("\n")
    paths = [line.split()[2] for line in lines if line.strip().startswith(wanted)]
    return ", ".join(sorted(os.path.basename(os.path.realpath(path)) for path in paths))


def print_machine(bench):
    with open("/proc/cpuinfo") as cpuinfo:
        model = next((line.split(":")[1].strip() for line in cpuinfo if "model name" in line), "")
    print(f"machine   {os.cpu_count()} x {model or os.uname().machine}, "
          f"Linux {os.uname().release}")
    print(f"sparsefs  {linked_libraries(bench.sparsefs)}")
    print(f"          {bench.libraries()}")
    print(f"h5py      {h5py.version.version}, HDF5 {h5py.version.hdf5_version}")
    kind = subprocess.run(["findmnt", "-n", "-o", "FSTYPE", "-T", bench.directory], check=True,
                          text=True, stdout=subprocess.PIPE).stdout
    print(f"inputs    on {kind.strip()}, in the page cache")


def print_table(title, columns, rows):
    """Rows of a name and milliseconds, None where there is nothing to measure."""
    print(f"\n{title:32}" + "".join(f"{column:>14}" for column in columns))
    for name, values in rows:
        cells = ("-" if value is None else f"{1000 * value:.{2 if value >= 1e-4 else 4}f}"
                 for value in values)
        print(f"{name:32}" + "".join(f"{cell:>14}" for cell in cells))


def row(bench, what, state, columns):
    return [bench.median(what, state, who) if (what, state, who) in bench.seconds else None
            for who in columns]


def print_ratio(name, ratio, goal="", good=True):
    mark = "" if not goal else "pass" if good else "FAIL"
    print(f"{name:58}{ratio:8.2f}  {goal:8}{mark}")


class Ratios:
    """Prints ratios of medians; a goal of None is a ratio for information."""

    def __init__(self, bench):
        self.bench = bench
        print(f"\n{'ratios':58}{'':8}  {'goal':8}")

    def below(self, what, state, who, other, goal=None):
        ratio = self.bench.median(what, state, who) / self.bench.median(what, state, other)
        name = f"{what}, {state}: {who} / {other}"
        print_ratio(name, ratio, f"<= {goal}" if goal else "", not goal or ratio <= goal)

    def faster(self, what, state, who, other, goal):
        """The ratio of throughputs."""
        ratio = self.bench.median(what, state, other) / self.bench.median(what, state, who)
        print_ratio(f"{what}, {state}: throughput of {who} / {other}", ratio, f">= {goal}",
                    ratio >= goal)

    def within(self, what, other, state, who, goal):
        ratio = self.bench.median(what, state, who) / self.bench.median(other, state, who)
        print_ratio(f"{who}, {state}: {what} / {other}", ratio, f"<= {goal}", ratio <= goal)

    def speedup(self, what, who, goal=None):
        ratio = self.bench.median(what, ONE, who) / self.bench.median(what, TWO, who)
        name = f"{what}: throughput of {who}, {TWO} / {ONE}"
        print_ratio(name, ratio, f">= {goal}" if goal else "", not goal or ratio >= goal)
