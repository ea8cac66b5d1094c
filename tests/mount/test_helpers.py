"""mount(8) and umount(8) with the installed helpers, and what is installed with them.

Everything happens in mount and pid namespaces of its own, over which the staged installation is
laid: the machine's /sbin, /etc/fstab and mounts stay as they are, and when the test runner ends,
however it does, the kernel ends the daemons and takes the mounts away."""
import contextlib
import errno
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import h5py
import numpy
import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPARSEFS_BUILD", TOP / "build"))
HELPERS = TOP / "mount-helpers"
MANUAL = TOP / "docs/man"
SECONDS = 300  # only what hangs takes so long, also on a busy machine with sanitizers
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make mount namespaces")


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


def make_file(path):
    with h5py.File(path, "w") as file:
        frames = numpy.arange(4 * 5 * 6, dtype="<u2").reshape(4, 5, 6)
        file.create_dataset("data", data=frames, chunks=(1, 5, 6), compression="gzip")
    path.chmod(0o644)
    return frames


@functools.cache
def build_options():
    options = subprocess.run(["meson", "introspect", "--buildoptions", BUILD], check=True,
                             capture_output=True, text=True, timeout=SECONDS).stdout
    return {option["name"]: option["value"] for option in json.loads(options)}


def install_directory(option):
    options = build_options()
    return pathlib.Path(options["prefix"]) / options[option]


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """The installation, in a directory of its own."""
    if not (BUILD / "build.ninja").exists():
        pytest.skip(f"{BUILD} is not a build directory")
    if not os.access(BUILD, os.W_OK):
        pytest.skip(f"{BUILD} belongs to another user, who alone can install from it")
    destination = tmp_path_factory.mktemp("stage")
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet"], check=True,
                   env=os.environ | {"DESTDIR": str(destination)}, capture_output=True, timeout=SECONDS)
    return destination


def kill_started(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# Copies of mounts that are there now would keep their daemons from ending when they are unmounted, and
# disks that a test makes of files in $0 from going.
LET_GO = r"""
umount -a -i -l -t fuse.sparsefs
sed -n "s,^/dev/loop[^ ]* \($0/[^ ]*\) .*,\1,p" /proc/self/mounts | xargs -r umount -i -l
"""


class Namespace:
    """A private copy of the machine's mounts, with the staged programs and a fstab of its own.
    Mount points are made in /run, which is empty there."""

    def __init__(self, stage, fstab):
        # With SIGCHLD ignored, cat, which is process 1 there, leaves no zombies. At the end of its
        # input, which is at our end at the latest, it ends, and the kernel everything else with it.
        self.keeper = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
             "sh", "-c", LET_GO + "echo ready; exec env --ignore-signal=CHLD cat", stage.parent.parent],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.keeper.stdout.readline() != "ready\n":
            pytest.skip("no namespaces here: " + self.keeper.stderr.read())
        children = f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children"
        self.init = pathlib.Path(children).read_text().split()[0]
        self.fstab = fstab
        fstab.touch()
        self.check("mount", "-t", "tmpfs", "none", "/run")
        self.check("mount", "--bind", fstab, "/etc/fstab")
        self.lay(stage, install_directory("mountdir"))
        self.lay(stage, install_directory("bindir"))

    def lay(self, stage, directory):
        """Puts what is staged of a directory over the machine's directory; if that does not exist,
        over one where programs are found all the same (mount(8) hands no PATH on)."""
        staged = stage / directory.relative_to("/")
        real = directory.resolve() if directory.is_dir() else "/usr/bin"
        done = self.run("mount", "-t", "overlay", "none", real, "-o", f"lowerdir={staged}:{real}")
        if done.returncode != 0:
            pytest.skip("no overlay mounts here: " + done.stderr)

    def command(self, arguments):
        return ["nsenter", f"--target={self.init}", "--mount", "--pid", *arguments]

    def run(self, *arguments, environment=None, **more):
        return subprocess.run(
            self.command(arguments), capture_output=True, text=True, timeout=SECONDS,
            errors="surrogateescape", env=dict(os.environ, **(environment or {})),
            **more)

    def check(self, *arguments, **more):
        done = self.run(*arguments, **more)
        assert done.returncode == 0, (arguments, done.returncode, done.stderr)
        return done

    def start(self, *arguments):
        """A process to be ended with kill_started: nsenter stands between it and us."""
        return subprocess.Popen(self.command(arguments), start_new_session=True)

    def directory(self, name="/run/mnt"):
        self.check("mkdir", "-p", name)
        return name

    def mounted(self, directory):
        """(type, source, options of the superblock) of the topmost mount there, or None."""
        found = None
        for line in self.run("cat", "/proc/self/mountinfo").stdout.splitlines():
            fields = [re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), f) for f in line.split(" ")]
            if fields[4] == directory:
                found = fields[fields.index("-") + 1:]
        return found and (found[0], found[1], found[2].split(","))

    def daemon(self, directory):
        return self.check("cat", f"{directory}/.sparsefs/pid").stdout.strip()

    def alive(self, pid):
        """Not ended; one that only waits for its parent has ended."""
        state = self.run("sed", "s/.*) //", f"/proc/{pid}/stat")
        return state.returncode == 0 and state.stdout[0] not in "ZX"

    def wait_until_ended(self, pid):
        deadline = time.monotonic() + SECONDS
        while self.alive(pid):
            assert time.monotonic() < deadline, f"process {pid} does not end"
            time.sleep(0.02)

    def end(self):
        self.keeper.stdin.close()
        self.keeper.wait(SECONDS)


