"""Without root, without fusermount3, in containers: namespaces as container programs make them
(bubblewrap stands for these), and a descriptor of /dev/fuse that somebody else has mounted. What is
missing is said, and what to do."""
import ctypes
import os
import pathlib
import shutil
import subprocess

import h5py
import numpy as np
import pytest

from conftest import BUILD, SPARSEFS, START_SECONDS, TOP, is_mounted, let_in, wait_for_end

FUSERMOUNT = shutil.which("fusermount3")
DATA = np.arange(3 * 4 * 5, dtype="<u2").reshape(3, 4, 5)
libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as f:
        f["d"] = DATA
    return path


@pytest.fixture
def contain(tmp_path):
    """contain(shell command, bwrap option...) runs it in namespaces in which it has no rights."""
    if subprocess.run(["bwrap", "--dev-bind", "/", "/", "--unshare-user", "true"], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this machine lets nobody make user namespaces")

    def call(command, *options, uid=1000):
        return subprocess.run(
            ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--uid", str(uid), "--gid",
             str(uid), "--die-with-parent", *map(str, options), "sh", "-c", command], cwd=tmp_path,
            capture_output=True, text=True, timeout=START_SECONDS, check=False)

    return call


ROOT = ["--cap-add", "CAP_SYS_ADMIN"]  # with uid 0: of its namespace only
WORK = r"""
set -e
mkdir -p mnt
"$SPARSEFS" -o rw run.h5 mnt
cp mnt/d/frames/1.raw copy.raw
printf 'xy' | dd of=mnt/d/frames/2.raw conv=notrunc status=none
pid=$(cat mnt/.sparsefs/pid)
umount mnt
# What is written last is committed after that, and a namespace ends with its first process. A zombie
# has ended: not everywhere does process 1 take care of orphans.
while grep -q '^State:.[^ZX]' "/proc/$pid/status" 2>/dev/null; do sleep 0.05; done
"""


def check_work(done, tmp_path, path):
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "copy.raw").read_bytes() == DATA[1].tobytes()
    with h5py.File(path) as f:
        assert f["d"][2].tobytes() == b"xy" + DATA[2].tobytes()[2:]


def test_user_namespace_without_fusermount(contain, tmp_path, path, monkeypatch):
    """root of the namespace mounts by itself, whatever fusermount3 is."""
    monkeypatch.setenv("SPARSEFS", str(SPARSEFS))
    done = contain(WORK, *ROOT, "--ro-bind", "/dev/null", FUSERMOUNT, uid=0)
    check_work(done, tmp_path, path)


def test_container(contain, tmp_path, path, monkeypatch):
    """A root directory with nothing in it but programs and libraries, no network, own processes."""
    monkeypatch.setenv("SPARSEFS", str(SPARSEFS))
    links = []
    for name in ("bin", "sbin", "lib", "lib64"):
        folder = pathlib.Path("/", name)
        if folder.is_symlink():
            links += ["--symlink", os.readlink(folder), folder]
        elif folder.exists():
            links += ["--ro-bind", folder, folder]
    done = contain(WORK, "--unshare-all", "--tmpfs", "/", "--ro-bind", "/usr", "/usr", *links, "--proc", "/proc",
                   "--dev", "/dev", "--dev-bind", "/dev/fuse", "/dev/fuse", "--tmpfs", "/tmp",
                   "--ro-bind", TOP, TOP, "--ro-bind", BUILD, BUILD, "--bind", tmp_path, tmp_path, "--chdir", tmp_path,
                   *ROOT, uid=0)
    check_work(done, tmp_path, path)


MOUNT = f"mkdir -p mnt; exec {SPARSEFS} run.h5 mnt"


def check_says(done, *words):
    assert done.returncode == 32, done.stderr
    for word in words:
        assert word in done.stderr, (word, done.stderr)


def test_fusermount_is_missing(contain, tmp_path, path):
    nothing = tmp_path / "nothing"
    nothing.touch(mode=0o644)
    done = contain(MOUNT, "--ro-bind", nothing, FUSERMOUNT)
    check_says(done, "fusermount3: is not there (package fuse3)", "unshare --user")


def test_fusermount_is_not_setuid(contain, tmp_path, path):
    shutil.copyfile(FUSERMOUNT, tmp_path / "program")
    (tmp_path / "program").chmod(0o755)
    done = contain(MOUNT, "--ro-bind", tmp_path / "program", FUSERMOUNT)
    check_says(done, "fusermount3: is not setuid root", "unshare --user")


