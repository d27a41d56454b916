"""examples/table3.py: the small rows, the statistics, and a run of two rows that goes on."""

import json
import math
import random
import subprocess
import sys

import pytest
from paths import EXAMPLES

from minitf.config import PRESETS, Config
from minitf.data import toy
from minitf.errors import UserError
from minitf.training.settings import parse

sys.path.insert(0, str(EXAMPLES))

import table3

PROGRAM = EXAMPLES / "table3.py"


def run(row, seed, perplexity, bleu):
    return {"row": row, "seed": seed, "perplexity": perplexity, "BLEU": bleu, "parameters": 1000,
            "minutes": 10.0}  # fmt: skip


def program(given, folder):
    command = [sys.executable, str(PROGRAM), *given]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_all_rows_of_the_paper_are_there():
    assert set(table3.PAPER) == PRESETS.keys() - {"tiny", "small"}


@pytest.mark.parametrize("row", PRESETS.keys() - {"tiny", "small"})
def test_a_small_row_keeps_the_papers_proportions(row):
    paper, small = Config.preset(row), table3.small(row)
    assert small.n_layers * 2 == small.n_decoder_layers * 2 == paper.n_layers
    for size in ("d_model", "d_ff", "d_k", "d_v"):
        assert getattr(small, size) * 4 == getattr(paper, size), size
    for same in ("n_heads", "dropout", "label_smoothing", "positions"):
        assert getattr(small, same) == getattr(paper, same), same


@pytest.mark.parametrize("row", ["base", "A-h32", "B-dk16", "C-d1024", "E-learned", "big"])
def test_the_trainer_gets_exactly_this_model(row):
    settings, _ = parse([*table3.sizes(row), *table3.RECIPE.split()])
    given = dict(item.split("=") for item in settings.set)
    small = table3.small(row).to_dict()
    assert given == {name: str(small[name]) for name in given}
    changed = {
        name for name, value in small.items() if value != table3.small("base").to_dict()[name]
    }
    assert changed - {"n_decoder_layers"} <= given.keys()
    assert (settings.average, settings.cooldown, settings.replicas) == (1, 0.4, 1)


def test_differences_are_taken_within_a_seed():
    runs = [
        *(run("base", 0, 5, 30), run("base", 1, 6, 20)),
        *(run("big", 1, 5, 21), run("big", 0, 4, 32), run("big", 2, 1, 99)),
    ]
    assert table3.differences(runs, lambda r: r["BLEU"]) == {"big": [1, 2]}


def test_the_spread_is_pooled_over_the_rows():
    runs = [
        *(run("base", 0, 5, 1), run("base", 1, 5, 3)),
        *(run("big", 0, 5, 10), run("big", 1, 5, 10), run("big", 2, 5, 13)),
    ]
    s, free = table3.spread(runs, table3.bleu)
    assert free == 3
    assert s == pytest.approx(math.sqrt((1 + 1 + 1 + 1 + 4) / 3))
    assert table3.spread(runs[:1], table3.bleu) == (math.inf, 0)


def test_intervals_by_hand():
    runs = [
        *(run("base", 0, 5, 30), run("base", 1, 5, 32), run("base", 2, 5, 31)),
        *(run("big", 0, 5, 33), run("big", 1, 5, 33)),
        *(run("C-N2", 0, 5, 20), run("C-N2", 1, 5, 21), run("C-N2", 2, 5, 22)),
    ]
    s = math.sqrt((1 + 1 + 0 + 0 + 0 + 1 + 0 + 1) / 5)
    found = table3.intervals(runs, table3.bleu)
    assert found["big"] == pytest.approx((2, 2.571 * s), abs=0.01)
    assert found["C-N2"] == pytest.approx((-10, 2.571 * s * math.sqrt(2 / 3)), abs=0.01)


def test_the_quantile_of_few_degrees():
    assert table3.student_t(3) == pytest.approx(3.1824, abs=0.01)
    assert table3.student_t(5) == pytest.approx(2.5706, abs=0.001)


def test_the_intervals_contain_the_truth_as_often_as_they_say():
    """All rows of a table share the runs of base, which makes their differences dependent."""
    draw = random.Random(0)
    inside = total = 0
    for _ in range(400):
        truth = {row: draw.gauss(30, 3) for row in table3.PAPER}
        seed_effects = [draw.gauss(0, 0.2) for _ in range(2)]
        runs = [
            run(row, seed, 5, mean + draw.gauss(0, 0.7) + effect)
            for row, mean in truth.items()
            for seed, effect in enumerate(seed_effects)
        ]
        for row, (mean, half) in table3.intervals(runs, table3.bleu).items():
            inside += abs(mean - (truth[row] - truth["base"])) <= half
            total += 1
    assert 0.94 < inside / total < 0.97


def test_rows_below_the_spread_get_another_seed():
    runs = [
        *(run("base", 0, 5, 30), run("base", 1, 5, 30)),
        *(run("C-N2", 0, 6, 25), run("C-N2", 1, 6, 26)),
        *(run("A-h4", 0, 5, 29.5), run("A-h4", 1, 5, 30.7)),
    ]
    assert table3.undecided(runs) == ["A-h4"]


