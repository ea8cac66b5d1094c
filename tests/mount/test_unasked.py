"""What the kernel asks nobody for permission for: in a mount for others it tells nothing of a file to who may not read
it, and does not have it opened and locked."""
import ast
import errno
import json
import os
import subprocess
import sys

import h5py
import pytest

from conftest import let_in
from test_neighbours import DAEMON, NOBODY
from test_owners import DATA, USER, as_user

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has two users")

NAMES = ["user.title"]
FILE_GETATTR = 468  # the system call, of Linux 6.17

CALLS = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def file_getattr(at):
    if libc.syscall(%d, -100, os.fsencode(at), ctypes.create_string_buffer(64), 24, 0) < 0:
        raise OSError(ctypes.get_errno(), "")
def number(action, *arguments):
    try:
        found = action(*arguments)
        return 0 if found is None else found
    except OSError as e:
        return e.errno
""" % FILE_GETATTR


def python(script, user, groups=()):
    return subprocess.Popen([sys.executable, "-c", CALLS + script], user=user, group=user, extra_groups=list(groups),
                            cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def result(script, user):
    with python(script, user) as caller:
        text = caller.communicate()[0]
    assert caller.returncode == 0
    return ast.literal_eval(text)


def listed_by(callers, paths):
    """What listxattr(2) says of each path to each caller, a user and his groups: names, or an errno."""
    script = f"""
for user, groups in {callers!r}:
    if os.fork() == 0:
        os.setgroups(groups)
        os.setgid(user)
        os.setuid(user)
        print([number(os.listxattr, path) for path in {[str(path) for path in paths]!r}], end=",", flush=True)
        os._exit(0)
    os.wait()
"""
    return list(result(f"print('[', end='', flush=True){script}print(']')", 0))


def make_file(path, bits):
    with h5py.File(path, "w") as f:
        f["d"] = DATA
        for thing in f, f["d"], f.create_group("g"):
            thing.attrs["title"] = "secret"
    os.chown(path, USER, DAEMON)
    os.chmod(path, bits)
    return path


def opened(mount):
    return json.loads((mount / ".sparsefs/stats.json").read_text())["files_opened"]


@pytest.fixture
def folder(tmp_path):
    let_in(tmp_path)
    path = tmp_path / "in"
    path.mkdir()
    return path


MANY = list(range(70000, 70100))


@pytest.mark.parametrize("what, options", [("file", "default"), ("folder", "default"), ("folder", "follow=0.2"),
                                           ("folder", "umask=022")])
def test_names_of_attributes(mounts, folder, what, options):
    """They are told to those whom the mode that is shown lets read; others have none, and do not come further."""
    callers = [(USER, []), (USER, [DAEMON]), (DAEMON, []), (NOBODY, [DAEMON]), (NOBODY, [*MANY, DAEMON]), (NOBODY, []),
               (NOBODY, MANY), (0, [])]
    who = {0o640: "11111001", 0o604: "11000111", 0o004: "00000111"}
    if options == "umask=022":
        who = {0o600: "11111111"}
    files = {bits: make_file(folder / f"{bits:o}.h5", bits) for bits in who}
    mounted = {path: mounts(path, options, "allow_other", expect_log=True) for path in
               (files.values() if what == "file" else [folder])}
    for bits, path in files.items():
        root = mounted[path].root if what == "file" else mounted[folder] / path.name
        within = [root / name for name in ("d", "g", "d/stack.raw")]
        expected = [[NAMES, NAMES, NAMES, []] if may == "1" else [[]] + [errno.EACCES] * 3 for may in who[bits]]
        for _ in range(2):  # it is open then
            assert listed_by(callers, [root, *within]) == expected, f"{bits:o}"


def test_who_is_capable_of_reading_all(mounts, folder):
    """As the program that makes backups; but not by what anybody may do in a user namespace of his own."""
    make_file(folder / "x.h5", 0o600)
    mount = mounts(folder, "allow_other", expect_log=True)
    root = mount / "x.h5"
    script = f"import os; print(os.listxattr('{root}'), os.listdir('{root}'))"
    given = subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                            "--inh-caps=+dac_override", "--ambient-caps=+dac_override", sys.executable, "-c",
                            script], capture_output=True, text=True, cwd="/", timeout=60)
    assert given.stdout == f"{NAMES} ['d', 'g']\n", given.stderr
    taken = as_user(f"cd / && unshare -U -r {sys.executable} -c \"import os; print(os.listxattr('{root}'))\"", NOBODY)
    assert taken.stdout == "[]\n", taken


@pytest.mark.parametrize("options", ["default", "ro"])
def test_nothing_is_opened_for_who_may_not_read(mounts, folder, options):
    calls = {"os.listxattr, at": [], "os.chown, at, -1, -1": 0,
             "os.setxattr, at, 'system.x', b'1'": errno.EOPNOTSUPP, "os.removexattr, at, 'system.x'": errno.ENODATA,
             "os.getxattr, at, 'system.x'": errno.ENODATA, "os.getxattr, at, 'security.x'": errno.ENODATA,
             "os.getxattr, at, 'user.title'": errno.EACCES, "os.listdir, at": errno.EACCES,
             "os.access, at, os.R_OK": False, "os.stat, at + '/d'": errno.EACCES, "os.readlink, at": errno.EINVAL,
             "file_getattr, at": errno.EACCES}
    if options == "ro":
        calls |= {call: errno.EROFS for call in calls if call.startswith(("os.chown", "os.set", "os.remove"))}
    make_file(folder / "x.h5", 0o600)
    mount = mounts(folder, options, "allow_other", expect_log=True)
    root = mount / "x.h5"
    script = f"at = '{root}'\nprint([{', '.join(f'number({call})' for call in calls)}])"
    done = dict(zip(calls, result(script, NOBODY)))
    if done["file_getattr, at"] == errno.ENOSYS:
        del done["file_getattr, at"], calls["file_getattr, at"]
    assert done == calls
    assert opened(mount) == 0
    listed = as_user(f"cd {mount.root} && ls -l && ls -ld x.h5", NOBODY)
    assert listed.returncode == 0 and listed.stderr == "" and listed.stdout.count("x.h5") == 2
    assert opened(mount) == 0
    copied = as_user(f"ls -lR {root} && cd $(mktemp -d) && cp -a {root}/g . && rm -r $PWD", USER)
    assert copied.returncode == 0 and copied.stderr == ""
    assert opened(mount) == 1


def test_who_stands_in_a_file_that_is_closed_to_him(mounts, folder):
    """He keeps descriptors, by which he has it opened no more than by its name."""
    make_file(folder / "x.h5", 0o644)
    make_file(folder / "y.h5", 0o600)
    mount = mounts(folder, "default", "allow_other", "max_open=1", expect_log=True)
    at = mount / "x.h5"
    script = f"""