@pytest.fixture
def machine(stage, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root may make mount namespaces")
    namespace = Namespace(stage, tmp_path / "fstab")
    yield namespace
    namespace.end()


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "run42.h5"
    make_file(path)
    return path


def frame_as_list(machine, directory, number, *prefix):
    text = machine.check(*prefix, "od", "-An", "-v", "-tu2",
                         f"{directory}/data/frames/{number}.raw").stdout
    return [int(word) for word in text.split()]


# What is installed


def test_installed_names(stage):
    helpers = stage / install_directory("mountdir").relative_to("/")
    for action in "mount", "umount":
        helper = helpers / f"{action}.sparsefs"
        assert os.access(helper, os.X_OK)
        assert "@bindir@" not in helper.read_text()
        assert os.readlink(helpers / f"{action}.fuse.sparsefs") == f"{action}.sparsefs"
    share = stage / install_directory("datadir").relative_to("/")
    assert (share / "bash-completion/completions/sparsefs").is_file()
    examples = sorted(p.name for p in (share / "doc/sparsefs/examples").iterdir())
    assert examples == ["fstab.example", "mnt-run42.automount", "mnt-run42.mount", "modulefile"]
    assert not re.search("@[a-z]+@", (share / "doc/sparsefs/examples/modulefile").read_text())
    if build_options()["umount_fuse"]:
        assert os.readlink(helpers / "umount.fuse") == "umount.sparsefs"
    pages = [p.name.removesuffix(".gz") for p in stage.rglob("man/man*/*")]
    assert {"sparsefs.1", "mount.sparsefs.8", "umount.sparsefs.8"} <= set(pages)


# Mounting


@pytest.mark.parametrize("kind", ["sparsefs", "fuse.sparsefs"])
def test_mount_by_type(machine, source, kind):
    mnt = machine.directory()
    done = machine.check("mount", "-t", kind, source, mnt, "-o", "ro")
    assert done.stderr == ""
    filesystem, mounted_source, options = machine.mounted(mnt)
    assert (filesystem, mounted_source) == ("fuse.sparsefs", str(source))
    assert "ro" in options
    assert frame_as_list(machine, mnt, 2) == list(range(60, 90))
    pid = machine.daemon(mnt)
    machine.check("umount", mnt)
    assert not machine.alive(pid)
    assert machine.mounted(mnt) is None


def test_mount_without_ro_writes(machine, source):
    mnt = machine.directory()
    done = machine.check("mount", "-t", "sparsefs", source, mnt)
    assert done.stderr == ""
    assert "rw" in machine.mounted(mnt)[2]
    machine.check("dd", "if=/dev/zero", f"of={mnt}/data/frames/2.raw", "bs=60", "count=1")
    assert frame_as_list(machine, mnt, 2) == [0] * 30
    machine.check("umount", mnt)
    mnt = machine.directory()
    machine.check("mount", "-t", "sparsefs", "-r", source, mnt)
    assert frame_as_list(machine, mnt, 2) == [0] * 30


def test_mount_of_a_file_that_is_read(machine, source):
    """mount(8) says rw whether it is asked to or not: the file is shared until something is written."""
    mnt = machine.directory()
    with h5py.File(source):
        done = machine.check("mount", "-t", "sparsefs", source, mnt)
        assert done.stderr == ""
        done = machine.run("dd", "if=/dev/zero", f"of={mnt}/data/frames/2.raw", "bs=60", "count=1")
        assert done.returncode == 1 and "busy" in done.stderr
    machine.check("dd", "if=/dev/zero", f"of={mnt}/data/frames/2.raw", "bs=60", "count=1")


def test_mount_options_reach_the_daemon(machine, source):
    mnt = machine.directory()
    machine.check("mount", "-t", "sparsefs", source, mnt,
                  "-o", "ro,nosuid,frame_rank=1,first=1,cache_size=1M")
    names = machine.check("ls", f"{mnt}/data/raw").stdout.split()
    assert (names[0], names[-1]) == ("000001.raw", "000020.raw")


def test_allow_other_lets_other_users_in(machine, source):
    closed, opened = machine.directory("/run/closed"), machine.directory("/run/opened")
    machine.check("mount", "-t", "sparsefs", "-o", "ro", source, closed)
    machine.check("mount", "-t", "sparsefs", "-o", "ro,allow_other", source, opened)
    assert machine.run(*NOBODY, "ls", closed).returncode != 0
    assert frame_as_list(machine, opened, 0, *NOBODY) == list(range(30))


@pytest.mark.parametrize("line_type", ["sparsefs", "fuse.sparsefs"])
def test_mount_by_fstab(machine, source, line_type):
    mnt = machine.directory()
    machine.fstab.write_text(
        f"{source} {mnt} {line_type} ro,noauto,user,nofail,_netdev,comment=x,first=1,"
        "x-systemd.automount,x-systemd.idle-timeout=10min 0 0\n")
    machine.check("mount", mnt)
    assert machine.mounted(mnt)[:2] == ("fuse.sparsefs", str(source))
    assert frame_as_list(machine, mnt, 4) == list(range(90, 120))
    pid = machine.daemon(mnt)
    machine.check("umount", mnt)
    assert not machine.alive(pid)


@pytest.mark.parametrize("name", ["run 1,2", 'a"b\'c', "back\\slash #1", "50%d\n", "tab\there", "a\nb \\\t\n\nc d",
                                  "-o", "[ab]*"])
def test_odd_names(machine, tmp_path, name):
    path = tmp_path / f"{name}.h5"
    make_file(path)
    mnt = machine.directory(f"/run/{name}")
    machine.check("mount", "-t", "sparsefs", "-o", "ro", path, mnt)
    assert machine.mounted(mnt)[:2] == ("fuse.sparsefs", str(path))
    assert frame_as_list(machine, mnt, 1) == list(range(30, 60))
    pid = machine.daemon(mnt)
    machine.check("umount", mnt)
    assert not machine.alive(pid)


def test_odd_names_in_fstab(machine, tmp_path):
    path = tmp_path / "run 1,2.h5"
    make_file(path)
    mnt = machine.directory("/run/the frames")
    escaped = str(path).replace(" ", "\\040")
    machine.fstab.write_text(f"{escaped} /run/the\\040frames fuse.sparsefs ro,noauto 0 0\n")
    machine.check("mount", mnt)
    pid = machine.daemon(mnt)
    machine.check("umount", path)  # umount(8) takes the source, too
    assert not machine.alive(pid)


def test_helper_called_directly(machine, source):
    mnt = machine.directory()
    done = machine.check("mount.sparsefs", "-v", "-o", "ro", source, "-o", "first=1", mnt, "-n")
    assert done.stdout.startswith("mount.sparsefs: ") and "first=1" in done.stdout
    assert machine.run("test", "-e", f"{mnt}/data/frames/4.raw").returncode == 0
    machine.check("umount.sparsefs", mnt)
    machine.check("mount.fuse.sparsefs", "-r", source, mnt)
    machine.check("umount.fuse.sparsefs", mnt)
    assert machine.check("mount.sparsefs", "-V").stdout.startswith("sparsefs ")


def test_names_that_begin_with_a_dash(machine, tmp_path):
    make_file(tmp_path / "-f.h5")
    machine.directory("/run/-d")
    program = machine.check("sh", "-c", 'cd /run && cp "$1" . && mount.sparsefs -r -- -f.h5 ./-d',
                            "sh", tmp_path / "-f.h5")
    assert program.stderr == ""
    assert machine.mounted("/run/-d")[1] == "/run/-f.h5"
    machine.check("sh", "-c", "cd /run && umount.sparsefs -- -d")


def test_fake_mounts_nothing(machine, source):
    mnt = machine.directory()
    machine.check("mount", "-f", "-t", "sparsefs", source, mnt)
    assert machine.mounted(mnt) is None
    missing = machine.run("mount", "-f", "-t", "sparsefs", f"{source}.missing", mnt)
    assert missing.returncode == 32


def test_sloppy_leaves_unknown_options_out(machine, source):
    mnt = machine.directory()
    done = machine.check("mount", "-s", "-t", "sparsefs", source, mnt,
                         "-o", 'ro,colour=red,first=1,x="1,2",y')
    assert done.stderr.splitlines() == [f"mount.sparsefs: option ignored (-s): {option}"
                                        for option in ("colour=red", 'x="1,2"', "y")]
    assert machine.run("test", "-e", f"{mnt}/data/frames/4.raw").returncode == 0


@pytest.mark.parametrize("options", ["bogus", "first=2", "first=", "cache_size=much", "threads=0",
                                     "frame_rank=-1", "follow=", "follow=0", "image_size=x"])
def test_bad_options_are_usage_errors(machine, source, options):
    mnt = machine.directory()
    done = machine.run("mount", "-t", "sparsefs", "-o", f"ro,{options}", source, mnt)
    assert done.returncode == 1
    assert done.stderr.startswith("sparsefs: ") and len(done.stderr.splitlines()) == 1
    assert machine.mounted(mnt) is None


def test_bad_files(machine, source, tmp_path):
    mnt = machine.directory()
    text, gz = tmp_path / "text.h5", tmp_path / "run.h5.gz"
    text.write_text("not HDF5\n" * 100)
    gz.write_bytes(b"\x1f\x8b")
    for path, status in ((text, 32), (tmp_path / "missing.h5", 32), (gz, 32), ("-", 32)):
        done = machine.run("mount", "-t", "sparsefs", "-o", "ro", path, mnt)
        assert (path, done.returncode) == (path, status)
        assert len(done.stderr.splitlines()) == 1
    assert machine.run("mount", "-t", "sparsefs", "-o", "ro", source, "/run/no").returncode == 32
    assert machine.mounted(mnt) is None


def test_bad_arguments(machine, source):
    for arguments in ([], [source], [source, "/run", "more"], [source, "/run", "-q"],
                      [source, "/run", "-o"]):
        assert machine.run("mount.sparsefs", *arguments).returncode == 1
    for arguments in ([], ["/run", "more"], ["/run", "-q"], ["/run", "-t"]):
        assert machine.run("umount.sparsefs", *arguments).returncode == 1


def test_user_mounts_by_fstab(machine, source):
    machine.check("sh", "-c", "mknod -m 666 /run/fuse c 10 229 && mount --bind /run/fuse /dev/fuse")
    mnt = machine.directory()
    machine.check("chown", "65534", mnt)
    machine.check("cp", source, "/run/run42.h5")
    machine.fstab.write_text(f"/run/run42.h5 {mnt} fuse.sparsefs ro,noauto,user 0 0\n")
    done = machine.run(*NOBODY, "mount", mnt)
    # Some containers have no /etc/mtab, without which fusermount3 does not unmount.
    if "fusermount3" in done.stderr and "Permission denied" in done.stderr \
            or not os.path.exists("/etc/mtab"):
        pytest.skip("users may not mount here: " + done.stderr)
    assert done.returncode == 0, done.stderr
    assert {"user_id=65534", "group_id=65534"} <= set(machine.mounted(mnt)[2])

    holder = machine.start("sh", "-c", f"exec {' '.join(NOBODY)} "
                           f"sh -c 'cd {mnt} && touch /run/inside && exec sleep 3600'")
    try:
        deadline = time.monotonic() + SECONDS
        while machine.run("test", "-e", "/run/inside").returncode != 0:
            assert time.monotonic() < deadline
        busy = machine.run(*NOBODY, "umount", mnt)
        assert (busy.returncode, len(busy.stderr.splitlines())) == (32, 1)
    finally:
        kill_started(holder)

    for user in NOBODY, []:  # root may too, and waits though it may not look into a user's mount
        pid = machine.check(*NOBODY, "cat", f"{mnt}/.sparsefs/pid").stdout.strip()
        machine.check(*user, "umount", mnt)
        assert not machine.alive(pid)
        machine.check(*NOBODY, "mount", mnt)


# In another mount namespace


@contextlib.contextmanager
def other_namespace(machine, make, fill):
    """The file of a mount namespace which the command make makes, and in which the shell command fill has been run."""
    process = machine.start(*make, "sh", "-c", f"{fill} && touch /run/filled && cat /proc/self/stat >/run/stat && "
                            "exec sleep 3600")
    try:
        deadline = time.monotonic() + SECONDS
        while machine.run("test", "-s", "/run/stat").returncode != 0:
            if process.poll() is not None:
                pytest.skip("no such namespaces here")
            assert time.monotonic() < deadline
        parent = machine.check("cut", "-d ", "-f4", "/run/stat").stdout.strip()
        machine.check("rm", "/run/stat")
        yield f"/proc/{parent}/ns/mnt"
    finally:
        if process.poll() is None:
            kill_started(process)


def test_mount_in_another_namespace(machine, source):
    mnt = machine.directory()
    with other_namespace(machine, ["unshare", "--mount"], "true") as namespace:
        inside = ["nsenter", f"--mount={namespace}", "--"]
        for mount, umount in (["mount", "-t", "sparsefs"], ["umount"]), (["mount.sparsefs"], ["umount.sparsefs"]):
            machine.check(*mount, "-N", namespace, "-o", "ro", source, mnt)
            assert machine.mounted(mnt) is None
            assert frame_as_list(machine, mnt, 2, *inside) == list(range(60, 90))
            pid = machine.check(*inside, "cat", f"{mnt}/.sparsefs/pid").stdout.strip()
            machine.check(*umount, "-N", namespace, mnt)
            assert not machine.alive(pid)
        for wrong in "/run", "/proc/self/ns/net", "/run/none", source:
            assert machine.run("mount.sparsefs", "-N", wrong, source, mnt).returncode == 32


@pytest.mark.parametrize("make", [
    pytest.param([*NOBODY, "unshare", "--user", "--map-root-user", "--mount"], id="user"),
    pytest.param(["unshare", "--mount", "sh", "-c", 'cd /run/root && pivot_root . . && umount -l . && exec "$@"', "sh"],
                 id="container")])
def test_no_program_is_run_from_the_namespace_of_another_user(machine, source, make):
    """He has put his own in the place of every one that root could run there."""
    machine.check("sh", "-c", "mkdir -p /run/evil /run/root /run/mnt && chmod 777 /run /run/evil")
    machine.check("sh", "-c", "mount -t overlay none /run/root -o lowerdir=/run/evil:/ && "
                  f"for folder in /run /proc {install_directory('mountdir')} {install_directory('bindir')}; do "
                  "mount --rbind $folder /run/root/$folder; done")
    helpers = [install_directory("mountdir") / f"{action}.sparsefs" for action in ("mount", "umount")]
    programs = [install_directory("bindir") / "sparsefs", *helpers]
    machine.check("sh", "-c", "printf '#!/bin/sh\\ntouch /run/ran\\n' >/run/evil/program && "
                  "chmod 755 /run/evil/program")
    fill = " && ".join(f"mount --bind /run/evil/program {program}" for program in programs)
    with other_namespace(machine, make, fill) as namespace:
        for command in (["mount", "-N", namespace, "-t", "sparsefs", source, "/run/mnt"],
                        [helpers[0], "-N", namespace, source, "/run/mnt"], [helpers[1], "-N", namespace, "/run/mnt"]):
            done = machine.run(*command)
            assert done.returncode == 32 and "not entered: the mount namespace" in done.stderr, done
        assert machine.run("test", "-e", "/run/ran").returncode != 0


# Unmounting


@pytest.fixture
def slow_end(tmp_path):
    """An environment for mount.sparsefs (mount(8) takes it away) in which a daemon goes on after its
    mount has ended, until there is a file /run/end."""
    if not shutil.which("cc"):
        pytest.skip("cc is not installed")
    if "libasan" in subprocess.run(["ldd", BUILD / "sparsefs"], capture_output=True, text=True,
                                   check=True, timeout=SECONDS).stdout:
        pytest.skip("nothing can be preloaded into a build with sanitizers")
    (tmp_path / "slow.c").write_text("""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
void fuse_session_destroy(void *session)
{
    while (access("/run/end", F_OK) < 0)
        usleep(1000);
    ((void (*)(void *))dlsym(RTLD_NEXT, "fuse_session_destroy"))(session);
}
""")
    library = tmp_path / "slow.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "slow.c", "-ldl"],
                   check=True, timeout=SECONDS)
    return {"LD_PRELOAD": str(library)}


