"""The benchmark: its comparisons, its messages about missing rivals, its quick form."""

import contextlib
import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from paths import EXAMPLES

sys.path.insert(0, str(EXAMPLES))

from benchmarks import benchmark as program
from benchmarks import compare, machine, ours, products, protocol, report, rows, table, work

slow = functools.partial(pytest.param, marks=pytest.mark.slow)

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
    monkeypatch.setattr("minitf.training.update._WORTH_IT", 1)
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
        ("attention", None, [1.0, 1e-3], "weight differs"),
        ("decode", [[[5, 6], -1.0], [[7], -2.0]], [], None),
        ("decode", [[[5, 6], -1.0], [[8], -2.0]], [], "only 50% of the translations are the same"),
        ("decode", [[[5, 6], -1.0], [[7], -2.1]], [], "ln P of a translation differs"),
    ],
)
def test_what_differs_is_not_timed(kind, answer, gradient, complaint, tmp_path):
    right = [[[5, 6], -1.0], [[7], -2.0]] if kind == "decode" else [4.0, 3.0, 2.0]
    both = Contender(right, np.array([1.0, 0.0])), Contender(answer, np.array(gradient))
    if complaint:
        with pytest.raises(compare.Differs, match=complaint):
            compare.compare(kind, {"model": MODEL, "pairs": 4}, *both, tmp_path)
    else:
        assert compare.compare(kind, {"model": MODEL, "pairs": 4}, *both, tmp_path)


def test_files_of_translations_are_compared(tmp_path):
    paths = [tmp_path / "ours.txt", tmp_path / "theirs.txt"]
    for path, other in zip(paths, ("", "other "), strict=True):
        lines = [f"{other if i < 10 else ''}{i}\n" for i in range(100)]
        path.write_text("".join(lines), encoding="utf-8")
    assert compare.texts(*paths) == {"same translations": 0.9}
    paths[1].write_text("other\n" * 100, encoding="utf-8")
    with pytest.raises(compare.Differs, match="only 0% of the translations are the same"):
        compare.texts(*paths)
    paths[1].write_text("0\n", encoding="utf-8")
    with pytest.raises(compare.Differs, match="one file has 100 lines, the other 1"):
        compare.texts(*paths)


def test_an_earlier_commit_that_differs_is_not_timed(tmp_path, monkeypatch):
    def differ(*arguments):
        raise compare.Differs("the losses are 1 and 2")

    monkeypatch.setattr(compare, "compare", differ)
    monkeypatch.setattr(program.Contest, "worker", lambda *names: contextlib.nullcontext())
    contest, result = program.Contest(None, tmp_path), {"equal": {}, "skipped": {}}
    row = rows.ROWS["train-small"]
    contest._compare("earlier", row, {}, result)
    contest._compare("torch", row, {}, result)
    assert set(result["skipped"]) == {"earlier", "torch", "torch-kept", "torch-compile"}
    assert contest.wrong


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


def test_few_pairs_have_no_interval():
    assert report.median_interval([1.0, 1.1, 1.2, 1.3, 1.4]) is None
    assert report.ratio({"ratio": 1.2, "ratio interval": None}) == "1.20"
    assert report.ratio({"ratio": 1.2, "ratio interval": [1.1, 1.3]}) == "1.20 [1.10, 1.30]"


def test_ratios_are_of_neighbours():
    """Slower rounds slow both contenders: the ratio of the medians would be another."""
    ours, theirs = [1.0, 2.0, 10.0], [2.0, 6.0, 10.0]
    runs = {
        name: [{"seconds": x, "memory": None, "cpu": 2 * x} for x in seconds]
        for name, seconds in (("minitf", ours), ("torch", theirs))
    }
    found = report.figures(runs)
    assert (found["torch"]["ratio"], found["torch"]["median"]) == (2.0, 6.0)
    assert (found["torch"]["cpu"], found["torch"]["memory"]) == (12.0, None)


