"""POSIX ACLs: the group's bits of a mode are only the mask then, and some users are named who may less than others.
What an ACL keeps from somebody neither a mount with allow_other, nor a file beside the HDF5 file, nor a copy gives
him."""
import errno
import gzip
import os
import stat
import subprocess
import time

import h5py
import numpy as np
import pytest

from acl import ACCESS, DEFAULT, has_acl, set_acl
from conftest import BUILD
from test_external_raw import check, fails, is_refused, make, put
from test_neighbours import CONTENT, DAEMON, NOBODY, beside, copies, leave_journal, refusal
from test_neighbours import check as check_replayed
from test_owners import DATA, USER, as_user, let_in, make_file
from test_writing import kill

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has two users")

NOT_THE_GROUP = f"u::rw,u:{NOBODY}:rw,g::-,m::rw,o::-"  # its mode is 660


@pytest.fixture
def path(tmp_path):
    let_in(tmp_path)
    folder = tmp_path / "shared"
    folder.mkdir()
    os.chmod(folder, 0o1777)
    with h5py.File(folder / "a.h5", "w") as f:
        f["d"] = np.zeros((4, 32, 32), "<u2")
    os.chown(folder / "a.h5", USER, DAEMON)
    os.chmod(folder / "a.h5", 0o660)
    return folder / "a.h5"


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


# What a mount shows


@pytest.mark.parametrize("acl, reads, writes, shown", [
    (NOT_THE_GROUP, False, False, 0o600),
    (f"u::rw,u:{NOBODY}:rw,g::r,m::rw,o::-", True, False, 0o640),
    (f"u::rw,u:{NOBODY}:rw,g::rw,m::rw,o::-", True, True, 0o660),
    (f"u::rw,g:{NOBODY}:rw,g::rw,m::r,o::-", True, False, 0o640),
    (f"u::rw,u:{DAEMON}:r,g::rw,m::rw,o::rw", True, False, 0o644),
    (f"u::rw,u:{NOBODY}:-,g::rw,m::rw,o::r", False, False, 0o600),
    (f"u::rw,g:{NOBODY}:-,g::rw,m::rw,o::rw", True, True, 0o660),
    (f"u::rw,u:{NOBODY}:rw,g::rw,m::-,o::rw", False, False, 0o600),
    (None, True, True, 0o660),
])
def test_a_mount_for_others(mounts, path, acl, reads, writes, shown):
    if acl:
        set_acl(path, acl)
    mount = mounts(path, "rw,allow_other", expect_log=True)
    frame = mount / "d/frames/1.raw"
    assert mode(frame) == shown
    assert (as_user(f"cat {frame}", DAEMON).returncode == 0) is reads
    assert (as_user(f"head -c 2048 /dev/zero | dd of={frame} conv=notrunc", DAEMON).returncode == 0) is writes
    if not shown & 0o4:
        assert as_user(f"cat {frame}", NOBODY).returncode != 0


@pytest.mark.parametrize("options", [("default",), ("ro", "uid=0")])
def test_a_folder_for_others(mounts, path, options):
    """Whether a name is looked up, listed, or listed again when its state is known."""
    folder = path.parent
    (folder / "plain.txt").write_text("secret")
    (folder / "open.txt").write_text("open")
    (folder / "inner").mkdir()
    (folder / "inner/open.txt").write_text("open")
    for name in "plain.txt", "inner", "open.txt":
        os.chown(folder / name, USER, DAEMON)
    os.chmod(folder / "open.txt", 0o660)
    set_acl(folder / "plain.txt", NOT_THE_GROUP)
    set_acl(folder / "inner", f"u::rwx,u:{NOBODY}:rwx,g::-,m::rwx,o::-")
    set_acl(path, NOT_THE_GROUP)
    mount = mounts(folder, "allow_other", *options, expect_log=True)
    for is_known in False, True:
        time.sleep(3 if is_known else 0)
        with os.scandir(mount.root) as listed:
            modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in listed}
        del modes[".sparsefs"]
        assert {name: bits & 0o070 for name, bits in modes.items()} == \
            {"a.h5": 0, "plain.txt": 0, "inner": 0, "open.txt": 0o040}
        for name, may in (("plain.txt", False), ("a.h5/d/frames/1.raw", False), ("inner/open.txt", False),
                          ("open.txt", True)):
            assert (as_user(f"cat {mount / name}", DAEMON).returncode == 0) is may, name


