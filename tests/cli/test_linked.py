"""Datasets that a path finds through external links, as in the master files of EIGER detectors."""
import os
import threading

import h5py
import numpy as np
import pytest

from test_sparsectl import done, failed, run

ARRAY = np.arange(4 * 6 * 5, dtype="<u2").reshape(4, 6, 5) % 3


def make(path, **links):
    with h5py.File(path, "w") as f:
        f.create_dataset("entry/data/data", data=ARRAY, chunks=(1, 6, 5), compression="gzip")
        for name, target in links.items():
            f["entry"][name] = h5py.ExternalLink(*target) if isinstance(target, tuple) else h5py.SoftLink(target)
    return path


@pytest.fixture
def master(tmp_path):
    (tmp_path / "sub").mkdir()
    make(tmp_path / "sub/far.h5")
    make(tmp_path / "near.h5", on=("sub/far.h5", "/entry/data"), within="on/data", up="/entry/data")
    path = tmp_path / "master.h5"
    with h5py.File(path, "w") as f:
        f["entry/data/data_000001"] = h5py.ExternalLink("near.h5", "/entry/data/data")
        f["entry/group"] = h5py.ExternalLink("near.h5", "entry")
        f["entry/soft"] = h5py.SoftLink("group")
        f["entry/two"] = h5py.SoftLink("/entry/soft/within")
    return path


@pytest.mark.parametrize("path, file", [
    ("/entry/data/data_000001", "near.h5"), ("/entry/group/data/data", "near.h5"),
    ("/entry/soft/data/data", "near.h5"), ("/entry//./soft/up/data", "near.h5"),
    ("/entry/group/on/data", "sub/far.h5"), ("/entry/soft/within", "sub/far.h5"), ("/entry/two", "sub/far.h5")])
def test_paths_lead_through_links(master, path, file):
    there = master.parent / file
    assert done("info", f"{master}:{path}").splitlines()[0] == f"{there}: {there.stat().st_size} bytes"
    assert done("dump", f"{master}:{path}") == done("dump", f"{there}:/entry/data/data")
    sparse, dense = master.parent / "sparse.h5", master.parent / "dense.h5"
    done("import", f"{master}:{path}", f"{sparse}:/x", "--undefined", "0")
    done("export", f"{sparse}:/x", f"{dense}:/again")
    done("export", f"{master}:{path}", f"{dense}:/right")
    with h5py.File(dense) as f:
        assert np.array_equal(f["again"][...], ARRAY) and np.array_equal(f["right"][...], ARRAY)


def test_the_copy_has_the_path_that_was_given(master, tmp_path):
    done("import", f"{master}:/entry/data/data_000001", tmp_path / "new.h5", "--undefined", "0")
    done("export", f"{master}:/entry/two", tmp_path / "new.h5")
    with h5py.File(tmp_path / "new.h5") as f:
        assert "data_000001" in f["entry/data"] and np.array_equal(f["entry/two"][...], ARRAY)


def test_into_the_file_that_a_link_leads_to(master):
    done("import", f"{master}:/entry/data/data_000001", f"{master.parent / 'near.h5'}:/sparse", "--undefined", "0")
    assert "sparse" in done("info", f"{master.parent / 'near.h5'}:/sparse")


def test_a_mask_beside_a_copy_within_the_file(master, tmp_path):
    """What was found for the source is not expected of the next file."""
    with h5py.File(tmp_path / "mask.h5", "w") as f:
        f["mask"] = np.zeros((6, 5), "<u4")
    done("import", f"{master}:/entry/data/data_000001", f"{tmp_path / 'near.h5'}:/sparse", "--above", "0",
         "--mask", f"{tmp_path / 'mask.h5'}:/mask")


def test_a_mask_behind_a_link(master, tmp_path):
    with h5py.File(tmp_path / "mask.h5", "w") as f:
        f["mask"] = (np.arange(30) % 5 == 0).astype("<u4").reshape(6, 5)
    with h5py.File(master, "r+") as f:
        f["mask"] = h5py.ExternalLink("mask.h5", "mask")
    done("import", f"{tmp_path / 'near.h5'}:/entry/data/data", f"{tmp_path / 'sparse.h5'}:/x", "--above", "0",
         "--mask", f"{master}:/mask")
    done("export", f"{tmp_path / 'sparse.h5'}:/x", f"{tmp_path / 'dense.h5'}:/x")
    with h5py.File(tmp_path / "dense.h5") as f:
        assert np.array_equal(f["x"][...], np.where(np.arange(5) % 5 == 0, 0, ARRAY))


def test_names_of_files_are_no_orders_to_a_terminal(tmp_path):
    name = "n\x1b[31mear\n\x9b.h5"
    make(tmp_path / name)
    with h5py.File(tmp_path / "master.h5", "w") as f:
        f["link"] = h5py.ExternalLink(name, "/entry/data/data")
    assert done("info", f"{tmp_path / 'master.h5'}:/link").startswith(f"{tmp_path}/n?[31mear???.h5: ")


def test_links_that_are_not_followed(master, tmp_path):
    """What is refused says which option follows it; nothing is made."""
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    make(outside / "o.h5")
    os.symlink(outside / "o.h5", tmp_path / "link.h5")
    with h5py.File(master, "r+") as f:
        f["out"] = h5py.ExternalLink(str(outside / "o.h5"), "/entry/data/data")
        f["symbolic"] = h5py.ExternalLink("link.h5", "/entry/data/data")
        f["gone"] = h5py.ExternalLink("gone.h5", "/x")
        f["nothing"] = h5py.ExternalLink("near.h5", "/nothing")
        f["round"] = h5py.ExternalLink("master.h5", "/round")
        f["soft"] = h5py.SoftLink("/soft")
        f["one"] = h5py.ExternalLink("other.h5", "/two")
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["two"] = h5py.ExternalLink("master.h5", "/one")
    for name, says in {"out": "--external-files", "symbolic": "link.h5", "gone": "gone.h5, which is not there",
                       "nothing": "there is no such dataset", "round": "master.h5", "soft": "no such dataset",
                       "one": "an external link"}.items():
        failed("import", f"{master}:/{name}", tmp_path / "new.h5", "--undefined", "0", says=says)
        assert not (tmp_path / "new.h5").exists(), name
    assert "6 x 5" in done("--external-files", outside, "info", f"{master}:/out")


def test_what_a_link_leads_to_is_not_exchanged(tmp_path):
    """A neighbour puts a symbolic link to a file elsewhere in the place of the one that was found."""
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    for path, value in ((tmp_path / "right.h5", 7), (outside / "secret.h5", 9)):
        with h5py.File(path, "w") as f:
            f["d"] = np.full((2, 3), value, "<u2")
    with h5py.File(tmp_path / "master.h5", "w") as f:
        f["link"] = h5py.ExternalLink("near.h5", "/d")
    near, there = tmp_path / "near.h5", tmp_path / "there.h5"
    os.link(tmp_path / "right.h5", near)
    stop = threading.Event()

    def exchange():
        while not stop.is_set():
            os.symlink(outside / "secret.h5", there)
            os.replace(there, near)
            os.link(tmp_path / "right.h5", there)
            os.replace(there, near)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        results = [run("dump", f"{tmp_path / 'master.h5'}:/link") for _ in range(60)]
    finally:
        stop.set()
        thread.join()
    assert not [r.stdout for r in results if ",9\n" in r.stdout]
    assert done("dump", f"{tmp_path / 'master.h5'}:/link").count(",7\n") == 6