# umount(8) finds the helper in different ways for an absolute path, any other, and its options.
@pytest.mark.parametrize("arguments", ["/run/mnt", "run/mnt", "-c /run/mnt", "-f /run/mnt"])
def test_umount_waits_for_the_daemon(machine, source, slow_end, arguments):
    mnt = machine.directory()
    machine.check("mount.sparsefs", "-o", "ro", source, mnt, environment=slow_end)
    pid = machine.daemon(mnt)
    umount = machine.start("sh", "-c", f"cd / && exec umount {arguments}")
    while machine.mounted(mnt):
        assert umount.poll() is None
    assert umount.poll() is None and machine.alive(pid)
    machine.check("touch", "/run/end")
    assert umount.wait(SECONDS) == 0
    assert not machine.alive(pid)


def test_lazy_umount_does_not_wait(machine, source, slow_end):
    mnt = machine.directory()
    machine.check("mount.sparsefs", "-o", "ro", source, mnt, environment=slow_end)
    pid = machine.daemon(mnt)
    machine.check("umount", "-l", mnt)
    assert machine.alive(pid)
    assert machine.mounted(mnt) is None
    machine.check("touch", "/run/end")
    machine.wait_until_ended(pid)


def test_umount_of_a_busy_mount(machine, source):
    mnt = machine.directory()
    machine.check("mount", "-t", "sparsefs", "-o", "ro", source, mnt)
    holder = machine.start("sh", "-c", f"cd {mnt} && touch /run/inside && exec sleep 3600")
    try:
        deadline = time.monotonic() + SECONDS
        while machine.run("test", "-e", "/run/inside").returncode != 0:
            assert time.monotonic() < deadline
        done = machine.run("umount", mnt)
        assert done.returncode == 32
        assert re.fullmatch(r"umount\S*: /run/mnt: target is busy\n", done.stderr)
        assert machine.alive(machine.daemon(mnt))
    finally:
        kill_started(holder)
    machine.check("umount", mnt)


