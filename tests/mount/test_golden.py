"""Files that releases have written, tests/golden/VERSION, are read and written by this one. How they were
made: `tests/machines/files make DIRECTORY BUILD`."""
import subprocess
import sys

import pytest

from conftest import BUILD, TOP

GOLDEN = sorted((TOP / "tests/golden").iterdir())


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_files_of_a_release(folder):
    subprocess.run([sys.executable, TOP / "tests/machines/files", "check", folder, BUILD], check=True,
                   stdout=subprocess.DEVNULL)
