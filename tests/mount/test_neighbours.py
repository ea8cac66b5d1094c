"""What other users put beside a file, in a folder that is shared, under the names of its journal and its
counter: none of it changes the file or another one, or is followed anywhere."""
import ctypes
import errno
import fcntl
import gzip
import os
import pathlib
import resource
import shutil
import socket
import stat
import struct
import subprocess
import sys

import h5py
import numpy as np
import pytest

import test_external_raw
from conftest import BUILD, SPARSEFS, let_in, unmount
from forging_fuse import forging
from silent_fuse import silent
from test_worker import is_sanitized
from test_writing import kill

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has two users")

DAEMON, NOBODY = 1, 65534  # users of that number have groups of that number
INVERTED = bytes(255 - byte for byte in range(256))
ANSWER_SECONDS = 60  # only what waits for good takes so long
CONTENT = np.arange(1024, dtype="<u2").tobytes()


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chmod(folder, 0o1777)
    let_in(tmp_path)
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
    if done.returncode == 0:
        unmount(mountpoint)
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


def as_nobody(*command):
    subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command], check=True,
                   capture_output=True)


def make_socket(name):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(name))


def make_device(name):
    try:
        os.mknod(name, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        name.open("rb").close()
    except OSError:
        pytest.skip("no devices here")


NO_FILES = {"fifo": os.mkfifo, "directory": os.mkdir, "socket": make_socket, "device": make_device}


@pytest.mark.parametrize("kind", [*NO_FILES, "symlink"])
def test_no_journals(path, tmp_path, kind):
    """Nothing waits for them, or follows them."""
    journal = beside(path, ".journal")
    victim = tmp_path / "victim"
    victim.write_bytes(b"as it is" * 1000)
    (NO_FILES | {"symlink": lambda name: os.symlink(victim, name)})[kind](journal)
    before = path.read_bytes()
    why = "symbolic link" if kind == "symlink" else "no regular file"
    for options in ((), ("-o", "ro"), ("-o", "follow")):
        said = refusal(path, tmp_path, *options)
        assert str(journal) in said and why in said, said
    assert path.read_bytes() == before and victim.read_bytes() == b"as it is" * 1000


@pytest.mark.parametrize("options", ["ro", "rw", "follow"])
def test_journals_that_are_mounted_upon(path, tmp_path, options):
    """By their owner, where users may mount for all: nobody asks what is mounted there."""
    journal = beside(path, ".journal")
    journal.touch()
    with silent(journal):
        said = refusal(path, tmp_path, "-o", options)
        assert f"{journal}" in said and "something is mounted there" in said, said
        assert "something is mounted there" in answers(None, BUILD / "sparsectl", "check", path)


@pytest.mark.parametrize("options", ["rw", "follow"])
def test_counters_that_are_mounted_upon(mounts, path, tmp_path, options):
    """Who only reads needs none."""
    counter = beside(path, ".commits")
    counter.touch()
    with silent(counter):
        mount = mounts(path, "ro", expect_log=True)
        assert (mount / "d/frames/1.raw").read_bytes() == bytes(len(CONTENT))
        mount.unmount()
        if options == "follow":
            assert "something is mounted there" in refusal(path, tmp_path, "-o", options)
            return
        mount = mounts(path, options, expect_log=True)
        assert "mounted read-only" in mount.log() and f"{counter} is in the way" in mount.log()
        mount.unmount()


def test_a_journal_that_is_mounted_upon_while_its_file_is_followed(mounts, path):
    mount = mounts(path, "ro", "follow=0.05", expect_log=True)
    journal = beside(path, ".journal")
    journal.touch()
    with silent(journal):
        with h5py.File(path, "a") as f:
            f["one"] = 1
        log = mount.root / ".sparsefs/log"
        answers(mount, "sh", "-c", 'until grep -q "something is mounted there" "$0"; do sleep 0.01; done', log)
    journal.unlink()
    answers(mount, "sh", "-c", 'until ls "$0" | grep -qx one; do sleep 0.01; done', mount.root)


HOLE_BYTES = 1 << 43


def journal_of_a_hole(path):
    """As its owner may leave it: a header, and records that are no bytes."""
    journal = beside(path, ".journal")
    with open(journal, "wb") as f:
        f.write(struct.pack("<8sIIQQQQQQQQ", b"sfsjourn", 4, 4096, 0, HOLE_BYTES // 4200, path.stat().st_size,
                            HOLE_BYTES, 1, 1, 2, 2))
        f.truncate(HOLE_BYTES)
    return journal


@pytest.mark.parametrize("options", ["ro", "rw", "follow"])
def test_a_journal_that_is_a_hole(mounts, path, options):
    """It is none: nobody reads it to its end."""
    journal_of_a_hole(path)
    mount = mounts(path, options, expect_log=True)
    assert answers(mount, "ls", mount.root).split() == ["d"]
    assert answers(None, BUILD / "sparsectl", "info", path)


def test_a_journal_that_is_a_hole_in_a_folder(mounts, path):
    mount = mounts(path.parent, expect_log=True)
    journal_of_a_hole(path)
    assert answers(mount, "ls", mount / "a.h5").split() == ["d"]


def test_a_large_journal_is_not_read_into_memory(mounts, tmp_path):
    """A mount that only reads finds what was committed in the journal, and leaves most of it there."""
    path = tmp_path / "a.h5"
    side = 4096
    with h5py.File(path, "w") as f:
        f["d"] = np.arange(3 * side * side, dtype="<u2").reshape(3, side, side)
    os.truncate(path, (path.stat().st_size + 4095) // 4096 * 4096)
    content = path.read_bytes()
    numbers = [i * 7 % 24571 + 1 for i in range(len(content) // 4096 - 8)]  # in no order
    assert len(set(numbers)) == len(numbers)
    beside(path, ".journal").write_bytes(forged(path, 0, numbers))
    mount = mounts(path, "ro", "direct_io", expect_log=True)
    assert f"a journal of {len(numbers)} pages was replayed in memory" in mount.log()
    shown = bytearray(content)
    for number in numbers:
        shown[4096 * number:4096 * (number + 1)] = content[4096 * number:4096 * (number + 1)].translate(INVERTED)
    with h5py.File(path) as f:
        begin = f["d"].id.get_offset()
    for frame in range(3):
        at = begin + frame * 2 * side * side
        assert (mount / f"d/frames/{frame}.raw").read_bytes() == shown[at:at + 2 * side * side], frame
    status = pathlib.Path(f"/proc/{mount.process.pid}/status").read_text()
    if not is_sanitized():
        assert int(status.split("VmHWM:")[1].split()[0]) << 10 < len(content), status


def test_counters_of_strangers_do_not_count(mounts, path):
    """In a folder where everybody may make files: who follows the file is not held by it, and says so once."""
    counter = beside(path, ".commits")
    counter.write_text(f"{7:020}")
    os.chown(counter, NOBODY, NOBODY)
    mount = mounts(path, "ro", "follow=0.05", expect_log=True)
    for name in "one", "two":
        with h5py.File(path, "a") as f:
            f[name] = 1
        answers(mount, "sh", "-c", 'until ls "$0" | grep -qx "$1"; do sleep 0.01; done', mount.root, name)
    assert mount.log().count(f"{counter} cannot be trusted") == 1, mount.log()


@pytest.mark.parametrize("ending", [".commits", ".journal"])
def test_files_of_others_are_not_removed_for_an_owner(mounts, path, ending):
    """In a sticky folder the owner of the HDF5 file could not remove them either."""
    os.chown(path, NOBODY, NOBODY)
    os.chown(path.parent, DAEMON, DAEMON)
    kept = beside(path, ending)
    mount = mounts(path.parent, "default", "allow_other", expect_log=True)
    with open(mount / "a.h5/d/frames/1.raw", "r+b", buffering=0) as frame:
        kept.write_text("mine")
        os.chown(kept, DAEMON, DAEMON)
        os.chmod(kept, 0o600)
        with pytest.raises(OSError):
            frame.write(CONTENT)
            os.fsync(frame.fileno())
        assert kept.read_text() == "mine" and str(kept) in mount.log()
        kept.unlink()
        frame.seek(0)
        frame.write(CONTENT)
        os.fsync(frame.fileno())
    mount.unmount()
    check(mounts, path)


def test_a_journal_of_a_member_of_the_group(mounts, path):
    """Who may write the file has been killed: in a folder without sticky bit root carries it out, and removes it."""
    leave_journal(mounts, path)
    os.chown(path, NOBODY, DAEMON)
    os.chmod(path, 0o660)
    os.chown(path.parent, 0, DAEMON)
    os.chmod(path.parent, 0o2775)
    journal = beside(path, ".journal")
    os.chown(journal, DAEMON, DAEMON)
    os.chmod(journal, 0o660)
    done = subprocess.run([BUILD / "sparsectl", "recover", path], capture_output=True, text=True)
    assert done.returncode == 0 and not journal.exists(), done
    check(mounts, path)


WITHOUT_RIGHTS = "-dac_override,-dac_read_search,-fowner"  # of root: an ordinary user may not mount everywhere


@pytest.mark.parametrize("ending, options", [(".journal", "ro"), (".journal", "rw"), (".journal", "follow"),
                                             (".commits", "follow"), (".commits", "rw")])
def test_what_cannot_be_read_is_said(path, tmp_path, ending, options):
    """Which file is in the way, whatever the mount wanted of it. In a folder of somebody else, where it cannot
    be removed."""
    name = beside(path, ending)
    name.write_bytes(b"0" * 20)
    os.chmod(name, 0)
    os.chown(name, NOBODY, NOBODY)
    os.chown(path.parent, NOBODY, NOBODY)
    mountpoint = tmp_path / "refused"
    mountpoint.mkdir()
    done = subprocess.run(["setpriv", f"--bounding-set={WITHOUT_RIGHTS}", f"--inh-caps={WITHOUT_RIGHTS}", SPARSEFS,
                           "-o", options, path, mountpoint], capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        unmount(mountpoint)
    assert (done.returncode == 0) == ((ending, options) == (".commits", "rw"))  # read-only, which is said
    assert str(name) in done.stderr, done.stderr
    assert name.stat().st_size == 20


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


@pytest.mark.parametrize("kind", NO_FILES)
def test_no_counters(mounts, path, tmp_path, kind):
    """They are taken away, but for folders, which root does not remove: then nothing is written."""
    counter = beside(path, ".commits")
    NO_FILES[kind](counter)
    os.chown(counter, NOBODY, NOBODY)
    mount = mounts(path, "rw", expect_log=True)
    if kind == "directory":
        assert "mounted read-only" in mount.log() and f"{counter} is in the way" in mount.log()
        mount.unmount()
        mount = mounts(path, "default", expect_log=True)
        with pytest.raises(OSError):
            open(mount / "d/frames/1.raw", "r+b")
        assert f"{counter} is in the way" in mount.log()
        return
    assert counter.is_file() and counter.stat().st_uid == 0
    with open(mount / "d/frames/1.raw", "r+b", buffering=0) as frame:
        frame.write(CONTENT)
        os.fsync(frame.fileno())
    mount.unmount()
    check(mounts, path)


@pytest.mark.parametrize("ending", [".journal", ".commits"])
@pytest.mark.parametrize("is_mounted", [False, True])
def test_links_to_files_of_root(mounts, path, tmp_path, ending, is_mounted):
    """The owner of the file and its folder plants a second name of a file that is not his: neither is
    it written to, nor given to him, as the neighbours are that root makes there."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"as it is" * 1000)
    os.chmod(victim, 0o600)
    before = victim.stat()
    os.chown(path, NOBODY, NOBODY)
    os.chown(path.parent, NOBODY, NOBODY)
    name = beside(path, ending)

    def plant():
        name.unlink(missing_ok=True)
        os.link(victim, name)

    if not is_mounted:
        plant()
    if ending == ".journal" and not is_mounted:
        assert "it has other names" in refusal(path, tmp_path)
        name.unlink()
    mount = mounts(path, "rw", "commit_interval=0", expect_log=True)
    if is_mounted:
        plant()
    with open(mount / "d/frames/1.raw", "r+b", buffering=0) as frame:
        frame.write(CONTENT)
        os.fsync(frame.fileno())
    mount.unmount()
    after = victim.stat()
    assert victim.read_bytes() == b"as it is" * 1000
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


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


def test_modes_follow_the_file(mounts, path):
    """Also those of neighbours that are there when the file is closed to others."""
    os.chmod(path, 0o666)
    before = os.umask(0)
    try:
        mount = mounts(path, "rw", "commit_interval=0", expect_log=True)
    finally:
        os.umask(before)

    def commit():
        with open(mount / "d/frames/1.raw", "r+b", buffering=0) as frame:
            frame.write(CONTENT)
            os.fsync(frame.fileno())
        return [stat.S_IMODE(beside(path, ending).stat().st_mode) for ending in (".journal", ".commits")]

    assert commit() == [0o666, 0o666]
    os.chmod(path, 0o640)
    assert commit() == [0o640, 0o640]
    for ending in ".journal", ".commits":
        os.chown(beside(path, ending), 0, DAEMON)
    assert commit() == [0o600, 0o600]
    kill(mount)
    check(mounts, path)


def test_copies_have_the_mode_of_their_source(path, tmp_path):
    os.chmod(path, 0o600)
    for copy, command in copies(path, tmp_path).items():
        subprocess.run([BUILD / "sparsectl", *command], check=True, capture_output=True)
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600, copy


def copies(path, folder):
    """The commands that copy it, and where to."""
    return {folder / "repack.h5": ["repack", path, folder / "repack.h5"],
            folder / "import.h5": ["import", f"{path}:/d", f"{folder / 'import.h5'}:/d"],
            folder / "template.h5": ["create", folder / "template.h5", "/new", "--dims", "2,3", "--dtype", "uint8",
                                     "--template", path]}


@pytest.mark.parametrize("mode, owner, groups, copied_mode, copied_group", [
    (0o640, 0, "1,1000", 0o640, DAEMON), (0o644, 0, "1,1000", 0o644, DAEMON), (0o640, 1000, "1000", 0o600, 1000),
    (0o664, 1000, "1000", 0o644, 1000), (0o604, 1000, "1000", 0o604, 1000), (0o604, 1000, "1,1000", 0o604, DAEMON)])
def test_copies_are_of_the_group_of_their_source(path, mode, owner, groups, copied_mode, copied_group):
    """Or show their own group no more than others: it is another one."""
    os.chown(path, owner, DAEMON)
    os.chmod(path, mode)
    sparsectl = shutil.copy(BUILD / "sparsectl", path.parent)  # the build may be closed to others
    for copy, command in copies(path, path.parent).items():
        subprocess.run(["setpriv", "--reuid=1000", "--regid=1000", f"--groups={groups}", "sh", "-c",
                        'umask 002; exec "$@"', "sh", sparsectl, *command], check=True, capture_output=True)
        st = copy.stat()
        assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid) == (copied_mode, 1000, copied_group), copy


def test_what_is_copied_to_keeps_its_group(path):
    """It is there already: whoever made it has decided that."""
    os.chown(path, 0, DAEMON)
    there = path.with_name("there.h5")
    with h5py.File(there, "w") as f:
        f["other"] = 1
    os.chown(there, 0, NOBODY)
    os.chmod(there, 0o660)
    subprocess.run([BUILD / "sparsectl", "import", f"{path}:/d", f"{there}:/d"], check=True, capture_output=True)
    assert (stat.S_IMODE(there.stat().st_mode), there.stat().st_gid) == (0o660, NOBODY)


@pytest.mark.parametrize("what", ["raw data", "source", "nobody's"])
def test_copies_show_no_more_than_what_their_source_leads_to(path, tmp_path, what):
    """Root copies a dataset of somebody whose elements are another one's: what that one keeps from others
    stays so, also while it is copied."""
    secret = path.with_name("secret")
    with h5py.File(path, "w", libver="latest") as f:
        if what == "raw data":
            secret.write_bytes(CONTENT)
            f.create_dataset("d", (1, 32, 32), "<u2", external=[("secret", 0, len(CONTENT))])
        elif what == "source":
            with h5py.File(secret, "w") as other:
                other["d"] = np.frombuffer(CONTENT, "<u2").reshape(1, 32, 32)
            layout = h5py.VirtualLayout((1, 32, 32), "<u2")
            layout[:] = h5py.VirtualSource("secret", "d", (1, 32, 32))
            f.create_virtual_dataset("d", layout)
        else:
            f["d"] = np.frombuffer(CONTENT, "<u2").reshape(1, 32, 32)
    os.chmod(path, 0 if what == "nobody's" else 0o644)
    if secret.exists():
        os.chmod(secret, 0o600)
        os.chown(secret, NOBODY, NOBODY)
    modes = set()
    copy, there = path.with_name("copy.h5"), path.with_name("there.h5")
    before = os.umask(0o022)
    try:
        with h5py.File(there, "w") as f:
            f["other"] = 1
        subprocess.run([BUILD / "sparsectl", "import", path, there], check=True)
        with subprocess.Popen([BUILD / "sparsectl", "import", path, copy]) as process:
            while process.poll() is None:
                modes |= {st.st_mode & 0o077 for st in map(status, path.parent.glob(".copy.h5.*")) if st}
            assert process.returncode == 0
    finally:
        os.umask(before)
    assert modes <= {0} and stat.S_IMODE(copy.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(there.stat().st_mode) == 0o644  # whoever made it has decided that
    said = subprocess.run([BUILD / "sparsectl", "dump", "--frame=0", f"{copy}:/d"], capture_output=True, text=True)
    assert said.returncode == 0 and said.stdout.splitlines()[-1].endswith(",1023")


@pytest.mark.parametrize("mode, group, copied", [
    (0o640, NOBODY, 0o600), (0o604, NOBODY, 0o600), (0o644, NOBODY, 0o644), (0o640, DAEMON, 0o640),
    (0o604, DAEMON, 0o604)])
@pytest.mark.parametrize("what", ["raw data", "source"])
def test_copies_show_what_their_source_leads_to_to_its_own_group_alone(path, what, mode, group, copied):
    """The copy has the group of the source; that may be another one than who may read what it leads to."""
    other = lead_to(path, what, "other")
    for name, permissions, owner in ((path, 0o664, DAEMON), (other, mode, group)):
        os.chown(name, NOBODY, owner)
        os.chmod(name, permissions)
    assert copied_mode(path) == copied


def lead_to(path, what, name):
    """Makes a file beside another one, or below, that has the elements of a dataset in that."""
    other = path.parent / name
    if what == "raw data":
        other.write_bytes(CONTENT)
    else:
        with h5py.File(other, "w") as f:
            f["d"] = np.frombuffer(CONTENT, "<u2").reshape(1, 32, 32)
    with h5py.File(path, "w", libver="latest") as f:
        if what == "raw data":
            f.create_dataset("d", (1, 32, 32), "<u2", external=[(name, 0, len(CONTENT))])
        elif what == "source":
            layout = h5py.VirtualLayout((1, 32, 32), "<u2")
            layout[:] = h5py.VirtualSource(name, "d", (1, 32, 32))
            f.create_virtual_dataset("d", layout)
        elif what == "link":
            f["d"] = h5py.ExternalLink(name, "d")
    return other


def copied_mode(path, *options):
    copy = path.with_name("copy.h5")
    subprocess.run(["sh", "-c", 'umask 0; exec "$@"', "sh", BUILD / "sparsectl", *options, "export", f"{path}:/d",
                    copy], check=True)
    with h5py.File(copy) as f:
        assert f["d"][...].tobytes() == CONTENT
    mode = stat.S_IMODE(copy.stat().st_mode)
    copy.unlink()
    return mode


@pytest.mark.parametrize("what", ["raw data", "source", "link"])
@pytest.mark.parametrize("mode, group, copied", [
    (0o700, NOBODY, 0o600), (0o750, DAEMON, 0o640), (0o705, DAEMON, 0o604), (0o750, NOBODY, 0o600),
    (0o711, NOBODY, 0o644)])
def test_copies_show_no_more_than_folders_do(path, what, mode, group, copied):
    """Whoever made the file has named what lies in a folder that is closed to him."""
    closed = path.with_name("closed")
    closed.mkdir()
    other = lead_to(path, what, "closed/other")
    for name in path, other:
        os.chown(name, NOBODY, DAEMON)
        os.chmod(name, 0o644)
    os.chown(closed, NOBODY, group)
    os.chmod(closed, mode)
    assert copied_mode(path) == copied
    os.chown(closed, 0, 0)
    os.chmod(closed, 0o700)
    assert copied_mode(path) == 0o600
    assert copied_mode(path, "--external-files", closed) == 0o644  # who runs it has opened his own


@pytest.mark.parametrize("what", ["raw data", "source", "link"])
def test_copies_of_what_is_beside_a_file_in_a_closed_folder(path, tmp_path, what):
    """That root copies the file to others does not say that they may see all that is there."""
    lead_to(path, what, "other")
    os.chmod(path.parent, 0o700)
    copy = tmp_path / "copy.h5"
    assert copied_mode(path) == 0o600
    assert copied_mode(path, "--external-files", path.parent) == 0o644
    subprocess.run([BUILD / "sparsectl", "repack", path, copy], check=True)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o644  # names are copied, not what they lead to


@pytest.mark.parametrize("way", ["plain", "folder"])
def test_copies_by_links_of_others_show_no_more_than_folders_do(path, way):
    """Root names the link of somebody who may not look into the folder that it leads to."""
    closed = path.with_name("closed")
    closed.mkdir()
    with h5py.File(closed / "other.h5", "w") as f:
        f["d"] = np.frombuffer(CONTENT, "<u2").reshape(1, 32, 32)
    link = path.with_name("link")
    link.symlink_to("closed/other.h5" if way == "plain" else "closed")
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    source = link if way == "plain" else link / "other.h5"

    def mode_of(command):
        return copied_mode_of(source, path.with_name("copy.h5"), command)

    os.chmod(closed, 0o711)
    for command in "repack", "import", "create":
        os.chmod(closed, 0o711)
        assert mode_of(command) == 0o644
        os.chmod(closed, 0o700)
        assert mode_of(command) == 0o600
        os.chown(closed / "other.h5", NOBODY, NOBODY)
        assert mode_of(command) == 0o600  # his own: who else has renamed his link?
        os.chown(closed / "other.h5", 0, 0)
    os.chown(link, 0, 0, follow_symlinks=False)
    assert mode_of("repack") == 0o644  # root's own link


def copied_mode_of(source, copy, command):
    arguments = {"repack": [source, copy], "import": [f"{source}:/d", f"{copy}:/d"],
                 "create": [copy, "/new", "--dims", "2,3", "--dtype", "uint8", "--template", source]}[command]
    subprocess.run(["sh", "-c", 'umask 022; exec "$@"', "sh", BUILD / "sparsectl", command, *arguments], check=True,
                   capture_output=True)
    mode = stat.S_IMODE(copy.stat().st_mode)
    copy.unlink()
    return mode


EXCHANGE = """
import ctypes, os, sys
rename = ctypes.CDLL(None, use_errno=True).renameat2
print("ready", flush=True)
while os.getppid() != 1:
    rename(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2)
"""


@pytest.mark.parametrize("command", ["repack", "import", "create"])
def test_copies_have_the_mode_of_what_was_opened(path, tmp_path, command):
    """Somebody exchanges his file for a link to another one's while root copies it, in a folder of his own."""
    secret = tmp_path / "secret.h5"
    folder = path.with_name("folder")
    folder.mkdir()
    own, link = folder / "a.h5", folder / "l.h5"
    for name, content in ((secret, b"the secret"), (own, b"of all")):
        with h5py.File(name, "w") as f:
            f["d"] = np.frombuffer(content, "u1")
            f["d"].attrs["said"] = f.attrs["said"] = content
    os.chmod(secret, 0o600)
    os.chown(secret, DAEMON, DAEMON)
    link.symlink_to(secret)
    for name in folder, own, link:
        os.chown(name, NOBODY, NOBODY, follow_symlinks=False)
    copy = path.with_name("copy.h5")
    with subprocess.Popen(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--pdeathsig=KILL",
                           "/usr/bin/python3", "-c", EXCHANGE, own, link], stdout=subprocess.PIPE) as exchanging:
        try:
            assert exchanging.stdout.readline() == b"ready\n"
            arguments = {"repack": [own, copy], "import": ["--all", own, copy],
                         "create": [copy, "/new", "--dims", "2,3", "--dtype", "uint8", "--template", own]}[command]
            for _ in range(40):
                done = subprocess.run([BUILD / "sparsectl", command, *arguments], capture_output=True, check=False)
                if done.returncode == 0:
                    assert b"the secret" not in copy.read_bytes() or copy.stat().st_mode & 0o077 == 0
                copy.unlink(missing_ok=True)
        finally:
            exchanging.kill()


def status(path):
    try:
        return path.stat()
    except FileNotFoundError:
        return None


# Journals that are whole


def journal_sum(*records):
    """As journal_read.c has it."""
    xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits_withSeed
    xxh3.argtypes, xxh3.restype = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64), ctypes.c_uint64
    total = 0
    for record in records:
        total = xxh3(record, len(record), total)
    return total


def forged(path, self_inode, numbers=(1,)):
    """What anybody who may read a file can make: a journal by which some pages become what they are not, right
    in every sum."""
    content = path.read_bytes()
    assert len(content) % 4096 == 0 and len(content) > 2 * 4096
    header = b"sfsjourn" + struct.pack("<IIQQQQQQQQ", 4, 4096, 1, len(numbers), len(content), len(content),
                                       path.stat().st_ino, 0, self_inode, 0)
    witness = struct.pack("<QQ", 0, journal_sum(content[:4096]))
    records = [page_record(number, content[4096 * number:4096 * (number + 1)]) for number in numbers]
    return b"".join([header, bytes(64), witness, *records,
                     struct.pack("<Q", journal_sum(header, witness, *records))])


def page_record(number, page):
    sums = [journal_sum(page[i:i + 512]) & 0xffffffff for i in range(0, 4096, 512)]
    return struct.pack("<Q8I", number, *sums) + page.translate(INVERTED)


def pad(path):
    """To whole pages, as libhdf5 lets a file be."""
    with h5py.File(path, "a") as f:
        f.create_dataset("more", data=np.zeros(30000, "u1"))
    os.truncate(path, (path.stat().st_size + 4095) // 4096 * 4096)


def test_a_journal_that_was_forged_from_public_pages(path, tmp_path, mounts):
    """It is bound to its file by who owns it: what a stranger makes does not count, however right it is."""
    pad(path)
    before = path.read_bytes()
    made, journal = tmp_path / "shared/made", beside(path, ".journal")
    made.touch()
    made.write_bytes(forged(path, made.stat().st_ino))
    os.chown(made, NOBODY, NOBODY)
    os.chmod(path.parent, 0o1777)
    as_nobody("mv", made, journal)
    for options in ((), ("-o", "ro"), ("-o", "follow")):
        assert "its owner may not write the file" in refusal(path, tmp_path, *options)
    assert path.read_bytes() == before
    # It is a whole one: of a writer it would count.
    os.chown(journal, 0, 0)
    mounts(path, "rw", expect_log=True).unmount()
    assert path.read_bytes() != before and not journal.exists()


def test_the_journal_of_another_file(mounts, path):
    """Where others may rename what is root's; and copied by root."""
    other = path.with_name("b.h5")
    shutil.copyfile(path, other)
    with h5py.File(other, "a") as f:
        f["d"][...] = 77
    theirs, ours = leave_journal(mounts, other), beside(path, ".journal")
    os.chmod(path.parent, 0o777)
    before = path.read_bytes()
    for action in (lambda: as_nobody("mv", theirs, ours), lambda: shutil.copyfile(ours, theirs)):
        action()
        mount = None
        try:
            mount = mounts(path, "ro", expect_log=True)
        except RuntimeError as error:
            assert "belongs to another file" in str(error)
        if mount:
            assert "left by another file" in mount.log()
            assert (mount / "d/frames/1.raw").read_bytes() == bytes(len(CONTENT))
            mount.unmount()
        assert path.read_bytes() == before
    os.unlink(ours)
    check(mounts, other)


# New files, and while they are opened


def test_temporary_names(path, tmp_path):
    """What strangers put there under names that new files have is not written to, and stops nobody."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"as it is" * 1000)
    os.chmod(path.parent, 0o777)
    target = path.with_name("new.h5")
    kinds = {"symlink": lambda name: os.symlink(victim, name), "link": lambda name: os.link(victim, name), **NO_FILES}
    for i, kind in enumerate(kinds):
        name = path.parent / f".new.h5.00000{i}.sparsefs"
        try:
            kinds[kind](name)
        except pytest.skip.Exception:
            continue
        os.chown(name, NOBODY, NOBODY, follow_symlinks=False)
    os.chown(victim, 0, 0)
    for command in (["repack", path, target], ["import", f"{path}:/d", f"{target}:/d"],
                    ["create", target, "/new", "--dims", "2,3", "--dtype", "uint8", "--template", path]):
        subprocess.run([BUILD / "sparsectl", *command], check=True, capture_output=True, timeout=60)
        assert target.stat().st_uid == 0 and target.stat().st_nlink == 1
        target.unlink()
    assert victim.read_bytes() == b"as it is" * 1000
    os.symlink(victim, target)
    done = subprocess.run([BUILD / "sparsectl", "repack", path, target], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 1 and "File exists" in done.stderr
    assert victim.read_bytes() == b"as it is" * 1000


HOLDS_LOCK = """
import ctypes, fcntl, os, resource, sys, time
path, fuse, many = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ctypes.CDLL(None).prctl(15, b"sparsefs", 0, 0, 0)
highest = 100 + many
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, highest + 10), hard))
os.dup2(fuse, highest)
os.close(fuse)
fd = os.open(path, os.O_RDONLY)
for n in range(many):
    os.dup(fd)
fcntl.flock(fd, fcntl.LOCK_EX)
print("ready", flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("user, mounter, many, named", [
    (0, 0, 10, True), (DAEMON, DAEMON, 10, True), (DAEMON, 0, 10, False), (NOBODY, NOBODY, 10, False),
    (0, 0, 6000, False)])
def test_who_has_the_lock_is_not_looked_through_for_ever(path, tmp_path, user, mounter, many, named):
    """Only if he may write the file, and not all that he has open: whose mount it is is only said. Of a mount that is
    gone the kernel goes on to say the number, which another one's may have by now."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < many + 200:
        pytest.skip("a process may not have as many files open")
    os.chown(path, DAEMON, DAEMON)
    os.chmod(path, 0o644)
    with silent(tmp_path / "silent", kind="fuse.sparsefs", user=mounter) as mounted:
        fuse, = [int(fd) for fd in os.listdir("/proc/self/fd")
                 if os.path.exists(f"/proc/self/fd/{fd}") and os.readlink(f"/proc/self/fd/{fd}") == "/dev/fuse"]
        with subprocess.Popen([sys.executable, "-c", HOLDS_LOCK, path, str(fuse), str(many)], user=user, group=user,
                              extra_groups=[], pass_fds=[fuse], stdout=subprocess.PIPE, text=True) as holder:
            try:
                assert holder.stdout.readline() == "ready\n"
                done = subprocess.run([BUILD / "sparsectl", "recover", path], capture_output=True, text=True,
                                      timeout=ANSWER_SECONDS, check=False)
            finally:
                holder.kill()
    assert done.returncode == 1 and f"sparsefs (process {holder.pid})" in done.stderr
    assert (f", mounted at {mounted}" in done.stderr) == named, done.stderr


# A table of locks that has no end for the program behind it.
MANY_LOCKS = """
mkfifo "$1"
mount --bind "$1" /proc/locks || exit 99
shift
while true; do yes "1: POSIX  ADVISORY  WRITE 1 00:01:1 0 0" 2>/dev/null >/proc/locks; done &
"$@"
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount on /proc/locks")
@pytest.mark.parametrize("follow", [False, True])
def test_locks_of_all_are_not_looked_through_for_ever(path, tmp_path, follow):
    """Anybody may have any number of them, to hold up who asks for a lock, and who follows."""
    def run(*command):
        return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", MANY_LOCKS, "sh",
                               tmp_path / "locks", *command], capture_output=True, text=True, timeout=ANSWER_SECONDS,
                              check=False)
    with open(path, "r+b") as locked:
        if follow:
            (tmp_path / "mnt").mkdir()
            done = run("sh", "-c", '"$1" -o follow "$2" "$3" && cat "$3/.sparsefs/pid"; umount -i "$3"', "sh",
                       SPARSEFS, path, tmp_path / "mnt")
            assert done.returncode == 0 and done.stdout.strip().isdigit(), done
        else:
            fcntl.flock(locked, fcntl.LOCK_EX)
            done = run(BUILD / "sparsectl", "recover", path)
            assert done.returncode == 1 and done.stderr.endswith("another program has it open\n"), done