def is_asking(machine):
    return machine.run("sh", "-c", "grep -aqszx -- '--at-mount-poin[t]' /proc/[0-9]*/cmdline").returncode == 0


def helper_with(machine, before, after, what="unmount"):
    """umount.sparsefs whose root does before and after each umount(2), or request, what these shell commands do."""
    program = install_directory("bindir") / "sparsefs"
    machine.check("sh", "-c", "mkdir -p /run/with && cat >/run/with/sparsefs && chmod 755 /run/with/sparsefs && "
                  'sed "s|^sparsefs=.*|sparsefs=/run/with/sparsefs|" "$(command -v umount.sparsefs)" '
                  ">/run/with/umount.sparsefs && chmod 755 /run/with/umount.sparsefs",
                  input=f"#!/bin/sh\n[ \"$4\" = {what} ] || exec {program} \"$@\"\n"
                        f"{before}\n{program} \"$@\"\ncode=$?\n{after}\nexit $code\n")
    return "/run/with/umount.sparsefs"


def test_umount_of_a_mount_that_is_busy_for_a_moment(machine, source):
    """As readahead keeps it that is still under way when a file is closed. Here whoever is in it leaves when it has
    been found busy."""
    mnt = machine.directory()
    helper = helper_with(machine, "", "kill $(cat /run/inside)")
    machine.check("mount", "-t", "sparsefs", "-o", "ro", source, mnt)
    holder = machine.start("sh", "-c", f"cd {mnt} && echo $$ >/run/inside.new && mv /run/inside.new /run/inside && "
                           "exec sleep 3600")
    try:
        deadline = time.monotonic() + SECONDS
        while machine.run("test", "-e", "/run/inside").returncode != 0:
            assert time.monotonic() < deadline
        machine.check(helper, mnt)
        assert machine.mounted(mnt) is None
    finally:
        kill_started(holder)


def test_umount_does_not_go_on_to_what_is_mounted_below(machine, source):
    """Somebody else unmounts it while umount(2) fails: the next try would be at another mount."""
    mnt = machine.directory()
    helper = helper_with(machine, "", "exit 32")
    machine.check("cp", source, "/run/other.h5")
    other = machine.directory("/run/other")
    for file, point in (source, mnt), ("/run/other.h5", other):
        machine.check("mount", "-t", "sparsefs", "-o", "ro", file, point)
    machine.check("mount", "--bind", other, mnt)
    done = machine.run(helper, mnt)
    assert done.returncode == 32
    assert machine.mounted(mnt)[1] == str(source)
    for point in mnt, other:
        machine.check("umount", point)


def exchange(machine, source, there):
    """Mounts, and returns a shell command by which another user, who owns the folder and has a mount namespace in which
    nothing is mounted there, exchanges the mount point for a link, or another one."""
    victim = machine.directory("/run/victim")
    machine.directory("/run/p/mnt")
    for point in victim, machine.directory("/run/p/mount"):
        machine.check("mount", "-t", "tmpfs", "none", point)
    machine.check("sh", "-c", f"ln -s {victim} /run/p/link && chown 65534 /run/p && cat >/run/exchange.py", input=(
        "import ctypes, sys\n"
        f"sys.exit(ctypes.CDLL(None).renameat2(-100, b'/run/p/mnt', -100, b'/run/p/{there}', 2))\n"))
    machine.check("mount.sparsefs", "-o", "ro", source, "/run/p/mnt")
    return ("unshare --mount sh -c 'umount -i -l /run/p/mnt; umount -i -l /run/p/mount; "
            f"exec {' '.join(NOBODY)} /usr/bin/python3 /run/exchange.py' || exit 99")


@pytest.mark.parametrize("there", ["link", "mount"])
def test_umount_of_a_mount_point_that_is_exchanged(machine, source, there):
    """At the last moment."""
    helper = helper_with(machine, exchange(machine, source, there), "")
    done = machine.run(helper, "/run/p/mnt")
    assert done.returncode == 32, done
    points = machine.check("cat", "/proc/self/mountinfo").stdout
    assert f" {source} " in points and " /run/victim " in points and points.count(" tmpfs none ") == 3


@pytest.mark.parametrize("what", ["pid", "commit"])
def test_umount_asks_nothing_that_a_link_leads_to(machine, source, what):
    """The mount point is exchanged for one before root looks into the mount, and back."""
    command = exchange(machine, source, "link")
    machine.check("sh", "-c", "mkdir /run/victim/.sparsefs && mkfifo /run/victim/.sparsefs/pid && mkdir /run/bin && "
                  "printf '%s\\n' '#!/bin/sh' 'echo \"$*\" >>/run/ran' \"exec $(command -v setsid) \\\"\\$@\\\"\" "
                  ">/run/bin/setsid && chmod 755 /run/bin/setsid")
    helper = helper_with(machine, command, command.replace("/run/p/mnt", "/run/p/link"), what)
    done = machine.run("sh", "-c", f"PATH=/run/bin:$PATH exec {helper} -v /run/p/mnt")
    if what == "commit":
        assert done.returncode == 32 and "what was written could not be committed" in done.stderr, done
        assert f" {source} " in machine.check("cat", "/proc/self/mountinfo").stdout
    else:
        assert done.returncode == 0, done
    ran = machine.run("cat", "/run/ran").stdout
    assert "head" not in ran and "sync" not in ran, ran


def test_umount_is_not_led_to_another_mount(machine, source):
    """While it waits for the daemon, whoever owns the parent directory exchanges that for a symbolic link."""
    name = "-m \\ \n"
    machine.directory(f"/run/p/{name}")
    machine.check("mount.sparsefs", "-o", "ro", source, f"/run/p/{name}")
    pid = machine.daemon(f"/run/p/{name}")
    victim = machine.directory(f"/run/evil/{name}")
    machine.check("mount", "-t", "tmpfs", "none", victim)
    machine.check("sh", "-c", f"chown 65534 /run /run/p && kill -STOP {pid}")
    umount = machine.start("sh", "-c", 'cd /run && exec umount.sparsefs -f "$1" >/dev/null', "sh", f"p/{name}/")
    try:
        # It asks the daemon when it has found the mount.
        deadline = time.monotonic() + SECONDS
        while not is_asking(machine):
            assert umount.poll() is None and time.monotonic() < deadline
        machine.check(*NOBODY, "sh", "-c", "mv /run/p /run/q && ln -s evil /run/p")
        assert umount.wait(SECONDS) == 0
    finally:
        if umount.poll() is None:
            kill_started(umount)
        machine.check("sh", "-c", f"kill -CONT {pid}")
    assert machine.mounted(victim)[0] == "tmpfs"
    assert machine.mounted(f"/run/q/{name}") is None
    machine.wait_until_ended(pid)


def test_umount_does_not_ask_another_mount(machine, source):
    """It does not go on either when the mount is taken away and another put there."""
    mnt = machine.directory()
    machine.check("mount.sparsefs", "-o", "ro", source, mnt)
    pid = machine.daemon(mnt)
    machine.check("sh", "-c", f"kill -STOP {pid}")
    umount = machine.start("sh", "-c", f"exec umount.sparsefs -f {mnt} 2>/run/said")
    try:
        deadline = time.monotonic() + SECONDS
        while not is_asking(machine):
            assert umount.poll() is None and time.monotonic() < deadline
        machine.check("mount", "-t", "tmpfs", "none", mnt)
        assert umount.wait(SECONDS) == 32
    finally:
        if umount.poll() is None:
            kill_started(umount)
        machine.check("sh", "-c", f"kill -CONT {pid}")
    assert "another mount is there now" in machine.check("cat", "/run/said").stdout
    assert machine.mounted(mnt)[0] == "tmpfs"


def number_and_connection(machine, mnt):
    table = machine.check("cat", "/proc/self/mountinfo").stdout
    return re.search(rf"^(\d+) \d+ 0:(\d+) / {mnt} ", table, re.M).groups()


