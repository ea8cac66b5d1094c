"""What a file is made of comes to libhdf5 in its own processes only: confined_hdf5.c ends every other
that asks it for something."""
import ctypes
import errno
import os
import struct
import subprocess
import sys

import h5py
import numpy as np
import pytest

from conftest import BUILD, TOP
from test_worker import has_filter

sys.path.insert(0, str(TOP / "tests/malformed"))
import drive  # noqa: E402
import make  # noqa: E402

CONFINED = {"LD_PRELOAD": str(BUILD / "tests/mount/libconfined_hdf5.so"),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
COMMANDS = [("info",), ("info", "--json"), ("check",), ("image",), ("dump", "--frame=0")]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Every layout, index, filter, attribute, kind of group and datatype; virtual and external ones."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "raw.bin").write_bytes(bytes(20))
    paths = []
    for name, content, _ in make.sound_files(folder):
        path = folder / f"sound_{name}.h5"
        path.write_bytes(content)
        paths.append(path)
    path = folder / "virtual.h5"
    layout = h5py.VirtualLayout((2, 6, 10), "<u2")
    with h5py.File(folder / "source.h5", "w") as file:
        file["data"] = np.ones((2, 6, 10), "<u2")
    layout[:] = h5py.VirtualSource(str(folder / "source.h5"), "data", (2, 6, 10))
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("virtual", layout)
        file["link"] = h5py.ExternalLink("source.h5", "/data")
    return [*paths, path]


@pytest.mark.parametrize("mode", [("ro",), ("follow",), ("rw",)], ids="-".join)
def test_nothing_of_a_file_comes_to_libhdf5_in_the_daemon(mounts, files, mode):
    for path in files:
        mount = mounts(path, *mode, environment=CONFINED, expect_log=True)
        seen = drive.visit(mount.root, True, "rw" in mode)
        assert seen["datasets"] or seen["beside"] is True, path
        assert mount.process.poll() is None, mount.log()
        mount.unmount()
        assert " in sparsefs" not in mount.log()


def sparsectl(command, *paths):
    with subprocess.Popen([BUILD / "sparsectl", *command, *paths], env=os.environ | CONFINED,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        return process.communicate()[1], process.returncode


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "".join(command))
def test_nothing_of_a_file_comes_to_libhdf5_in_commands_that_only_read(files, command):
    for path in files:
        name = "virtual" if path.stem == "virtual" else "beside"
        errors, code = sparsectl(command, f"{path}:/{name}" if command[0] == "dump" else path)
        assert code in (0, 1) and " in sparsectl" not in errors, (path, errors)


def commands_that_copy(path, folder):
    """With their files: everything of a file, and one dataset of it to and fro."""
    name = "virtual" if path.stem == "virtual" else "beside"
    back = folder / "sparse.h5"
    return [("import", f"{path}:/{name}", back), ("import", "--undefined=1", f"{path}:/{name}", folder / "other.h5"),
            ("import", "--all", "--fast", path, folder / "all.h5"), ("export", f"{back}:/{name}", folder / "dense.h5"),
            ("import", f"{back}:/{name}", f"{back}:/again"),
            ("repack", path, folder / "packed.h5"), ("repack", back, folder / "packed_sparse.h5"),
            ("create", "--template", path, "--dims=4,5", "--dtype=u2", "--fill=3", folder / "made.h5", "/made"),
            ("create", "--dims=4,5", "--dtype=u2", back, "/made")]


def test_nothing_of_a_file_comes_to_libhdf5_in_commands_that_copy(files, tmp_path):
    done, some = 0, [*files[:-1:3], files[-1]]
    for path in some:
        folder = tmp_path / path.stem
        folder.mkdir()
        for command in commands_that_copy(path, folder):
            errors, code = sparsectl(command)
            assert code in (0, 1) and " in sparsectl" not in errors, (command, errors)
            done += code == 0
            if code == 0 and os.path.exists(str(command[-1])):
                assert sparsectl(("check",), command[-1])[1] == 0, command
    assert done > 4 * len(some)  # what cannot be copied is refused; most can


def test_that_would_be_found(run, files, tmp_path):
    folder = tmp_path / "mnt"
    folder.mkdir()
    answer = run("-o", "ro,hdf5=inside", files[0], folder, env=os.environ | CONFINED)
    assert "H5Fopen in sparsefs" in answer.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("capability", ["setuid", "setgid"])
def test_a_root_that_may_not_become_another_user_is_told(files, capability):
    command = ["setpriv", "--bounding-set", f"-{capability}", BUILD / "sparsectl", "info", files[0]]
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert found.returncode != 0 and found.stdout == ""
    assert "could not be confined; for it root needs CAP_SETUID and CAP_SETGID" in found.stderr


SYSTEM_CALLS = {"x86_64": (317, 157), "aarch64": (277, 167)}.get(os.uname().machine)  # seccomp, prctl


def forbid_seccomp(by_prctl=True):
    """As containers may, and what does the same by prctl(2)."""
    load, is_equal, answer = 0x20, 0x15, 0x06
    allow, refuse = 0x7fff0000, 0x00050000 | errno.EPERM
    seccomp, prctl = SYSTEM_CALLS
    number = 22 if by_prctl else 2**32 - 1
    steps = [(load, 0, 0, 0), (is_equal, 3, 0, seccomp), (is_equal, 0, 3, prctl), (load, 0, 0, 16),
             (is_equal, 0, 1, number), (answer, 0, 0, refuse), (answer, 0, 0, allow)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    filters = struct.pack("@HP", len(steps), ctypes.addressof(program))
    assert libc.prctl(22, 2, filters) == 0  # PR_SET_SECCOMP


@pytest.mark.skipif(not has_filter() or not SYSTEM_CALLS, reason="built without libseccomp, or another machine")
@pytest.mark.parametrize("command, code", [(["info"], 1), (["check"], 2)], ids=["info", "check"])
def test_who_may_not_confine_it_is_told(files, command, code):
    """At once, also of a file for which it would not be started yet."""
    found = subprocess.run([BUILD / "sparsectl", *command, files[0]], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, check=False, preexec_fn=forbid_seccomp)
    assert found.returncode == code and found.stdout == ""
    assert "could not be confined; for it" in found.stderr and "seccomp(2)" in found.stderr


@pytest.mark.skipif(not has_filter() or not SYSTEM_CALLS, reason="built without libseccomp, or another machine")
def test_it_is_confined_by_prctl(tmp_path):
    """Where seccomp(2) is forbidden, and prctl(2) is not."""
    subprocess.run([BUILD / "sparsectl", "create", tmp_path / "new.h5", "/d", "--dims", "5", "--dtype", "uint8"],
                   check=True, preexec_fn=lambda: forbid_seccomp(by_prctl=False))