@pytest.mark.parametrize("command", ["create", "repack", "recover"])
def test_temporary_names_that_are_mounted_upon(path, tmp_path, command):
    """By another one, who may where FUSE lets users do so: nothing is asked there."""
    os.chmod(path.parent, 0o1777)
    target = path if command == "recover" else path.with_name("new.h5")
    arguments = {"create": [target, "/new", "--dims", "2,3", "--dtype", "uint8"], "repack": [path, target],
                 "recover": [target]}[command]
    with silent(path.parent / f".{target.name}.123abc.sparsefs"):
        with subprocess.Popen([BUILD / "sparsectl", command, *arguments]) as process:
            try:
                assert process.wait(ANSWER_SECONDS) == 0
            finally:
                process.kill()


@pytest.mark.parametrize("sticky", [True, False])
def test_temporary_names_of_others(path, sticky):
    """In a sticky folder root removes what is root's, or of who owns the HDF5 file, and nothing else."""
    os.chmod(path.parent, 0o1777 if sticky else 0o777)
    os.chown(path, DAEMON, DAEMON)
    names = {}
    for user, digits in ((0, "000000"), (DAEMON, "00000d"), (NOBODY, "00000b")):
        names[user] = path.with_name(f".{path.name}.{digits}.sparsefs")
        names[user].write_bytes(b"something")
        os.chown(names[user], user, user)
    linked = path.with_name(f".{path.name}.0000ff.sparsefs")
    other = path.with_name("other")
    other.write_bytes(b"something")
    os.link(other, linked)
    assert subprocess.run([BUILD / "sparsectl", "recover", path], timeout=60, check=False).returncode == 0
    assert [name.exists() for name in names.values()] == [False, False, sticky]
    assert linked.exists() and other.exists()


