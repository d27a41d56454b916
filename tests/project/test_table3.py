"""examples/table3.py: the small rows, the statistics, and a run of two rows that goes on."""

import doctest
import json
import math
import random
import shutil
import signal
import subprocess
import sys
import time
from unittest import mock

import pytest
from paths import EXAMPLES

from minitf.config import PRESETS, Config
from minitf.data import toy
from minitf.errors import UserError
from minitf.plot import new_figure
from minitf.training.settings import parse

sys.path.insert(0, str(EXAMPLES))

import table3

PROGRAM = EXAMPLES / "table3.py"
# A trainer that trains nothing: its BLEU comes from d_ff and the seed. With --steps 1 it fails;
# with --steps 2 it saves its state and waits for a signal, unless it is resumed.
TRAINER = """
import json, signal, sys
from pathlib import Path

given, resumed = sys.argv[1:], "--resume" in sys.argv
out = Path(given[given.index("--out") + 1])
steps = int(given[::-1][given[::-1].index("--steps") - 1]) if "--steps" in given else 9
if steps == 1:
    sys.exit("diverged")
if not resumed:
    fields = dict(word.split("=") for word in given if "=" in word)
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


def program(given, folder):
    command = [sys.executable, str(PROGRAM), *given]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_examples_in_docstrings():
    assert doctest.testmod(table3) == (0, 8)


def test_all_rows_of_the_paper_are_there():
    assert set(table3.PAPER) == PRESETS.keys() - {"tiny", "small"}


@pytest.mark.parametrize("row", sorted(PRESETS.keys() - {"tiny", "small"}))
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
    assert (settings.average, settings.cooldown, settings.replicas) == (1, 0.5, 1)


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


def test_the_intervals_contain_the_truth_about_as_often_as_they_say():
    """All rows of a table share the runs of base; and a third seed is for rows near it alone."""
    draw = random.Random(0)
    inside = total = 0
    for _ in range(400):
        truth = {row: draw.gauss(30, 1) for row in table3.PAPER}

        def runs_of(seed, rows, truth=truth):
            effect = draw.gauss(0, 0.2)
            return [run(row, seed, 5, truth[row] + draw.gauss(0, 0.7) + effect) for row in rows]

        runs = runs_of(0, truth) + runs_of(1, truth)
        runs += runs_of(2, ["base", *table3.undecided(runs)])
        for row, (mean, half) in table3.intervals(runs, table3.bleu).items():
            inside += abs(mean - (truth[row] - truth["base"])) <= half
            total += 1
    assert 0.93 < inside / total < 0.97


def test_rows_below_the_spread_get_another_seed():
    runs = [
        *(run("base", 0, 5, 30), run("base", 1, 5, 30)),
        *(run("C-N2", 0, 6, 25), run("C-N2", 1, 6, 26)),
        *(run("A-h4", 0, 5, 29.5), run("A-h4", 1, 5, 30.7)),
    ]
    assert table3.undecided(runs) == ["A-h4"]
    assert table3.undecided(runs[::2]) == [], "one seed has no spread to be below"


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """A trainer that trains nothing, in place of minitf's."""
    path = tmp_path / "trainer.py"
    path.write_text(TRAINER)
    monkeypatch.setattr(table3, "TRAINER", (sys.executable, str(path)))
    monkeypatch.setattr(table3.corpora, "load", lambda name: None)
    monkeypatch.setattr(table3, "undecided", lambda runs: [])
    monkeypatch.setattr(table3, "picture", lambda rows, path: path.touch())
    return path


def test_undecided_rows_get_a_third_seed_and_base_too(tmp_path, monkeypatch, trainer):
    monkeypatch.setattr(table3, "undecided", lambda runs: ["A-h4", "D-dropout0.0"])
    given = ["--out", str(tmp_path / "runs"), "--rows", "A-h4", "C-N2"]
    table3.main(given)
    kept = json.loads((tmp_path / "runs" / "table3.json").read_text())
    assert {(r["row"], r["seed"]) for r in kept["runs"] if r["seed"] == 2} == {
        *(("base", 2), ("A-h4", 2))  # not a row that was not asked for
    }
    with pytest.raises(UserError, match=r"has runs with other options, \[\]: give the same, or"):
        table3.main([*given, "--steps", "9"])
    monkeypatch.setattr(table3, "RECIPE", table3.RECIPE.replace("--alpha 0.6", "--alpha 1"))
    with pytest.raises(UserError, match=r"has runs with another recipe, .*: choose another --out"):
        table3.main(given)


