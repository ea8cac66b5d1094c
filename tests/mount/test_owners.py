"""Whose files are shown to whom, and read by whom: root who mounts for others, users who mount their own."""
import errno
import gzip
import json
import os
import shutil
import stat
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

import files
from acl import set_acl
from conftest import BUILD, SPARSEFS, START_SECONDS, let_in
from test_external_raw import check, is_refused, make
from test_neighbours import DAEMON, NOBODY, Swapping

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has two users")
USER = 1000
DATA = files.integers((2, 3, 4), "<u2")
TRUST = "libhdf5 would read"


def make_file(path, owner=USER):
    with h5py.File(path, "w") as f:
        f["d"] = DATA
    os.chown(path, owner, owner)
    return path


def refusal(path, tmp_path, *options):
    mountpoint = tmp_path / "refused"
    mountpoint.mkdir(exist_ok=True)
    done = subprocess.run([SPARSEFS, *(word for option in options for word in ("-o", option)), path, mountpoint],
                          capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


# What root reads for others


@needs_root
@pytest.mark.parametrize("options", [("default", "hdf5=inside"), ("rw", "hdf5=inside"), ("follow", "hdf5=inside"),
                                     ("ro", "hdf5=inside"), ("uid=0", "hdf5=inside")])
def test_root_reads_files_of_others_for_others_when_told_so(mounts, tmp_path, options):
    """libhdf5 would do as root what its file says: where nothing confines it, that takes a word."""
    path = make_file(tmp_path / "x.h5")
    given = [option for option in options if option != "default"]
    code, said = refusal(path, tmp_path, "allow_other", *given)
    assert code == 1 and f"it is the file of user {USER}: {TRUST}" in said and "with trust" in said, said
    for owner, others in ((USER, "allow_other,trust"), (USER, "nosuid"), (0, "allow_other")):
        os.chown(path, owner, owner)
        mount = mounts(path, others, *options, expect_log=True)
        check(mount, DATA)
        mount.unmount()


@needs_root
@pytest.mark.parametrize("bits, acl, group, refused", [
    (0o666, None, 0, True), (0o664, None, USER, True), (0o646, None, 0, True), (0o644, None, 0, False),
    (0o600, f"u::rw,u:{USER}:rw,g::r,m::rw,o::r", 0, True), (0o600, f"u::rw,u:{USER}:rw,g::r,m::r,o::r", 0, False)])
def test_root_reads_files_that_others_may_write_when_told_so(mounts, tmp_path, bits, acl, group, refused):
    """Root's name on them says nothing of what is in them."""
    let_in(tmp_path)
    path = make_file(tmp_path / "x.h5", 0)
    os.chmod(path, bits)
    os.chown(path, 0, group)
    if acl:
        set_acl(path, acl)
    with gzip.open(tmp_path / "x.h5.gz", "wb") as packed:
        packed.write(path.read_bytes())
    shutil.copystat(path, tmp_path / "x.h5.gz")
    os.chown(tmp_path / "x.h5.gz", 0, group)
    leading = make_file(tmp_path / "y.h5", 0)
    with h5py.File(leading, "a") as f:
        f["link"] = h5py.ExternalLink("x.h5", "/d")
    if refused:
        for name in path, tmp_path / "x.h5.gz":
            code, said = refusal(name, tmp_path, "allow_other,hdf5=inside")
            assert code == 1 and f"user 0, and others may write it: {TRUST}" in said, said
    for given in "trust", "nosuid":
        for name in path, tmp_path / "x.h5.gz":
            if given == "trust" or not refused:
                mount = mounts(name, "default", "allow_other,hdf5=inside", given, expect_log=True)
                check(mount, DATA)
                mount.unmount()
        mount = mounts(leading, "default", "allow_other,hdf5=inside", given, expect_log=True)
        assert os.path.islink(mount / "link") is (refused and given != "trust")
        mount.unmount()


def as_user(command, user=USER):
    return subprocess.run(["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "sh", "-c", command],
                          capture_output=True, text=True, timeout=60)


@needs_root
@pytest.mark.parametrize("option", ["default", "umask=0"])
def test_memory_is_the_affair_of_who_mounts(mounts, tmp_path, option):
    """Not of who owns the file, or may write to it."""
    let_in(tmp_path)
    path = make_file(tmp_path / "x.h5")
    os.chmod(path, 0o666)
    mount = mounts(path, "rw,allow_other", option, expect_log=True)
    size = mount / ".sparsefs/cache_size"
    before = size.read_text()
    for user in USER, NOBODY:
        assert as_user(f"echo 100G > {size}", user).returncode != 0
        assert as_user(f"cat {size}", user).stdout == before
    size.write_text("3M\n")
    assert size.read_text() == f"{3 << 20}\n"


@needs_root
def test_the_log_of_a_folder_tells_no_names(mounts, tmp_path):
    """Of what is in folders that are closed to others."""
    let_in(tmp_path)
    folder = tmp_path / "folder"
    (folder / "private").mkdir(parents=True)
    os.chmod(folder / "private", 0o700)
    path = make_file(folder / "private/hidden name.h5", 0)
    content = path.read_bytes().replace(b"TREE", b"tree")
    path.write_bytes(content)
    os.chown(folder, USER, USER)
    mount = mounts(folder, "default", "allow_other", expect_log=True)
    log = mount / ".sparsefs/log"
    with pytest.raises(OSError):
        os.listdir(mount / "private/hidden name.h5")
    assert "hidden name" in log.read_text()
    for user in USER, NOBODY:
        assert "hidden" not in as_user(f"cat {log}", user).stdout
        assert as_user(f"ls {mount.root}", user).stdout == "private\n"


@needs_root
def test_what_is_confined_needs_no_trust(mounts, tmp_path):
    path = make_file(tmp_path / "x.h5")
    for options in "ro", "follow", "default", "rw,hdf5=worker":
        mount = mounts(path, "allow_other", *options.split(","))
        check(mount, DATA)
        mount.unmount()
    subprocess.run(["gzip", "-k", path], check=True)
    os.chown(tmp_path / "x.h5.gz", USER, USER)
    check(mounts(tmp_path / "x.h5.gz", "default", "allow_other", expect_log=True), DATA)
    code, said = refusal(tmp_path / "x.h5.gz", tmp_path, "allow_other,hdf5=inside")
    assert code == 1 and TRUST in said


@needs_root
def test_trust_is_for_each_file(mounts, tmp_path):
    """A file of root does not lead libhdf5 to one of another user; raw data it does not read."""
    make_file(tmp_path / "s.h5")
    (tmp_path / "r.raw").write_bytes(DATA.tobytes())
    os.chown(tmp_path / "r.raw", USER, USER)
    path = make(tmp_path / "x.h5", [("r.raw", 0, 48)], (2, 3, 4), name="raw")
    with h5py.File(path, "a", libver="latest") as f:
        f["link"] = h5py.ExternalLink("s.h5", "/d")
        layout = h5py.VirtualLayout((2, 3, 4), "<u2")
        layout[...] = h5py.VirtualSource("s.h5", "d", (2, 3, 4))
        f.create_virtual_dataset("virtual", layout)
    for options, expected in ((("default", "hdf5=inside"), False), (("ro",), True), (("default",), True),
                              (("default", "hdf5=inside", "trust"), True)):
        mount = mounts(path, "allow_other", f"external_files={tmp_path}", *options, expect_log=True)
        check(mount, DATA, "raw")
        assert os.path.islink(mount / "link") is not expected
        if expected:
            check(mount, DATA, "virtual")
        else:
            is_refused(mount, f"{TRUST} another user's file as root", "virtual")
        mount.unmount()


# What others see


@needs_root
@pytest.mark.parametrize("mode, shown", [(0o755, True), (0o700, False), (0o750, False), (0o710, False),
                                         (0o711, True), (0o705, False)])
def test_folders_that_are_closed_to_others(mounts, tmp_path, mode, shown):
    """What they may not find they are not shown, though everybody might read it; whichever way leads there."""
    let_in(tmp_path)
    run, inner = tmp_path / "run", tmp_path / "run/way/inner"
    inner.mkdir(parents=True)
    (inner / "r.raw").write_bytes(DATA.tobytes())
    make_file(inner / "s.h5", 0)
    os.symlink("way/inner/r.raw", run / "link.raw")
    path = run / "x.h5"
    for i, name in enumerate(("way/inner/r.raw", inner / "r.raw", "link.raw", "way/inner/../inner/r.raw")):
        make(path, [(name, 0, 48)], (2, 3, 4), name=f"d{i}")
    with h5py.File(path, "a") as f:
        f["link"] = h5py.ExternalLink("way/inner/s.h5", "/d")
    os.chmod(run / "way", mode)
    for name in run / "way", inner, inner / "r.raw", inner / "s.h5", path:
        os.chown(name, USER, USER)
    for options in ((), (f"external_files={run}",), ("external_files=/",)):
        mount = mounts(path, "ro,allow_other", *options, expect_log=True)
        for i in range(4):
            if shown:
                check(mount, DATA, f"d{i}")
            else:
                is_refused(mount, "others would see what its owner does not let them see", f"d{i}")
        assert os.path.islink(mount / "link") is not shown
        mount.unmount()
    check(mounts(path, "ro"), DATA, "d0")


@needs_root
@pytest.mark.parametrize("mode, group, shown", [(0o750, USER, True), (0o700, USER, False), (0o750, 1, False),
                                                (0o701, USER, False), (0o711, 1, True), (0o701, 1, False)])
def test_folders_that_are_closed_to_the_group(mounts, tmp_path, mode, group, shown):
    """Of a file that a group may read."""
    let_in(tmp_path)
    (tmp_path / "way").mkdir()
    (tmp_path / "way/r.raw").write_bytes(DATA.tobytes())
    path = make(tmp_path / "x.h5", [("way/r.raw", 0, 48)], (2, 3, 4))
    for name in path, tmp_path / "way/r.raw":
        os.chown(name, USER, USER)
        os.chmod(name, 0o640)
    os.chown(tmp_path / "way", USER, group)
    os.chmod(tmp_path / "way", mode)
    mount = mounts(path, "ro,allow_other", expect_log=True)
    if shown:
        check(mount, DATA)
    else:
        is_refused(mount, "others would see")


@needs_root
@pytest.mark.parametrize("owner, bits, shown", [(1, 0o750, True), (1, 0o710, True), (1, 0o700, False),
                                                (NOBODY, 0o750, False)])
def test_a_folder_of_a_group(mounts, tmp_path, owner, bits, shown):
    """With files that the group may read; the owner of the file is in the group, or is not."""
    let_in(tmp_path)
    folder = tmp_path / "in"
    (folder / "way").mkdir(parents=True)
    (folder / "way/r.raw").write_bytes(DATA.tobytes())
    path = make(folder / "x.h5", [("way/r.raw", 0, 48)], (2, 3, 4))
    for name in "x.h5", "way/r.raw":
        os.chown(folder / name, owner, 1)
        os.chmod(folder / name, 0o640)
    for name in folder, folder / "way":
        os.chown(name, 0, 1)
        os.chmod(name, bits)
    mount = mounts(path, "ro,allow_other", expect_log=True)
    if shown:
        check(mount, DATA)
    else:
        is_refused(mount, "others would see")


@needs_root
@pytest.mark.parametrize("closed, mode, own, option, shown", [
    ("in", 0o700, 0o644, None, False), ("in/sub", 0o700, 0o644, None, False), ("in", 0o750, 0o644, None, False),
    ("in", 0o711, 0o644, None, True), ("in", 0o700, 0o600, None, True), ("in", 0o700, 0o644, "in", True),
    ("in", 0o700, 0o644, "in/sub", True), ("in", 0o700, 0o644, "", False), ("in/sub", 0o700, 0o644, "in", False)])
def test_the_folder_of_the_file_is_closed_to_others(mounts, tmp_path, closed, mode, own, option, shown):
    """Or one above it: who copies a file there and shows it has not shown what is beside it, but by its name."""
    let_in(tmp_path)
    folder = tmp_path / "in/sub"
    folder.mkdir(parents=True)
    (folder / "r.raw").write_bytes(DATA.tobytes())
    make_file(folder / "s.h5", 0)
    path = make(folder / "x.h5", [("r.raw", 0, 48)], (2, 3, 4))
    with h5py.File(path, "a") as f:
        f["link"] = h5py.ExternalLink("s.h5", "/d")
    os.chmod(path, own)
    os.chmod(tmp_path / closed, mode)
    for owner in 0, USER:  # of the folder
        os.chown(tmp_path / closed, owner, owner)
        expected = shown if owner == 0 else shown and option is None
        options = [] if option is None else [f"external_files={tmp_path / option}"]
        mount = mounts(path, "ro,allow_other", *options, expect_log=True)
        assert os.path.islink(mount / "link") is not expected
        if expected:
            check(mount, DATA)
        else:
            is_refused(mount, "by its mode or that of a folder above it")
        mount.unmount()


@needs_root
def test_names_in_closed_folders_are_not_told(mounts, tmp_path):
    """Whatever names lead through them: what is there is refused as what is not; without allow_other one is told."""
    let_in(tmp_path)
    for name in "in/closed/dir", "out/closed/dir":
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name).parent.joinpath("there").write_bytes(DATA.tobytes())
        os.symlink(tmp_path / "in", (tmp_path / name).parent / "link")
        os.chmod((tmp_path / name).parent, 0o700)
    os.symlink(tmp_path / "in", tmp_path / "out/way")
    (tmp_path / "in/r.raw").write_bytes(DATA.tobytes())
    path = tmp_path / "in/x.h5"
    pairs = [("closed/there", "closed/none"), ("closed/dir/../../r.raw", "closed/none/../../r.raw"),
             ("closed/link/r.raw", "closed/none/r.raw")]
    pairs += [tuple(f"{tmp_path}/out/{name}" for name in pair) for pair in pairs[2:]]
    pairs += [tuple(f"{tmp_path}/out/closed/{name}/../../in/r.raw" for name in ("dir", "none"))]
    for i, pair in enumerate(pairs):
        for name, which in zip(pair, "yn"):
            make(path, [(name, 0, 48)], (2, 3, 4), name=f"{which}{i}")
            with h5py.File(path, "a") as f:
                f[f"link_{which}{i}"] = h5py.ExternalLink(name.replace("r.raw", "s.h5"), "/d")
    make(path, [(tmp_path / "out/way/r.raw", 0, 48)], (2, 3, 4), name="open")
    make_file(tmp_path / "in/s.h5", 0)
    for given in (), (f"external_files={tmp_path / 'in'}",), ("external_links",):
        mount = mounts(path, "ro,allow_other", *given, expect_log=True)
        check(mount, DATA, "open")
        told = {which: [] for which in "yn"}
        links = {link["name"]: (link["state"], link.get("why"))
                 for link in json.loads((mount / "group.json").read_text())["external_links"]}
        for i, pair in enumerate(pairs):
            for name, which in zip(pair, "yn"):
                with pytest.raises(OSError) as raised:
                    (mount / f"{which}{i}/stack.raw").read_bytes()
                is_link = os.path.islink(mount / f"link_{which}{i}")
                lines = {line.split(name)[1] for line in mount.log().splitlines() if f": /{which}{i}: " in line}
                told[which].append((raised.value.errno, lines, is_link, links[f"link_{which}{i}"]))
        assert told["y"] == told["n"] and all(lines for _, lines, _, _ in told["y"])
        mount.unmount()
    mount = mounts(path, "ro", expect_log=True)
    check(mount, DATA, "y0")
    is_refused(mount, "No such file", "n0")


@needs_root
@pytest.mark.parametrize("option, shown", [("umask=077", True), ("umask=022", False), ("uid=1001", False),
                                           ("gid=1001", False), ("umask=037", False)])
def test_modes_that_only_the_mount_has(mounts, tmp_path, option, shown):
    """Who says that others may read the file has not said so of what it leads to."""
    let_in(tmp_path)
    (tmp_path / "r.raw").write_bytes(DATA.tobytes())
    (tmp_path / "open.raw").write_bytes(DATA.tobytes())
    path = make(tmp_path / "x.h5", [("r.raw", 0, 48)], (2, 3, 4))
    make(path, [("open.raw", 0, 48)], (2, 3, 4), name="open")
    for name in "x.h5", "r.raw", "open.raw":
        os.chown(tmp_path / name, USER, USER)
        os.chmod(tmp_path / name, 0o644 if name == "open.raw" else 0o600)
    mount = mounts(path, "ro,allow_other", option, expect_log=True)
    check(mount, DATA, "open")
    if shown:
        check(mount, DATA)
    else:
        is_refused(mount, "others would see")


@needs_root
@pytest.mark.parametrize("options, owner, bits, writer, written", [
    ("uid=65534", 0, 0o644, NOBODY, False), ("umask=0", 0, 0o644, NOBODY, False),
    ("gid=65534,umask=02", 0, 0o644, NOBODY, False), ("uid=65534", USER, 0o644, NOBODY, False),
    ("umask=0", USER, 0o644, NOBODY, False), ("umask=0", USER, 0o664, NOBODY, False),
    ("gid=65534", USER, 0o644, USER, True), ("uid=0", USER, 0o644, 0, True), ("umask=022", USER, 0o644, USER, True),
    ("uid=65534", USER, 0o666, NOBODY, True), ("umask=0,gid=65534", 0, 0o666, NOBODY, True)])
def test_modes_that_only_the_mount_has_and_writing(mounts, tmp_path, options, owner, bits, writer, written):
    """Who says that others may write the file has not said so of what it leads to: neither root, nor another user."""
    let_in(tmp_path)
    raw = tmp_path / "r.raw"
    raw.write_bytes(DATA.tobytes())
    path = make(tmp_path / "x.h5", [("r.raw", 0, 48)], (2, 3, 4))
    os.chown(path, owner, owner)
    os.chmod(path, 0o644)
    os.chown(raw, owner, owner)
    os.chmod(raw, bits)
    mount = mounts(path, "rw,allow_other", f"external_files={tmp_path}", options, expect_log=True)
    done = as_user(f"printf 0123456789 | dd of={mount.root}/d/stack.raw conv=notrunc", writer)
    assert (done.returncode == 0) is written, done.stderr
    assert (raw.read_bytes() != DATA.tobytes()) is written
    assert ("others would write what its owner does not let them write" in mount.log()) is not written


@needs_root
@pytest.mark.parametrize("mode, opened, shown", [(0o644, False, False), (0o600, False, False), (0o600, True, True),
                                                 (0o644, True, True)])
def test_who_owns_the_file_is_another_to_what_is_allowed_besides(mounts, tmp_path, mode, opened, shown):
    """Somebody else's file in a folder that is closed is not shown to him, though nobody else may read his own."""
    let_in(tmp_path)
    closed = tmp_path / "data/closed"
    closed.mkdir(parents=True)
    (closed / "r.raw").write_bytes(DATA.tobytes())
    make_file(closed / "s.h5", NOBODY)
    path = make(tmp_path / "x.h5", [(closed / "r.raw", 0, 48)], (2, 3, 4))
    with h5py.File(path, "a") as f:
        f["link"] = h5py.ExternalLink(str(closed / "s.h5"), "/d")
    for name in closed, closed / "r.raw":
        os.chown(name, NOBODY, NOBODY)
    os.chmod(closed, 0o755 if opened else 0o700)
    os.chown(path, USER, USER)
    os.chmod(path, mode)
    mount = mounts(path, "ro,allow_other", f"external_files={tmp_path / 'data'}", expect_log=True)
    assert os.path.islink(mount / "link") is not shown
    if shown:
        check(mount, DATA)
    else:
        is_refused(mount, "others would see what its owner does not let them see")


def until(fails, command, user):
    """Repeats it until it fails, or does not."""
    deadline = time.monotonic() + START_SECONDS
    while (as_user(command, user).returncode != 0) is not fails:
        assert time.monotonic() < deadline, command
        time.sleep(0.1)


@needs_root
@pytest.mark.parametrize("what, option", [("file", "rw"), ("file", "follow=0.2"), ("file", "ro"), ("folder", "default"),
                                          ("folder", "ro")])
@pytest.mark.parametrize("owner", [USER, 0])
def test_a_file_that_is_closed_while_it_is_mounted(mounts, tmp_path, what, option, owner):
    """By its mode, or because it was given away: others see it for a second at most, and what it leads to never."""
    let_in(tmp_path)
    folder = tmp_path / "in"
    folder.mkdir()
    path = make_file(folder / "x.h5")
    make(path, [("r.raw", 0, 48)], (2, 3, 4), name="raw")
    make(path, [("w.raw", 0, 48)], (2, 3, 4), name="written")
    for name, bits in ("x.h5", 0o666), ("r.raw", 0o600), ("w.raw", 0o644):
        if name != "x.h5":
            (folder / name).write_bytes(DATA.tobytes())
        os.chown(folder / name, USER, USER)
        os.chmod(folder / name, bits)
    mount = mounts(folder if what == "folder" else path, option, "allow_other", expect_log=True)
    root = mount.root / "x.h5" if what == "folder" else mount.root
    assert as_user(f"cat {root}/d/stack.raw >/dev/null", NOBODY).returncode == 0
    with subprocess.Popen(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "sh", "-c", f"""
            cd {root}/raw && exec <stack.raw && echo there && while :; do cat; sleep 0.05; done"""],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as standing:
        assert standing.stdout.readline() == b"there\n"
        os.chown(path, owner, owner)
        os.chmod(path, 0o600)
        for name in "d", "raw", "written":
            until(True, f"cat {root}/{name}/stack.raw >/dev/null", NOBODY)
        assert as_user(f"echo >{root}/written/stack.raw", NOBODY).returncode != 0
        if owner != USER:
            until(True, f"cat {root}/d/stack.raw >/dev/null", USER)
        time.sleep(0.3)  # it goes on reading what it has opened
        standing.kill()
        assert standing.stdout.read() == b""
    assert (folder / "w.raw").read_bytes() == DATA.tobytes()
    assert (root / "d/stack.raw").read_bytes() == DATA.tobytes()


@needs_root
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_that_is_opened_to_others_while_it_is_mounted(mounts, tmp_path, what):
    """What was read for its owner alone stays his: in a folder others see it when it was closed, and read anew."""
    let_in(tmp_path)
    folder = tmp_path / "in"
    folder.mkdir()
    path = make_file(folder / "x.h5")
    make_file(folder / "y.h5")
    make(path, [("r.raw", 0, 48)], (2, 3, 4), name="raw")
    (folder / "r.raw").write_bytes(DATA.tobytes())
    for name in "x.h5", "r.raw":
        os.chown(folder / name, USER, USER)
        os.chmod(folder / name, 0o600)
    options = ("default", "max_open=1") if what == "folder" else ("ro",)
    mount = mounts(folder if what == "folder" else path, "allow_other", *options, expect_log=True)
    root = mount.root / "x.h5" if what == "folder" else mount.root
    for name in "d", "raw":
        assert (root / name / "stack.raw").read_bytes() == DATA.tobytes()
    os.chmod(path, 0o644)
    time.sleep(1.5)
    assert as_user(f"cat {root}/raw/stack.raw | wc -c", NOBODY).stdout == "0\n"
    if what == "folder":
        assert (mount.root / "y.h5/d/stack.raw").read_bytes() == DATA.tobytes()
        until(False, f"cat {root}/d/stack.raw >/dev/null", NOBODY)
        assert as_user(f"cat {root}/raw/stack.raw | wc -c", NOBODY).stdout == "0\n"
        assert "others would see what its owner does not let them see" in mount.log()


@needs_root
@pytest.mark.parametrize("option, owner, is_old", [("default", NOBODY, False), ("follow=0.2", NOBODY, False),
                                                   ("ro", USER, False), ("default", USER, True)])
def test_the_number_of_a_private_files_inode_is_given_again(mounts, tmp_path, option, owner, is_old):
    """In a folder, to what all may read, of the same size and time: what was read of the private file is not shown."""
    let_in(tmp_path)
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / "plain.txt"
    path.write_bytes(b"secret")
    os.chown(path, USER, USER)
    path.chmod(0o600)
    time.sleep(3 if is_old else 0)  # until the kernel may keep its pages
    mount = mounts(folder, option, "allow_other", expect_log=True)
    for _ in range(2):
        assert as_user(f"cat {mount / 'plain.txt'}").stdout == "secret"
    assert as_user(f"cat {mount / 'plain.txt'}", NOBODY).returncode != 0
    before = path.stat()
    path.write_bytes(b"public")
    os.chown(path, owner, owner)
    path.chmod(0o644)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    until(False, f"cat {mount / 'plain.txt'}", NOBODY)
    assert as_user(f"cat {mount / 'plain.txt'}", NOBODY).stdout == "public"


@needs_root
@pytest.mark.parametrize("what, owner, mode", [
    ("plain", USER, 0o600), ("plain", NOBODY, 0o600), ("plain", USER, 0o755), ("HDF5", USER, 0o600),
    ("HDF5", NOBODY, 0o600), ("HDF5", USER, 0o755), ("directory", USER, 0o700), ("directory", USER, 0o755)])
def test_the_number_of_a_public_files_inode_is_given_again(mounts, tmp_path, what, owner, mode):
    """In a folder, before the kernel has asked whose it is now: a private file is not opened by the old mode, and who
    may open it is not refused."""
    let_in(tmp_path)
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / "name"
    if what == "HDF5":
        make_file(path)
    elif what == "directory":
        path.mkdir()
        (path / "secret").write_bytes(b"")
    else:
        path.write_bytes(b"secret")
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o755)
    mount = mounts(folder, "allow_other", expect_log=True)
    os.stat(mount / "name")
    os.chown(path, owner, owner)
    path.chmod(mode)
    command = f"{'cat' if what == 'plain' else 'ls'} {mount / 'name'}"
    looked = as_user(command, DAEMON)
    assert (looked.returncode == 0) is (looked.stdout != "") is (mode == 0o755), looked.stderr
    assert as_user(command, owner).returncode == 0