@pytest.mark.parametrize("what", ["file", "gzip", "folder"])
def test_a_mount_for_oneself_has_the_mode_that_is_there(mounts, path, what):
    """Whoever mounts has opened the file: an ACL that lets him must not keep him out of his mount."""
    if what == "gzip":
        subprocess.run(["gzip", path], check=True)
        path = path.with_name("a.h5.gz")
    set_acl(path, NOT_THE_GROUP)
    for options, shown in (("ro",), 0o440), (("ro", "allow_other"), 0o400):
        mount = mounts(path.parent if what == "folder" else path, *options, expect_log=True)
        names = [mount / "a.h5", mount / "a.h5/d/frames/1.raw"] if what == "folder" else [mount / "d/frames/1.raw"]
        for name in names * 2:
            assert mode(name) & 0o666 == shown, name
        mount.unmount()


@pytest.mark.parametrize("acl, shown", [
    (f"u::r,u:{NOBODY}:r,g::-,m::r,o::-", False),
    (f"u::r,u:{NOBODY}:r,g::r,m::r,o::-", True),
    (f"u::r,u:{NOBODY}:-,g::r,m::r,o::r", False),
    (f"u::r,g:{NOBODY}:-,g::r,m::r,o::-", True),
    (f"u::r,u:{NOBODY}:r,g::r,m::-,o::-", False),
])
@pytest.mark.parametrize("where", ["file", "folder"])
def test_files_that_are_led_to(mounts, tmp_path, acl, shown, where):
    let_in(tmp_path)
    (tmp_path / "way").mkdir()
    raw = tmp_path / "way/r.raw"
    raw.write_bytes(DATA.tobytes())
    path = make(tmp_path / "x.h5", [("way/r.raw", 0, 48)], (2, 3, 4))
    for name in path, raw:
        os.chown(name, USER, DAEMON)
        os.chmod(name, 0o640)
    os.chown(tmp_path / "way", USER, DAEMON)
    os.chmod(tmp_path / "way", 0o755)
    if where == "file":
        set_acl(raw, acl)
    else:
        set_acl(tmp_path / "way", acl.replace(":r", ":rx"))
    mount = mounts(path, "ro,allow_other", expect_log=True)
    if shown:
        check(mount, DATA)
    else:
        is_refused(mount, "others would see")
    mount.unmount()
    check(mounts(path, "ro"), DATA)


def test_who_is_named_is_not_shown_what_others_are(mounts, tmp_path):
    """Of a file that everybody may read."""
    let_in(tmp_path)
    (tmp_path / "r.raw").write_bytes(DATA.tobytes())
    path = make(tmp_path / "x.h5", [("r.raw", 0, 48)], (2, 3, 4))
    for kind in "u", "g":
        set_acl(tmp_path / "r.raw", f"u::rw,{kind}:{NOBODY}:-,g::r,m::r,o::r")
        mount = mounts(path, "ro,allow_other", expect_log=True)
        is_refused(mount, "others would see")
        mount.unmount()
    set_acl(path, f"u::rw,g:{NOBODY}:-,g::r,m::r,o::r")  # nor is the file itself
    check(mounts(path, "ro,allow_other"), DATA)


def test_raw_data_that_is_written(mounts, path):
    """Only by those whom its own ACL lets."""
    raw = path.parent / "r.raw"
    make(path, [("r.raw", 0, 60)], (3, 2, 5), name="raw")
    for acl, may in ((NOT_THE_GROUP, False), (NOT_THE_GROUP.replace("g::-", "g::rw"), True)):
        raw.write_bytes(bytes(60))
        os.chown(raw, USER, DAEMON)
        set_acl(raw, acl)
        mount = mounts(path, "rw,allow_other", expect_log=True)
        if may:
            put(mount / "raw/frames/1.raw", 0, b"1" * 20)
        else:
            fails(errno.EIO, put, mount / "raw/frames/1.raw", 0, b"1" * 20)
            assert raw.read_bytes() == bytes(60)
        mount.unmount()