def test_umount_aborts_nothing_when_its_mount_is_gone(machine, source):
    """Unmounted while its daemon does not answer: another mount may have the number of the connection by then."""
    mnt = machine.directory()
    machine.check("mount.sparsefs", "-o", "ro", source, mnt)
    pid, (_, connection) = machine.daemon(mnt), number_and_connection(machine, mnt)
    abort = f"/sys/fs/fuse/connections/{connection}/abort"
    machine.check("sh", "-c", f"kill -STOP {pid}; mount -t tmpfs none /sys/fs/fuse/connections && "
                  f"mkdir $(dirname {abort}) && touch {abort}")
    umount = machine.start("sh", "-c", f"exec umount.sparsefs -f {mnt} 2>/run/said")
    try:
        deadline = time.monotonic() + SECONDS
        while not is_asking(machine):
            assert umount.poll() is None and time.monotonic() < deadline
        machine.check("umount", "-i", "-l", mnt)
        assert umount.wait(SECONDS) == 32
    finally:
        if umount.poll() is None:
            kill_started(umount)
        machine.check("sh", "-c", f"kill -CONT {pid}")
    assert machine.check("cat", abort).stdout == ""
    assert "another mount is there now, or none" in machine.check("cat", "/run/said").stdout


def test_the_connection_of_one_mount_is_aborted(machine, source):
    mnt, other = machine.directory(), machine.directory("/run/other")
    machine.check("cp", source, "/run/other.h5")
    for file, point in (source, mnt), ("/run/other.h5", other):
        machine.check("mount.sparsefs", file, point)
    number, _ = number_and_connection(machine, mnt)
    program = install_directory("bindir") / "sparsefs"
    for path, code in (other, 32), ("/run", 32), ("/run/none", 32), (mnt, 0):
        done = machine.run(program, "--at-mount-point", number, path, "abort")
        assert (path, done.returncode) == (path, code), done
    assert machine.run("ls", mnt).returncode != 0
    assert frame_as_list(machine, other, 2) == list(range(60, 90))


@contextlib.contextmanager
def tracing_fuse(machine, mnt, *arguments):
    """A mount of a user who tries to take over whoever looks into it. What it has seen is in /run/said."""
    fuse = machine.start("sh", "-c", 'exec /usr/bin/python3 "$@" >/run/said', "sh",
                         TOP / "tests/mount/tracing_fuse.py", mnt, *map(str, arguments))
    try:
        deadline = time.monotonic() + SECONDS
        while not machine.mounted(mnt) or machine.check("cat", "/run/said").stdout == "":
            assert fuse.poll() is None and time.monotonic() < deadline
        yield fuse
    finally:
        if fuse.poll() is None:
            kill_started(fuse)


@pytest.mark.parametrize("error", [0, errno.EIO], ids=["committed", "failed"])
def test_umount_by_root_of_a_mount_that_takes_over_who_looks_into_it(machine, error):
    """Root asks as the user who mounted, by processes of which that user can have nothing; a commit that fails is told
    all the same."""
    mnt = machine.directory()
    with tracing_fuse(machine, mnt, error) as fuse:
        done = machine.run("umount.sparsefs", "-v", mnt)
        said = [json.loads(line) for line in machine.check("cat", "/run/said").stdout.splitlines()[1:]]
        assert {name for name, *_ in said} >= {"LOOKUP", "OPEN", "READ", "OPENDIR", "FSYNCDIR"}, done
        for name, uid, command, reached in said:
            assert (uid, reached) == (65534, []), (name, command)
        assert done.returncode == (32 if error else 0), done
        if error:
            assert "what was written could not be committed" in done.stderr and machine.mounted(mnt)
            machine.check("umount.sparsefs", "-f", mnt)
        else:
            assert re.search(r"the daemon \(pid \d+\) has ended", done.stdout)
        assert machine.mounted(mnt) is None
        assert fuse.wait(SECONDS) == 0


def test_umount_by_root_runs_no_program_of_the_mounts_directory(machine, tmp_path):
    """Where sparsefs is not found the mount stays, and nothing is run that lies beside it."""
    machine.check("mkdir", "-p", "/run/p/@bindir@", "/run/p/bin", "/run/p/mount-helpers", "/run/p/mnt")
    for folder in "@bindir@", "bin", ".":
        machine.check("sh", "-c", f"printf '#!/bin/sh\\ntouch /run/ran\\n' >/run/p/{folder}/sparsefs && "
                      f"chmod 755 /run/p/{folder}/sparsefs")
    (tmp_path / "mount-helpers").mkdir()
    shutil.copy(HELPERS / "umount.sparsefs", tmp_path / "mount-helpers")
    without = f"cd {tmp_path} && PATH=/usr/sbin:/usr/bin:/sbin:/bin:. exec sh mount-helpers/umount.sparsefs"
    if machine.run("sh", "-c", "PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v sparsefs").returncode == 0:
        pytest.skip("sparsefs is installed where other programs are")
    with tracing_fuse(machine, "/run/p/mnt", 0):
        done = machine.run("sh", "-c", f"{without} /run/p/mnt")
        assert done.returncode == 32 and "not unmounted: sparsefs" in done.stderr and "umount -i goes" in done.stderr
        assert machine.run("sh", "-c", f"{without} -f /run/p/mnt").returncode == 32
        assert machine.mounted("/run/p/mnt")
        machine.check("umount", "-i", "/run/p/mnt")
    assert machine.run("test", "-e", "/run/ran").returncode != 0


def test_umount_does_not_wait_for_the_daemon_of_another_user(machine, source):
    """A user's mount names a sparsefs of root's."""
    mnt, other = machine.directory(), machine.directory("/run/other")
    machine.check("mount.sparsefs", "-o", "ro", source, other)
    pid = machine.daemon(other)
    with tracing_fuse(machine, mnt, 0, pid):
        done = machine.check("umount.sparsefs", "-v", mnt)
    assert f"process {pid}, which the mount names as its daemon, is no sparsefs of who has mounted" in done.stdout
    machine.check("umount", other)


def test_umount_looks_at_processes_of_the_mounter_only(machine, source):
    """However many threads and files others have who are called like it. All that is looked through goes to grep."""
    mnt = machine.directory()
    machine.check("mount.sparsefs", "-o", "ro", source, mnt)
    other = machine.start("sh", "-c", f"exec {' '.join(NOBODY)} "
                          "sh -c 'printf sparsefs >/proc/$$/comm; echo $$; sleep 3600 & wait' >/run/other")
    try:
        machine.check("sh", "-c", "until [ -s /run/other ]; do sleep 0.01; done")
        pid = machine.check("cat", "/run/other").stdout.strip()
        machine.check("sh", "-c", "mkdir /run/bin && printf '%s\\n' '#!/bin/sh' 'echo \"$*\" >>/run/asked' "
                      '"exec $(command -v grep) \\"\\$@\\"" >/run/bin/grep && chmod 755 /run/bin/grep')
        daemon = machine.daemon(mnt)
        machine.check("sh", "-c", f"PATH=/run/bin:$PATH exec umount.sparsefs {mnt}")
        asked = machine.check("cat", "/run/asked").stdout
        assert f"/proc/{daemon}/task/" in asked and f"/proc/{pid}/" not in asked
    finally:
        kill_started(other)


def test_helpers_show_no_control_characters(machine, source):
    name = "/run/a\x1b]0;b\x07\nc\u009bd\u202ee\u00e0\u0100\u5b57"
    for command in (["umount.sparsefs", name], ["mount.sparsefs", "-f", name, "/run"],
                    ["mount.sparsefs", "-fs", "-o", "un\x1bknown", source, "/run"]):
        done = machine.run(*command)
        assert not set(done.stderr) & set("\x1b\x07\u009b\u202e") and done.stderr.count("\n") == 1, done.stderr
        assert "?" in done.stderr and (name not in command or "?e\u00e0\u0100\u5b57" in done.stderr), done.stderr


