"""A short run of the model test (model.py) in each way of mounting; model.py itself runs for long."""
import pytest

import model

SECONDS = 5


@pytest.mark.parametrize("options", [(), ("direct_io",), ("sparsify", "cache_size=256K"),
                                     ("commit_interval=1", "threads=8")], ids=lambda o: ",".join(o) or "default")
def test_processes(tmp_path, options):
    assert model.run(tmp_path, 1, SECONDS, rounds=2, workers=4, options=options) > 100