@needs_root
@pytest.mark.parametrize("owner, group, mode", [(NOBODY, USER, 0o700), (DAEMON, NOBODY, 0o750),
                                                (NOBODY, NOBODY, 0o770)])
def test_a_directory_is_given_away(mounts, tmp_path, owner, group, mode):
    """Who has it now may do all that its mode says, and nobody else may; inside after the kernel has asked."""
    let_in(tmp_path)
    folder = tmp_path / "in"
    (folder / "name").mkdir(parents=True)
    (folder / "name/file").write_bytes(b"content")
    os.chown(folder / "name", USER, USER)
    (folder / "name").chmod(mode)
    mount = mounts(folder, "allow_other", expect_log=True)
    read, look = f"cat {mount / 'name/file'}", f"ls {mount / 'name'}"
    assert as_user(read).stdout == "content" and as_user(read, NOBODY).returncode != 0
    os.chown(folder / "name", owner, group)
    assert as_user(look).returncode != 0 and as_user(look, NOBODY).stdout == "file\n"
    until(True, read, USER)
    for _ in range(3):
        assert as_user(read, NOBODY).stdout == "content" and as_user(look).returncode != 0
        now = os.stat(mount / "name")
        assert (now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode)) == (owner, group, mode & 0o555)
        time.sleep(0.6)


