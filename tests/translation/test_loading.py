"""Weights of another configuration, and notes that are none, are refused in one line."""

import re

import numpy as np
import pytest
from tiny_translator import make_subwords, save

from minitf.config import Config
from minitf.errors import UserError
from minitf.transformer import Transformer
from minitf.translation.loading import check_size, load_model

MINE = {"d_model": 12, "n_heads": 3, "d_ff": 16, "n_layers": 2, "max_length": 16}
OTHERS = {
    "vocabulary_size": (12, "embedding.weight has shape (12, 12) in the weights and (11, 12)"),
    "d_model": (6, "embedding.weight has shape (11, 6) in the weights and (11, 12)"),
    "d_ff": (17, "feed_forward.inner.weight has shape (12, 17) in the weights and (12, 16)"),
    "n_layers": (3, "the model has no decoder.layers.2"),
    "n_decoder_layers": (3, "the model has no decoder.layers.2"),
    "attention_bias": (True, "the model has no decoder.layers.0.self_attention.key.bias"),
    "output_bias": (True, "the model has no output_bias"),
    "d_k": (5, "self_attention.query.weight has shape (12, 15) in the weights and (12, 12)"),
    "d_v": (2, "self_attention.value.weight has shape (12, 6) in the weights and (12, 12)"),
    "tie": (False, "the model has no output_embedding.weight"),
    "norm": ("pre", "the model has no decoder.norm.bias"),
    "positions": ("learned", "the model has no source_positions.learned.weight"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_first_array_that_does_not_fit_is_named(name):
    value, message = OTHERS[name]
    mine, other = Config(11, **MINE), Config(**{"vocabulary_size": 11, **MINE, name: value})
    arrays = Transformer(other, initialise=False).state()
    Transformer(other, initialise=False).load_state(arrays)
    with pytest.raises(UserError, match=re.escape(message)):
        Transformer(mine, initialise=False).load_state(arrays)


def test_a_model_far_larger_than_its_weights_is_refused_before_it_is_built():
    config = Config(11, **MINE)
    arrays = Transformer(config, initialise=False).state()
    # Changed code may have somewhat fewer than it says.
    for changes in ({}, {"n_layers": 3}, {"d_ff": 48}):
        check_size(config.replace(**changes), arrays)
    for name, value in {"n_layers": 6, "d_ff": 10**9, "vocabulary_size": 10**9}.items():
        with pytest.raises(UserError, match="are too few for a model of"):
            check_size(config.replace(**{name: value}), arrays)
    with pytest.raises(UserError, match="in 1 arrays are too few for a model of 2 layers"):
        check_size(config, {"encoder.layers.1.table": np.zeros(10**6)})


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_subwords", "20"), ("max_subwords", 0), ("max_unsplit", True), ("reads_capitals", "yes")]
    + [("placeholders", words) for words in (None, 7, "①②", [7], ["①", " "], {"①": 1})]
    + [("licence", 5)],
)
def test_notes_that_no_model_has_are_refused(name, value, tmp_path):
    save(tmp_path, make_subwords(), {name: value})
    with pytest.raises(UserError, match=rf'damaged \(entry "{name}": ') as error:
        load_model(tmp_path)
    assert str(tmp_path) in str(error.value)
