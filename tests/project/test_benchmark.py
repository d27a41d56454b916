"""The benchmark: its comparisons, its messages about missing rivals, its quick form."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from paths import EXAMPLES

sys.path.insert(0, str(EXAMPLES))

from benchmarks import compare, ours, products, protocol, rows, work

MODEL = {
    "vocabulary_size": 50,
    "n_layers": 2,
    "d_model": 16,
    "d_ff": 32,
    "n_heads": 2,
    "dropout": 0.1,
}


def task(tmp_path, **more):
    return {
        "model": MODEL,
        "pairs": 4,
        "length": 8,
        "threads": None,
        "weights": str(tmp_path / "w.npz"),
        **more,
    }


def benchmark(*arguments, without=()):
    """Run the quick form; without: packages that are hidden from it."""
    env = os.environ | {"PYTHONPATH": str(without)} if without else os.environ
    command = [
        sys.executable,
        str(EXAMPLES / "benchmarks" / "benchmark.py"),
        "--quick",
        *map(str, arguments),
    ]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.fixture
def no_rivals(tmp_path):
    """Return a folder that hides the rivals from Python."""
    folder = tmp_path / "hidden"
    folder.mkdir()
    for name in ("torch", "ctranslate2"):
        (folder / f"{name}.py").write_text(
            f"raise ImportError('no {name} here')\n", encoding="utf-8"
        )
    return folder


# The work -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("padded", [False, True])
def test_a_batch_begins_and_ends_as_it_should(padded):
    source, target_in, target_out = work.batch(
        {"model": MODEL, "pairs": 50, "length": 8, "padded": padded}
    )
    assert (source[:, 0] != work.PAD).all()
    assert (target_in[:, 0] == work.BOS).all()
    for ids in (source, target_out):
        assert ((ids == work.EOS).sum(axis=1) == 1).all()
        assert (ids == work.PAD).any() == padded
        assert (ids[:, 1:][ids[:, :-1] == work.EOS] == work.PAD).all()
    assert ((target_in == work.PAD) == (target_out == work.PAD)).all()
    same = (target_out != work.PAD) & (target_out != work.EOS)
    assert (target_in[:, 1:][same[:, :-1]] == target_out[:, :-1][same[:, :-1]]).all()


def test_every_decoder_writes_as_much_as_it_may(tmp_path):
    job = task(tmp_path, source=5, beam=4, alpha=0.6)
    ours.draw(job)
    for beam in (1, 4):
        assert {len(ids) for ids, _ in ours.decoder(job | {"beam": beam})()} == {8}


def test_all_matrix_products_of_a_step_are_counted(tmp_path):
    job = task(tmp_path)
    ours.draw(job)
    n, d, f, length = 4 * 8, MODEL["d_model"], MODEL["d_ff"], 8
    attention, feed_forward = 8 * n * d**2 + 4 * n * length * d, 4 * n * d * f
    forward = (
        MODEL["n_layers"] * (3 * attention + 2 * feed_forward)
        + 2 * n * d * MODEL["vocabulary_size"]
    )
    # Backward, each product has a gradient for each side.
    assert products.count(job)["flops"] == 3 * forward
    products.Products(products.record(ours.Training.of(job)), None)()


def test_a_batch_that_is_cut_has_the_same_products(tmp_path, monkeypatch):
    job = task(tmp_path, threads=2)
    ours.draw(job)
    whole = products.count(job)
    monkeypatch.setattr("minitf.cpu.replicas._WORTH_IT", 1)
    cut = products.count(job)
    assert cut["flops"] == whole["flops"]
    assert cut["products"] == 2 * whole["products"]


def test_rows_are_chosen_by_name_or_beginning():
    names = [row.name for row in rows.chosen(["train-base", "train"])]
    assert names == ["train-base", "train-tiny", "train-small", "train-small-padded"]
    assert len(rows.chosen(["attention"])) == 6
    assert [row.name for row in rows.chosen(["greedy-small-1"])] == ["greedy-small-1"]
    with pytest.raises(
        ValueError, match=r"no row is called 'train-huge': choose from train-tiny, "
    ):
        rows.chosen(["train-huge"])


# The comparison -----------------------------------------------------------------------------------


class Side:
    """A worker with stored answers."""

    def __init__(self, answer, gradient):
        self.answer, self.gradient = answer, gradient

    def call(self, job, out, **unused):
        np.savez(out, weight=self.gradient)
        return self.answer


@pytest.mark.parametrize(
    ("kind", "answer", "gradient", "complaint"),
    [
        ("train", [4.0, 3.0, 2.0], [1.0, 1e-12], None),
        ("train", [4.0, 3.0, 2.001], [1.0, 0.0], "the losses are"),
        ("train", [4.0, 3.0, float("nan")], [1.0, 0.0], "the losses are"),
        ("train", [4.0, 3.0, 2.0], [1.0, 1e-6], "weight differs by 1.0e-06"),
        ("train", [4.0, 3.0, 2.0], [1.0, float("nan")], "weight differs by nan"),
        ("attention", None, [1.0, 1e-3], "weight differs"),
        ("decode", [[[5, 6], -1.0], [[7], -2.0]], [], None),
        ("decode", [[[5, 6], -1.0], [[8], -2.0]], [], "only 50% of the translations are the same"),
        ("decode", [[[5, 6], -1.0], [[7], -2.1]], [], "ln P of a translation differs"),
    ],
)
def test_what_differs_is_not_timed(kind, answer, gradient, complaint, tmp_path):
    right = [[[5, 6], -1.0], [[7], -2.0]] if kind == "decode" else [4.0, 3.0, 2.0]
    sides = Side(right, np.array([1.0, 0.0])), Side(answer, np.array(gradient))
    if complaint:
        with pytest.raises(compare.Differs, match=complaint):
            compare.compare(kind, {"model": MODEL, "pairs": 4}, *sides, tmp_path)
    else:
        assert compare.compare(kind, {"model": MODEL, "pairs": 4}, *sides, tmp_path)


# From end to end ----------------------------------------------------------------------------------


def test_an_unknown_row_is_named_in_one_line():
    done = benchmark("--rows", "train-huge")
    assert done.returncode == 2
    assert "no row is called 'train-huge'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_that_ends_leaves_its_last_word(no_rivals):
    hidden = {"PYTHONPATH": str(no_rivals)}
    for module, word in (
        ("pytorch", "PyTorch is not installed"),
        ("nothing", "No module named benchmarks.nothing"),
    ):
        with (
            protocol.Worker(module, environment=hidden) as worker,
            pytest.raises(protocol.Missing, match=word),
        ):
            worker.call(job="about")


@pytest.mark.slow
def test_quick_form_without_rivals(tmp_path, no_rivals):
    chosen = ["train-tiny", "greedy-small-1", "beam-small-32", "attention-64", "import"]
    done = benchmark("--rows", *chosen, "--json", tmp_path / "out.json", without=no_rivals)
    assert done.returncode == 0, done.stderr
    assert "PyTorch is not installed" in done.stdout
    assert "CTranslate2 is not installed" in done.stdout
    assert "of minitf's step are matrix products" in done.stdout
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert {
        "date",
        "commit",
        "processor",
        "cores",
        "python",
        "pairs",
        "sides",
        "missing",
    } <= report.keys()
    assert [row["row"] for row in report["rows"]] == chosen
    assert set(report["missing"]) == {"torch", "torch-kept", "torch-compile", "ctranslate2"}
    training = report["rows"][0]
    assert list(training["sides"]) == ["minitf", "products", "composed"]
    assert training["equal"]["composed"]["gradients, float64"] < 1e-9
    for row in report["rows"]:
        assert f"\n{row['row']}: " in done.stdout
        for side in row["sides"].values():
            assert len(side["seconds"]) == report["pairs"] == 2
            low, high = side["ratio quartiles"]
            assert 0 < low <= side["ratio"] <= high


@pytest.mark.slow
def test_an_earlier_checkout_runs_its_own_code(tmp_path):
    root = EXAMPLES.parent
    for folder in ("minitf", "examples/benchmarks"):
        shutil.copytree(root / folder, tmp_path / folder)
    init = tmp_path / "minitf" / "__init__.py"
    init.write_text(
        init.read_text(encoding="utf-8") + '__version__ = "earlier"\n', encoding="utf-8"
    )
    chosen = ["train-tiny", "beam-small-32", "attention-64", "import"]
    done = benchmark(
        "--rows", *chosen, "--rivals", "--earlier", tmp_path, "--json", tmp_path / "out.json"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert report["sides"]["earlier"]["minitf"] == "earlier" != report["sides"]["minitf"]["minitf"]
    assert all(list(row["sides"]) == ["minitf", "earlier"] for row in report["rows"])
    assert all("earlier" in row["equal"] for row in report["rows"][:3])


@pytest.mark.slow
def test_quick_form_with_pytorch(tmp_path):
    pytest.importorskip("torch")
    chosen = [
        "train-tiny",
        "train-small-padded",
        "greedy-small-64",
        "beam-small-32",
        "attention-64",
    ]
    picture = tmp_path / "growth.png"
    arguments = ["--json", tmp_path / "out.json", "--plot", picture, "--threads", 1]
    done = benchmark("--rows", *chosen, "growth-length-12", "growth-length-24", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    for row in json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["rows"]:
        assert not {"torch", "torch-kept"} & row["skipped"].keys()
        assert "torch" in row["equal"]
        assert "torch" in row["sides"]
        assert row["sides"]["torch"]["memory"] is None or row["sides"]["torch"]["memory"] > 1 << 20
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--rows", "nonsense"), "no row is called 'nonsense'"),
        (("--python", "no/such/python"), "there is no such program"),
        (("--json", "no/such/folder/x.json"), "there is no such folder"),
        (("--plot", "no/such/folder/x.png"), "there is no such folder"),
        (("--pairs", "1"), "--pairs must be 2 or more"),
        (("--earlier", "examples"), "--earlier examples: not a checkout of minitf"),
    ],
)
def test_what_cannot_be_measured_is_said_before(arguments, reason):
    done = benchmark(*arguments)
    assert done.returncode == 2 and reason in done.stderr.splitlines()[-1]
