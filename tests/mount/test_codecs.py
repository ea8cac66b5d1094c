"""Dense datasets whose filters are plugins elsewhere, mounted where there is no plugin at all."""
import json
import os
import subprocess

import h5py
import numpy as np
import pytest

import files
from conftest import BUILD

FRAMES, ROWS, COLUMNS = 5, 70, 60
FILTERS = ["lzf", "bitshuffle"] + [
    name for library, names in {"LZ4": ["bitshuffle=lz4", "lz4"], "ZSTD": ["bitshuffle=zstd", "zstd"],
                                "BLOSC": ["blosc=lz4:5"], "BLOSC2": ["blosc2=zstd:1"],
                                "BZIP2": ["bzip2"], "SZIP": ["szip"]}.items()
    if f"#define HAVE_{library} 1\n" in (BUILD / "config.h").read_text() for name in names]


NO_PLUGINS = {"HDF5_PLUGIN_PATH": "/nowhere"}


def sparsectl(*arguments):
    subprocess.run([BUILD / "sparsectl", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL,
                   env=os.environ | NO_PLUGINS)


def make(path, name, chunks=(1, ROWS, COLUMNS)):
    """The elements that are in a new file with the dataset /d."""
    data = np.random.default_rng(4).poisson(0.5, (FRAMES, ROWS, COLUMNS)).astype("<u4")
    data[:, 10:20] = 0xFFFFFFFF
    plain = path.with_suffix(".plain.h5")
    with h5py.File(plain, "w") as file:
        file.create_dataset("d", data=data, chunks=chunks)
    sparsectl("export", "--filter", name, "--filter", "fletcher32", plain, path)
    return data


@pytest.mark.parametrize("name", FILTERS)
def test_they_have_names(tmp_path, name):
    """Also in sections, where the file has no name of them."""
    path, kind = tmp_path / "sparse.h5", name.partition("=")[0]
    sparsectl("create", path, "/d", "--dims=4,64,64", "--dtype=<u4", "--filter",
              f"values:{name}", "--filter", f"selection:{name}")
    described = json.loads(subprocess.run([BUILD / "sparsectl", "info", "--json", f"{path}:/d"], check=True, text=True,
                                          stdout=subprocess.PIPE).stdout)
    text = json.dumps(described)
    assert text.count(f'"name": "{kind}"') == 2, text


@pytest.mark.parametrize("chunks", [(1, ROWS, COLUMNS), (2, 32, 32)], ids=["frames", "tiles"])
@pytest.mark.parametrize("name", FILTERS)
def test_reading_and_writing(mounts, tmp_path, name, chunks):
    path = tmp_path / "dense.h5"
    data = make(path, name, chunks)
    noise = np.random.default_rng(5).integers(0, 1 << 32, (ROWS, COLUMNS), "<u4")
    mount = mounts(path, "rw", environment=NO_PLUGINS)
    assert (mount / "d/stack.raw").read_bytes() == data.tobytes()
    assert "missing_filter" not in json.loads((mount / "d/dataset.json").read_text())
    (mount / "d/raw/000003.raw").write_bytes(noise.tobytes())
    with open(mount / "d/raw/000001.raw", "r+b") as file:
        file.seek(400)
        file.write(b"\1\2\3\4" * 30)
    data[3] = noise
    data[1].reshape(-1)[100:130] = 0x04030201
    mount.unmount()
    again = mounts(path, environment=NO_PLUGINS)
    assert (again / "d/stack.raw").read_bytes() == data.tobytes()
    again.unmount()
    sparsectl("check", path)


@pytest.mark.parametrize("name", FILTERS)
def test_sources_of_a_virtual_dataset(mounts, tmp_path, name):
    """libhdf5 reads them, by our filters."""
    data = make(tmp_path / "source.h5", name)
    layout = h5py.VirtualLayout((FRAMES, ROWS, COLUMNS), "<u4")
    layout[:] = h5py.VirtualSource("source.h5", "d", (FRAMES, ROWS, COLUMNS))
    with h5py.File(tmp_path / "master.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout)
    mount = mounts(tmp_path / "master.h5", environment=NO_PLUGINS)
    assert (mount / "v/stack.raw").read_bytes() == data.tobytes()


@pytest.mark.parametrize("name", FILTERS)
def test_damage_hides_nothing_else(mounts, tmp_path, name):
    path = tmp_path / "dense.h5"
    data = make(path, name)
    with h5py.File(path) as file:
        chunk = files.stored_chunks(file["d"])[2]
    with open(path, "r+b") as file:
        file.seek(chunk.byte_offset + chunk.size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x55]))
    mount = mounts(path, environment=NO_PLUGINS, expect_log=True)
    with pytest.raises(OSError, match="Input/output error"):
        (mount / "d/raw/000002.raw").read_bytes()
    assert "damaged" in mount.log()
    assert (mount / "d/raw/000003.raw").read_bytes() == data[3].tobytes()
