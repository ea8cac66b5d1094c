"""sparsectl create --template: a new file that begins as a copy of another."""
import os

import h5py
import numpy as np
import pytest

from test_sparsectl import done, failed, info

DATASET = ["/entry/data", "--dims", "4,8,8", "--dtype", "uint16"]


@pytest.fixture(params=[("earliest", 0), ("latest", 0), ("latest", 1024)], ids=str)
def template(request, tmp_path):
    path = tmp_path / "template.h5"
    libver, user_block = request.param
    with h5py.File(path, "w", libver=libver, userblock_size=user_block) as file:
        file.attrs["facility"] = "somewhere"
        file.create_group("entry/instrument").attrs["wavelength"] = 0.98
        file["entry/mask"] = np.arange(64).reshape(8, 8)
        file["entry/alias"] = h5py.SoftLink("/entry/mask")
    done("create", path, "/entry/sparse", "--dims", "3,5", "--dtype", "int8")
    return path


def test_everything_of_the_template_is_there(template, tmp_path):
    before, new = template.read_bytes(), tmp_path / "new.h5"
    done("create", "--template", template, new, *DATASET, "--filter", "values:deflate=1")
    assert template.read_bytes() == before
    done("check", new)
    with h5py.File(new) as file:
        assert file.attrs["facility"] == "somewhere"
        assert file["entry/instrument"].attrs["wavelength"] == 0.98
        assert (file["entry/alias"][...] == np.arange(64).reshape(8, 8)).all()
        assert set(file["entry"]) == {"alias", "data", "instrument", "mask", "sparse"}
    for dataset, dims in (("data", [4, 8, 8]), ("sparse", [3, 5])):
        assert info(f"{new}:/entry/{dataset}")["datasets"][0]["dims"] == dims
    # It is a file like any other.
    done("create", new, "/more", "--dims", "3", "--dtype", "u1")
    done("check", new)


def test_a_file_that_is_there_is_left_alone(template, tmp_path):
    new = tmp_path / "new.h5"
    new.write_text("precious")
    failed("create", "--template", template, new, *DATASET, says="already")
    assert new.read_text() == "precious"


def test_what_fails_leaves_nothing(template, tmp_path):
    new = tmp_path / "new.h5"
    missing, noise = tmp_path / "missing.h5", tmp_path / "noise.h5"
    noise.write_text("no HDF5")
    failed("create", "--template", missing, new, *DATASET, says="missing.h5")
    failed("create", "--template", noise, new, *DATASET, says="noise.h5")
    failed("create", "--template", template, new, "/entry/mask", *DATASET[1:], says="mask")
    failed("create", "--template", template, tmp_path / "no/new.h5", *DATASET, says="no/new.h5")
    assert sorted(os.listdir(tmp_path)) == ["noise.h5", "template.h5"]
