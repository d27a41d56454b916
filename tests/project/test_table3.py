"""examples/table3.py: the small rows, the statistics, and a run of two rows that goes on."""

import doctest
import json
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from paths import EXAMPLES

from minitf.config import PRESETS, Config
from minitf.data import toy
from minitf.errors import UserError
from minitf.training.settings import parse

sys.path.insert(0, str(EXAMPLES))

import table3

RESULTS = EXAMPLES / "benchmarks" / "results"
# A trainer that trains nothing: its BLEU comes from d_ff and the seed. With --steps 1 it fails if
# it has one layer; with --steps 2 it saves its state and waits for a signal, unless it is resumed.
TRAINER = """
import json, signal, sys
from pathlib import Path

given, resumed = sys.argv[1:], "--resume" in sys.argv
out = Path(given[given.index("--out") + 1])
steps = int(given[::-1][given[::-1].index("--steps") - 1]) if "--steps" in given else 9
if not resumed:
    fields = dict(word.split("=") for word in given if "=" in word)
    if steps == 1 and fields["n_layers"] == "1":
        sys.exit("diverged")
    out.mkdir()
    (out / "config.json").write_text(json.dumps({"model": {
        "n_layers": int(fields["n_layers"]), "n_decoder_layers": int(fields["n_layers"]),
        "vocabulary_size": 400, "n_heads": int(fields["n_heads"]),
        **{name: int(fields[name]) for name in ("d_model", "d_ff", "d_k", "d_v")},
    }}))
    seed = int(given[given.index("--seed") + 1])
    (out / "checkpoint.safetensors").write_text(f"{int(fields['d_ff']) / 100 + seed}")
    if steps == 2:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
        print("waiting", flush=True)
        signal.pause()
bleu = float((out / "checkpoint.safetensors").read_text())
(out / "results.part").write_text(json.dumps({
    "valid": {"averaged": {"perplexity": 5.0}}, "tests": {"valid": {"bleu": bleu}},
    "step": steps, "seconds": 60, "versions": {}, "resumed": resumed,
}))
(out / "results.part").rename(out / "results.json")  # whole, as the trainer's
"""


def run(row, seed, perplexity, bleu):
    return {"row": row, "seed": seed, "perplexity": perplexity, "BLEU": bleu, "parameters": 1000,
            "minutes": 10.0}  # fmt: skip


def test_the_examples_in_docstrings():
    assert doctest.testmod(table3) == (0, 4)


@pytest.mark.parametrize("row", sorted(PRESETS.keys() - {"tiny", "small"}))
def test_a_small_row_keeps_the_papers_proportions(row):
    """And the trainer gets exactly this model."""
    paper, small = Config.preset(row), table3.small(row)
    assert (
        row in table3.PAPER and small.n_layers * 2 == small.n_decoder_layers * 2 == paper.n_layers
    )
    for size in ("d_model", "d_ff", "d_k", "d_v"):
        assert getattr(small, size) * 4 == getattr(paper, size), size
    for same in ("n_heads", "dropout", "label_smoothing", "positions"):
        assert getattr(small, same) == getattr(paper, same), same
    settings, _ = parse([*table3.sizes(row), *table3.RECIPE.split()])
    given = dict(item.split("=") for item in settings.set)
    assert given == {name: str(small.to_dict()[name]) for name in table3.WORDS}


def test_intervals_by_hand():
    """Differences are taken within a seed, and the spread is pooled over the rows."""
    runs = [
        *(run("base", 0, 5, 30), run("base", 1, 5, 32), run("base", 2, 5, 31)),
        *(run("big", 1, 5, 33), run("big", 0, 5, 33), run("big", 3, 5, 33)),
        *(run("C-N2", 0, 5, 20), run("C-N2", 1, 5, 21), run("C-N2", 2, 5, 22)),
    ]
    s = ((1 + 1 + 0 + 0 + 0 + 0 + 1 + 0 + 1) / 6) ** 0.5
    found = table3.intervals(runs, lambda run: run["BLEU"])
    assert found["big"] == pytest.approx((2, 2.447 * s), abs=0.06)
    assert found["C-N2"] == pytest.approx((-10, 2.447 * s * (2 / 3) ** 0.5), abs=0.06)
    assert table3.intervals(runs[:1] + runs[4:5], lambda run: run["BLEU"])["big"][1] == float("inf")


def test_the_intervals_contain_the_truth_about_as_often_as_they_say():
    """All rows of a table share the runs of base."""
    draw = random.Random(0)
    inside = total = 0
    for _ in range(400):
        truth, runs = {row: draw.gauss(30, 1) for row in table3.PAPER}, []
        for seed in (0, 1):
            effect = draw.gauss(0, 0.2)
            runs += [run(row, seed, 5, truth[row] + draw.gauss(0, 0.7) + effect) for row in truth]
        for row, (mean, half) in table3.intervals(runs, lambda run: run["BLEU"]).items():
            inside += abs(mean - (truth[row] - truth["base"])) <= half
            total += 1
    assert 0.93 < inside / total < 0.97


