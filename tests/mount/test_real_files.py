"""Files of real instruments, where they are present: every byte of every view against h5py."""
import pytest

from compare import check_copies, check_mount
from conftest import real_files


@pytest.mark.parametrize("path", real_files(), ids=lambda p: p.name)
@pytest.mark.parametrize("option", ["ro", "direct_io,cache_size=1M"])
def test_real_file(mounts, path, option):
    mount = mounts(path, option)
    assert check_mount(mount.root, path) > 0


@pytest.mark.parametrize("path", real_files(), ids=lambda p: p.name)
def test_programs_that_copy(mounts, tmp_path, path):
    check_copies(mounts(path).root, tmp_path)