def test_the_rows_of_an_earlier_command_stay_in_the_table(tmp_path, trainer):
    for rows in (["C-ff1024"], ["C-ff4096"]):
        table3.main(["--out", str(tmp_path / "runs"), "--seeds", "1", "--rows", *rows])
    kept = json.loads((tmp_path / "runs" / "table3.json").read_text())
    assert [r["row"] for r in kept["runs"]] == ["base", "C-ff1024", "C-ff4096"]
    small, wide = (kept["runs"][i]["parameters"] for i in (1, 2))
    assert small == table3.small("C-ff1024").replace(vocabulary_size=400).count_parameters() < wide


def test_rows_that_only_table3_json_has_are_not_trained_again(tmp_path, trainer, monkeypatch):
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
    with pytest.raises(UserError, match="has runs with other options"):
        table3.main(["--out", str(here), *given, "--steps", "9"])
    (here / "table3.json").write_text(json.dumps({"runs": runs}))
    with pytest.raises(UserError, match="does not say how its rows were trained: move it away"):
        table3.main(["--out", str(here), *given])


def test_each_row_has_a_log_of_its_own(tmp_path, trainer):
    rows = ["D-dropout0.0", "D-dropout0.2"]
    table3.main(["--out", str(tmp_path / "runs"), "--seeds", "1", "--rows", *rows])
    assert {path.name for path in (tmp_path / "runs").glob("*.log")} == {
        *("base-0.log", "D-dropout0.0-0.log", "D-dropout0.2-0.log")
    }


def test_a_row_is_kept_as_soon_as_it_is_trained(tmp_path, trainer, monkeypatch):
    run, found = table3.Trainers.run, []

    def look(self, command, log):
        path = tmp_path / "table3.json"
        found.append(len(json.loads(path.read_text())["runs"]) if path.exists() else 0)
        run(self, command, log)

    monkeypatch.setattr(table3.Trainers, "run", look)
    table3.main(["--out", str(tmp_path), "--seeds", "1", "--rows", "C-ff1024", "--jobs", "1"])
    assert found == [0, 1]


@pytest.mark.slow
def test_a_stopped_run_goes_on(tmp_path, trainer):
    out = tmp_path / "runs"
    program = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import table3; "
        f"table3.TRAINER = (sys.executable, {str(trainer)!r}); "
        "table3.corpora.load = lambda name: None; table3.undecided = lambda runs: []; "
        "table3.stop_like_ctrl_c(); "
        f"table3.main(['--out', {str(out)!r}, '--seeds', '1', '--rows', 'C-ff1024', "
        "'--jobs', '2', '--steps', '2'])"
    )
    process = subprocess.Popen([sys.executable, "-c", program], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    logs = [out / "base-0.log", out / "C-ff1024-0.log"]
    for _ in range(600):
        if all(log.exists() and "waiting" in log.read_text() for log in logs):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGHUP)
    said, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt: stopped; the same command goes on" in errors
    assert "not trained" not in said
    assert [log.read_text().splitlines()[-1] for log in logs] == ["stopped"] * 2
    table3.main(["--out", str(out), "--seeds", "1", "--rows", "C-ff1024", "--steps", "2"])
    found = json.loads((out / "base-0" / "results.json").read_text())
    assert found["resumed"]


def test_rows_that_fail_do_not_take_the_others_with_them(tmp_path, trainer, monkeypatch, capsys):
    trainers = table3.TRAINER
    run = table3.Trainers.run

    def one_fails(self, command, log):
        run(self, [*command, *(["--steps", "1"] * ("n_layers=1" in command))], log)

    monkeypatch.setattr(table3.Trainers, "run", one_fails)
    out = tmp_path / "runs"
    with pytest.raises(UserError, match=r"not trained: C-N2-0, C-N2-1; see their \.log"):
        table3.main(["--out", str(out), "--rows", "C-N2", "C-ff1024", "C-ff4096"])
    said = capsys.readouterr().out
    assert "not trained: C-N2, seed 0: the trainer ended: diverged" in said
    assert "| (C) d_ff 256 |" in said
    assert table3.TRAINER is trainers


