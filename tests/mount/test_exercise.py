"""The exerciser (exercise.c) on files of a mount: single operations at odd places, in every order, on
one descriptor and a shared mapping. What it expects at the end is there in the next mount, too."""
import subprocess

import h5py
import numpy as np
import pytest

import model
from compare import has_no_shared_maps, selected
from conftest import BUILD

EXERCISE = BUILD / "tests/mount/exercise"
SECONDS = 300
UNKNOWN = 2  # of the states that it writes

KINDS = {kind.path: kind for kind in model.KINDS}
TWO_CHUNKS = "cache_size=64K"  # of most of the datasets; one of the others is more than that


def exercise(path, *options):
    return subprocess.run([EXERCISE, *map(str, options), path], capture_output=True, text=True,
                          timeout=SECONDS)


def passes(path, *options):
    done = exercise(path, *options)
    assert done.returncode == 0, done.stderr


def fails(path, *options, says):
    done = exercise(path, *options)
    assert done.returncode == 1, done.stderr
    assert says in done.stderr
    return done.stderr


def described(kind):
    """The options that say what the elements of a dataset are."""
    value = np.array(kind.fill, kind.dtype)
    return ["-e", value.itemsize, "-f", value.tobytes().hex(), *([] if kind.sparse else ["-D"])]


@pytest.fixture
def ordinary(tmp_path):
    path = tmp_path / "ordinary"
    path.write_bytes(np.random.default_rng(1).bytes(300_000))
    return path


@pytest.mark.parametrize("seed", range(3))
def test_ordinary_file(ordinary, tmp_path, seed):
    passes(ordinary, "-p", "-N", 2000, "-S", seed, "-o", tmp_path / "expected")
    assert ordinary.read_bytes() == (tmp_path / "expected").read_bytes()
    passes(ordinary, "-p", "-N", 500, "-S", seed, "-m", "-t")
    passes(ordinary, "-p", "-N", 500, "-S", seed, "-r")


def test_it_finds_what_is_wrong(ordinary, tmp_path):
    """An ordinary file does not keep elements whole, has holes that read as zeros, and grows."""
    says = fails(ordinary, "-p", "-e", 4, "-N", 5000, says="first difference at offset")
    assert "-S 1" in says and "\n* " in says
    fails(ordinary, "-p", "-f", "ff", "-N", 5000, says="first difference at offset")
    space = h5py.h5s.create_simple((300_000,))
    (tmp_path / "defined").write_bytes(space.encode())
    fails(ordinary, "-p", "-t", "-d", tmp_path / "defined", "-N", 5000, says="wrongly defined")
    space.select_hyperslab((10,), (1,), block=(290_000,))
    (tmp_path / "defined").write_bytes(space.encode())
    passes(ordinary, "-r", "-d", tmp_path / "defined", "-N", 500)
    fails(ordinary, "-N", 5000, "-t", says="size 0 instead of 300000")


def check_after(mount, kind, target, expected):
    """The content and what is defined, in this mount."""
    folder = mount / kind.path
    content = expected.read_bytes()
    assert (folder / target).read_bytes() == content
    states = np.fromfile(str(expected) + ".states", "u1")
    if not kind.sparse:
        return
    frames = [int(target[7:-4])] if target.startswith("frames") else range(
        kind.shape[0] if len(kind.shape) == 3 else 1)
    found = np.concatenate([selected((folder / f"frames/{i}.defined").read_bytes(), kind.shape[-2:]).ravel()
                            for i in frames])
    known = states != UNKNOWN
    assert np.array_equal(found[known], states[known] == 1)


@pytest.mark.parametrize("options", [(), ("direct_io",), (TWO_CHUNKS,), (TWO_CHUNKS, "direct_io"),
                                     ("sparsify",)], ids=lambda o: ",".join(o) or "default")
@pytest.mark.parametrize("target", ["frames/0.raw", "stack.raw"])
@pytest.mark.parametrize("path", KINDS)
def test_in_mount(mounts, tmp_path, path, target, options):
    kind = KINDS[path]
    file, expected = tmp_path / "a.h5", tmp_path / "expected"
    model.make_file(file)
    mount = mounts(file, "rw", *options)
    more = described(kind)
    selection = kind.sparse and target.startswith("frames")
    more += ["-m"] if has_no_shared_maps(mount / path / target) else []
    more += ["-s"] if "sparsify" in options and kind.sparse else []

    def defined(mount):
        return ["-d", mount / path / "frames/0.defined"] if selection else []

    for seed in range(2):
        passes(mount / path / target, *more, *defined(mount), "-N", 700, "-S", seed, "-o", expected,
               *(["-t"] if seed == 0 else []))
    mount.unmount()
    checked = subprocess.run([BUILD / "sparsectl", "check", file], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    mount = mounts(file, "ro", *(option for option in options if option != "sparsify"))
    passes(mount / path / target, *more, *defined(mount), "-r", "-N", 200)
    check_after(mount, kind, target, expected)
