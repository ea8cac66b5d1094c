"""A file that one program writes is refused to others, with words that say why: by sparsectl, h5py
and the HDF5 tools; and a file that others read is refused to a writer."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import h5py
import numpy as np
import pytest

from test_sparsectl import BUILD, FAILED, SPARSECTL, done, failed, make, run

WRITER = BUILD / "tests/crash/writer"
SPARSEFS = BUILD / "sparsefs"
UMOUNT = BUILD / "mount-helpers/umount.sparsefs"
WRITTEN = "another program has it open for writing"
OPEN = "another program has it open"


def wait_until_stopped(pid):
    """All threads: they do not stop at once."""
    def state(thread):
        return (thread / "stat").read_text().rsplit(")", 1)[1].split()[0]
    while any(state(thread) != "T" for thread in pathlib.Path(f"/proc/{pid}/task").iterdir()):
        time.sleep(0.001)


@pytest.fixture
def written(tmp_path):
    """A file that a process has open for writing, and goes on writing."""
    path = tmp_path / "a.h5"
    process = subprocess.Popen([WRITER, "write", path, "2"], stdout=subprocess.PIPE)
    for _ in range(3):
        process.stdout.readline()
    process.stdout.close()  # the next line ends the writer: nobody reads it
    process.wait()
    process = subprocess.Popen([WRITER, "write", path, "2"], stdout=subprocess.PIPE)
    process.stdout.readline()
    process.send_signal(signal.SIGSTOP)  # it has the file open, and does nothing
    wait_until_stopped(process.pid)
    yield path
    process.kill()
    process.wait()
    process.stdout.close()


def test_reading_commands_work_beside_the_writer(written):
    for command in (["info", written], ["dump", f"{written}:/t0/rows"], ["check", written],
                    ["export", f"{written}:/t0/rows", f"{written.with_name('b.h5')}:/rows"],
                    ["repack", written, written.with_name("c.h5")]):
        done(*command)
    done("check", written.with_name("c.h5"))


def test_writing_commands_are_refused(written, tmp_path):
    dense = make(tmp_path / "dense.h5", x=np.eye(4))
    for command in (["create", written, "/d", "--dims", "3", "--dtype", "u1"],
                    ["import", dense, written], ["recover", written]):
        result = failed(*command, says=f"{OPEN}: writer (process ")
        assert WRITTEN not in result.stderr  # it may be a reader


def test_h5py_is_refused(written):
    for mode in ("r", "r+", "a", "w"):
        # Refused, h5py 2 tries to create a file for "a", and tells that error.
        with pytest.raises(OSError, match="lock|File exists" if mode == "a" else "lock"):
            h5py.File(written, mode)


@pytest.mark.parametrize("tool", ["h5dump", "h5ls", "h5stat"])
def test_tools_are_refused(written, tool):
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    result = subprocess.run([tool, written], capture_output=True, text=True)
    assert result.returncode != 0
    assert "unable to open file" in result.stdout + result.stderr


def test_without_locks_nobody_is_refused(written):
    """HDF5_USE_FILE_LOCKING is libhdf5's, and means the same here. What is read then is the last
    committed state, as long as no commit goes on."""
    unlocked = os.environ | {"HDF5_USE_FILE_LOCKING": "FALSE"}
    arguments = ("create", written, "/d", "--dims", "3", "--dtype", "u1")
    for setting in ("TRUE", "BEST_EFFORT"):
        result = run(*arguments, env=os.environ | {"HDF5_USE_FILE_LOCKING": setting})
        assert result.returncode == FAILED and OPEN in result.stderr
    assert "/t0/rows" in run("info", written, env=unlocked).stdout
    assert subprocess.run(["h5ls", written], env=unlocked).returncode == 0


def test_readers_keep_a_writer_out(tmp_path):
    path = make(tmp_path / "a.h5", x=np.eye(4))
    with h5py.File(path, "r"):
        failed("create", path, "/d", "--dims", "3", "--dtype", "u1", says=OPEN)
        failed("recover", path, says=OPEN)
        assert "sound" in done("check", path)
    done("create", path, "/d", "--dims", "3", "--dtype", "u1")


def test_a_mount_is_named(tmp_path):
    """What has the file open, and where it can be unmounted."""
    path, folder = make(tmp_path / "a.h5", x=np.eye(4)), tmp_path / "a mount"
    folder.mkdir()
    for option in "rw", "ro":
        started = subprocess.run([SPARSEFS, "-o", option, path, folder], capture_output=True, text=True)
        if started.returncode != 0 and "fuse" in started.stderr:
            pytest.skip("no FUSE here: " + started.stderr)
        try:
            pid = (folder / ".sparsefs/pid").read_text().strip()
            failed("recover", path, says=f"{OPEN}: sparsefs (process {pid}), mounted at {folder}")
        finally:
            subprocess.run([UMOUNT, folder], check=True,
                           env={**os.environ, "PATH": f"{BUILD.absolute()}:{os.environ['PATH']}"})
    done("recover", path)


def test_writers_of_h5py_are_respected(tmp_path):
    path = make(tmp_path / "a.h5", x=np.eye(4))
    with h5py.File(path, "a"):
        failed("info", path, says="open for writing")
        failed("create", path, "/d", "--dims", "3", "--dtype", "u1", says=OPEN)
