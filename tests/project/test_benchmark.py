"""The benchmark: its comparisons, its messages about missing rivals, its quick form."""

import contextlib
import functools
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from paths import EXAMPLES, ROOT

sys.path.insert(0, str(EXAMPLES))

from benchmarks import benchmark as program
from benchmarks import ours, protocol, report, rows, work

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
MODEL = {"vocabulary_size": 50, "n_layers": 2, "d_model": 16, "d_ff": 32, "n_heads": 2}


def benchmark(*arguments, without=()):
    """Run the quick form; without: packages that are hidden from it."""
    env = os.environ | {"PYTHONPATH": str(without)} if without else os.environ
    command = [sys.executable, str(EXAMPLES / "benchmarks" / "benchmark.py"), "--quick"]
    command += map(str, arguments)
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.fixture
def no_rivals(tmp_path):
    """Return a folder that hides the rivals from Python."""
    for name in ("torch", "ctranslate2", "pymarian"):
        path = tmp_path / "hidden" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"raise ImportError('no {name} here')\n", encoding="utf-8")
    return tmp_path / "hidden"


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
    same = (target_out != work.PAD) & (target_out != work.EOS)
    assert (target_in[:, 1:][same[:, :-1]] == target_out[:, :-1][same[:, :-1]]).all()


def test_every_decoder_writes_as_much_as_it_may(tmp_path):
    job = {"model": MODEL, "pairs": 4, "length": 8, "threads": None, "source": 5, "alpha": 0.6}
    job |= {"weights": str(tmp_path / "w.npz"), "beam": 4}
    ours.draw(job)
    for beam in (1, 4):
        assert {len(ids) for ids, _ in ours.decoder(job | {"beam": beam})()} == {8}


def test_rows_are_chosen_by_name_or_beginning():
    names = [row.name for row in rows.chosen(["train-base", "train", "greedy-small-1"])]
    assert names == [
        *("train-base", "train-tiny", "train-small", "train-small-padded"),
        "greedy-small-1",
    ]


# The comparison -----------------------------------------------------------------------------------


class Contender:
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
        ("decode", [[[5, 6], -1.0], [[7], -2.0]], [], None),
        ("decode", [[[5, 6], -1.0], [[8], -2.0]], [], "only 50% of the translations are the same"),
        ("decode", [[[5, 6], -1.0], [[7], -2.1]], [], "ln P of a translation differs"),
        ("translate", ["x", "y"], [], None),
        ("translate", ["x", "z"], [], "only 50% of the translations are the same"),
    ],
)
def test_what_differs_is_not_timed(kind, answer, gradient, complaint, tmp_path):
    right = {"decode": [[[5, 6], -1.0], [[7], -2.0]], "translate": ["x", "y"]}
    right = right.get(kind, [4.0, 3.0, 2.0])
    both = Contender(right, np.array([1.0, 0.0])), Contender(answer, np.array(gradient))
    said = (
        pytest.raises(program.Differs, match=complaint) if complaint else contextlib.nullcontext()
    )
    with said:
        assert program.compare(kind, {"model": MODEL, "pairs": 4, "folder": tmp_path}, *both)


@pytest.mark.parametrize(("loss", "gradient"), [(0, 0), (1, 0), (0, 1)])
def test_on_a_gpu_products_may_be_rounded(loss, gradient, tmp_path):
    """The loss, and the length of the gradient, may be apart by as much as the precision allows.

    As Marian computes, so may the losses of all steps.
    """
    for precision, (loss_apart, gradient_apart) in program.APART.items():
        task = {"model": MODEL, "pairs": 4, "folder": tmp_path}
        task["like" if precision == "marian" else "precision"] = precision
        ours = Contender([4.0, 3.0], np.array([3.0, 4.0]))
        for share in (0.9, 1.1):
            losses = [4 + 4 * loss * share * loss_apart, 3.0 if precision == "marian" else 2.0]
            gradients = np.array([5 + 5 * gradient * share * gradient_apart, 0.0])
            passes = share < 1 or loss == gradient == 0
            said = contextlib.nullcontext() if passes else pytest.raises(program.Differs)
            with said:
                program.compare("train", task, ours, Contender(losses, gradients))