@pytest.mark.parametrize("command", ["import", "export"])
@pytest.mark.parametrize("place", ["new.h5", "folder/victim.h5", "by/another.h5"])
def test_links_of_others_to_what_is_written(path, tmp_path, command, place):
    """A link of another user leads to his own files alone; one of root's, or of this user, anywhere."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    victim = closed / "victim.h5"
    with h5py.File(victim, "w") as file:
        file["x"] = 1
    before = victim.read_bytes()
    path.with_name("folder").symlink_to(closed)
    path.with_name("new.h5").symlink_to("folder/victim.h5")
    path.with_name("by").symlink_to(tmp_path)
    (tmp_path / "another.h5").symlink_to(victim)
    target = path.parent / place

    def copy(name):
        return subprocess.run([BUILD / "sparsectl", command, f"{path}:/d", f"{target}:/{name}"], capture_output=True,
                              text=True, timeout=60, check=False)

    os.chown(path.parent / pathlib.Path(place).parts[0], NOBODY, NOBODY, follow_symlinks=False)
    done = copy("refused")
    assert done.returncode == 1, done
    assert f"{target}: a symbolic link of user {NOBODY} leads to a file of user 0: name that file itself" in done.stderr
    assert victim.read_bytes() == before and os.listdir(closed) == ["victim.h5"]
    os.chown(victim, NOBODY, NOBODY)
    assert copy("his").returncode == 0
    os.chown(victim, 0, 0)
    for link in "folder", "new.h5", "by":
        os.chown(path.with_name(link), 0, 0, follow_symlinks=False)
    assert copy("own").returncode == 0
    with h5py.File(victim) as file:
        assert set(file) == {"x", "his", "own"}


@pytest.mark.parametrize("command", ["repack", "import", "create", "template"])
@pytest.mark.parametrize("way", ["folder/new.h5", "folder/sub/new.h5", "by/other/new.h5"])
def test_links_of_others_to_the_folder_of_a_new_file(path, tmp_path, command, way):
    """A link of another user leads to his own folders alone; one of root's, or of this user, anywhere."""
    closed = tmp_path / "closed"
    (closed / "sub").mkdir(parents=True)
    left = closed / ".new.h5.012345.sparsefs"
    left.touch()
    path.with_name("folder").symlink_to(closed)
    path.with_name("by").symlink_to(tmp_path)
    (tmp_path / "other").symlink_to(closed)
    new = path.parent / way
    links = path.with_name("folder"), path.with_name("by"), tmp_path / "other"
    arguments = {"repack": ["repack", path, new], "import": ["import", f"{path}:/d", f"{new}:/d"],
                 "create": ["create", new, "/new", "--dims", "2,3", "--dtype", "uint8"],
                 "template": ["create", new, "/new", "--dims", "2,3", "--dtype", "uint8", "--template", path]}[command]

    def make():
        return subprocess.run([BUILD / "sparsectl", *arguments], capture_output=True, text=True, timeout=60,
                              check=False)

    os.chown(path.parent / pathlib.Path(way).parts[0], NOBODY, NOBODY, follow_symlinks=False)
    done = make()
    said = f"cannot create it: a symbolic link of user {NOBODY} leads to a folder of user 0: name that folder itself"
    assert (done.returncode, done.stderr) == (1, f"sparsectl: {new}: {said}\n")
    assert sorted(os.listdir(closed)) == [left.name, "sub"] and os.listdir(closed / "sub") == []
    for folder in closed, closed / "sub":
        os.chown(folder, NOBODY, NOBODY)
    assert make().returncode == 0
    new.unlink()
    for folder in closed, closed / "sub":
        os.chown(folder, 0, 0)
    for link in links:
        os.chown(link, 0, 0, follow_symlinks=False)
    assert make().returncode == 0 and new.exists()