def test_the_processor_is_read_from_linux(tmp_path):
    cpuinfo, caches = tmp_path / "cpuinfo", tmp_path / "cache"
    cpuinfo.write_text(
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
        "model name\t: Intel(R) Xeon(R)\nflags\t\t: fpu avx2 avx512f amx_bf16 amx_tile\n\n"
        "processor\t: 1\nmodel name\t: another\nflags\t\t: fpu\n"
    )
    for i, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K")]
    ):
        (caches / f"index{i}").mkdir(parents=True)
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (caches / f"index{i}" / name).write_text(f"{value}\n")
    found = machine.processor(cpuinfo, caches)
    assert found == {
        "model name": "Intel(R) Xeon(R)",
        "vendor": "GenuineIntel",
        "family": "6",
        "model": "143",
        "instructions": ["avx2", "avx512f", "amx_tile", "amx_bf16"],
        "caches": {"L1": "48K", "L2": "2048K"},
    }
    assert table.kind({"processor": found["model name"], "machine": found}) == (
        "Intel(R) Xeon(R), AMX"
    )
    unknown = machine.processor(tmp_path / "none", tmp_path / "none")
    assert unknown["model name"] and unknown["instructions"] == [] and unknown["caches"] == {}


def test_rows_whose_time_is_known_exist():
    assert set(rows.SECONDS) <= set(rows.ROWS)
    row = rows.ROWS["train-base"]
    assert rows.expected(row, 4, 15) > rows.expected(row, 2, 15) > rows.expected(row, 2, 7)


# Tables -------------------------------------------------------------------------------------------


