"""Fifty updates with dropout have the losses that minitf 0.1 computed (commit b8bc38b).

On the recorded machine they also have the bits that were recorded with this version.
"""

import json

import numpy as np
import pytest
from fifty_steps import STEPS, digest, machine, train
from paths import FIXTURES
from seam import forms_on

from minitf import forms

EXPECTED = json.loads((FIXTURES / "fifty-steps.json").read_text(encoding="utf-8"))
BITS = json.loads((FIXTURES / "bits.json").read_text(encoding="utf-8"))
# Relative differences of the losses.
TOLERANCES = {
    ("forms", "float32"): 1e-5,
    ("forms", "float64"): 1e-9,
    ("equations", "float32"): 1e-4,
    ("equations", "float64"): 1e-9,
}


@pytest.mark.parametrize(
    ("program", "dtype"),
    [
        pytest.param(*case, marks=() if case == ("forms", "float32") else pytest.mark.slow)
        for case in TOLERANCES
    ],
)
def test_the_losses_of_the_first_edition(program, dtype):
    """To the tolerance; with forms on the recorded machine also bit for bit as before."""
    with forms_on() if program == "forms" else forms.off():
        got = train(dtype)
    expected = EXPECTED[dtype]
    assert len(expected["losses"]) == 2 * STEPS
    assert np.allclose(got["losses"], expected["losses"], rtol=TOLERANCES[program, dtype], atol=0)
    if machine() == BITS["machine"]:
        same = digest(got) == BITS[f"fifty steps, {dtype}"]
        assert same == (program == "forms"), f"the digest of {program} is {digest(got)}"