def test_undecided_rows_get_a_third_seed_and_base_too(tmp_path, monkeypatch):
    trained = []

    def train_all(pairs, *_):
        trained.append(pairs)
        worth = {"base": 30.0, "A-h4": 30.1, "C-N2": 25.0}
        return [run(row, seed, 5, worth[row] + seed * (row != "base")) for row, seed in pairs]

    monkeypatch.setattr(table3, "train_all", train_all)
    monkeypatch.setattr(table3.corpora, "load", lambda name: None)
    table3.main(["--out", str(tmp_path), "--rows", "A-h4", "C-N2"])
    assert trained[1] == [("base", 2), ("A-h4", 2)]
    kept = json.loads((tmp_path / "table3.json").read_text())
    assert len(kept["runs"]) == 8
    with pytest.raises(UserError, match="has runs with other options"):
        table3.main(["--out", str(tmp_path), "--rows", "A-h4", "--steps", "9"])


def test_a_row_that_fails_does_not_take_the_others_with_it(tmp_path, monkeypatch, capsys):
    def train(row, seed, *_):
        if row == "big":
            raise UserError("big, seed 0: the trainer ended with code 2: diverged")
        return run(row, seed, 5, 30 + seed)

    monkeypatch.setattr(table3, "train", train)
    monkeypatch.setattr(table3.corpora, "load", lambda name: None)
    with pytest.raises(UserError, match=r"not trained: big-0, big-1; see their \.log"):
        table3.main(["--out", str(tmp_path), "--rows", "big", "C-N2"])
    said = capsys.readouterr().out
    assert "not trained: big, seed 0: the trainer ended with code 2: diverged" in said
    assert "| (C) N 1 |" in said


def test_without_a_row_to_compare_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(table3, "train", lambda row, seed, *_: run(row, seed, 5, 30 + seed))
    monkeypatch.setattr(table3.corpora, "load", lambda name: None)
    with pytest.raises(UserError, match="no row to compare with base"):
        table3.main(["--out", str(tmp_path), "--rows", "base"])


def test_the_table_has_both_comparisons():
    runs = [
        *(run("base", 0, 5.0, 30), run("base", 1, 5.0, 30)),
        *(run("C-N2", 0, 6.0, 25), run("C-N2", 1, 6.1, 25.5)),
        *(run("A-h4", 0, 5, 29.9), run("A-h4", 1, 5, 30.2)),
    ]
    rows = table3.table(runs)
    base, heads, shallow = rows
    assert base.name == "base"
    assert base.of_bleu is None
    assert shallow.of_perplexity.here == pytest.approx(100 * (math.sqrt(6 * 6.1) / 5 - 1))
    assert shallow.of_perplexity.paper == pytest.approx(100 * (6.11 / 4.92 - 1))
    assert shallow.of_bleu.here == pytest.approx(-4.75)
    assert shallow.of_perplexity.says == shallow.of_bleu.says == "the same tendency"
    assert heads.of_bleu.says == "too small to tell"
    lines = [line for line in table3.markdown(rows).splitlines() if line.startswith("|")]
    assert len(lines) == 5
    assert len({line.count("|") for line in lines}) == 1
    assert lines[-1].startswith("| (C) N 1 |")


@pytest.mark.slow
def test_bad_options_get_one_line(tmp_path):
    for given, said in (
        (["--rows", "C-N3"], "invalid choice: 'C-N3'"),
        (["--show", "nothing.json"], "nothing.json"),
        (["--jobs", "0"], "--jobs"),
        (["--seed", "1", "--show", "nothing.json"], "nothing.json"),  # no short form of --seeds
    ):
        found = program(given, tmp_path)
        assert found.returncode
        assert said in found.stderr.splitlines()[-1]
        assert "Traceback" not in found.stderr


@pytest.mark.slow
def test_two_rows_are_trained_and_trained_rows_are_not_trained_again(tmp_path, monkeypatch):
    data = tmp_path / "data" / "multi30k"
    data.mkdir(parents=True)
    texts = toy.splits(300)
    for split, name in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr")):
        for language, lines in zip(("en", "de"), texts[split], strict=True):
            (data / f"{name}.{language}").write_text(
                "\n".join(lines[:300]) + "\n", encoding="utf-8"
            )
    monkeypatch.setenv("MINITF_DATA", str(tmp_path / "data"))
    given = [
        *("--out", "runs", "--rows", "C-N2", "--jobs", "2"),
        *("--steps", "6", "--valid-every", "3", "--vocabulary-size", "400"),
    ]

    def outcome():
        found = program(given, tmp_path)
        assert found.returncode == 0, found.stderr
        return found.stdout, json.loads((tmp_path / "runs" / "table3.json").read_text())

    said, kept = outcome()
    trained = {(r["row"], r["seed"]) for r in kept["runs"]}
    assert {("base", 0), ("base", 1), ("C-N2", 0), ("C-N2", 1)} <= trained
    assert all(r["updates"] == 6 for r in kept["runs"])
    assert "| (C) N 1 |" in said
    assert (tmp_path / "runs" / "table3.png").stat().st_size > 10_000
    written = (tmp_path / "runs" / "C-N2-0" / "results.json").stat().st_mtime_ns
    assert outcome()[1] == kept
    assert (tmp_path / "runs" / "C-N2-0" / "results.json").stat().st_mtime_ns == written
