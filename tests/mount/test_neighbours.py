"""What other users put beside a file, in a folder that is shared, under the names of its journal and its
counter: none of it changes the file or another one, or is followed anywhere."""
import errno
import os
import stat
import subprocess

import h5py
import numpy as np
import pytest

from conftest import BUILD, SPARSEFS
from test_writing import kill

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has two users")

DAEMON, NOBODY = 1, 65534  # users of that number have groups of that number
CONTENT = np.arange(1024, dtype="<u2").tobytes()


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chmod(folder, 0o1777)
    with h5py.File(folder / "a.h5", "w") as f:
        f["d"] = np.zeros((4, 32, 32), "<u2")
    return folder / "a.h5"


def beside(path, ending):
    return path.with_name(path.name + ending)


def leave_journal(mounts, path):
    """As a writer does that dies behind an fsync."""
    mount = mounts(path, "rw", expect_log=True)
    with open(mount / "d/frames/1.raw", "r+b", buffering=0) as frame:
        frame.write(CONTENT)
        os.fsync(frame.fileno())
    kill(mount)
    return beside(path, ".journal")


def refusal(path, tmp_path, *options):
    mountpoint = tmp_path / "refused"
    mountpoint.mkdir(exist_ok=True)
    done = subprocess.run([SPARSEFS, *options, path, mountpoint], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    return done.stderr


def check(mounts, path):
    mount = mounts(path, "ro", expect_log=True)
    assert (mount / "d/frames/1.raw").read_bytes() == CONTENT
    mount.unmount()


def test_journals_of_strangers(mounts, path, tmp_path):
    journal = leave_journal(mounts, path)
    before = path.read_bytes()

    def is_refused(why):
        for options in ((), ("-o", "ro")):
            said = refusal(path, tmp_path, *options)
            assert "cannot be trusted" in said and why in said, said
        assert path.read_bytes() == before

    os.chown(journal, NOBODY, 0)
    is_refused("owner")
    os.chown(journal, 0, 0)
    os.chmod(journal, 0o666)
    is_refused("everybody")
    os.chmod(journal, 0o664)
    os.chown(journal, 0, DAEMON)
    is_refused("group")
    os.chmod(journal, 0o600)
    os.link(journal, tmp_path / "shared/other")
    is_refused("other names")
    os.unlink(tmp_path / "shared/other")
    check(mounts, path)

    # Who may write the file may leave a journal there.
    os.chown(journal, DAEMON, DAEMON)
    os.chmod(path, 0o664)
    is_refused("owner")
    os.chown(path, 0, DAEMON)
    os.chmod(journal, 0o664)
    check(mounts, path)
    os.chown(path, DAEMON, 0)
    os.chown(journal, DAEMON, 0)
    check(mounts, path)
    os.chown(path, 0, 0)
    os.chown(journal, NOBODY, NOBODY)
    os.chmod(path, 0o666)
    os.chmod(journal, 0o666)
    check(mounts, path)


@pytest.mark.parametrize("kind", ["fifo", "symlink", "directory"])
def test_no_journals(path, tmp_path, kind):
    """Nothing waits for them, or follows them."""
    journal = beside(path, ".journal")
    victim = tmp_path / "victim"
    victim.write_bytes(b"as it is" * 1000)
    {"fifo": os.mkfifo, "directory": os.mkdir, "symlink": lambda name: os.symlink(victim, name)}[kind](journal)
    before = path.read_bytes()
    for options in ((), ("-o", "ro")):
        assert str(journal) in refusal(path, tmp_path, *options)
    assert path.read_bytes() == before and victim.read_bytes() == b"as it is" * 1000


@pytest.mark.parametrize("ending", [".journal", ".commits"])
@pytest.mark.parametrize("kind", ["fifo", "symlink", "link", "theirs"])
def test_put_there_while_it_is_mounted(mounts, path, tmp_path, ending, kind):
    """They are taken away, as root may; nothing of them is believed, or written to."""
    victim = tmp_path / "shared/victim"
    victim.write_bytes(b"as it is" * 1000)
    os.chown(victim, NOBODY, NOBODY)
    inode = victim.stat().st_ino
    mount = mounts(path, "rw", "commit_interval=0", expect_log=True)
    name = beside(path, ending)
    if name.exists():
        os.unlink(name)
    if kind == "fifo":
        os.mkfifo(name)
        os.chown(name, NOBODY, NOBODY)
    elif kind == "symlink":
        os.symlink(victim, name)
    elif kind == "link":
        os.link(victim, name)
    else:
        name.write_bytes(b"0" * 20)
        os.chown(name, NOBODY, NOBODY)
    frame = os.open(mount / "d/frames/1.raw", os.O_RDWR)
    os.pwrite(frame, CONTENT, 0)
    try:
        os.fsync(frame)
    except OSError as error:  # a link is not removed: the mount says so and keeps what was written
        assert (kind, ending) == ("symlink", ".journal") and error.errno == errno.ELOOP
        os.unlink(name)
        os.fsync(frame)
    os.close(frame)
    kill(mount)
    assert victim.read_bytes() == b"as it is" * 1000 and victim.stat().st_ino == inode
    assert not name.exists() or name.stat().st_uid == 0
    check(mounts, path)


@pytest.mark.parametrize("mode, owner, group", [(0o600, 0, 0), (0o640, DAEMON, DAEMON), (0o660, 0, DAEMON)])
def test_modes_are_never_wider(mounts, path, mode, owner, group):
    os.chmod(path, mode)
    os.chown(path, owner, group)
    before = os.umask(0)
    try:
        mount = mounts(path, "rw", expect_log=True)
    finally:
        os.umask(before)
    with open(mount / "d/frames/1.raw", "r+b", buffering=0) as frame:
        frame.write(CONTENT)
        os.fsync(frame.fileno())
    for ending in ".journal", ".commits":
        st = beside(path, ending).stat()
        assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid) == (mode, owner, group), ending
    kill(mount)
    check(mounts, path)


def test_copies_have_the_mode_of_their_source(path, tmp_path):
    os.chmod(path, 0o600)
    sparsectl = BUILD / "sparsectl"
    commands = {"repack": ["repack", path, tmp_path / "repack.h5"],
                "import": ["import", path, tmp_path / "import.h5", "--undefined", "0"],
                "template": ["create", tmp_path / "template.h5", "/new", "--dims", "2,3", "--dtype", "uint8",
                             "--template", path]}
    commands["import"][1:3] = [f"{path}:/d", f"{tmp_path / 'import.h5'}:/d"]
    for name, command in commands.items():
        subprocess.run([sparsectl, *command], check=True, capture_output=True)
        assert stat.S_IMODE((tmp_path / f"{name}.h5").stat().st_mode) == 0o600, name
