"""What a file is made of comes to libhdf5 in its own processes only: confined_hdf5.c ends every other
that asks it for something."""
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from conftest import BUILD, TOP

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
    assert "could not be confined; root needs CAP_SETUID and CAP_SETGID" in found.stderr
