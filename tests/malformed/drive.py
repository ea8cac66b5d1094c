#!/usr/bin/python3
"""Mounts malformed files, looks at all that they show, and reports what must not be.

    drive.py [--mode ro|follow|default|inside] [--every N] [--offset O] [--from K] [--jobs J] [--turns]
             [--together M] [--keep FOLDER]

Tries every N-th file (default: all) of make.py, beginning with number O (default: 0), of those from the
K-th on, J at once, and prints one line for each finding, and which call was the slowest; files with
findings are kept in FOLDER. In the modes `default` and `inside` it also changes what it has looked at. In
mode `inside`, with libhdf5 in the daemon, it counts, in the others it asserts: exit code 1: there are
findings. The commands of sparsectl are tried in mode `ro`; with --turns, of those that copy, one for each
file, in turn, which takes less than half of the time. With --together M files lie in one folder, which is
mounted, and the commands are not tried: that takes a small part of the time."""
import argparse
import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make  # noqa: E402

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPARSEFS_BUILD", TOP / "build"))

TIMEOUT = 2  # seconds of libhdf5, hdf5_timeout=
DEADLINE = 240  # of all calls for one file: only what hangs takes so long
MOST_SECONDS = 16 * TIMEOUT  # of one call, of which libhdf5 may be asked several times, and wait for processors
PATIENCE = 3  # before a command that copies is interrupted
COPYING = "import", "export", "repack"
MIB = 1 << 20
OPTIONS = f"hdf5_timeout={TIMEOUT},hdf5_memory=512M,cache_size=32M,chunk_memory=128M"
MOST_MEMORY = 320 * MIB  # of the daemon: cache, chunk, attributes, listings, code
MOST_OF_ALL = 1024 * MIB  # that files of a folder share: what describes their datasets, and what views of them keep
MOST_BYTES = 1 << 18  # that are read of a file
MOST_ENTRIES = 400  # that are looked at in all
MOST_NAMES = 40  # of a folder
MOST_DEPTH = 12
MOST_DUMPED = 4  # datasets
MOST_WRITTEN = 4096  # bytes of a frame that are written
NO_CALL = 0.0, ""  # took no time


# ---- What a user does, in a process of its own ----

class Visit:
    """Goes through a mount: ls -lR, getfattr, cat. What fails may fail; what it took is noted."""

    def __init__(self):
        self.left = MOST_ENTRIES
        self.datasets = []
        self.slowest = NO_CALL

    def call(self, function, *arguments):
        begin = time.monotonic()
        try:
            return function(*arguments)
        except OSError:
            return None
        finally:
            took = time.monotonic() - begin
            if took > self.slowest[0]:
                self.slowest = (took, f"{function.__name__} {arguments[0]}")

    def file(self, path):
        fd = self.call(os.open, path, os.O_RDONLY)
        if fd is None:
            return
        done = 0
        while done < MOST_BYTES and (piece := self.call(os.read, fd, 1 << 16)):
            done += len(piece)
        os.close(fd)

    def attributes(self, path):
        for name in (self.call(os.listxattr, path) or [])[:30]:
            self.call(os.getxattr, path, name)

    def names(self, path):
        """The first ones: there may be as many frames as numbers."""
        with os.scandir(path) as entries:
            return [entry.name for entry in itertools.islice(entries, MOST_NAMES)]

    def folder(self, path, depth=0):
        self.attributes(path)
        for name in self.call(self.names, path) or []:
            inner = os.path.join(path, name)
            self.left -= 1
            if self.left < 0 or name == ".sparsefs":
                continue
            status = self.call(os.lstat, inner)
            if status is None:
                continue
            kind = status.st_mode & 0o170000
            if kind == 0o040000 and depth < MOST_DEPTH:
                self.folder(inner, depth + 1)
            elif kind == 0o100000:
                self.file(inner)
                if name == "dataset.json":
                    self.datasets.append(path)
            elif kind == 0o120000:
                self.call(os.readlink, inner)


def overwrite(path):
    """With what stands there."""
    with open(path, "r+b", buffering=0) as file:
        there = file.read(MOST_WRITTEN)
        file.seek(0)
        file.write(there)
        os.fsync(file.fileno())


def cut(path):
    """Erasing elements takes as long as there are elements, whatever is stored of them."""
    if os.stat(path).st_size < MOST_BYTES:
        os.truncate(path, 8)


def change(visitor, root):
    """Groups come and go, frames are written, and the first of them that there is not yet."""
    visitor.call(os.mkdir, os.path.join(root, "made here"))
    for dataset in visitor.datasets[:MOST_DUMPED]:
        for name in ("frames/0.raw", "frames/1.raw"):
            visitor.call(overwrite, os.path.join(dataset, name))
        visitor.call(os.mkdir, os.path.join(os.path.dirname(dataset), "beside it"))
        visitor.call(cut, os.path.join(dataset, "frames/0.raw"))
        visitor.call(pathlib.Path(dataset, "frames/2.raw").write_bytes, b"added")
    visitor.call(os.rmdir, os.path.join(root, "made here"))
    fd = visitor.call(os.open, root, os.O_RDONLY)
    if fd is not None:
        visitor.call(os.fsync, fd)
        os.close(fd)