def test_our_table_is_that_of_our_runs(tmp_path):
    shutil.copy(RESULTS / "table3.json", tmp_path)
    table3.main(["--show", str(tmp_path / "table3.json")])
    assert (tmp_path / "table3.md").read_bytes() == (RESULTS / "table3.md").read_bytes()
    for each in table3.kept_runs(tmp_path, 4000):  # others can go on with them
        assert each["parameters"] == table3.small(each["row"]).count_parameters(), each["row"]


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """A trainer that trains nothing, in place of minitf's."""
    path = tmp_path / "trainer.py"
    path.write_text(TRAINER)
    monkeypatch.setattr(table3, "TRAINER", (sys.executable, str(path)))
    monkeypatch.setattr(table3.corpora, "load", lambda name: None)
    return path


def test_rows_that_table3_json_has_are_not_trained_again(tmp_path, trainer):
    """Such as ours: with a copy of that file, the command goes on where another machine ended."""
    given = ["--seeds", "1", "--rows", "C-ff1024"]
    table3.main(["--out", str(tmp_path / "there"), *given])
    kept = (tmp_path / "there" / "table3.json").read_text()
    here = tmp_path / "here"
    here.mkdir()
    (here / "table3.json").write_text(kept)
    table3.main(["--out", str(here), *given, "C-ff4096"])
    assert [path.name for path in here.iterdir() if path.is_dir()] == ["C-ff4096-0"]
    runs = json.loads((here / "table3.json").read_text())["runs"]
    assert runs[:2] == json.loads(kept)["runs"] and runs[2]["row"] == "C-ff4096"
    assert "(C) d_ff 1024" in (here / "table3.md").read_text()
    with pytest.raises(UserError, match="has runs of another recipe: choose another --out"):
        table3.main(["--out", str(here), *given, "--steps", "9"])


@pytest.mark.slow
def test_a_stopped_run_goes_on(tmp_path, trainer):
    out = tmp_path / "runs"
    given = ["--out", str(out), "--seeds", "1", "--rows", "C-ff1024", "--steps", "2"]
    program = (
        f"import signal, sys; sys.path.insert(0, {str(EXAMPLES)!r}); import table3; "
        f"table3.TRAINER = (sys.executable, {str(trainer)!r}); "
        "table3.corpora.load = lambda name: None; "
        f"table3.main({[*given, '--jobs', '2']!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", program], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    logs = [out / "base-0.log", out / "C-ff1024-0.log"]
    for _ in range(600):
        if all(log.exists() and "waiting" in log.read_text() for log in logs):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt: stopped; the same command goes on" in errors
    assert "not trained" not in said
    assert [log.read_text().splitlines()[-1] for log in logs] == ["stopped"] * 2
    table3.main(given)
    assert json.loads((out / "base-0" / "results.json").read_text())["resumed"]


def test_rows_that_fail_do_not_take_the_others_with_them(tmp_path, trainer, capsys):
    out = tmp_path / "runs"
    with pytest.raises(UserError, match=r"not trained: C-N2-0, C-N2-1; see their \.log"):
        table3.main(["--out", str(out), "--steps", "1", "--rows", "C-N2", "C-ff1024"])
    said = capsys.readouterr().out
    assert "not trained: C-N2, seed 0: the trainer ended: diverged" in said
    assert "| (C) d_ff 256 |" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--rows nothing", "invalid choice: 'nothing'"),
        ("--show none.json", "no such file"),
        ("--show trainer.py", "damaged"),
        ("--out trainer.py", "could not be written"),
    ],
)
def test_mistakes_get_one_line(given, said, tmp_path, trainer, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        table3.main(given.split())
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.slow
def test_a_row_is_really_trained(tmp_path, monkeypatch):
    folder = tmp_path / "multi30k"
    folder.mkdir()
    for name, n, seed in (("train", 400, 1), ("val", 20, 2)):
        for language, lines in zip(("en", "de"), toy.pairs(n, seed), strict=True):
            (folder / f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setattr(table3.corpora, "load", lambda name: None)
    monkeypatch.setattr(table3.corpora, "data_folder", lambda: tmp_path)
    monkeypatch.setattr(table3, "VOCABULARY", 330)
    recipe = table3.RECIPE.replace("--steps 4000", "--steps 2").replace("--valid-every 400", "")
    monkeypatch.setattr(table3, "RECIPE", recipe)
    given = ["--out", str(tmp_path / "out"), "--seeds", "1", "--steps", "2", "--rows", "C-N2"]
    table3.main(given)
    assert "(C) N 1" in (tmp_path / "out" / "table3.md").read_text()
