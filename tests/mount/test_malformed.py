"""A sample of the malformed files of tests/malformed, mounted for reading and for writing: none ends the daemon or
hangs it, takes more than the limits, or harms the dataset beside. docs/testing.md has the command
that tries all of them."""
import concurrent.futures
import itertools
import sys

import pytest

from conftest import TOP

sys.path.insert(0, str(TOP / "tests/malformed"))
import drive  # noqa: E402
import make  # noqa: E402
import rare  # noqa: E402

FILES, FILES_TOGETHER, TOGETHER = 20, 160, 40
JOBS = 2


def tried(jobs, how=drive.try_file):
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        results = itertools.chain.from_iterable(pool.map(how, jobs))
        return {name: findings for name, findings, _ in results if findings}


def sample(tmp_path, count):
    """Spread evenly over all; and those that were made by hand."""
    files = list(make.variants(tmp_path))
    chosen = files[::-(-len(files) // count)] + [file for file in files if file[0].startswith("known-")]
    return [(name, content(), harmless) for name, content, harmless in chosen]


@pytest.mark.parametrize("mode", ["ro", "default"])
def test_sample(tmp_path, mode):
    assert not tried(([file], mode, turn, None) for turn, file in enumerate(sample(tmp_path, FILES)))


@pytest.mark.parametrize("mode", ["ro", "default"])
def test_sample_in_folders(tmp_path, mode):
    files = sample(tmp_path, FILES_TOGETHER)
    jobs = [(files[i:i + TOGETHER], mode, None, None) for i in range(0, len(files), TOGETHER)]
    assert len(jobs) > 3 and not tried(jobs, drive.try_together)


@pytest.mark.parametrize("mode", ["ro", "default"])
def test_sound_files_are_what_they_are_taken_for(tmp_path, mode):
    """The driver finds nothing in what nothing is wrong with, and something where there is."""
    sound = [(name, content, True) for name, content, before in make.sound_files(tmp_path) if before]
    assert len(sound) == 12 + len(rare.PARTS) + make.HAS_PAGES
    assert not tried(([file], mode, turn, None) for turn, file in enumerate(sound))
    name, content, _ = sound[0]
    wrong = content.replace(make.BESIDE.tobytes(), bytes(make.BESIDE.nbytes))
    assert wrong != content
    found = tried([([(name, wrong, True)], mode, None, None)])
    assert found == {name: ["the dataset beside: False"]}
    assert tried([([(name, b"", True)], mode, None, None)])[name]
    together = [*sound, ("other", wrong, True)]
    assert tried([(together, mode, None, None)], drive.try_together) == {"other": ["the dataset beside: False"]}


@pytest.mark.parametrize("name", ["layouts_new", "layouts_old"])
def test_checksums_are_made_right_again(tmp_path, name):
    """A changed field is what is wrong, not the checksum that no longer fits: rewriting what stands
    there changes nothing."""
    for stem, content, before in make.sound_files(tmp_path):
        if stem != name:
            continue
        summed = 0
        for structure in make.structures(content, make.objects(tmp_path / f"{name}.h5")):
            for at, size, _ in structure.fields[:2]:
                assert make.with_value(content, structure, at, size, make.u(content, at, size)) == content
            summed += structure.summed
        assert (summed > 8) == (name == "layouts_new") and before


def test_every_structure_is_there(tmp_path):
    """Of each kind at least one whose checksum is made right again, and the messages and B-trees of all kinds."""
    summed, kinds, trees, messages = set(), set(), set(), set()
    for stem, content, before in make.sound_files(tmp_path):
        for structure in make.structures(content, make.objects(tmp_path / f"{stem}.h5") if before else []):
            kinds.add(structure.kind)
            summed |= {structure.kind} if structure.summed else set()
            messages |= set(structure.messages)
        trees |= {content[start + 5] for start in make.find_all(content, b"BTHD")}
    signatures = {signature.decode() for signature in make.FIELDS}
    assert kinds >= signatures | {"header", "OHDR", "OCHK", *(f"superblock{version}" for version in range(4))}
    assert summed >= {kind for kind in signatures if kind.encode() not in make.WITHOUT_CHECKSUM}
    assert trees >= {1, 2, 5, 6, 7, 8, 9, 10, 11}
    assert messages >= {0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 15, 16, 21, 22}, messages