def test_links_of_others_to_what_is_recovered(path, tmp_path):
    victim = tmp_path / "victim.h5"
    shutil.copyfile(path, victim)
    left = tmp_path / ".victim.h5.012345.sparsefs"
    left.touch()
    link = path.with_name("link.h5")
    link.symlink_to(victim)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)

    def recover():
        return subprocess.run([BUILD / "sparsectl", "recover", link], capture_output=True, text=True, timeout=60,
                              check=False)

    done = recover()
    assert done.returncode == 1 and left.exists()
    assert f"{link}: a symbolic link of user {NOBODY} leads to a file of user 0: name that file itself" in done.stderr
    os.chown(link, 0, 0, follow_symlinks=False)
    assert recover().returncode == 0 and not left.exists()


@pytest.mark.parametrize("command", ["recover", "import", "create"])
def test_links_of_others_to_what_has_a_journal(mounts, path, tmp_path, command):
    """It is carried out, or ended, for nobody but who may write the file: the way to it is judged before."""
    source = tmp_path / "source.h5"
    with h5py.File(source, "w") as file:
        file["x"] = np.arange(4)
    journal, folder = leave_journal(mounts, path), path.parent
    left, before = journal.read_bytes(), path.read_bytes()
    names = sorted(os.listdir(folder))
    link = tmp_path / "link.h5"
    link.symlink_to(path)

    def run():
        arguments = {"recover": [link], "import": [f"{source}:/x", f"{link}:/x"],
                     "create": [link, "/new", "--dims", "3", "--dtype", "u1"]}[command]
        return subprocess.run([BUILD / "sparsectl", command, *arguments], capture_output=True, text=True,
                              timeout=60, check=False)

    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    done = run()
    assert done.returncode == 1
    assert f"{link}: a symbolic link of user {NOBODY} leads to a file of user 0: name that file itself" in done.stderr
    assert path.read_bytes() == before and journal.read_bytes() == left and sorted(os.listdir(folder)) == names
    os.chown(link, 0, 0, follow_symlinks=False)
    assert run().returncode == 0 and not journal.exists()


