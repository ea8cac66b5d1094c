"""Fixtures: a mounted file, gone again after the test whatever happens in it."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

import hang

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPARSEFS_BUILD", TOP / "build"))
SPARSEFS = BUILD / "sparsefs"
FINDS_SPARSEFS = {**os.environ, "PATH": f"{BUILD.absolute()}:{os.environ['PATH']}"}  # for umount.sparsefs
# h5py, not imported yet, is to look for external raw data where the daemon does: beside the file.
os.environ["HDF5_EXTFILE_PREFIX"] = "${ORIGIN}"
sys.path.append(str(TOP / "tests/cli"))
import keep_memory  # noqa: E402, F401
START_SECONDS = 300  # only what hangs takes so long, also on a busy machine with sanitizers


# The files of tests that take longest come first: else one of them goes on alone when the other processes have ended.
LONG_FILES = {"test_disk_errors", "test_follow", "test_helpers", "test_temporary", "test_worker", "test_writing"}


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.fspath.purebasename not in LONG_FILES)


def counting_plugin(folder):
    """The environment in which libhdf5 finds counting_filter.c: in a folder that is ours."""
    plugins = folder / "plugins"
    plugins.mkdir(mode=0o755, exist_ok=True)
    shutil.copy(BUILD / "tests/mount/libcounting_filter.so", plugins)
    (plugins / "libcounting_filter.so").chmod(0o755)
    return {"HDF5_PLUGIN_PATH": str(plugins)}


def is_mounted(path):
    escaped = str(path).replace(" ", "\\040")
    with open("/proc/self/mountinfo") as mounts:
        return any(line.split()[4] == escaped for line in mounts)


def let_in(tmp_path):
    """Other users: pytest closes its folders to them."""
    for above in tmp_path, *list(tmp_path.parents)[:3]:
        mode = above.stat().st_mode & 0o7777
        if mode & 0o055 != 0o055:
            above.chmod(mode | 0o055)


def unmount(path):
    """Readahead that is still under way when a file is closed keeps a mount busy for a moment."""
    deadline = time.monotonic() + START_SECONDS
    while (done := subprocess.run(["umount", "-i", path], stderr=subprocess.PIPE, text=True,
                                  env=os.environ | {"LC_ALL": "C"}, timeout=START_SECONDS)).returncode != 0:
        assert "busy" in done.stderr and time.monotonic() < deadline, done.stderr
        time.sleep(0.01)


class Mount:
    """One running daemon in the foreground; its messages are in self.log(). Tests look at the file
    meanwhile, and some of the files are not theirs: it mounts read-only unless told "rw", or to
    leave out both words by "default"."""

    def __init__(self, path, mountpoint, *options, log="info", environment=None):
        self.path = pathlib.Path(path)
        self.root = pathlib.Path(mountpoint)
        self.root.mkdir(exist_ok=True)
        self.log_path = self.root.with_name(self.root.name + ".log")
        command = [SPARSEFS, "-f", f"--log={log}"]
        if not {"rw", "default"} & {word for option in options for word in option.split(",")}:
            options += ("ro",)
        for option in options:
            if option != "default":
                command += ["-o", option]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HDF5_")}
        with open(self.log_path, "wb") as log_file:
            self.process = subprocess.Popen(command + [self.path, self.root], stderr=log_file,
                                            env=inherited | (environment or {}))
        deadline = time.monotonic() + START_SECONDS
        while not is_mounted(self.root):
            if self.process.poll() is not None:
                raise RuntimeError(f"sparsefs ended with {self.process.returncode}: {self.log()}")
            assert time.monotonic() < deadline, "the mount does not come up"
            time.sleep(0.01)

    def log(self):
        """But for whether the readahead may be raised, which is the machine's affair."""
        lines = self.log_path.read_text(errors="replace").splitlines(keepends=True)
        return "".join(line for line in lines if "readahead stays" not in line)

    def __truediv__(self, name):
        return self.root / name

    def unmount(self):
        """Unmounts; the daemon must end by itself, with 0."""
        try:
            unmount(self.root)
        except subprocess.TimeoutExpired:
            self.give_up()
        assert self.wait() == 0, self.log()

    def umount(self, *options):
        try:
            return subprocess.run(["umount", "-i", *options, self.root], stderr=subprocess.DEVNULL,
                                  timeout=START_SECONDS).returncode == 0
        except subprocess.TimeoutExpired:
            self.give_up()

    def wait(self):
        """Waits for the daemon's end and gives its exit code."""
        try:
            return self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.give_up()

    def give_up(self):
        """Kills a daemon that does not answer or end, and tells what it was doing."""
        report = hang.describe(self.process.pid, self.root)
        # By force: its threads may wait in the kernel for requests that nobody will answer.
        subprocess.run(["umount", "-i", "-f", "-l", self.root], stderr=subprocess.DEVNULL, check=False)
        self.process.kill()
        self.process.wait()
        raise AssertionError(f"{report}\n{self.log()}") from None

    def destroy(self):
        if is_mounted(self.root):
            self.umount("-l")
        self.wait()