def test_the_tables_are_those_of_the_reports():
    """After a new report: table.py --fill examples/benchmarks/README.md."""
    text = (EXAMPLES / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert text.count("<!-- table.py ") == len(table.MARKED.findall(text)) > 0
    assert table.filled(text) == text


def stored(path, processor, seconds):
    """Write a report of rows with 6 pairs in which PyTorch takes twice as long as minitf."""
    runs = [{"seconds": seconds, "memory": None}] * 6
    twice = [{"seconds": 2 * seconds, "memory": None}] * 6
    result = {"row": "train-small", "task": rows.ROWS["train-small"].task}
    result["contenders"] = report.figures({"minitf": runs, "torch": twice})
    found = {"processor": processor, "cores": 2, "commit": "abc", "date": "2026-11-22", "pairs": 6}
    found |= {"versions": {"torch": {"PyTorch": "2.15.0", "threads": 2}}, "rows": [result]}
    path.write_text(json.dumps(found), encoding="utf-8")
    return str(path)


def test_each_processor_has_a_table(tmp_path, capsys):
    paths = [
        stored(tmp_path / f"{i}.json", processor, seconds)
        for i, (processor, seconds) in enumerate([("EPYC", 0.5), ("Xeon", 1.5), ("EPYC", 0.25)])
    ]
    assert table.main([*paths, "--rows", "train"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("**")] == [
        "**EPYC**: 2 cores; PyTorch 2.15.0; commit abc; 2026-11-22; medians of 6 pairs",
        "**Xeon**: 2 cores; PyTorch 2.15.0; commit abc; 2026-11-22; medians of 6 pairs",
    ]
    title = "training step, small, 64 pairs of 24 tokens"
    assert [line for line in lines if title in line] == [
        f"| {title} | 500 ms, 250 ms | 2.00 [2.00, 2.00], 2.00 [2.00, 2.00] |",
        f"| {title} | 1.5 s | 2.00 [2.00, 2.00] |",
    ]
    assert table.main(["missing.json"]) == 2
    assert "missing.json" in capsys.readouterr().err


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


def test_a_command_that_fails_is_missing():
    with protocol.Worker("command") as worker, pytest.raises(protocol.Missing, match="No module"):
        worker.prepare({"job": "command", "arguments": ["-m", "nothing"], "root": str(EXAMPLES)})


def test_a_command_that_fails_without_a_word_is_missing():
    """As one that the system killed for its memory."""
    arguments = ["-c", "import os; os._exit(9)"]
    with protocol.Worker("command") as worker, pytest.raises(protocol.Missing, match="code 9"):
        worker.prepare({"job": "command", "arguments": arguments, "root": str(EXAMPLES)})


@pytest.mark.slow
def test_a_command_is_measured_with_its_start():
    """CPU seconds and memory are those of the command, not of the process that starts it."""
    used = "x = bytearray(100_000_000); import time; end = time.process_time() + 0.2\n"
    code = f"{used}while time.process_time() < end: pass"
    with protocol.Worker("command") as worker:
        worker.prepare({"job": "command", "arguments": ["-c", code], "root": str(EXAMPLES)})
        found = worker.run()
    assert found["seconds"] >= 0.2
    if found["cpu"] is not None:
        assert found["cpu"] >= 0.2
        assert found["memory"] >= 100_000_000


@pytest.mark.slow
def test_quick_form_without_rivals(tmp_path, no_rivals):
    chosen = ["train-tiny", "greedy-small-1", "beam-small-32", "attention-64"]
    chosen += ["start-up", "file-1000", "import"]
    done = benchmark("--rows", *chosen, "--json", tmp_path / "out.json", without=no_rivals)
    assert done.returncode == 0, done.stderr
    assert "PyTorch is not installed" in done.stdout
    assert "CTranslate2 is not installed" in done.stdout
    assert "of minitf's step are matrix products" in done.stdout
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert {
        "date",
        "commit",
        "processor",
        "cores",
        "python",
        "pairs",
        "machine",
        "versions",
        "missing",
    } <= found.keys()
    assert [row["row"] for row in found["rows"]] == chosen
    assert set(found["missing"]) == {"torch", "torch-kept", "torch-compile", "ctranslate2"}
    assert found["machine"]["additions"] > 0 and "1" in found["machine"]["products"]
    assert "times the CPU seconds of python -c" in done.stdout
    training = found["rows"][0]
    assert list(training["contenders"]) == ["minitf", "products", "composed"]
    assert training["equal"]["composed"]["gradients, float64"] < 1e-9
    for row in found["rows"]:
        assert f"\n{row['row']}: " in done.stdout
        for contender in row["contenders"].values():
            assert len(contender["seconds"]) == found["pairs"] == 2
            assert contender["ratio"] > 0
            assert contender["ratio interval"] is None  # of two pairs


@pytest.mark.slow
def test_an_earlier_checkout_runs_its_own_code(tmp_path):
    root = EXAMPLES.parent
    for folder in ("minitf", "examples"):
        shutil.copytree(root / folder, tmp_path / folder)
    init = tmp_path / "minitf" / "__init__.py"
    init.write_text(
        init.read_text(encoding="utf-8") + '__version__ = "earlier"\n', encoding="utf-8"
    )
    chosen = ["train-tiny", "beam-small-32", "attention-64", "file-1000", "import"]
    done = benchmark(
        "--rows", *chosen, "--rivals", "--earlier", tmp_path, "--json", tmp_path / "out.json"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (
        found["versions"]["earlier"]["minitf"] == "earlier" != found["versions"]["minitf"]["minitf"]
    )
    assert all(list(row["contenders"]) == ["minitf", "earlier"] for row in found["rows"])
    assert all("earlier" in row["equal"] for row in found["rows"][:4])


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
        assert "torch" in row["contenders"]
        assert (
            row["contenders"]["torch"]["memory"] is None
            or row["contenders"]["torch"]["memory"] > 1 << 20
        )
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--rows", "nonsense"), "no row is called 'nonsense'"),
        slow(("--python", "no/such/python"), "there is no such program"),
        slow(("--json", "no/such/folder/x.json"), "there is no such folder"),
        slow(("--plot", "no/such/folder/x.png"), "there is no such folder"),
        slow(("--pairs", "1"), "--pairs must be 2 or more"),
        slow(("--earlier", "examples"), "--earlier examples: not a checkout of minitf"),
    ],
)
def test_what_cannot_be_measured_is_said_before(arguments, reason):
    done = benchmark(*arguments)
    assert done.returncode == 2 and reason in done.stderr.splitlines()[-1]


def test_a_contender_that_dies_while_it_is_timed_is_left_out():
    """The others, and the rows after this one, are not lost."""

    def dies(times, warm):
        raise protocol.Missing("torch was killed")

    workers = {
        "minitf": SimpleNamespace(run=lambda times, warm: 1.0),
        "torch": SimpleNamespace(run=dies),
    }
    measured, skipped = SimpleNamespace(options=SimpleNamespace(pairs=3)), {}
    found = program.Contest._time(measured, workers, dict.fromkeys(workers, 1.0), skipped)
    assert found == {"minitf": [1.0] * 3} and skipped == {"torch": "torch was killed"}