def test_fusermount_gets_no_rights(contain, path):
    """Its owner is nobody in the namespace, or it is root, but setuid has no effect there."""
    check_says(contain(MOUNT), "fusermount3: ", "unshare --user")


# To the kernel a node in a folder of its own is any /dev/fuse; that of the machine may be root's.
AS_USER = """
if [ "$(id -u)" = 0 ]; then
    mknod -m 666 fuse c 10 229 && mount --bind fuse /dev/fuse && mount --bind fuse.conf /etc/fuse.conf || exit 77
    chown 65534 mnt
    user="setpriv --reuid=65534 --regid=65534 --clear-groups"
fi
$user "$SPARSEFS" -o "ro,$OPTION" run.h5 mnt || exit
umount -i mnt || fusermount3 -u mnt
"""
LINE = "user_allow_other"


@pytest.mark.parametrize("option", ["allow_other", "allow_root"])
@pytest.mark.parametrize("configuration, allowed", [
    ("", False), (f"# {LINE}\n", False), (f"{LINE} yes\n", False), (f"mount_max = 9\n {LINE} # yes\n", True)])
def test_what_fuse_lets_users_do(tmp_path, path, option, configuration, allowed):
    """Where only root may let others in, that is said, and where it is configured."""
    (tmp_path / "fuse.conf").write_text(configuration)
    (tmp_path / "mnt").mkdir()
    command = ["sh", "-c", AS_USER]
    if os.geteuid() == 0:
        let_in(tmp_path)
        command = ["unshare", "--mount", *command]
    elif pathlib.Path("/etc/fuse.conf").read_text() != configuration:
        pytest.skip("/etc/fuse.conf is root's")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=START_SECONDS, check=False,
                          env=os.environ | {"SPARSEFS": str(SPARSEFS), "OPTION": option})
    if done.returncode == 77:
        pytest.skip("users may not mount here: " + done.stderr)
    if allowed:
        assert (done.returncode, done.stderr) == (0, "")
    else:
        check_says(done, f'/etc/fuse.conf: has no line "{LINE}"', "only root may use", "mount without the option")


def test_device_is_missing(contain, path):
    check_says(contain(MOUNT, "--dev", "/dev"), "/dev/fuse: is not there", "modprobe fuse", "--device /dev/fuse")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may use any /dev/fuse")
def test_device_may_not_be_opened(contain, tmp_path, path):
    (tmp_path / "device").touch(mode=0)
    check_says(contain(MOUNT, "--bind", tmp_path / "device", "/dev/fuse"), "/dev/fuse: may not be opened")


@pytest.fixture
def mounted_descriptor(tmp_path):
    """A descriptor of /dev/fuse and where it is mounted."""
    root = tmp_path / "mnt"
    root.mkdir()
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,default_permissions"
    if libc.mount(b"sparsefs", os.fsencode(root), b"fuse.sparsefs", 6, options.encode()) < 0:
        os.close(fd)
        pytest.skip(f"only root mounts by itself: {os.strerror(ctypes.get_errno())}")
    yield fd, root
    if is_mounted(root):
        subprocess.run(["umount", "-l", root], check=True)


@pytest.mark.parametrize("foreground", [True, False])
def test_mounted_descriptor(mounted_descriptor, path, foreground):
    """As apptainer --fusemount does it."""
    fd, root = mounted_descriptor
    command = [SPARSEFS, "-o", "rw", path, f"/dev/fd/{fd}", *["-f"] * foreground]
    with subprocess.Popen(command, pass_fds=[fd], stderr=subprocess.PIPE, text=True) as process:
        os.close(fd)
        pid = int((root / ".sparsefs/pid").read_text())
        assert foreground == (pid == process.pid)
        assert (root / "d/stack.raw").read_bytes() == DATA.tobytes()
        (root / "d/frames/1.raw").write_bytes(DATA[2].tobytes())
        subprocess.run(["umount", root], check=True)
        assert process.wait(START_SECONDS) == 0
        assert process.stderr.read() == ""
    wait_for_end(pid)
    with h5py.File(path) as f:
        assert (f["d"][1] == DATA[2]).all()


def test_descriptor_that_is_none(run, path):
    done = run("-f", path, "/dev/fd/987")
    assert done.returncode == 32
    assert "/dev/fd/987" in done.stderr or "descriptor" in done.stderr
