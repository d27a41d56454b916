import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import strict

from minitf import backend
from minitf.checkpoint import save_arrays
from minitf.text import Words


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(params=["numpy", "strict", pytest.param("cupy", marks=pytest.mark.gpu)])
def library(request):
    """Run a test on NumPy, on the strict stand-in for GPU arrays, and on a GPU where there is one."""
    with backend.using(strict.module if request.param == "strict" else request.param):
        yield request.param


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "encoder.weight": rng.standard_normal((5, 7)).astype(np.float32),
        "encoder.bias": np.zeros(7, np.float16),
        "step": np.array(12),
        "order": np.asfortranarray(rng.integers(0, 9, (2, 3, 4), dtype=np.int32)),
        "exact": rng.standard_normal(3),
        "empty": np.zeros((0, 4), np.float32),
        "bytes": np.arange(5, dtype=np.uint8),
    }


@pytest.fixture
def saved(tmp_path, arrays):
    save_arrays(tmp_path / "step.npz", arrays, {"step": 12})
    return tmp_path / "step.npz"


@pytest.fixture
def words():
    return Words.train(["the dog sees the cat"])
