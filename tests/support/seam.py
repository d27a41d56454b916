"""Forms on inside a block whatever MINITF_FORMS says: for tests of the forms themselves."""

from minitf import forms


def forms_on():
    """Use forms inside a `with` block."""
    return forms._switched(True)
