"""What a test has written is read again, by readers that share no code with src/."""
import pytest

import keep_memory  # noqa: F401


@pytest.fixture(autouse=True)
def every_file_is_read_again(tmp_path):
    yield
    import read_again  # not before: libhdf5 takes what tests/mount/conftest.py sets from the environment when it starts
    read_again.read_again(tmp_path)