def test_what_root_asks_its_own_mount(machine, source):
    """Only the mount that it was told."""
    mnt = machine.directory()
    machine.check("mount.sparsefs", source, mnt)
    number, _ = number_and_connection(machine, mnt)
    ask = [install_directory("bindir") / "sparsefs", "--at-mount-point"]
    assert machine.check(*ask, number, mnt, "pid").stdout == f"{machine.daemon(mnt)}\n"
    machine.check(*ask, number, mnt, "commit")
    machine.check("ln", "-s", mnt, "/run/link")
    for arguments in ((number, "/run/link", "pid"), (number, "/run/link", "commit"), ("1", mnt, "pid"),
                      ("1", mnt, "commit"), (number, "/run", "commit"), (number, mnt, "pid", "more"), (number, mnt)):
        done = machine.run(*ask, *arguments)
        assert (done.returncode != 0, done.stdout) == (True, ""), arguments
    machine.check("umount.sparsefs", mnt)


def test_what_root_asks_as_another_user(machine, source):
    """Only of the mount that it was told, and never as root."""
    mnt = machine.directory()
    ask = [install_directory("bindir") / "sparsefs", "--as-mounter"]
    with tracing_fuse(machine, mnt, 0):
        number = machine.check("sh", "-c", f"grep ' {mnt} ' /proc/self/mountinfo").stdout.split()[0]
        assert machine.check(*ask, "65534:65534", "pid", number, mnt).stdout.strip().isdigit()
        machine.check(*ask, "65534:65534", "commit", number, mnt)
        for arguments in (("0:0", "pid", number, mnt), ("65534:65534", "pid", "1", mnt),
                          ("65534:65534", "commit", "1", mnt), ("65534:65534", "commit", number, "/run"),
                          ("65534", "pid", number, mnt), ("65534:65534", "pid", number)):
            done = machine.run(*ask, *arguments)
            assert (done.returncode != 0, done.stdout) == (True, ""), arguments
        machine.check("umount.sparsefs", mnt)
    machine.check("chmod", "777", "/run")
    machine.check("cp", source, "/run/run42.h5")
    device, inode = map(int, machine.check("stat", "-c", "%d %i", "/run/run42.h5").stdout.split())
    locked = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}\n"
    assert machine.check(*ask, "65534:65534", "lock", "/run/run42.h5").stdout == locked
    machine.check("chmod", "700", "/run")
    assert machine.run(*ask, "65534:65534", "lock", "/run/run42.h5").returncode != 0


def test_umount_takes_no_source_for_the_mount(machine, source):
    """A mount whose source is what umount(8) is given is not taken for success."""
    mnt, other = machine.directory(), machine.directory("/run/other")
    machine.check("mount.sparsefs", "-o", "ro", source, mnt)
    machine.check("mount", "-t", "tmpfs", "/proc/self/cwd/mnt", other)
    done = machine.run("umount.sparsefs", mnt)
    assert (done.returncode == 0) == (machine.mounted(mnt) is None), done


def test_lazy_umount_does_not_hang_with_its_daemon(machine, source):
    mnt = machine.directory()
    machine.check("mount.sparsefs", "-o", "ro", source, mnt)
    pid = machine.daemon(mnt)
    machine.check("sh", "-c", f"kill -STOP {pid}")
    machine.check("umount.sparsefs", "-l", mnt)
    assert machine.mounted(mnt) is None
    machine.check("sh", "-c", f"kill -CONT {pid}")
    machine.wait_until_ended(pid)


def test_umount_says_what_it_does(machine, source):
    mnt = machine.directory()
    machine.check("mount", "-t", "sparsefs", "-o", "ro", source, mnt)
    pid = machine.daemon(mnt)
    assert f"the daemon (pid {pid}) has ended" in machine.check("umount", "-v", mnt).stdout


@pytest.mark.parametrize("flags", ["-f", "-n", "-r", "-fnrv"])
def test_umount_flags(machine, source, flags):
    mnt = machine.directory()
    machine.check("mount", "-t", "sparsefs", "-o", "ro", source, mnt)
    pid = machine.daemon(mnt)
    machine.check("umount", flags, mnt)
    assert not machine.alive(pid)


def test_umount_decodes_no_mount_of_others(machine, source):
    """Of which there may be any number: a program for each would take seconds. What is run is counted."""
    mnt = machine.directory("/run/the frames")
    machine.check("sh", "-c", "mkdir /run/bin && for name in sed grep; do printf '%s\\n' '#!/bin/sh' 'echo >>/run/ran' "
                  '"exec $(command -v $name) \\"\\$@\\"" >/run/bin/$name && chmod 755 /run/bin/$name; done')
    ran = []
    for others in 0, 30:
        machine.check("sh", "-c", "for n in $(seq $1); do mkdir \"/run/a b$n\" && "
                      "mount --bind \"/run/a b$n\" \"/run/a b$n\" || exit; done", "sh", str(others))
        machine.check("mount.sparsefs", "-o", "ro", source, mnt)
        machine.check("sh", "-c", 'PATH=/run/bin:$PATH exec umount.sparsefs "$1"', "sh", mnt)
        ran.append(machine.check("sh", "-c", "wc -l </run/ran && rm /run/ran").stdout)
    assert int(ran[1]) < int(ran[0]) + 30, ran


def test_umount_by_any_name_of_the_directory(machine, source):
    mnt = machine.directory()
    machine.check("ln", "-s", mnt, "/run/link")
    for name in "/run/link", "/run/../run/mnt/", "run/mnt", "./run//mnt":
        machine.check("mount", "-t", "sparsefs", "-o", "ro", source, mnt)
        pid = machine.daemon(mnt)
        machine.check("sh", "-c", 'cd / && exec umount.sparsefs "$1"', "sh", name)
        assert not machine.alive(pid)
        assert machine.mounted(mnt) is None


def test_umount_after_the_daemon_died(machine, source):
    mnt = machine.directory()
    machine.check("mount", "-t", "sparsefs", "-o", "ro", source, mnt)
    pid = machine.daemon(mnt)
    machine.check("sh", "-c", "kill -KILL $1", "sh", pid)
    machine.wait_until_ended(pid)
    machine.check("umount", mnt)
    assert machine.mounted(mnt) is None


@pytest.mark.parametrize("user", [[], NOBODY], ids=["root", "user"])
def test_forced_umount_ends_who_waits_for_a_daemon_that_hangs(machine, source, user):
    """A user can where fusectl is mounted. What was written is committed when the daemon goes on."""
    mnt = machine.directory()
    machine.check("chmod", "777", "/run")
    machine.check("cp", source, "/run/run42.h5")
    if user:
        machine.check("sh", "-c", "mknod -m 666 /run/fuse c 10 229 && mount --bind /run/fuse /dev/fuse")
        machine.check("mount", "-t", "fusectl", "none", "/sys/fs/fuse/connections")
        machine.check("chown", "65534", mnt, "/run/run42.h5")
    mount = machine.run(*user, "mount.sparsefs", "/run/run42.h5", mnt)
    if user and mount.returncode != 0 and "fusermount3" in mount.stderr:
        pytest.skip("users may not mount here: " + mount.stderr)
    assert (mount.returncode, mount.stderr) == (0, "")
    machine.check(*user, "dd", "if=/dev/zero", f"of={mnt}/data/frames/2.raw", "bs=60", "count=1")
    daemon = machine.check(*user, "cat", f"{mnt}/.sparsefs/pid").stdout.strip()
    children = machine.check("cat", f"/proc/{daemon}/task/{daemon}/children").stdout.split()
    [keeper] = [child for child in children if machine.check("cat", f"/proc/{child}/comm").stdout == "fuse-keeper\n"]
    machine.check("sh", "-c", f"kill -STOP {daemon} {keeper}")  # the program need not be there
    waiting = machine.start(*user, "sh", "-c",
                            f"cd {mnt} && touch /run/inside && exec cat data/frames/0.raw")
    try:
        deadline = time.monotonic() + SECONDS
        while machine.run("test", "-e", "/run/inside").returncode != 0:
            assert time.monotonic() < deadline
        done = machine.run(*user, "umount.sparsefs", "-fv", mnt)
        assert (done.returncode, done.stderr) == (
            0, f"umount.sparsefs: the daemon (pid {daemon}) has not ended yet\n")
        assert f"{mnt} is unmounted\n" in done.stdout
        assert "is aborted" in done.stdout and machine.mounted(mnt) is None
        assert waiting.wait(SECONDS) != 0
    finally:
        if waiting.poll() is None:
            kill_started(waiting)
    refused = machine.run(*user, "mount.sparsefs", "/run/run42.h5", mnt)
    assert refused.returncode == 32 and f"sparsefs (process {daemon})" in refused.stderr
    machine.check("sh", "-c", f"kill -CONT {keeper} {daemon}")
    machine.wait_until_ended(daemon)
    machine.check("mount.sparsefs", "-r", "/run/run42.h5", mnt)
    assert frame_as_list(machine, mnt, 2) == [0] * 30


