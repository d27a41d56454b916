"""Configurations: the presets and what they weigh, wrong settings, and the way to JSON and back."""

import json
import subprocess
import sys

import numpy as np
import pytest
from models import PUBLIC

from minitf.config import PRESETS, Config
from minitf.errors import UserError
from minitf.transformer import Transformer

# Table 3 of the paper, in millions. Rows of which it gives no number are those that leave
# the size alone.
PAPER = {"base": 65, "A-h1": 65, "A-h4": 65, "A-h16": 65, "A-h32": 65, "B-dk16": 58, "B-dk32": 60}
PAPER |= {
    "C-N2": 36,
    "C-N4": 50,
    "C-N8": 80,
    "C-d256": 28,
    "C-d1024": 168,
    "C-ff1024": 53,
    "C-ff4096": 90,
}
PAPER |= {"D-dropout0.0": 65, "D-dropout0.2": 65, "D-smoothing0.0": 65, "D-smoothing0.2": 65}


def count(config):
    return sum(p.size for p in Transformer(config, initialise=False).parameters())


QUICK = "tiny", "base", "A-h32", "B-dk16", "C-N2"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in PRESETS],
)
def test_every_preset_weighs_what_it_should(name):
    other = {"norm": "pre", "tie": False, "positions": "learned", "max_length": 77}
    for changes in ({}, other, PUBLIC):
        config = Config.preset(name, **changes)
        assert count(config) == config.count_parameters()


def test_table_3():
    """The paper's numbers fit a vocabulary of about 41,000, not the 37,000 of its text."""
    for name, millions in PAPER.items():
        parameters = Config.preset(name, 41000).count_parameters()
        assert parameters / 1e6 == pytest.approx(millions, abs=1), name


WITHOUT_DRAWING = """
from pathlib import Path
import numpy as np
from minitf.config import Config
from minitf.transformer import Transformer

def resident():
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0

def refuse(*arguments):
    raise AssertionError("initialise=False must not draw")

np.random.default_rng = refuse
before = resident()
model = Transformer(Config.preset("big"), initialise=False)
print(model.parameters()[0].shape[0], resident() - before)
"""


def test_building_without_drawing_costs_no_memory():
    """In a process of its own: in an old one, memory that was freed before is cleared for
    the new arrays.
    """
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DRAWING], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows, memory = map(int, done.stdout.split())
    assert rows == 37000
    assert memory < 100e6  # of the 857 MB that they will fill


SIZE, FRACTION, SWITCH = (
    "an integer of at least 1",
    "at least 0 and at most 0.9999",
    "true or false",
)
IDS = "must be different integers from 0 to vocabulary_size - 1"
WRONG = [
    ({"n_layers": 0}, f"n_layers must be {SIZE}, not 0"),
    ({"n_heads": True}, f"n_heads must be {SIZE}"),
    ({"d_k": -1}, f"d_k must be {SIZE}"),
    ({"vocabulary_size": None}, f"vocabulary_size must be {SIZE}"),
    ({"max_length": 1.5}, f"max_length must be {SIZE}"),
    ({"d_ff": "2" * 9999}, f"d_ff must be {SIZE}, not '222"),
    ({"dropout": 1.0}, f"dropout must be {FRACTION}"),
    ({"attention_dropout": -0.1}, f"attention_dropout must be {FRACTION}"),
    ({"label_smoothing": float("nan")}, f"label_smoothing must be {FRACTION}"),
    ({"eps": "1e-6"}, f"eps must be {FRACTION}"),
    ({"norm": "rms"}, "norm must be post or pre"),
    ({"norm": ["post"]}, "norm must be post or pre"),
    ({"tie": "yes"}, f"tie must be {SWITCH}"),
    ({"output_bias": 1}, f"output_bias must be {SWITCH}"),
    ({"d_model": 100, "n_heads": 8}, "or also set d_k and d_v"),
    ({"d_model": 15, "n_heads": 3}, "even d_model"),
    ({"vocabulary_size": 3}, f"eos_id {IDS}"),
    ({"bos_id": "2"}, f"eos_id {IDS}"),
    ({"suppressed_ids": 4}, f"suppressed_ids {IDS}"),
    ({"suppressed_ids": [4, 4]}, f"suppressed_ids {IDS}"),
    ({"suppressed_ids": [100]}, f"suppressed_ids {IDS}"),
    ({"suppressed_ids": [4, 3]}, "must not contain the end mark 3"),
]


@pytest.mark.parametrize("changes, message", WRONG, ids=lambda value: str(value)[:40])
def test_wrong_settings_are_one_short_line(changes, message):
    with pytest.raises(UserError, match=message) as error:
        Config(**{"vocabulary_size": 100, **changes})
    assert "\n" not in str(error.value) and len(str(error.value)) < 150


def test_unknown_preset_names_the_known_ones():
    with pytest.raises(UserError, match=r"unknown preset 'huge'.*tiny.*big"):
        Config.preset("huge")


def test_the_ends_of_what_is_allowed():
    config = Config(100, eps=0.0, dropout=0.9999, label_smoothing=0, max_length=1, eos_id=99)
    assert (config.eps, config.dropout, config.max_length, config.eos_id) == (0, 0.9999, 1, 99)


def test_to_json_and_back():
    for name in PRESETS:
        for config in (
            Config.preset(name, 1234, norm="pre", eps=1e-5),
            Config.preset(name, 1234, **PUBLIC),
        ):
            assert json.loads(json.dumps(config.to_dict())) == config.to_dict()
            assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_a_configuration_can_be_a_key():
    given = Config(100, suppressed_ids=[1, 5])
    assert given.suppressed_ids == (1, 5)
    assert {given: 1}[Config(100, suppressed_ids=(1, 5))] == 1


def test_a_setting_of_a_newer_version_is_refused():
    with pytest.raises(UserError, match="unknown model setting rotary: update minitf"):
        Config.from_dict({**Config.preset("tiny").to_dict(), "rotary": True})


def test_replace_lets_the_size_of_the_keys_follow():
    assert Config.preset("base").replace(n_heads=16) == Config.preset("A-h16")
    assert Config.preset("base").replace(d_model=1024).d_k == 128
    assert Config.preset("B-dk16").replace(d_model=1024).d_k == 16, "a d_k that was chosen stays"
    assert Config.preset("base").replace(n_heads=16, d_k=10).d_k == 10
    assert Config.preset("B-dk16").replace(d_model=1024).d_v == 128, "values follow by themselves"
    wide = Config.preset("base", d_v=80).replace(d_model=1024)
    assert (wide.d_k, wide.d_v) == (128, 80)


def test_replace_lets_the_decoder_follow():
    base = Config.preset("base")
    assert base.replace(n_layers=4).n_decoder_layers == 4
    shorter = base.replace(n_decoder_layers=2)
    assert (shorter.n_layers, shorter.n_decoder_layers) == (6, 2)
    assert shorter.replace(n_layers=4).n_decoder_layers == 2, "a number that was chosen stays"
    assert shorter.replace(dropout=0.2).n_decoder_layers == 2


def test_the_size_of_the_vocabulary_has_no_default():
    with pytest.raises(UserError, match="vocabulary_size is missing from the settings"):
        Config.from_dict({})


def test_numbers_of_numpy_become_pythons():
    config = Config(np.int64(99) + 1, d_model=np.int32(64), dropout=np.float64(0.2))
    assert json.loads(json.dumps(config.to_dict()))["vocabulary_size"] == 100
    assert type(config.d_model) is int and type(config.dropout) is float