@pytest.mark.parametrize("what", ["file", "gzip", "folder"])
def test_links_of_others_to_what_is_mounted(mounts, path, tmp_path, what):
    """A link of another user leads to what is his alone, if it is to be written, or others are to read it."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    victim = closed / "victim.h5"
    shutil.copyfile(path, victim)
    if what == "gzip":
        subprocess.run(["gzip", victim], check=True)
        victim = victim.with_name("victim.h5.gz")
    target = closed if what == "folder" else victim
    frame = "victim.h5/d/frames/1.raw" if what == "folder" else "d/frames/1.raw"
    for name in closed, victim:
        os.chown(name, DAEMON, DAEMON)
    os.chmod(victim, 0o600)
    before, names = victim.read_bytes(), os.listdir(closed)
    link = path.with_name("link")
    link.symlink_to(target)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    kind = "folder" if what == "folder" else "file"
    why = f"{link}: a symbolic link of user {NOBODY} leads to a {kind} of user {DAEMON}: name that {kind} itself"

    shown = ["ro,allow_other", "allow_other", "ro,allow_other,umask=022", "rw", "rw,allow_other"]
    if what == "file":
        shown.append("follow,allow_other")
    for options in shown:
        assert why in refusal(link, tmp_path, "-o", options), options
    mount = mounts(link, "default", expect_log=True)
    assert f"mounted read-only, for want of writing: {why}" in mount.log()
    assert (mount / frame).read_bytes() == bytes(2048)
    with pytest.raises(OSError) as error:
        (mount / frame).open("r+b")
    assert error.value.errno == errno.EROFS
    mount.unmount()
    mounts(link, "ro").unmount()
    assert victim.read_bytes() == before and os.listdir(closed) == names

    os.chown(link, 0, 0, follow_symlinks=False)
    mounts(link, "ro,allow_other").unmount()
    mounts(link, "default", "allow_other", expect_log=True).unmount()
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    for name in closed, victim:
        os.chown(name, NOBODY, NOBODY)
    mounts(link, "ro,allow_other").unmount()
    mount = mounts(link, "default", "allow_other", expect_log=True)
    assert "for want of writing" not in mount.log()


def test_owners_that_a_fuse_of_another_user_forges(mounts, path, tmp_path):
    """What lies on it is his, whatever it says: links do not lead elsewhere, and libhdf5 does not read his files as
    root. What root has mounted is believed."""
    victim = tmp_path / "victim.h5"
    shutil.copyfile(path, victim)
    os.chown(victim, DAEMON, DAEMON)
    before = victim.read_bytes()
    names = {"link": str(victim), "x.h5": before, "x.h5.gz": gzip.compress(before)}
    his = path.with_name("his")
    his.symlink_to("fuse/x.h5")
    os.chown(his, NOBODY, NOBODY, follow_symlinks=False)

    with forging(path.with_name("fuse"), NOBODY, names) as fuse:
        why = f"{fuse}/link: a symbolic link of user {NOBODY} leads to a file of user {DAEMON}: name that file itself"
        done = subprocess.run([BUILD / "sparsectl", "import", f"{path}:/d", f"{fuse}/link:/new"], capture_output=True,
                              text=True, timeout=60, check=False)
        assert done.returncode == 1 and why in done.stderr, done
        assert why in refusal(fuse / "link", tmp_path, "-o", "ro,allow_other")
        assert victim.read_bytes() == before
        for name in "x.h5", "x.h5.gz":
            said = refusal(fuse / name, tmp_path, "-o", "ro,allow_other,hdf5=inside")
            assert f"it is the file of user {NOBODY}" in said, said
        for name in fuse / "x.h5", his:
            mounts(name, "ro,allow_other").unmount()
    with forging(path.with_name("fuse"), 0, names) as fuse:
        mounts(fuse / "link", "ro,allow_other").unmount()
        for name in "x.h5", "x.h5.gz":
            mounts(fuse / name, "ro,allow_other,hdf5=inside").unmount()


@pytest.mark.parametrize("user", [NOBODY, 0])
def test_raw_data_that_a_forged_owner_does_not_let_write(mounts, path, tmp_path, user):
    """An HDF5 file that another user's FUSE calls root's is his: it names no files of others to be written."""
    allowed = path.with_name("allowed")
    allowed.mkdir()
    raw = allowed / "r.raw"
    raw.write_bytes(bytes(60))
    os.chown(raw, DAEMON, DAEMON)
    made = test_external_raw.make(tmp_path / "made.h5", [(raw, 0, 60)], (3, 2, 5))
    with forging(path.with_name("fuse"), user, {"x.h5": made.read_bytes()}) as fuse:
        mount = mounts(fuse / "x.h5", "rw", f"external_files={allowed}", expect_log=True)
        try:
            if user == 0:
                test_external_raw.put(mount / "d/frames/1.raw", 0, b"1" * 20)
            else:
                test_external_raw.fails(errno.EIO, test_external_raw.put, mount / "d/frames/1.raw", 0, b"1" * 20)
                assert "it is not of the owner of the HDF5 file" in mount.log()
        finally:  # else the FUSE does not end
            mount.unmount()
    assert (raw.read_bytes() != bytes(60)) is (user == 0)


SWAP = """
import os, sys, time
name, victim, *other = sys.argv[1:]
other = other[0] if other else name + ".other"
def put(make):
    try:
        os.unlink(other)
    except OSError:
        pass
    try:
        make()
        os.rename(other, name)
    except OSError:
        pass