def test_without_base_it_says_what_failed(tmp_path, trainer):
    (tmp_path / "runs" / "base-0.log").mkdir(parents=True)
    with pytest.raises(UserError, match="not trained: base-0; see"):
        table3.main(["--out", str(tmp_path / "runs"), "--seeds", "1", "--rows", "C-ff1024"])


def test_without_a_row_to_compare_it_says_so(tmp_path, trainer):
    with pytest.raises(UserError, match="there is no row to compare with base"):
        table3.main(["--out", str(tmp_path / "runs"), "--rows", "base"])


def test_a_row_that_failed_is_named_even_if_no_other_can_be_compared(
    tmp_path, trainer, monkeypatch
):
    run = table3.Trainers.run

    def fails(self, command, log):
        run(self, [*command, *(["--steps", "1"] * ("n_layers=1" in command))], log)

    monkeypatch.setattr(table3.Trainers, "run", fails)
    with pytest.raises(UserError, match=r"not trained: C-N2-0; see their \.log"):
        table3.main(["--out", str(tmp_path / "runs"), "--seeds", "1", "--rows", "C-N2"])


def test_what_the_trainer_says_may_be_in_any_encoding(tmp_path, trainer, capsys):
    trainer.write_text("import sys; sys.exit(sys.stdout.buffer.write(b'f\\xfcr\\n'))")
    with pytest.raises(UserError, match="not trained: base-0"):
        table3.main(["--out", str(tmp_path / "runs"), "--seeds", "1", "--rows", "base"])
    assert "the trainer ended: f\ufffdr" in capsys.readouterr().out


DAMAGED = (
    ("base-0/results.json", '{"valid"', "base-0: results.json or config.json is damaged"),
    ("base-0/results.json", "{}", "base-0: results.json or config.json is damaged"),
    ("base-0/config.json", "[]", "base-0: results.json or config.json is damaged"),
    ("options.json", "{}", "options.json is damaged"),
    ("options.json", "[", "options.json is damaged"),
)


def test_damaged_files_and_other_options_end_it_before_anything_is_loaded(
    tmp_path, trainer, monkeypatch
):
    given = ["--out", str(tmp_path), "--seeds", "1", "--rows", "C-ff1024"]
    table3.main(given)
    monkeypatch.setattr(table3.corpora, "load", None)
    for name, content, said in DAMAGED:
        right = (tmp_path / name).read_text()
        (tmp_path / name).write_text(content)
        with pytest.raises(UserError, match=said):
            table3.main([*given, "C-ff4096"])
        (tmp_path / name).write_text(right)
    with pytest.raises(UserError, match="has runs with other options"):
        table3.main([*given, "--steps", "9"])


def test_a_closed_pipe_stops_no_training(tmp_path, trainer, monkeypatch):
    closed = mock.Mock(write=mock.Mock(side_effect=BrokenPipeError))
    monkeypatch.setattr(sys, "stdout", closed)
    table3.main(["--out", str(tmp_path), "--seeds", "1", "--rows", "C-ff1024"])
    assert (tmp_path / "table3.png").exists()
    assert closed.write.called