def visit(root, beside, changes):
    """In a child: {"slowest": [seconds, what], "beside": whether that dataset is right, "datasets":
    paths of the first ones}."""
    visitor = Visit()
    visitor.folder(root)
    if changes:
        visitor.datasets = [path for path in visitor.datasets if not path.endswith("/beside")]
        change(visitor, root)
    right = None
    if beside:
        try:
            right = pathlib.Path(root, "beside/stack.raw").read_bytes() == make.BESIDE.tobytes()
        except OSError as error:
            right = str(error)
    paths = [path[len(str(root)):] for path in visitor.datasets[:MOST_DUMPED]]
    return {"slowest": visitor.slowest, "beside": right, "datasets": paths}


def visit_apart(root, beside, changes):
    """None: it did not come back in time, or failed itself, which is printed."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read_end)
            os.write(write_end, json.dumps(visit(root, beside, changes)).encode())
        except Exception:  # is told, and found by who waits for an answer
            traceback.print_exc()
        finally:  # whatever happens: what follows is the parent's
            os._exit(0)
    os.close(write_end)
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            answer = os.read(read_end, 1 << 16)
            os.close(read_end)
            return json.loads(answer or b"null")
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.close(read_end)
    return None


# ---- One file ----

def is_mounted(root, device):
    try:
        return os.stat(root).st_dev != device
    except OSError:
        return True


def peak(pid):
    with contextlib.suppress(OSError, IndexError):
        return int(pathlib.Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) << 10
    return 0


def is_sanitized():
    return b"__asan_init" in (BUILD / "sparsefs").read_bytes()


def start(path, root, mode, log):
    """The daemon; its exit code if it has ended, or None when it is mounted."""
    options = OPTIONS + {"ro": ",ro", "follow": ",follow", "default": "", "inside": ",hdf5=inside"}[mode]
    device = os.stat(root).st_dev
    daemon = subprocess.Popen([BUILD / "sparsefs", "-f", "-o", options, path, root], stderr=log)
    deadline = time.monotonic() + DEADLINE
    while daemon.poll() is None and not is_mounted(root, device):
        if time.monotonic() > deadline:
            break
        time.sleep(0.002)
    return daemon


def stop(daemon, root):
    """Whether SIGTERM ends it."""
    if daemon.poll() is None:
        daemon.terminate()
    try:
        daemon.wait(DEADLINE)
        return True
    except subprocess.TimeoutExpired:
        daemon.kill()
        return False
    finally:
        subprocess.run(["umount", "-i", "-l", root], stderr=subprocess.DEVNULL, check=False)
        daemon.wait()


def look(root, mode, harmless):
    """What is wrong, the paths of datasets, and the slowest call."""
    answer = visit_apart(root, harmless, mode in ("default", "inside"))
    if answer is None:
        return ["no answer"], [], NO_CALL
    findings = []
    if answer["beside"] not in (None, True):
        findings.append(f"the dataset beside: {answer['beside']}")
    if answer["slowest"][0] > MOST_SECONDS:
        findings.append("{:.1f} s: {}".format(*answer["slowest"]))
    return findings, answer["datasets"], answer["slowest"]


def end(daemon, root, mode, ended_well, most_memory):
    """What is wrong with the daemon after all looks."""
    findings = []
    if daemon.poll() is not None:
        findings.append(f"the daemon ended with {daemon.returncode}")
    elif peak(daemon.pid) > most_memory and not is_sanitized():
        findings.append(f"the daemon took {peak(daemon.pid) >> 20} MiB")
    if not stop(daemon, root):
        findings.append("SIGTERM does not end it")
    elif (daemon.returncode < 0 or (daemon.returncode and mode in ("ro", "follow"))) and ended_well and not findings:
        findings.append(f"it ended with {daemon.returncode}")
    return findings


def try_mount(path, root, mode, harmless, log):
    daemon = start(path, root, mode, log)
    if daemon.poll() is not None:
        wrong = daemon.returncode not in (1, 2, 32) or harmless
        return [f"not mounted: {daemon.returncode}"] if wrong else [], [], NO_CALL
    findings, datasets, slowest = look(root, mode, harmless)
    return findings + end(daemon, root, mode, not findings, MOST_MEMORY), datasets, slowest


def copying_commands(path, datasets):
    new = (path.parent / f"copy{i}.h5" for i in itertools.count())
    commands = [("repack", path, next(new)), ("import", "--all", path, next(new)),
                ("create", "--template", path, "--dims=4,5", "--dtype=u2", next(new), "/made")]
    for dataset in datasets:
        commands += [("import", f"{path}:{dataset}", next(new)), ("export", f"{path}:{dataset}", next(new))]
    return commands


def try_commands(path, datasets, turn):
    """All of them, or, if turn is a number, only the one of those that copy whose turn it is."""
    findings = []
    commands = [("info", path), ("check", path)]
    commands += [("dump", "--frame=0", f"{path}:{dataset}") for dataset in datasets]
    copying = copying_commands(path, datasets)
    commands += copying if turn is None else [copying[turn % len(copying)]]
    for command in commands:
        with subprocess.Popen([BUILD / "sparsectl", "--chunk-memory=128M", *command],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            # Who copies what claims to be endless is interrupted, and has to end then.
            timers = [threading.Timer(DEADLINE, process.kill)]
            if command[0] in COPYING:
                timers.append(threading.Timer(PATIENCE, process.terminate))
            for timer in timers:
                timer.start()
            said = process.stdout.read(MOST_BYTES)  # as head: there may be numbers without an end
            process.stdout.close()
            code = process.wait()
            for timer in timers:
                timer.cancel()
        for copy in path.parent.glob("copy*.h5"):
            if code:
                findings.append(f"{command[0]} failed, and left {copy.name}")
            copy.unlink()
        if code not in (0, 1, 2, -signal.SIGPIPE) or b"Sanitizer" in said:
            findings.append(f"{command[0]} ended with {code}")
    return findings


@contextlib.contextmanager
def scene():
    """A folder with what files lead to, a mount point, and a log. Findings that are in the log are added to the list
    that is given out with them."""
    with tempfile.TemporaryDirectory(prefix="malformed") as folder:
        folder, root, said = pathlib.Path(folder), pathlib.Path(folder, "mnt"), []
        root.mkdir()
        with open(folder / "log", "w+b") as log:
            yield folder, root, log, said
            log.seek(0)
            text = log.read()
        if b"Sanitizer" in text or b"Assertion" in text:
            said.append(text[-2000:].decode(errors="replace"))


def keep_files(keep, files):
    if keep:
        pathlib.Path(keep).mkdir(exist_ok=True)
        for name, content, _ in files:
            pathlib.Path(keep, f"{name}.h5").write_bytes(content)


def try_file(job):
    """Its name, what is wrong with how it is treated, and the slowest call."""
    files, mode, turn, keep = job
    (name, content, harmless), = files
    with scene() as (folder, root, log, said):
        path = folder / "bad.h5"
        path.write_bytes(content)
        (folder / "raw.bin").write_bytes(bytes(20))
        findings, datasets, slowest = try_mount(path, root, mode, harmless, log)
        if mode == "ro":
            findings += try_commands(path, datasets, turn)
    findings += said
    if findings:
        keep_files(keep, files)
    return [(name, findings, slowest)]


def try_together(job):
    """The same of several files in one folder. What is wrong with the daemon is told of the first of them."""
    files, mode, _, keep = job
    results = []
    with scene() as (folder, root, log, said):
        run = folder / "run"
        run.mkdir()
        for i, (_, content, _) in enumerate(files):
            (run / f"{i}.h5").write_bytes(content)
        (run / "raw.bin").write_bytes(bytes(20))
        daemon = start(run, root, mode, log)
        for i, (name, _, harmless) in enumerate(files):
            findings, _, slowest = look(root / f"{i}.h5", mode, harmless)
            results.append((name, findings, slowest))
        results[0][1].extend(end(daemon, root, mode, True, MOST_MEMORY + MOST_OF_ALL))
    results[0][1].extend(said)
    if any(findings for _, findings, _ in results):
        keep_files(keep, files)
    return results


def jobs(given):
    files = itertools.islice(enumerate(make.every(given.every, given.offset)), given.first, None)
    while taken := list(itertools.islice(files, given.together or 1)):
        yield [file for _, file in taken], given.mode, taken[0][0] if given.turns else None, given.keep


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=["ro", "follow", "default", "inside"], default="ro")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--together", type=int, default=0)
    parser.add_argument("--keep")
    given = parser.parse_args()
    if given.together and given.mode not in ("ro", "default"):
        parser.error("folders are mounted in the modes ro and default")
    counts = Counts()
    with concurrent.futures.ProcessPoolExecutor(given.jobs) as pool:
        waiting = set()
        for job in jobs(given):
            waiting.add(pool.submit(try_together if given.together else try_file, job))
            if len(waiting) < 4 * given.jobs:
                continue
            done, waiting = concurrent.futures.wait(waiting,
                                                    return_when=concurrent.futures.FIRST_COMPLETED)
            counts.add(done)
        counts.add(waiting)
    print(f"{counts.tried} files, {counts.bad} with findings; {{:.1f}} s: {{}}".format(*counts.slowest))
    return 1 if counts.bad and given.mode != "inside" else 0


class Counts:
    def __init__(self):
        self.tried = self.bad = 0
        self.slowest = NO_CALL

    def add(self, done):
        """Prints what was found."""
        for name, findings, slowest in itertools.chain.from_iterable(future.result() for future in done):
            self.tried += 1
            self.bad += bool(findings)
            self.slowest = max(self.slowest, (slowest[0], f"{name}: {slowest[1]}"))
            if self.tried % 100 == 0:
                print(f"{self.tried} files", file=sys.stderr, flush=True)
            for finding in findings:
                print(f"{name}: {finding}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