print("ready", flush=True)
while os.getppid() != 1:
    put(lambda: os.symlink(victim, other))
    put(lambda: os.mkfifo(other))
    put(lambda: open(other, "wb").write(b"0" * 5000))
    put(lambda: os.symlink("/dev/zero", other))
    try:
        os.unlink(name)
    except OSError:
        pass
"""


class Swapping:
    """Another user exchanges a file again and again for what is none, and for ways to a victim."""

    def __init__(self, name, victim):
        self.process = subprocess.Popen(
            ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--pdeathsig=KILL",
             "/usr/bin/python3", "-c", SWAP, name, victim], stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"ready\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.mark.parametrize("ending", [".journal", ".commits"])
def test_exchanged_while_it_is_opened(mounts, path, tmp_path, ending):
    """Whatever is there at which moment, the victim stays as it is, and nothing waits."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"as it is" * 1000)
    os.chmod(path.parent, 0o777)
    before = victim.stat()
    with Swapping(beside(path, ending), victim):
        for i in range(20):
            try:
                mount = mounts(path, "rw", "commit_interval=0", expect_log=True)
            except RuntimeError as error:
                assert "cannot be trusted" in str(error) or "cannot" in str(error), error
                continue
            for frame in range(3):
                try:
                    with open(mount / f"d/frames/{frame}.raw", "r+b", buffering=0) as out:
                        out.write(CONTENT)
                        os.fsync(out.fileno())
                except OSError:
                    pass
            kill(mount)
    after = victim.stat()
    assert victim.read_bytes() == b"as it is" * 1000
    assert (after.st_uid, after.st_mode, after.st_mtime) == (before.st_uid, before.st_mode, before.st_mtime)
    for ending in ".journal", ".commits":
        if os.path.lexists(beside(path, ending)) and beside(path, ending).lstat().st_uid != 0:
            beside(path, ending).unlink()
    shutil.copyfile(path, beside(path, ".copy"))  # whoever still has the file itself
    with h5py.File(beside(path, ".copy"), "r") as f:
        assert f["d"].shape == (4, 32, 32)