def test_files_of_translations_are_compared(tmp_path):
    paths = [tmp_path / "ours.txt", tmp_path / "theirs.txt"]
    for path, other in zip(paths, ("", "other "), strict=True):
        lines = [f"{other if i < 10 else ''}{i}\n" for i in range(100)]
        path.write_text("".join(lines), encoding="utf-8")
    assert program.compare_texts(*paths) == {"same translations": 0.9}
    for text, said in {"x\n" * 100: "only 0%", "0\n": "has 100 lines, the other 1"}.items():
        paths[1].write_text(text, encoding="utf-8")
        with pytest.raises(program.Differs, match=said):
            program.compare_texts(*paths)


def test_what_differs_is_skipped(monkeypatch):
    def differ(*arguments):
        raise program.Differs("the losses are 1 and 2")

    monkeypatch.setattr(program, "compare", differ)
    monkeypatch.setattr(program.Contest, "worker", lambda *names: contextlib.nullcontext())
    contest, result = program.Contest(None), {"equal": {}, "skipped": {}}
    contest._compare("torch", rows.ROWS["train-small"], {}, result)
    assert set(result["skipped"]) == {"torch"} and contest.wrong


def test_a_contender_that_dies_while_it_is_timed_is_left_out():
    """The others, and the rows after this one, are not lost."""

    def dies(times, warm):
        raise protocol.Missing("torch was killed")

    runs = {"minitf": lambda times, warm: 1.0, "torch": dies}
    workers = {name: SimpleNamespace(run=run) for name, run in runs.items()}
    measured, skipped = SimpleNamespace(options=SimpleNamespace(pairs=3)), {}
    found = program.Contest._time(measured, workers, dict.fromkeys(workers, 1.0), skipped)
    assert found == {"minitf": [1.0] * 3} and skipped == {"torch": "torch was killed"}


# The figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [6, 7, 9, 12, 15])
def test_the_interval_contains_the_median_in_95_of_100_cases(n):
    """Counted over all ways in which n values can be below and above the median."""

    def missed(k):
        below = (sum(signs) for signs in itertools.product((0, 1), repeat=n))
        return sum(count < k or n - count < k for count in below) / 2**n

    k = report.rank(n)
    assert 0 < missed(k) <= 0.05 < missed(k + 1)
    values = np.random.default_rng(0).permutation(n).tolist()
    assert report.median_interval(values) == [k - 1, n - k]
    assert report.median_interval(values[:5]) is None


def test_ratios_are_of_neighbours():
    """Slower rounds slow both contenders: the ratio of the medians would be another."""
    seconds = {"minitf": [1.0, 2.0, 10.0], "torch": [2.0, 6.0, 10.0]}
    runs = {name: [{"seconds": x, "memory": None} for x in xs] for name, xs in seconds.items()}
    found = report.figures(runs)["torch"]
    assert (found["ratio"], found["median"], found["memory"]) == (2.0, 6.0, None)


