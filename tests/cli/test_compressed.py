"""Files that are compressed with gzip, and standard input: whatever only reads a file reads them."""
import gzip
import os
import subprocess

import h5py
import numpy as np
import pytest

from test_sparsectl import DONE, FAILED, SECONDS, SPARSECTL, done, failed, only


@pytest.fixture
def packed(tmp_path):
    """A compressed file with a sparse dataset /s of a dense one, /d, and what /d is."""
    data = np.random.default_rng(1).poisson(0.1, (3, 40, 50)).astype("<u2")
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file.create_dataset("d", data=data, chunks=(1, 40, 50))
        file["d"].attrs["units"] = "counts"
    done("import", tmp_path / "plain.h5:/d", tmp_path / "plain.h5:/s")
    path = tmp_path / "packed.h5.gz"
    path.write_bytes(gzip.compress((tmp_path / "plain.h5").read_bytes()))
    path.chmod(0o640)
    return path, data


def piped(content, *arguments):
    result = subprocess.run([SPARSECTL, *map(str, arguments)], input=content, capture_output=True, timeout=SECONDS)
    return result.returncode, result.stdout, result.stderr.decode()


def test_commands_read_what_is_compressed(packed, tmp_path):
    path, data = packed
    plain = tmp_path / "plain.h5"
    for command in (["info", "--json"], ["info", "--chunks"], ["check"]):
        assert done(*command, path).replace(str(path), "") == done(*command, plain).replace(str(plain), "")
    assert done("dump", "--frame", "1", f"{path}:/s") == done("dump", "--frame", "1", f"{plain}:/s")

    done("import", f"{path}:/d", tmp_path / "new.h5:/x")
    assert only(tmp_path / "new.h5")["defined_elements"] == np.count_nonzero(data)
    done("export", f"{path}:/s", tmp_path / "dense.h5:/x")
    with h5py.File(tmp_path / "dense.h5") as file:
        assert np.array_equal(file["x"], data) and file["x"].attrs["units"] == "counts"
    done("repack", path, tmp_path / "again.h5")
    done("check", tmp_path / "again.h5")
    assert (tmp_path / "again.h5").stat().st_mode & 0o777 == 0o640
    done("create", "--template", path, "--dims", "4", "--dtype", "u1", tmp_path / "made.h5", "/more")
    with h5py.File(tmp_path / "made.h5") as file:
        assert np.array_equal(file["d"], data) and "more" in file
    assert piped(b"", "image", path) == (DONE, plain.read_bytes(), "")
    assert gzip.decompress(path.read_bytes()) == plain.read_bytes()


@pytest.mark.parametrize("compress", [gzip.compress, bytes], ids=["compressed", "plain"])
def test_commands_read_standard_input(packed, tmp_path, compress):
    content, data = compress((tmp_path / "plain.h5").read_bytes()), packed[1]
    assert piped(content, "check", "-")[0] == DONE
    assert piped(content, "info", "--", "-:/s")[1].startswith(b"-: ")
    assert piped(content, "export", "--", "-:/s", tmp_path / "dense.h5") == (DONE, b"", "")
    with h5py.File(tmp_path / "dense.h5") as file:
        assert np.array_equal(file["s"], data)
    assert piped(content, "repack", "-", tmp_path / "again.h5")[0] == DONE
    umask = os.umask(0)
    os.umask(umask)
    for name in ("dense.h5", "again.h5"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o666 & ~umask
    assert not list(tmp_path.glob("*.commits"))
    done("check", tmp_path / "again.h5")


def test_what_is_cut_short_or_no_hdf5(packed, tmp_path):
    path = packed[0]
    content = path.read_bytes()
    for cut in (content[:len(content) // 2], gzip.compress(b"this is no HDF5 file" * 50), gzip.compress(b"")):
        path.write_bytes(cut)
        for command in (["info"], ["repack"], ["import", "--all"]):
            failed(*command, path, *([] if command == ["info"] else [tmp_path / "new.h5"]), says=str(path))
            assert not (tmp_path / "new.h5").exists()
    assert piped(content[:100], "info", "-")[0] == FAILED


def test_nothing_is_written_to_what_is_compressed(packed, tmp_path):
    path = packed[0]
    before = path.read_bytes()
    failed("import", tmp_path / "plain.h5:/d", f"{path}:/y")
    failed("create", "--dims", "4", "--dtype", "u1", path, "/more")
    assert path.read_bytes() == before