# ---- Notes ----


def note(path, place):
    """Where the file says that it is written: its owner may say anything."""
    try:
        os.setxattr(path, "user.sparsefs.place", os.fsencode(place))
    except OSError:
        pytest.skip("files have no extended attributes here")


def answers(mount, *command):
    """What a program says within the time of the test. If it waits for good, the mount is taken from it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        return process.communicate(timeout=ANSWER_SECONDS)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        if mount:
            mount.give_up()
        raise


def test_a_note_that_leads_into_the_mount(mounts, path):
    """A daemon that looked there would wait for itself."""
    with h5py.File(path.with_name("x.h5"), "w") as f:
        f["a"] = [1, 2, 3]
    mount = mounts(path.parent, "allow_other", expect_log=True)
    note(path.with_name("x.h5"), mount / "x.h5/a/q")
    assert "a" in answers(mount, "ls", mount / "x.h5").split()
    assert answers(mount, "cat", mount / "x.h5/a/value.txt").split() == ["1", "2", "3"]


PLACES = {"in": "silent/x.h5", "below": "silent/a/b/x.h5", "it": "silent", "by a link": "link/x.h5"}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_note_that_leads_to_what_does_not_answer(mounts, path, place):
    """Nobody asks the file system there, whatever is done with the file."""
    path.with_name("link").symlink_to("silent")
    note(path, path.parent / place)
    with silent(path.with_name("silent")):
        for command in "check", "info":
            answers(None, BUILD / "sparsectl", command, path)
        for options in ("ro",), ("rw",), ("ro", "follow=0.1"):
            mount = mounts(path, *options, expect_log=True)
            if "rw" not in options:  # a writer forgets the note
                assert "frames" in answers(mount, "ls", mount / "d").split()
            mount.unmount()


def test_a_note_that_is_made_while_the_file_is_followed(mounts, path):
    mount = mounts(path, "ro", "follow=0.05", expect_log=True)
    with silent(path.with_name("silent")):
        note(path, path.with_name("silent") / "x.h5")
        for name in "one", "two":  # at the latest the second one is looked for after the note was made
            with h5py.File(path, "a") as f:
                f[name] = 1
            answers(mount, "sh", "-c", 'until ls "$0" | grep -qx "$1"; do sleep 0.01; done', mount.root, name)


def test_a_folder_that_becomes_a_link_while_its_file_is_followed(mounts, path):
    """To where nobody answers; the file goes on being followed where it is."""
    mount = mounts(path, "ro", "follow=0.05", expect_log=True)
    was = path.parent.with_name("was")
    with silent(path.parent.with_name("silent")) as silence:
        os.rename(path.parent, was)
        path.parent.symlink_to(silence)
        for name in "one", "two":
            with h5py.File(was / path.name, "a") as f:
                f[name] = 1
            answers(mount, "sh", "-c", 'until ls "$0" | grep -qx "$1"; do sleep 0.01; done', mount.root, name)


def test_a_folder_that_becomes_a_link_while_it_is_mounted(mounts, path):
    """Its files are opened where they are."""
    mount = mounts(path.parent, expect_log=True)
    with silent(path.parent.with_name("silent")) as silence:
        os.rename(path.parent, path.parent.with_name("was"))
        path.parent.symlink_to(silence)
        assert "frames" in answers(mount, "ls", mount / "a.h5/d").split()


def test_a_note_of_another_name_is_still_found(mounts, path):
    """In another folder."""
    journal = leave_journal(mounts, path)
    other = path.parent.with_name("other")
    other.mkdir()
    os.link(path, other / "b.h5")
    check(mounts, other / "b.h5")
    assert journal.exists()
