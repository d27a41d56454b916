"""Shared by the tests of saved files: equal arrays, the one line of an error, and no log."""

from pathlib import Path

import numpy as np
import pytest

from minitf.errors import UserError


def weights_in(folder):
    """Return the only file of weights in a model's folder."""
    (path,) = Path(folder).glob("model-*.safetensors")
    return path


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].dtype == right[name].dtype and left[name].shape == right[name].shape, name
        assert np.array_equal(left[name], right[name]), name


def quiet(line):
    """Take the place of `say`."""


def message(function, *arguments):
    """Return the text of the UserError that the call raises: one line, without a traceback."""
    with pytest.raises(UserError) as caught:
        function(*arguments)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 600
    return text