def test_show_refuses_what_it_would_not_use(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in ("--rows big", "--steps 5"):
        with pytest.raises(UserError, match="--show trains nothing: leave out --rows"):
            table3.main(["--show", "kept.json", *given.split()])
    with pytest.raises(UserError, match=r"kept\.json cannot be read"):
        table3.main(["--show", "kept.json", "--out", "new"])
    assert not list(tmp_path.iterdir())


def test_our_runs_can_be_gone_on_with(tmp_path):
    kept = EXAMPLES / "benchmarks" / "results" / "table3.json"
    shutil.copy(kept, tmp_path)
    used = {"recipe": table3.RECIPE, "vocabulary": table3.VOCABULARY, "options": []}
    runs = table3.trained(tmp_path, used)
    assert len(runs) == len(json.loads(kept.read_text())["runs"])
    for each in runs:
        assert each["parameters"] == table3.small(each["row"]).count_parameters(), each["row"]


def test_rows_of_another_version_are_not_lost(tmp_path, trainer):
    given = ["--out", str(tmp_path), "--seeds", "1", "--rows", "C-ff1024"]
    table3.main(given)
    path = tmp_path / "table3.json"
    kept = json.loads(path.read_text())
    kept["runs"].append(run("F-new", 0, 5, 30))
    path.write_text(json.dumps(kept))
    with pytest.raises(
        UserError, match=r"table3\.json has rows that this version does not know \(F-new\)"
    ):
        table3.main(given)
    assert json.loads(path.read_text()) == kept


def test_show_writes_beside_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [run(row, seed, 5, 30 + seed) for row in ("base", "big") for seed in (0, 1)]
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "table3.json").write_text(json.dumps({"runs": runs}))
    table3.main(["--show", "kept/table3.json"])
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        *("table3.json", "table3.md", "table3.png")
    }
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "given",
    ["--seed 1", "--average 5", "--set n_layers=1", "--minutes 3", "--stesp 9", "--step 9"],
)
def test_options_that_rows_cannot_share_are_refused(given, tmp_path):
    name = given.split()[0]
    with pytest.raises(UserError, match=f"{name} is not an option that all rows can share"):
        table3.main(["--out", str(tmp_path), *given.split()])
    with pytest.raises(UserError, match="--steps"):
        table3.main(["--out", str(tmp_path), "--steps", "-3"])
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    command = [sys.executable, PROGRAM, "--out", tmp_path / "file" / "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "(Not a directory): choose another folder with --out" in done.stderr


def test_the_table_has_both_comparisons():
    runs = [
        *(run("base", 0, 5.0, 30), run("base", 1, 5.0, 30)),
        *(run("C-N2", 0, 6.0, 25), run("C-N2", 1, 6.1, 25.5)),
        *(run("A-h4", 0, 5, 29.9), run("A-h4", 1, 5, 30.2)),
    ]
    rows = table3.table(runs)
    base, heads, shallow = rows
    assert base.name == "base"
    assert base.bleu_difference is None
    assert shallow.perplexity_difference.here == pytest.approx(100 * (math.sqrt(6 * 6.1) / 5 - 1))
    assert shallow.perplexity_difference.paper == pytest.approx(100 * (6.11 / 4.92 - 1))
    assert shallow.bleu_difference.here == pytest.approx(-4.75)
    assert shallow.perplexity_difference.says == shallow.bleu_difference.says == "the same tendency"
    assert heads.bleu_difference.says == "too small to tell"
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
        (["--seed", "1"], "--seed is not an option"),
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
    small = table3.small("base").replace(vocabulary_size=400)
    assert kept["runs"][0]["parameters"] == small.count_parameters()
    assert "| (C) N 1 |" in said
    assert (tmp_path / "runs" / "table3.png").stat().st_size > 10_000
    written = (tmp_path / "runs" / "C-N2-0" / "results.json").stat().st_mtime_ns
    assert outcome()[1] == kept
    assert (tmp_path / "runs" / "C-N2-0" / "results.json").stat().st_mtime_ns == written


@pytest.mark.parametrize("sign", [1, -1])
def test_the_picture_ends_before_a_row_that_is_far_from_all_others(sign):
    axes = new_figure(4, 4, 0.1).subplots()
    means, halves, papers = [sign * -1.5, sign * 20.9, 0.5], [0.5, 0.5, math.inf], [0.2, 0.6, -1]
    axes.plot(means, range(3))
    table3._cut_off_an_outlier(axes, means, halves, papers)
    left, right = axes.get_xlim()
    assert left < min(-2 * sign, -1) and right > max(-2 * sign, 0.6)  # all others are inside
    assert max(abs(left), abs(right)) < 4
    assert [text.get_text() for text in axes.texts] == ["+20.9 →" if sign > 0 else "← −20.9"]


def test_the_picture_has_all_rows_where_none_is_far_from_the_others():
    axes = new_figure(4, 4, 0.1).subplots()
    axes.plot([-3, 4.0], range(2))
    before = axes.get_xlim()
    table3._cut_off_an_outlier(axes, [-3, 4.0], [math.inf] * 2, [0.0, 0.1])
    assert axes.get_xlim() == before
    assert not axes.texts