IN_IT = """
import os, sys
os.stat(".")
print("in it", flush=True)
sys.stdin.readline()
print(open("file").read())
"""


@needs_root
@pytest.mark.parametrize("place", [min, max])
def test_a_listing_tells_nothing_of_a_directory_that_is_given_away(mounts, tmp_path, place):
    """Of names far down the kernel asks for no attributes: it goes by what it knew, by which who had the directory, and
    is in it, may see what its new owner puts there."""
    let_in(tmp_path)
    folder = tmp_path / "in"
    names = [f"{i:03}" for i in range(20)]
    for name in names:
        (folder / name).mkdir(parents=True)
        for i in range(20):
            (folder / f"{name}-{i:03}-{'x' * 200}").touch()
    name = place(names, key=os.listdir(folder).index)
    os.chown(folder / name, USER, USER)
    (folder / name).chmod(0o700)
    mount = mounts(folder, "allow_other", expect_log=True)
    with subprocess.Popen([sys.executable, "-c", IN_IT], cwd=mount / name, user=USER, group=USER, extra_groups=[],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "in it\n"
        os.chown(folder / name, NOBODY, NOBODY)
        (folder / f"{name}/file").write_text("secret")
        os.listdir(mount.root)
        told, error = process.communicate("\n")
    assert told == "" and "Error" in error


@needs_root
def test_files_that_are_exchanged_while_they_are_read(mounts, tmp_path):
    """Another user's raw data are, in turn, nothing, a fifo, a device, and a link to what is not his."""
    let_in(tmp_path)
    (tmp_path / "in").mkdir()
    os.chmod(tmp_path / "in", 0o777)
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret" * 1000)
    path = make(tmp_path / "in/x.h5", [("r.raw", 0, 4000)], (10, 200))
    with h5py.File(path, "a", libver="latest") as f:
        layout = h5py.VirtualLayout((10, 200), "<u2")
        layout[...] = h5py.VirtualSource("r.raw", "d", (10, 200))
        f.create_virtual_dataset("v", layout)
    mount = mounts(path, "ro,direct_io", expect_log=True)
    with Swapping(tmp_path / "in/r.raw", secret):
        seen = set()
        for i in range(300):
            for name in "d", "v":
                try:
                    seen.add((mount / name / "stack.raw").read_bytes()[:6])
                except OSError as error:
                    assert error.errno == errno.EIO
    assert b"secret" not in seen and seen <= {b"000000", bytes(6)}


@needs_root
def test_users_read_with_their_own_rights(tmp_path):
    """A file of others leads who mounts it nowhere where he may not go himself."""
    let_in(tmp_path)
    if shutil.which("fusermount3") is None:
        pytest.skip("users may not mount here")
    (tmp_path / "r.raw").write_bytes(DATA.tobytes())
    os.chmod(tmp_path / "r.raw", 0o600)
    (tmp_path / "open.raw").write_bytes(DATA.tobytes())
    path = make(tmp_path / "x.h5", [("r.raw", 0, 48)], (2, 3, 4), name="closed")
    make(path, [("open.raw", 0, 48)], (2, 3, 4), name="open")
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    os.chown(mnt, NOBODY, NOBODY)
    user = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
    script = f"""
        mknod -m 666 {tmp_path}/fuse c 10 229 && mount --bind {tmp_path}/fuse /dev/fuse || exit 77
        {user} {SPARSEFS} -o ro {path} {mnt} || exit 77
        {user} cat {mnt}/open/stack.raw >{tmp_path}/shown
        {user} cat {mnt}/closed/stack.raw >{tmp_path}/hidden
        echo "cat: $?"
        umount -i {mnt}"""
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=60)
    if done.returncode == 77:
        pytest.skip("users may not mount here: " + done.stderr)
    assert done.returncode == 0 and done.stdout == "cat: 1\n", (done.stdout, done.stderr)
    assert (tmp_path / "shown").read_bytes() == DATA.tobytes() and (tmp_path / "hidden").read_bytes() == b""


