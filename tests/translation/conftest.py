"""A tiny model, and the command translate.py with it."""

import pytest
from command import Command
from tiny_translator import LONGEST, make_subwords, save


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(
        tmp_path_factory.mktemp("models") / "tiny", make_subwords(), {"max_subwords": LONGEST}
    )


@pytest.fixture
def run(model):
    command = Command(model)
    yield command
    command.stop()