@pytest.mark.parametrize("rights, bits, may", [("rw", 0o664, False), ("rw", 0o666, True), ("r", 0o600, True)])
def test_raw_data_that_others_have_chosen(mounts, path, rights, bits, may):
    """Whom the ACL of the HDF5 file lets write it must be able to write what is named there."""
    raw = path.parent / "r.raw"
    make(path, [("r.raw", 0, 60)], (3, 2, 5), name="raw")
    raw.write_bytes(bytes(60))
    os.chown(raw, USER, DAEMON)
    os.chmod(raw, bits)
    set_acl(path, f"u::rw,u:{NOBODY}:{rights},g::r,m::{rights},o::r")
    mount = mounts(path, "rw", expect_log=True)
    if may:
        put(mount / "raw/frames/1.raw", 0, b"1" * 20)
    else:
        fails(errno.EIO, put, mount / "raw/frames/1.raw", 0, b"1" * 20)
    assert (raw.read_bytes() != bytes(60)) is may


OF_ONE = f"u::rw,u:{NOBODY}:rw,g::r,m::rw,o::r"


@pytest.mark.parametrize("acl, group, may", [
    (OF_ONE, DAEMON, True),
    (OF_ONE, USER, False),
    (OF_ONE.replace(f"u:{NOBODY}", f"u:{USER}"), DAEMON, False),
    (OF_ONE.replace("o::r", "o::-"), DAEMON, False),
])
def test_raw_data_that_the_same_users_may_write(mounts, path, acl, group, may):
    """As owner, group, mode and ACL are those of the HDF5 file."""
    raw = path.parent / "r.raw"
    make(path, [("r.raw", 0, 60)], (3, 2, 5), name="raw")
    raw.write_bytes(bytes(60))
    os.chown(raw, USER, group)
    set_acl(raw, acl)
    set_acl(path, OF_ONE)
    mount = mounts(path, "rw", expect_log=True)
    if may:
        put(mount / "raw/frames/1.raw", 0, b"1" * 20)
    else:
        fails(errno.EIO, put, mount / "raw/frames/1.raw", 0, b"1" * 20)
    assert (raw.read_bytes() != bytes(60)) is may


# Files beside it


def commit(mount):
    with open(mount / "d/frames/1.raw", "r+b", buffering=0) as frame:
        frame.write(CONTENT)
        os.fsync(frame.fileno())


def neighbours(path):
    names = [beside(path, ending) for ending in (".journal", ".commits")]
    assert not any(map(has_acl, names))
    return {mode(name) for name in names}


@pytest.mark.parametrize("acl, expected", [
    (NOT_THE_GROUP, 0o600), (f"u::rw,u:{NOBODY}:rw,g::r,m::rw,o::-", 0o640),
    (f"u::rw,u:{NOBODY}:rw,g::rw,m::rw,o::-", 0o660), (f"u::rw,u:{NOBODY}:-,g::r,m::r,o::r", 0o600)])
@pytest.mark.parametrize("folder", [None, f"u::rwx,u:{NOBODY}:rwx,g::rwx,m::rwx,o::rwx"])
def test_neighbours_let_nobody_in_whom_the_file_does_not(mounts, path, acl, expected, folder):
    if folder:
        set_acl(path.parent, folder, DEFAULT)
    set_acl(path, acl)
    mount = mounts(path, "rw", "commit_interval=0", expect_log=True)
    commit(mount)
    assert neighbours(path) == {expected}
    os.removexattr(path, ACCESS)
    os.chmod(path, 0o600)
    commit(mount)
    assert neighbours(path) == {0o600}
    kill(mount)


@pytest.mark.parametrize("bits", [0o640, 0o660, 0o644])
def test_a_default_acl_is_not_that_of_neighbours(mounts, path, bits):
    """Also of ones that have it, as an earlier version has left them."""
    os.chmod(path, bits)
    set_acl(path.parent, f"u::rwx,u:{NOBODY}:rwx,g::rwx,m::rwx,o::rx", DEFAULT)
    mount = mounts(path, "rw", "commit_interval=0", expect_log=True)
    commit(mount)
    assert neighbours(path) == {bits}
    for ending in ".journal", ".commits":
        set_acl(beside(path, ending), f"u::rw,u:{NOBODY}:r,g::r,m::r,o::-")
    commit(mount)
    assert neighbours(path) <= {0o640, bits}
    kill(mount)
    check_replayed(mounts, path)


