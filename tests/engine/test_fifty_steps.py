"""Fifty updates with dropout have the losses and weights that minitf 0.1 computed
(commit b8bc38b).
"""

import json

import numpy as np
import pytest
from fifty_steps import STEPS, machine, train
from paths import FIXTURES
from seam import forms_on

from minitf import forms

EXPECTED = json.loads((FIXTURES / "fifty-steps.json").read_text(encoding="utf-8"))
# Relative differences of the losses: of forms on another machine, and of equations on any.
TOLERANCES = {
    ("forms", "float32"): 1e-5,
    ("forms", "float64"): 1e-9,
    ("equations", "float32"): 1e-4,
    ("equations", "float64"): 1e-9,
}


@pytest.mark.parametrize(
    ("program", "dtype"),
    [
        pytest.param(*case, marks=pytest.mark.slow if case[1] == "float64" else ())
        for case in TOLERANCES
    ],
)
def test_the_losses_of_the_first_edition(program, dtype):
    """With forms on the recorded machine bit for bit, else to the tolerance."""
    with forms_on() if program == "forms" else forms.off():
        got = train(dtype)
    expected = EXPECTED[dtype]
    assert len(expected["losses"]) == 2 * STEPS
    assert np.allclose(got["losses"], expected["losses"], rtol=TOLERANCES[program, dtype], atol=0)
    if program == "equations":
        assert got["weights"] != expected["weights"], "these are the bits of the forms"
    elif machine() == EXPECTED["machine"]:
        assert got == expected