def test_the_processor_is_read_from_linux(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text(
        "cpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)\n"
        "flags\t\t: fpu avx2 avx512f amx_tile\n\nmodel name\t: another\nflags\t\t: fpu\n"
    )
    found = ours.processor(path)
    assert found["instructions"] == ["avx2", "avx512f", "amx_tile"]
    assert report.kind({"processor": found["model name"], "machine": found}) == (
        "Intel(R) Xeon(R), AMX"
    )
    unknown = ours.processor(tmp_path / "none")
    assert unknown["model name"] and unknown["instructions"] == []


def test_the_tables_of_the_page_are_those_of_the_reports():
    text = (EXAMPLES / "benchmarks" / "README.md").read_text(encoding="utf-8")
    tables = re.findall(r"<!-- report\.py (.*?) -->\n\n(.*?)\n<!-- end -->", text, re.DOTALL)
    assert len(tables) == text.count("<!-- report.py") > 5
    for arguments, table in tables:
        assert report.tables(shlex.split(arguments), ROOT) == table


# From end to end ----------------------------------------------------------------------------------


def test_a_process_that_ends_leaves_its_last_word(no_rivals):
    hidden = {"PYTHONPATH": str(no_rivals)}
    words = {"pytorch": "PyTorch is not installed", "nothing": "No module named benchmarks.nothing"}
    for module, word in words.items():
        with (
            protocol.Worker(module, environment=hidden) as worker,
            pytest.raises(protocol.Missing, match=word),
        ):
            worker.call(job="about")


@pytest.mark.parametrize(
    ("arguments", "said"),
    # The second one as if the system had killed it for its memory.
    [(["-m", "nothing"], "No module"), (["-c", "import os; os._exit(9)"], "code 9")],
)
def test_a_command_that_fails_is_missing(arguments, said):
    with protocol.Worker("protocol") as worker, pytest.raises(protocol.Missing, match=said):
        worker.ask(
            "prepare", task={"job": "command", "arguments": arguments, "root": str(EXAMPLES)}
        )


@pytest.mark.slow
def test_a_command_is_measured_with_its_start():
    """Memory is that of the command, not of the process that starts it."""
    code = "x = bytearray(100_000_000); import time; time.sleep(0.2)"
    with protocol.Worker("protocol") as worker:
        worker.ask(
            "prepare", task={"job": "command", "arguments": ["-c", code], "root": str(EXAMPLES)}
        )
        found = worker.run()
    assert found["seconds"] >= 0.2
    assert found["memory"] is None or found["memory"] >= 100_000_000


@pytest.mark.slow
def test_quick_form_without_rivals(tmp_path, no_rivals):
    others = "greedy-b", "marian-greedy", "marian-beam", "gpu"  # without Marian there is no model
    chosen = [row for row in rows.ROWS if not row.startswith(others)]
    done = benchmark("--rows", *chosen, "--json", tmp_path / "out.json", without=no_rivals)
    assert done.returncode == 0, done.stderr
    assert "PyTorch is not installed" in done.stdout
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [row["row"] for row in found["rows"]] == chosen
    assert set(found["missing"]) == {"torch", "torch-kept", "ctranslate2", "marian"}
    assert found["machine"]["additions"] > 0 and "1" in found["machine"]["products"]
    assert "openblas" in found["versions"]["minitf"]["matrix products"].lower()
    for row in found["rows"]:
        assert f"\n{row['row']}: " in done.stdout
        for contender in row["contenders"].values():
            assert len(contender["seconds"]) == found["pairs"] == 2
            assert contender["ratio"] > 0 and contender["ratio interval"] is None  # of two pairs


@pytest.mark.slow
def test_an_earlier_checkout_runs_its_own_code(tmp_path):
    for folder in ("minitf", "examples"):
        shutil.copytree(EXAMPLES.parent / folder, tmp_path / folder)
    with open(tmp_path / "minitf" / "__init__.py", "a", encoding="utf-8") as init:
        init.write('__version__ = "earlier"\n')
    chosen = ["train-tiny", "beam-small-32", "file-1000", "start-up"]
    more = ["--rivals", "--earlier", tmp_path, "--json", tmp_path / "out.json"]
    done = benchmark("--rows", *chosen, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    versions = {name: about["minitf"] for name, about in found["versions"].items()}
    assert versions["earlier"] == "earlier" != versions["minitf"]
    assert all(list(row["contenders"]) == ["minitf", "earlier"] for row in found["rows"])
    assert all("earlier" in row["equal"] for row in found["rows"][:3])


@pytest.mark.slow
def test_quick_form_with_pytorch(tmp_path):
    pytest.importorskip("torch")
    chosen = ["train-tiny", "train-small-padded", "beam-small-1", "beam-small-32"]
    arguments = ["--json", tmp_path / "out.json", "--threads", 1]
    done = benchmark("--rows", *chosen, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    for row in json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["rows"]:
        assert not {"torch", "torch-kept"} & row["skipped"].keys()
        assert "torch" in row["equal"] and "torch" in row["contenders"]


@pytest.mark.slow
def test_quick_form_with_marian(tmp_path, monkeypatch):
    """Marian makes the same updates, and minitf translates as it does with the model it trains."""
    pytest.importorskip("pymarian")
    monkeypatch.setenv("MINITF_DATA", str(tmp_path))
    chosen = ["marian-train-tiny", "marian-greedy-tiny-1000", "marian-beam-tiny-20"]
    done = benchmark("--rows", *chosen, "--rivals", "marian", "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stdout + done.stderr
    for row in json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["rows"]:
        assert row["contenders"].keys() == {"minitf", "marian"} and "marian" in row["equal"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--rows", "train-huge"), "no row is called 'train-huge': choose from train-tiny, "),
        slow(("--pairs", "1"), "must be a whole number from 2 to 1000"),
    ],
)
def test_what_cannot_be_measured_is_said_before(arguments, reason):
    done = benchmark(*arguments)
    assert done.returncode == 2 and reason in done.stderr.splitlines()[-1]