def test_journals_of_those_whom_an_acl_does_not_let_write(mounts, path, tmp_path):
    journal = leave_journal(mounts, path)
    before = path.read_bytes()

    def is_refused_by(owner, acl, why):
        os.chown(journal, owner, owner)
        os.chmod(journal, 0o600)
        set_acl(path, acl)
        for options in ((), ("-o", "ro"), ("-o", "follow")):
            said = refusal(path, tmp_path, *options)
            assert "cannot be trusted" in said and why in said, said
        assert path.read_bytes() == before

    owner = "its owner may not write the file"
    is_refused_by(DAEMON, NOT_THE_GROUP, owner)
    is_refused_by(DAEMON, f"u::rw,u:{NOBODY}:rw,g::r,m::rw,o::-", owner)
    is_refused_by(DAEMON, f"u::rw,u:{DAEMON}:r,g::rw,m::rw,o::rw", owner)
    is_refused_by(DAEMON, f"u::rw,u:{NOBODY}:rw,g::r,m::rw,o::rw", owner)
    is_refused_by(NOBODY, f"u::rw,u:{NOBODY}:rw,g::rw,m::r,o::-", owner)
    is_refused_by(NOBODY, f"u::rw,g:{NOBODY}:r,g::rw,m::rw,o::rw", owner)
    os.chown(journal, USER, DAEMON)
    set_acl(path, f"u::rw,u:{NOBODY}:r,g::rw,m::rw,o::-")
    set_acl(journal, f"u::rw,u:{NOBODY}:rw,g::rw,m::rw,o::-")
    assert "group may write it that may not write the file" in refusal(path, tmp_path)
    set_acl(path, "u::rw,g::rw,o::-")
    assert "its ACL lets others write it" in refusal(path, tmp_path)

    # Who may write the file may leave a journal there.
    for user, acl in ((DAEMON, f"u::rw,u:{NOBODY}:r,g::rw,m::rw,o::-"), (NOBODY, NOT_THE_GROUP),
                      (NOBODY, f"u::rw,g:{NOBODY}:rw,g::-,m::rw,o::-"),
                      (NOBODY, f"u::rw,u:{DAEMON}:r,g::-,m::rw,o::rw")):
        os.removexattr(journal, ACCESS)
        os.chown(journal, user, user)
        os.chmod(journal, 0o600)
        set_acl(path, acl)
        set_acl(journal, "u::rw,u:2:r,g::-,m::r,o::-")
        check_replayed(mounts, path)


# Copies


@pytest.mark.parametrize("acl, expected", [
    (NOT_THE_GROUP, 0o600), (f"u::rw,u:{NOBODY}:rw,g::r,m::rw,o::-", 0o640),
    (f"u::rw,u:{NOBODY}:-,g::r,m::r,o::r", 0o600), (None, 0o660)])
@pytest.mark.parametrize("folder", [None, f"u::rwx,u:{NOBODY}:rwx,g::rwx,m::rwx,o::rwx"])
def test_copies_let_nobody_in_whom_their_source_does_not(path, acl, expected, folder):
    if acl:
        set_acl(path, acl)
    if folder:
        set_acl(path.parent, folder, DEFAULT)
    before = os.umask(0o002)
    try:
        for copy, command in copies(path, path.parent).items():
            subprocess.run([BUILD / "sparsectl", *command], check=True, capture_output=True)
            assert (mode(copy), copy.stat().st_gid, has_acl(copy)) == (expected, DAEMON, False), copy
    finally:
        os.umask(before)


@pytest.mark.parametrize("acl, expected", [(NOT_THE_GROUP, 0o600), (f"u::rw,u:{NOBODY}:rw,g::r,m::rw,o::-", 0o640)])
def test_copies_of_compressed_and_mounted_files(mounts, path, tmp_path, acl, expected):
    """Of which something else is opened than the file itself, or a copy of it."""
    packed, copy = path.with_name("a.h5.gz"), path.with_name("copy.h5")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    os.chown(packed, USER, DAEMON)
    os.chmod(packed, 0o660)
    sources = [path, packed]
    for source in sources:
        set_acl(source, acl)
    mount = mounts(path, "rw", "uid=0", "gid=0", "umask=0", expect_log=True)
    with open(mount / "d/frames/1.raw", "r+b", buffering=0) as frame:
        frame.write(CONTENT)
    for source in sources:
        subprocess.run([BUILD / "sparsectl", "repack", source, copy], check=True)
        assert (mode(copy), copy.stat().st_gid) == (expected, DAEMON)
        copy.unlink()
