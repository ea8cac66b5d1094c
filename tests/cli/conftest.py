"""What a test has written is read again, by readers that share no code with src/."""
import pytest

import read_again


@pytest.fixture(autouse=True)
def every_file_is_read_again(tmp_path):
    yield
    read_again.read_again(tmp_path)
