"""lessons/REPRODUCE.md: its commands have the paper's settings, and its arithmetic is right."""

import math
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from lesson_files import ROOT

from minitf.config import Config
from minitf.data import corpora
from minitf.text import Subwords
from minitf.training.settings import fill_in, model_changes, parse
from minitf.transformer import Transformer

TEXT = (ROOT / "lessons" / "REPRODUCE.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line)
    for line in re.findall(r"^.*09_train_wmt\.py --corpus wmt14-en-.*$", TEXT, re.MULTILINE)
]
RUN_HERE = [
    shlex.split(line)
    for line in re.findall(r"^python \S+ --corpus multi30k-bpe10k.*$", TEXT, re.MULTILINE)
]


def arguments(command):
    return command[command.index("lessons/09_train_wmt.py") + 1 :]


@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda command: f"{command[0]}-{command[-1].rpartition('/')[2]}"
)
def test_each_command_asks_for_what_the_paper_did(command):
    settings, _ = fill_in(parse(arguments(command))[0], 5_000)  # 4.5 million pairs of 28 tokens
    big, french = settings.preset == "big", settings.corpus.endswith("fr")
    config = Config.preset(settings.preset, settings.vocabulary_size, **model_changes(settings.set))
    sizes = config.n_layers, config.d_model, config.d_ff, config.n_heads
    assert sizes == ((6, 1024, 4096, 16) if big else (6, 512, 2048, 8))  # Table 3
    assert config.vocabulary_size == (32000 if french else 37000)  # 5.1
    # 5.4, 6.1
    assert config.dropout == (0.3 if big and not french else 0.1) and config.label_smoothing == 0.1
    assert settings.batch_tokens * settings.accumulate == 25_000  # 5.1
    assert (settings.learning_rate, settings.warmup_steps, settings.clip) == (1, 4000, 0)  # 5.3
    # 5.2
    assert (
        settings.steps == (300_000 if big else 100_000)
        and not settings.minutes
        and not settings.patience
    )
    seconds = (settings.save_every or settings.valid_every) * (1.0 if big else 0.4)
    assert seconds == 600 and settings.average == (20 if big else 5)  # 6.1: ten minutes apart
    assert settings.valid_every % (settings.save_every or settings.valid_every) == 0
    assert (settings.beam, settings.alpha, settings.max_extra) == (4, 0.6, 50)  # 6.1


def test_there_is_one_for_each_model_language_and_machine():
    settings = [parse(arguments(command))[0] for command in COMMANDS]
    runs = {(command[0], s.preset, s.corpus) for command, s in zip(COMMANDS, settings, strict=True)}
    assert len(COMMANDS) == 8 and runs == {
        (start, size, f"wmt14-en-{language}")
        for start in ("python", "mpirun")
        for size in ("base", "big")
        for language in ("de", "fr")
    }


@pytest.mark.parametrize("command", RUN_HERE, ids=lambda command: command[-1].rpartition("/")[2])
def test_what_was_run_here_has_the_size_of_the_model_that_it_is_compared_with(command):
    settings, _ = parse(arguments(command))
    config = Config.preset(settings.preset, 10_000, **model_changes(settings.set))
    assert (config.n_layers, config.d_model, config.d_ff, config.n_heads, config.dropout) == (
        4,
        128,
        256,
        4,
        0.3,
    )
    assert settings.steps <= 8000 and (settings.beam, settings.average) == (5, 10)
    peak = settings.learning_rate * (config.d_model * settings.warmup_steps) ** -0.5
    assert peak == pytest.approx(0.005, rel=1e-3) and settings.warmup_steps == 2000


@pytest.mark.slow
def test_what_is_said_on_paper():
    counts = {
        size: sum(
            p.size for p in Transformer(Config.preset(size, 37_000), initialise=False).parameters()
        )
        for size in ("base", "big")
    }
    assert f"{counts['base'] / 1e6:.1f} million parameters" in TEXT
    for size, steps in (("base", 1e5), ("big", 3e5)):
        update = 6 * counts[size] * 25_000
        assert (
            f"{update:.1e}".replace("e+", "e") in TEXT
            and f"{update * steps:.1e}".replace("e+", "e") in TEXT
        )
        hours = f"{update * steps / 1e14 / 3600:.2g}"
        assert f"take {hours} hours for {size}" in TEXT or f"and {hours} for {size}" in TEXT
    for hours, said in ((12, "3.3e18"), (3.5 * 24, "2.3e19")):
        assert f"{hours * 3600 * 8 * 9.5e12:.1e}".replace("e+", "e") == said and said in TEXT
    assert f"about {math.log(37_000) + 0.5:.1f} for 37,000 subwords" in TEXT


def test_the_published_curve_falls_as_copied():
    """Figures that fall throughout: a slip in copying would show."""
    table = re.search(r"\| update \| smoothed loss, bits \|.*?\n\n", TEXT, re.DOTALL)[0]
    rows = [
        [float(cell.replace(",", "")) for cell in row]
        for row in re.findall(r"^\| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \|$", table, re.MULTILINE)
    ]
    assert len(rows) == 8
    for column in zip(*rows, strict=True):
        assert list(column) == sorted(column, reverse=column[0] > column[-1])


@pytest.mark.slow
@pytest.mark.skipif("MINITF_DATA" not in os.environ, reason="set MINITF_DATA to measure real text")
def test_real_sentences_are_as_long_as_the_lesson_draws_them():
    """Lesson 09 draws lengths as real text has them.

    These are rng.normal(3.2, 0.6) and rng.normal(0.04, 0.18), of the logarithms.
    """
    files = (
        Path(os.environ["MINITF_DATA"], "wmt14-standin", f"train.{each}") for each in ("en", "de")
    )
    train = corpora.read_pairs(*files)
    subwords = Subwords.train([*train.source[:20_000], *train.target[:20_000]], 16_000)
    source, target = (np.log([len(ids) + 1 for ids in subwords.encode(side)]) for side in train)
    assert len(source) > 69_000
    assert abs(source.mean() - 3.2) < 0.1 and abs(source.std() - 0.6) < 0.1
    ratio = (target - source)[abs(target - source) < 1]  # beyond that it is no translation
    assert abs(ratio.mean() - 0.04) < 0.05 and abs(ratio.std() - 0.18) < 0.05