@pytest.mark.parametrize("command", ["umount.sparsefs /run/mnt", "umount run/mnt", "umount -c /run/mnt"])
def test_umount_does_not_hang_with_its_daemon(machine, source, command):
    """Nothing is unmounted that may not be committed, unless it is by force."""
    mnt = machine.directory()
    machine.check("mount.sparsefs", source, mnt)
    pid = machine.daemon(mnt)
    machine.check("sh", "-c", f"kill -STOP {pid}")
    done = machine.run("sh", "-c", f"cd / && exec {command}")
    assert done.returncode == 32 and "does not answer; -f goes without" in done.stderr, done
    assert machine.mounted(mnt)
    machine.check("sh", "-c", f"kill -CONT {pid}")
    machine.check("umount", mnt)
    assert not machine.alive(pid)


@pytest.mark.parametrize("many", [False, True])
def test_umount_does_not_look_through_locks_for_ever(machine, source, many):
    """A daemon that does not answer is found by its lock where the kernel does not tell connections; but anybody may
    have any number of locks."""
    mnt = machine.directory()
    machine.check("mount.sparsefs", "-w", source, mnt)
    pid = machine.daemon(mnt)
    machine.check("sh", "-c", "sed 's/^answer_seconds=.*/answer_seconds=2/; s/fuse_connection:/none:/' "
                  "\"$(command -v umount.sparsefs)\" >/run/umount.sparsefs && chmod +x /run/umount.sparsefs")
    machine.check("mkfifo", "/run/locks")
    flood = machine.start("sh", "-c", "while true; do yes '1: FLOCK  ADVISORY  WRITE 1 00:01:1 0 EOF' 2>/dev/null "
                          ">/run/locks; done") if many else None
    try:
        if many:
            machine.check("mount", "--bind", "/run/locks", "/proc/locks")
        machine.check("sh", "-c", f"kill -STOP {pid}")
        done = machine.check("/run/umount.sparsefs", "-fv", mnt)
    finally:
        if flood:
            kill_started(flood)
        machine.check("sh", "-c", f"kill -CONT {pid}")
    assert (f"the daemon (pid {pid}) has not ended yet" in done.stderr) == (not many), done
    assert machine.mounted(mnt) is None
    machine.wait_until_ended(pid)


@pytest.fixture
def hanging_disk(tmp_path):
    """As slow_end, but what hangs is whatever the daemon syncs, from /run/hang on."""
    if not shutil.which("cc"):
        pytest.skip("cc is not installed")
    if "libasan" in subprocess.run(["ldd", BUILD / "sparsefs"], capture_output=True, text=True,
                                   check=True, timeout=SECONDS).stdout:
        pytest.skip("nothing can be preloaded into a build with sanitizers")
    (tmp_path / "hang.c").write_text("""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int fdatasync(int fd)
{
    while (access("/run/hang", F_OK) == 0)
        usleep(1000);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
""")
    library = tmp_path / "hang.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "hang.c", "-ldl"],
                   check=True, timeout=SECONDS)
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize("force", ["", "-f"])
def test_umount_does_not_hang_with_a_disk(machine, source, hanging_disk, force):
    """The daemon answers, but a commit has no end, and who waits for it cannot be killed."""
    mnt = machine.directory()
    machine.check("mount.sparsefs", "-o", "commit_interval=0", source, mnt, environment=hanging_disk)
    pid = machine.daemon(mnt)
    machine.check("dd", "if=/dev/zero", f"of={mnt}/data/frames/2.raw", "bs=60", "count=1")
    machine.check("touch", "/run/hang")
    # For a test the time in which a commit may end is shorter.
    machine.check("sh", "-c", "sed 's/^commit_seconds=.*/commit_seconds=20/' \"$(command -v umount.sparsefs)\" "
                  ">/run/umount.sparsefs; chmod +x /run/umount.sparsefs")
    done = machine.run("/run/umount.sparsefs", "-v", *force.split(), mnt)
    assert "not committed: no answer in time" in done.stdout
    if force:
        assert done.returncode == 0 and machine.mounted(mnt) is None
        assert f"the daemon (pid {pid}) has not ended yet" in done.stderr
    else:
        assert done.returncode == 32 and "does not answer" in done.stderr and machine.mounted(mnt)
        assert f"waiting for the commit of process {pid}, at most 20 s; -f does not\n" in done.stderr
    machine.check("rm", "/run/hang")
    if not force:
        machine.check("umount", mnt)
    machine.wait_until_ended(pid)
    machine.check("mount.sparsefs", "-r", source, mnt)
    assert frame_as_list(machine, mnt, 2) == [0] * 30


def test_umount_does_not_wait_for_a_bind_mount(machine, source):
    mnt, other = machine.directory(), machine.directory("/run/other")
    machine.check("mount", "-t", "sparsefs", "-o", "ro", source, mnt)
    machine.check("mount", "--bind", mnt, other)
    pid = machine.daemon(mnt)
    machine.check("umount", mnt)
    assert frame_as_list(machine, other, 0) == list(range(30))
    machine.check("umount", other)
    assert not machine.alive(pid)


def test_umount_helper_refuses_other_mounts(machine, source):
    mnt = machine.directory()
    machine.check("mkdir", f"{mnt}/.sparsefs")
    done = machine.run("umount.sparsefs", mnt)
    assert (done.returncode, done.stderr) == (32, f"umount.sparsefs: {mnt}: not mounted\n")
    machine.check("mount", "-t", "tmpfs", "none", mnt)
    done = machine.run("umount.sparsefs", mnt)
    assert done.returncode == 32 and "tmpfs" in done.stderr
    assert machine.mounted(mnt)[0] == "tmpfs"


def test_umount_fuse_leaves_other_mounts_to_umount(machine):
    mnt = machine.directory()
    machine.check("mount", "-t", "tmpfs", "none", mnt)
    machine.check("umount.fuse", mnt, "-v")
    assert machine.mounted(mnt) is None
    done = machine.run("umount.fuse", mnt)
    assert (done.returncode, done.stderr) == (32, f"umount: {mnt}: not mounted.\n")


# The same options everywhere


@pytest.fixture(scope="module")
def help_text():
    if not (BUILD / "sparsefs").exists():
        pytest.skip(f"{BUILD} has no sparsefs")
    return subprocess.run([BUILD / "sparsefs", "-h"], check=True, capture_output=True, text=True,
                          timeout=SECONDS).stdout


def test_help_manual_and_completion_agree(help_text):
    manual = (MANUAL / "sparsefs.1").read_text().replace("\\", "")
    completion = (HELPERS / "sparsefs.bash-completion").read_text()
    options = {name for line in help_text.splitlines() if re.match(" {5}[a-z]", line)
               for name in re.findall(r"\b([a-z_]+)(?:=|,|$)", re.split(" {2,}", line)[1])}
    assert {"frame_rank", "first", "cache_size", "direct_io", "umask", "sparsify"} <= options
    for name in options:
        assert re.search(rf"\b{name}\b", manual), name
        assert re.search(rf"\b{name}\b", completion), name