# When it ends


def test_what_libhdf5_breaks_does_no_harm_at_the_end(mounts, tmp_path):
    """Its own end is not waited for, when all is written; but in programs that use the library."""
    library = BUILD / "tests/mount/libexit_of_hdf5.so"
    if "libasan" in subprocess.run(["ldd", SPARSEFS], capture_output=True, text=True, check=True).stdout:
        pytest.skip("nothing can be preloaded into a build with sanitizers")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        f["d"] = DATA
    environment = {"LD_PRELOAD": str(library)}
    for options in ("rw", "rw,hdf5=inside", "ro", "ro,hdf5=inside"):
        mount = mounts(path, options, environment=environment)
        if options.startswith("rw"):
            with open(mount / "d/frames/0.raw", "r+b") as frame:
                frame.write(DATA[1].tobytes())
        mount.unmount()
    with h5py.File(path) as f:
        assert np.array_equal(f["d"][0], DATA[1])
    subprocess.run([BUILD / "sparsectl", "repack", path, tmp_path / "y.h5"], check=True, timeout=60,
                   env=os.environ | environment)
    with h5py.File(tmp_path / "y.h5") as f:
        assert np.array_equal(f["d"][0], DATA[1])
    example = subprocess.run([BUILD / "docs/examples/example_write_read"], capture_output=True, timeout=60,
                             cwd=tmp_path,
                             env=os.environ | environment)
    assert example.returncode == -6, example
