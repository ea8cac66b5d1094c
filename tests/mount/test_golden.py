"""Files that releases have written, tests/golden/VERSION, and those with every filter that builds on other
systems have written, tests/golden/VERSION-SYSTEM, are read and written by this one. How they were made:
`tests/machines/files make DIRECTORY BUILD`, or `codecs` instead of `make`."""
import functools
import json
import re
import subprocess
import sys
import tempfile

import pytest

from conftest import BUILD, START_SECONDS, TOP

GOLDEN = sorted((TOP / "tests/golden").iterdir())
FILTERED = [(folder, file, name) for folder in GOLDEN if (folder / "description.json").exists()
            for file, described in json.loads((folder / "description.json").read_text())["files"].items()
            for name in described["datasets"]]


@functools.lru_cache(maxsize=None)
def left_out(folder):
    """Looks at all files; what is not read, as this build lacks a filter: file, dataset and reason."""
    with tempfile.TemporaryFile("w+") as said:  # the end of a pipe might be that of a daemon that stays
        subprocess.run([sys.executable, TOP / "tests/machines/files", "check", folder, BUILD], check=True, stdout=said,
                       timeout=10 * START_SECONDS)
        said.seek(0)
        return {found.group(1, 2): found[3]
                for found in re.finditer(r"^(\S+): (\S+) is not read: (.*)", said.read(), re.M)}


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_files_of_a_release(folder):
    left_out(folder)


@pytest.mark.parametrize("folder, file, name", FILTERED, ids=lambda value: getattr(value, "name", value))
def test_filters(folder, file, name):
    """Every byte is what the description says, before and after frames are written."""
    reason = left_out(folder).get((file, name))
    if reason:
        pytest.skip(reason)
