"""Weights that belong to another configuration are refused before they fill the memory."""

import re

import numpy as np
import pytest

from minitf.config import Config
from minitf.errors import UserError
from minitf.transformer import Transformer
from minitf.translation.loading import _check_settings, check_size


def test_weights_of_many_layers_are_counted():
    config = Config(11, n_layers=12, d_model=6, n_heads=3, d_ff=8)
    _check_settings(config, Transformer(config, initialise=False).state())


MINE = {"d_model": 12, "n_heads": 3, "d_ff": 16, "n_layers": 2, "max_length": 16}
OTHERS = {
    "vocabulary_size": (12, "vocabulary_size is 12, not 11"),
    "d_model": (6, "d_model is 6, not 12; n_heads * d_k is 6, not 12; n_heads * d_v is 6, not 12"),
    "d_ff": (17, "d_ff is 17, not 16"),
    "n_layers": (3, "n_layers is 3, not 2"),
    "n_decoder_layers": (3, "n_decoder_layers is 3, not 2"),
    "attention_bias": (True, "attention_bias is True, not False"),
    "output_bias": (True, "output_bias is True, not False"),
    "d_k": (5, "n_heads * d_k is 15, not 12"),
    "d_v": (2, "n_heads * d_v is 6, not 12"),
    "tie": (False, "tie is False, not True"),
    "norm": ("pre", "norm is pre, not post"),
    "positions": ("learned", "positions is learned, not sinusoid"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_weights_say_what_they_were_made_with(name):
    value, message = OTHERS[name]
    mine, other = Config(11, **MINE), Config(**{"vocabulary_size": 11, **MINE, name: value})
    arrays = Transformer(other, initialise=False).state()
    _check_settings(other, arrays)
    with pytest.raises(
        UserError,
        match=re.escape(f"weights were made with another configuration ({message}): copy"),
    ):
        _check_settings(mine, arrays)


def test_a_model_far_larger_than_its_weights_is_refused_before_it_is_built():
    config = Config(11, **MINE)
    arrays = Transformer(config, initialise=False).state()
    # Changed code may have somewhat fewer than it says.
    for changes in ({}, {"n_layers": 3}, {"d_ff": 48}):
        check_size(config.replace(**changes), arrays)
    for name, value in {"n_layers": 6, "d_ff": 10**9, "vocabulary_size": 10**9}.items():
        with pytest.raises(UserError, match=f"{name} is {getattr(config, name)}, not {value}"):
            check_size(config.replace(**{name: value}), arrays)
    with pytest.raises(UserError, match="in 1 arrays are too few for a model of 2 layers"):
        check_size(config, {"encoder.layers.1.table": np.zeros(10**6)})