@pytest.fixture
def mounts(tmp_path):
    """mounts(path, *options) mounts a file; all are unmounted at the end. Messages, but those of external
    links that lead nowhere, of what a mount always refuses and of files of csr that wait for others, fail the test
    unless it says `expect_log=True`."""
    running = []

    def make(path, *options, expect_log=False, **more):
        mount = Mount(path, tmp_path / f"mnt{len(running)}", *options, **more)
        mount.expect_log = expect_log
        running.append(mount)
        return mount

    yield make
    failures = []
    for mount in running:
        for end in (mount.unmount if mount.process.poll() is None else mount.wait, mount.destroy):
            try:
                end()
            except (AssertionError, subprocess.SubprocessError) as error:
                failures.append(str(error))
        log = re.sub(".*: (an external link leads nowhere|refused|csr/.* waits for the other files of csr): .*\n", "",
                     mount.log())
        if re.search("Sanitizer|runtime error|Assertion", log):
            failures.append(log)
        elif log and not mount.expect_log:
            failures.append("unexpected messages: " + log)
        if mount.process.returncode not in (0, None):
            failures.append(f"the daemon ended with {mount.process.returncode}: {log}")
    if failures:
        pytest.fail("\n".join(failures))


# Tests that write sparse data into mounts. The others mostly read what Python has made, and would take longer than that
# is worth.
READ_AGAIN = {"test_csr_writing", "test_folder_writing", "test_points", "test_removed", "test_values", "test_writing"}

# Its orders of fields can be told apart by their places alone, which those readers do not do.
NOT_READ_AGAIN = {"test_a_layout_message_keeps_its_order"}


def has_mounts(folder):
    with open("/proc/self/mountinfo") as mounts:
        return any(line.split()[4].startswith(f"{folder}/".replace(" ", "\\040")) for line in mounts)


@pytest.fixture(autouse=True)
def sparse_files_are_read_again(request, tmp_path):
    """What a test has written is read again by readers that share no code with src/ (tests/cli/read_again.py), after
    its mounts are gone."""
    yield
    if request.node.module.__name__ in READ_AGAIN and request.node.originalname not in NOT_READ_AGAIN and \
            not has_mounts(tmp_path):
        import read_again  # not before: it imports h5py
        read_again.read_again(tmp_path)


@pytest.fixture
def run():
    """run(*arguments) runs sparsefs and gives the finished process; what it left mounted is not
    unmounted here."""

    def call(*arguments, **more):
        return subprocess.run([SPARSEFS, *arguments], capture_output=True, text=True,
                              timeout=START_SECONDS, **more)

    return call


def wait_until(condition):
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never comes to that"
        time.sleep(0.001)


def state_of(pid):
    """A letter, as in proc(5)."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def stop(pid):
    """Until no thread takes a request any more: the kernel lets nobody go whose request was taken
    and is not answered. One that waits for an answer of the daemon's own cannot stop."""
    os.kill(pid, signal.SIGSTOP)
    while not all(state_of(thread.name) in "TDX" for thread in pathlib.Path(f"/proc/{pid}/task").iterdir()):
        time.sleep(0.001)


def has_ended(pid):
    """A zombie has ended, too: not everywhere does process 1 take care of orphans."""
    return state_of(pid) in "ZX"


def wait_for_end(pid):
    """Waits until a daemon that is not our child has ended."""
    deadline = time.monotonic() + START_SECONDS
    while not has_ended(pid):
        if time.monotonic() > deadline:
            raise AssertionError(hang.describe(pid))
        time.sleep(0.01)


def extra_files(kind):
    """Extra test data, if present beside the repository."""
    folder = pathlib.Path(os.environ.get("SPARSEFS_TEST_DATA", TOP.parent / "shared/data")) / kind
    return sorted(p for p in folder.glob("*") if p.suffix in (".h5", ".hdf", ".hdf5", ".nx5"))


def real_files():
    """Files of instruments."""
    return extra_files("real")


def sparse_files():
    """Files with structured chunk storage, in a dataset /sparse."""
    return extra_files("prototype")


# Fixtures clean up whatever ends the tests; and daemons do not inherit that a signal is ignored, as
# what a shell starts in the background does.
for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(ending, signal.default_int_handler)