os.chdir('{at}/g')
fd = os.open('{at}/d/frames/0.raw', os.O_PATH)
for line in sys.stdin:
    print([number(lambda: os.fstat(fd).st_size), number(os.stat, 'x'), number(os.listxattr, '.'),
           number(os.listxattr, f'/proc/self/fd/{{fd}}')], flush=True)
"""
    with python(script, NOBODY) as standing:
        def ask():
            standing.stdin.write("\n")
            standing.stdin.flush()
            return standing.stdout.readline()
        assert ask() == f"[{DATA[0].nbytes}, {errno.ENOENT}, {NAMES}, []]\n"
        os.chmod(folder / "x.h5", 0o600)
        os.listdir(mount / "x.h5")
        assert f", {errno.EACCES}, []]" in ask()  # also while it is open for others
        os.listdir(mount / "y.h5/d")
        before = opened(mount)
        assert f", {errno.EACCES}, []]" in ask()
        assert opened(mount) == before
        standing.stdin.close()
    assert os.listxattr(mount / "x.h5/g") == NAMES


def test_names_of_what_is_open_and_was_renamed_or_removed(mounts, folder):
    """Who has it open goes on in it, and sees what his rights let him, as before."""
    make_file(folder / "x.h5", 0o640)
    mount = mounts(folder, "default", "allow_other", expect_log=True)
    at = mount / "x.h5"
    script = f"""
os.chdir('{at}/g')
fd = os.open('{at}', os.O_RDONLY)
for line in sys.stdin:
    print([number(os.listxattr, '.'), number(os.listxattr, fd), number(os.getxattr, '.', 'user.title')], flush=True)
"""
    with python(script, USER) as inside, python(f"os.chdir('{mount.root}')\nat = os.open('x.h5', os.O_PATH)\n"
                                                "for line in sys.stdin:\n"
                                                "    print(number(os.listxattr, f'/proc/self/fd/{at}'), flush=True)",
                                                NOBODY) as outside:
        def ask(who):
            who.stdin.write("\n")
            who.stdin.flush()
            return ast.literal_eval(who.stdout.readline())
        assert ask(inside) == [NAMES, NAMES, b"secret"] and ask(outside) == []
        os.rename(folder / "x.h5", folder / "y.h5")
        assert ask(inside) == [NAMES, NAMES, b"secret"] and ask(outside) == []
        os.unlink(folder / "y.h5")
        assert ask(inside) == [NAMES, NAMES, b"secret"] and ask(outside) == []