def test_every_option_that_sloppy_keeps_is_known_to_the_program(help_text, source):
    body = re.search(r"^known\(\) \{.*?^\}", (HELPERS / "mount.sparsefs").read_text(), re.M | re.S)
    names = [name for line in re.findall(r"^    ([a-zA-Z_|* -]+)\) ;;$", body[0], re.M)
             for name in line.split(" | ")]
    assert len(names) > 50
    for name in names:
        name = name.replace("*", "x")
        answers = [subprocess.run([BUILD / "sparsefs", "-o", option, source, source],
                                  capture_output=True, text=True, timeout=SECONDS)
                   for option in (name, f"{name}=1")]
        assert any("no such option" not in answer.stderr for answer in answers), name


def test_sloppy_keeps_every_option_of_the_help(help_text):
    body = re.search(r"^known\(\) \{.*?^\}", (HELPERS / "mount.sparsefs").read_text(), re.M | re.S)
    known = set(re.findall(r"[a-z0-9_]+", body[0]))
    options = {re.split(r"[=\[]", name)[0] for line in help_text.splitlines() if re.match(" {5}[a-z]", line)
               for name in re.split(", ", re.split(" {2,}", line.strip())[0])} - {"..."}
    assert {"trust", "hdf5", "hdf5_memory", "follow", "rw"} <= options
    assert options <= known


def complete(*words, folder=None):
    """What the completion offers for the last word; words are divided as readline does it."""
    name = "sparsectl" if words[0] == "sparsectl" else "sparsefs"
    script = (f'. "{HELPERS}/{name}.bash-completion"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1));'
              f'_{name}; printf "%s\\n" "${{COMPREPLY[@]}}"')
    done = subprocess.run(["bash", "-c", script, "bash", *words], cwd=folder, check=True,
                          capture_output=True, text=True, timeout=SECONDS)
    assert done.stderr == ""
    return set(done.stdout.split("\n")) - {""}


@needs("bash")
def test_completion(tmp_path):
    for name in ("run1.h5", "run 2.HDF5", "run3.h5.gz", "m.nxs", "x.nx.hdf", "y.cxi", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "mnt").mkdir()
    files = {"run1.h5", "run 2.HDF5", "run3.h5.gz", "m.nxs", "x.nx.hdf", "y.cxi", "mnt"}
    assert complete("sparsefs", "", folder=tmp_path) == files
    assert complete("sparsefs", "run", folder=tmp_path) == {"run1.h5", "run 2.HDF5", "run3.h5.gz"}
    assert complete("sparsefs", "-o", "first", "=", "1,ro", "", folder=tmp_path) == files
    assert complete("sparsefs", "--log", "=", "info", "", folder=tmp_path) == files
    assert complete("sparsefs", "run1.h5", "", folder=tmp_path) == {"mnt"}
    assert complete("sparsefs", "run1.h5", "mnt", "", folder=tmp_path) == set()
    assert complete("sparsefs", "-o", "fi") == {"first="}
    assert complete("sparsefs", "-o", "ro,fi") == {"ro,first="}
    assert complete("sparsefs", "-o", "ro,first", "=") == {"0", "1"}
    assert complete("sparsefs", "-o", "first", "=", "1,fi") == set()
    assert complete("sparsefs", "-o", "first", "=", "1,cache_s") == {"1,cache_size="}
    assert complete("sparsefs", "--log", "=", "d") == {"debug"}
    assert "--log=" in complete("sparsefs", "-")
    assert "-s" in complete("mount.sparsefs", "-")
    assert complete("umount.sparsefs", "-") == {"-f", "-l", "-n", "-r", "-v", "-N", "-t", "-h"}


def help_of(*command):
    if not (BUILD / command[0]).exists():
        pytest.skip(f"{BUILD} has no {command[0]}")
    return subprocess.run([BUILD / command[0], *command[1:], "--help"], check=True,
                          capture_output=True, text=True, timeout=SECONDS).stdout


@needs("bash")
def test_every_option_of_the_help_is_completed(help_text):
    options = set(re.findall(r"^  (-\w)\b", help_text, re.M))
    options |= set(re.findall(r"^  (?:-\w, )?(--\w+=?)", help_text, re.M))
    assert {"-o", "-f", "-V", "--log=", "--help"} <= options
    assert complete("sparsefs", "-") == options
    of_mount = {name for line in help_text.splitlines() if re.match(" {5}[a-z]", line)
                for name in re.split(", ", re.split(" {2,}", line.strip())[0])} - {"..."}
    of_mount = {re.sub("=.*", "=", name) for name in of_mount}
    of_mount = of_mount - {"follow[="} | {"follow", "follow="}
    assert {"frame_rank=", "direct_io", "umask=", "commit_interval=", "rw"} <= of_mount
    assert of_mount <= complete("sparsefs", "-o", "")
    assert complete("sparsefs", "-o", "ro,external_files=/us") == {"/usr"}  # what readline has behind "="


@needs("bash")
def test_every_command_and_option_of_sparsectl_is_completed():
    text = help_of("sparsectl")
    commands = set(re.findall(r"^  ([a-z]+) {2,}", text, re.M))
    assert {"create", "import", "check", "image"} <= commands
    assert complete("sparsectl", "") == commands | {"--chunk-memory", "--external-files", "--help",
                                                        "--version"}
    assert complete("sparsectl", "--external-files", "/us") == {"/usr"}
    assert complete("sparsectl", "--external-files", "/", "") == commands
    assert complete("sparsectl", "--chunk-memory", "") == set()
    assert complete("sparsectl", "--chunk-memory", "1G", "--external-files", "/us") == {"/usr"}
    assert complete("sparsectl", "--chunk-memory", "1G", "--external-files", "/", "") == commands
    assert complete("sparsectl", "--external-files", "/", "dump", "-") == {"--frame", "--format", "--help"}
    seen = set()
    for command in commands:
        options = set(re.findall(r"^  (--[a-z-]+)", help_of("sparsectl", command), re.M))
        assert complete("sparsectl", command, "-") == options | {"--help"}, command
        seen |= options
    assert {"--dims", "--filter", "--json", "--frame", "--points"} <= seen


@needs_root
@needs("bash")
def test_completion_of_mount_points(machine, source):
    mnt = machine.directory("/run/my mount")
    machine.check("mount", "-t", "sparsefs", "-o", "ro", source, mnt)
    done = machine.check("bash", "-c", f'. "{HELPERS}/sparsefs.bash-completion";'
                         'COMP_WORDS=(umount.sparsefs /run/); COMP_CWORD=1; _sparsefs;'
                         'printf "%s\\n" "${COMPREPLY[@]}"')
    assert done.stdout == f"{mnt}\n"


# Lint


@needs("shellcheck")
@pytest.mark.parametrize("name, shell", [("mount.sparsefs", "dash"), ("umount.sparsefs", "dash"),
                                         ("sparsefs.bash-completion", "bash"),
                                         ("sparsectl.bash-completion", "bash")])
def test_shellcheck(name, shell):
    subprocess.run(["shellcheck", "--norc", "-s", shell, HELPERS / name], check=True,
                   timeout=SECONDS)


@needs("mandoc")
@pytest.mark.parametrize("page", ["sparsefs.1", "mount.sparsefs.8", "sparsectl.1", "sparsefs-format.5"])
def test_manual_pages(page):
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", MANUAL / page],
                          capture_output=True, text=True, timeout=SECONDS)
    assert done.stdout == ""


@needs("systemd-analyze")
def test_systemd_units(tmp_path):
    for name in "mnt-run42.mount", "mnt-run42.automount":
        shutil.copy(HELPERS / name, tmp_path)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / "mnt-run42.mount",
                           tmp_path / "mnt-run42.automount"], capture_output=True, text=True,
                          timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
