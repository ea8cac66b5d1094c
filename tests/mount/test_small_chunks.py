"""Many small chunks: how often the system is asked to store them, told by the kernel's counters."""
import os
import pathlib
import subprocess

import h5py
import numpy as np
import pytest

from conftest import BUILD

N = 3200


def writes(mount):
    """Calls of write(2) and the like that the daemon has made."""
    lines = pathlib.Path(f"/proc/{mount.process.pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["syscw"])


def make(path, kind, chunk):
    if kind.startswith("sparse"):
        filters = ["--filter", "values:deflate=1"] if kind == "sparse-gzip" else []
        subprocess.run([BUILD / "sparsectl", "create", "--dims", str(N), "--chunk", str(chunk), "--dtype", "<u2",
                        *filters, path, "d"], check=True)
        return
    libver = "earliest" if kind == "old" else "latest"
    with h5py.File(path, "w", libver=libver) as f:
        f.create_dataset("d", (N,), "<u2", chunks=(chunk,), compression=1 if kind == "gzip" else None)


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("kind", ["plain", "old", "gzip", "sparse", "sparse-gzip"])
def test_they_are_stored_together(mounts, tmp_path, kind, chunk):
    """Written, written over with others of the same and of other sizes, each time all with one fsync. Sparse
    ones go one by one, so that blocks of their index do not come to lie behind all of them."""
    path = tmp_path / "x.h5"
    make(path, kind, chunk)
    mount = mounts(path, "rw", "commit_interval=0")
    fd = os.open(mount / "d/stack.raw", os.O_WRONLY)
    model = np.zeros(N, "<u2")
    random = np.random.default_rng(5)
    for round in range(3):
        first, last = (0, N) if round < 2 else sorted(random.integers(0, N, 2))
        model[first:last] = random.integers(1, 60000, last - first)
        os.pwrite(fd, model[first:last].tobytes(), 2 * int(first))
        before = writes(mount)
        os.fsync(fd)
        assert kind.startswith("sparse") or writes(mount) - before < N // chunk // 4
        assert (mount / "d/stack.raw").read_bytes() == model.tobytes()
    os.close(fd)
    mount.unmount()
    if not kind.startswith("sparse"):
        with h5py.File(path) as f:
            assert np.array_equal(f["d"][()], model)
    check = subprocess.run([BUILD / "sparsectl", "check", path], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout + check.stderr
    again = mounts(path)
    assert (again / "d/stack.raw").read_bytes() == model.tobytes()
