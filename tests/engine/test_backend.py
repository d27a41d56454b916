"""Which room has the forms of a library, and errors that name their file."""

import types

import numpy as np
import pytest
import strict

from minitf.backend import using, xp
from minitf.errors import UserError, in_file


@pytest.mark.parametrize(
    ("library", "room"),
    [
        ("numpy", "cpu"),
        (np, "cpu"),
        (strict.with_kernels, "gpu"),
        (strict.module, None),
        (types.ModuleType("x"), None),
    ],
)
def test_the_room_of_the_forms_of_a_library(library, room):
    with using(library):
        assert xp.__dict__["_room"] == room
    assert xp.__dict__["_room"] == "cpu"


def test_an_error_names_its_file_and_others_pass():
    with pytest.raises(UserError, match=r"^words\.txt: one line$"), in_file("words.txt"):
        raise UserError("one line")
    with pytest.raises(ValueError, match=r"^another$"), in_file("words.txt"):
        raise ValueError("another")
