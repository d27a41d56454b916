"""What the tests of saved files share: comparing arrays, and catching the one line of an error."""

import numpy as np
import pytest

from minitf.errors import UserError


def shapes_of(arrays):
    return {name: array.shape for name, array in arrays.items()}


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].dtype == right[name].dtype and left[name].shape == right[name].shape, name
        assert np.array_equal(left[name], right[name]), name


def message(function, *arguments):
    """The text of the UserError that the call ends in: one line, without a traceback in it."""
    with pytest.raises(UserError) as caught:
        function(*arguments)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 600
    return text
