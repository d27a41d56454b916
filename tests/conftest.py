import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import strict

from minitf import backend


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(params=["numpy", "strict", pytest.param("cupy", marks=pytest.mark.gpu)])
def library(request):
    """Run a test on NumPy, on the strict stand-in for GPU arrays, and on a GPU where there is one."""
    with backend.using(strict.module if request.param == "strict" else request.param):
        yield request.param
