"""Measure minitf against PyTorch, CTranslate2 and Marian on this machine, and print a table.

    python examples/benchmarks/benchmark.py --python PATH --json benchmark.json
    python examples/benchmarks/benchmark.py --earlier CHECKOUT --rivals

PATH is an interpreter in which the rivals are installed (pip install torch ctranslate2 pymarian
sentencepiece); a rival that is not installed is skipped. CHECKOUT is a folder with an earlier
commit (git worktree add), to see whether anything has become slower.

Each contender runs in its own process. They take turns, so that other work on the machine slows all
of them alike; the result is the median ratio of neighbouring timings. Before a contender is timed,
it and minitf compute the same thing from the same weights, and the results are compared. The report
begins with the machine. rows.py has the rows, report.py turns reports into tables.
"""

import argparse
import contextlib
import datetime
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

# What keeps all contenders from using more than AVX2: OpenBLAS, oneDNN, MKL, PyTorch, CTranslate2.
AVX2 = {
    "OPENBLAS_CORETYPE": "HASWELL",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "CT2_FORCE_CPU_ISA": "AVX2",
}
LOSS, GRADIENT, PROBABILITY = 1e-5, 1e-8, 1e-4
# On a GPU, the largest relative difference between the losses, and between the lengths of the
# gradients. Both programs round the operands of products, to 10 bits of fraction (tf32) or 7
# (bfloat16), but not in the same places. The loss of a new model hardly shows that, as it is close
# to that of equal logits; the gradient does, as a product of many rounded factors. With base on an
# H200, the losses were 2.6e-7 and 1.9e-5 apart, and the gradients 2.8e-4 and 4.0e-3, about as much
# as rounding can change one operand (4.9e-4 and 3.9e-3). A wrong backward would be off by far more.
APART = {"float32": (1e-5, 1e-5), "tf32": (1e-5, 1e-3), "bfloat16": (2e-4, 1e-2)}
# Marian's start mark is a constant: after an update, which changes the loss by 2e-3, it differs by
# 5e-6. The length that Marian prints is 0.4% too small for small, and 2.3% for base.
APART["marian"] = 3e-5, 5e-2
# The fraction of translations that must be equal: two may differ in probability by rounding only.
SENTENCES = 0.9
LONG = 0.1  # seconds; shorter work is repeated until a measurement takes as long
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from benchmarks import report, rows  # noqa: E402
from benchmarks.protocol import ON_GPU, Missing, Worker, cores  # noqa: E402
from minitf.cli import number  # noqa: E402
from minitf.data.corpora import data_folder  # noqa: E402


def main(arguments=None):
    """Measure the chosen rows; return exit code 1 if a contender computed something else."""
    options = _options(arguments)
    if options.isa:
        os.environ.update(AVX2)  # for the processes of the contenders
    contest = Contest(options)
    found = contest.describe()
    print("\n".join(report.head(found)), flush=True)
    found["rows"] = []
    for row in options.rows:
        if row.kind == "translate" and "marian" not in contest.names(row):
            continue  # there is no model
        found["rows"].append(contest.measure(row))
        print("\n".join(report.lines_of(found["rows"][-1])), flush=True)
        if options.json:  # after each row, or an error would lose an hour of measuring
            Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if contest.wrong else 0


def _options(arguments):
    parser = argparse.ArgumentParser(description="Measure minitf against its rivals.")
    add = parser.add_argument
    beginnings = "train, greedy, beam, marian, start-up, file, gpu"
    default = [name for name in rows.ROWS if not name.startswith("gpu")]
    said = f"rows, or beginnings of their names: {beginnings} (default: all but gpu)"
    add("--rows", nargs="+", default=default, metavar="NAME", help=said)
    said = f"of {', '.join(rows.RIVALS)} (default: all; --rivals without a name: none)"
    add("--rivals", nargs="*", choices=rows.RIVALS, default=rows.RIVALS, metavar="NAME", help=said)
    said = "a folder with an earlier commit of minitf, to measure as well"
    add("--earlier", metavar="CHECKOUT", help=said)
    said = "timings of each program; fewer than 6 give no interval (default: 15)"
    add("--pairs", type=number(int, 2, 1000), metavar="N", help=said)
    said = "the Python interpreter in which the rivals are installed (default: this one)"
    add("--python", default=sys.executable, metavar="PATH", help=said)
    said = "threads of each program (default: as many as it chooses)"
    add("--threads", type=int, metavar="N", help=said)
    said = "keep all programs from using wider instructions, which most laptops do not have"
    add("--isa", choices=["avx2"], help=said)
    add("--json", metavar="FILE", help="write all measurements to this file, for report.py")
    said = "check that everything works: tiny sizes, 2 pairs; the times mean nothing"
    add("--quick", action="store_true", help=said)
    options = parser.parse_args(arguments)
    try:
        options.rows = rows.chosen(options.rows)
    except ValueError as error:
        parser.error(str(error))
    if options.quick:
        options.rows = [rows.quick(row) for row in options.rows]
    options.pairs = options.pairs or (2 if options.quick else 15)
    return options


class Contest:
    """The contenders, and what keeps some of them from taking part."""

    def __init__(self, options):
        self.options = options
        self.missing, self.wrong = {}, False  # contenders that cannot take part: {name: why}

    def names(self, row):
        """Return the contenders of a row, minitf first."""
        earlier = ["earlier"] if self.options.earlier else []
        rivals = (name for name in row.contenders if name in self.options.rivals)
        return ["minitf", *(each for each in (*earlier, *rivals) if each not in self.missing)]

    def worker(self, name, row=None):
        """Return a new process for a contender."""
        contender = rows.CONTENDERS[name]
        python = self.options.python if contender.foreign else sys.executable
        module, root = contender.module, self.root(name)
        if row and row.kind == "command":
            module, root = "protocol", ROOT
        gpu = {ON_GPU: "1"} if row and "precision" in row.task else {}
        return Worker(module, python, self.options.threads, contender.environment | gpu, root)

    def root(self, name):
        """Return the checkout whose code a contender runs."""
        return Path(self.options.earlier).resolve() if name == "earlier" else ROOT

    def describe(self):
        """Return the machine, the versions of all contenders, and the missing ones."""
        with self.worker("minitf") as worker:
            machine = worker.call(job="machine", threads=self.options.threads)
        if self.options.isa:
            machine["instructions"] = [self.options.isa]
        found = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "commit": commit_of(ROOT),
            "cores": cores(),
            "system": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(),
            "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            "processor": machine["model name"],
            "machine": machine,
            "pairs": self.options.pairs,
            "quick": self.options.quick,
            "versions": {},
        }
        wanted = {name for row in self.options.rows for name in self.names(row)}
        for name in filter(wanted.__contains__, rows.CONTENDERS):
            try:
                with self.worker(name) as worker:
                    about = worker.call(job="about", threads=self.options.threads)
                if name == "earlier":
                    about = {"earlier": commit_of(self.options.earlier)} | about
                found["versions"][name] = about
            except Missing as reason:
                self.missing[name] = str(reason)
        found["missing"] = self.missing
        return found

    # One row --------------------------------------------------------------------------------------

    def measure(self, row):
        """Compare the contenders of a row with minitf, then time all of them in turn."""
        result = {
            "row": row.name,
            "title": row.title.format(**row.task),
            "kind": row.kind,
            "task": row.task,
            "contenders": {},
            "skipped": {},
            "equal": {},
        }
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            shared, names = self._shared(row, folder), self.names(row)
            for name in names[1:]:
                self._compare(name, row, shared, result)
            workers, seconds = {}, {}
            for name in names:
                if name in result["skipped"]:
                    continue
                try:
                    worker = stack.enter_context(self.worker(name, row))
                    answer = worker.ask("prepare", task=self._task(name, row, shared))
                except Missing as reason:
                    if name == "minitf":
                        raise RuntimeError(f"{row.name}: {reason}") from None
                    result["skipped"][name] = str(reason)
                    continue
                workers[name], seconds[name] = worker, answer["seconds"]
            result["contenders"] = report.figures(self._time(workers, seconds, result["skipped"]))
        return result

    def _shared(self, row, folder):
        """Write the files that all contenders of a row start from, and return their common task."""
        task = row.task | {"threads": self.options.threads, "folder": str(folder)}
        task["weights"] = str(folder / "weights.npz")
        task["trained"] = str(data_folder() / "marian" / task.get("corpus", ""))
        for name, job in task.get("first", {}).items():
            with self.worker(name) as worker:
                worker.call(**task, job=job)
        return task | {"job": row.kind}

    def _task(self, name, row, shared):
        """Return the task of one contender."""
        if row.kind != "command":
            return shared
        program = shared["programs"]["minitf" if name == "earlier" else name]
        files = {"folder": shared["folder"], "output": _output(name, shared)}
        arguments = [argument.format(**files) for argument in program]
        return {"job": "command", "arguments": arguments, "root": str(self.root(name))}

    def _compare(self, name, row, shared, result):
        """Compare a contender with minitf. One that computes something else is skipped."""
        if row.kind == "command" and "lines" not in row.task:
            return
        try:
            with self.worker("minitf", row) as ours, self.worker(name, row) as theirs:
                if row.kind == "command":
                    ours.ask("prepare", task=self._task("minitf", row, shared))
                    theirs.ask("prepare", task=self._task(name, row, shared))
                    found = compare_texts(*(_output(each, shared) for each in ("minitf", name)))
                else:
                    found = compare(row.kind, shared, ours, theirs)
            result["equal"][name] = found
        except Missing as reason:
            result["skipped"][name] = str(reason)
        except Differs as error:
            self.wrong = True
            result["skipped"][name] = f"not timed, it computes something else: {error}"

    def _time(self, workers, seconds, skipped):
        """Time the workers in turn.

        Every other round is in reverse order, so that pairs are neighbours. A contender whose
        program dies meanwhile is skipped; the others go on.
        """
        times = min(100, max(1, math.ceil(LONG / min(seconds.values()))))
        warm = 1 if max(seconds.values()) < 3 * LONG else 0
        found = {name: [] for name in workers}
        for i in range(self.options.pairs):
            for name in list(found) if i % 2 == 0 else list(reversed(found)):
                try:
                    found[name].append(workers[name].run(times, warm))
                except Missing as reason:
                    if name == "minitf":
                        raise
                    skipped[name] = str(reason)
                    del found[name]
        return found


def _output(name, shared):
    """Return the file into which a command of a contender writes its translations."""
    return Path(shared["folder"], f"{name}.txt")


def commit_of(root):
    """Return the commit of a checkout, for a report."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


# Do both compute the same? ------------------------------------------------------------------------


class Differs(Exception):
    """Two contenders compute different things; the text names the difference."""


def compare(kind, task, ours, theirs):
    """Let both workers do the same work, smaller and without dropout; return the differences.

    Gradients are compared in float64. In float32, two correct implementations differ by more than
    rounding, because a number that is 0 except for rounding passes the ReLU of one and not of the
    other. Losses are compared in float32 too. Raises Differs.
    """
    paths = [Path(task["folder"], f"{name}.npz") for name in ("ours", "theirs")]

    def both(**changes):
        return [
            worker.call(**{**task, **changes, "job": f"check {kind}", "out": str(path)})
            for worker, path in zip((ours, theirs), paths, strict=True)
        ]

    if kind == "decode":
        return _sentences(*both())
    if kind == "translate":
        return _texts(*both())
    exact = {"model": task["model"] | {"dropout": 0.0}}
    if precision := task.get("precision", task.get("like")):
        loss, gradient = APART[precision]
        losses = both(**exact)  # on a GPU rounding soon moves the weights apart
        apart = _losses(*(each[: 3 if "like" in task else 1] for each in losses), loss)
        return {"loss": apart, "gradient": _lengths(*paths, gradient)}
    exact["pairs"] = min(task["pairs"], 8)
    loss = _losses(*both(**exact, dtype="float64", padded=True))
    found = {"loss, float64": loss, "gradients, float64": _arrays(*paths)}
    return found | {"loss, float32": _losses(*both(**exact))}


def compare_texts(ours, theirs):
    """Return the fraction of equal lines of two files. Raises Differs."""
    return _texts(*(path.read_text(encoding="utf-8").splitlines() for path in (ours, theirs)))


def _texts(ours, theirs):
    if len(ours) != len(theirs):
        raise Differs(f"one has {len(ours)} lines, the other {len(theirs)}")
    return {"same translations": _enough(sum(map(str.__eq__, ours, theirs)) / len(ours))}


def _enough(fraction):
    """Return the fraction of equal translations, if it is high enough."""
    if not fraction >= SENTENCES:
        raise Differs(f"only {fraction:.0%} of the translations are the same")
    return fraction


def _losses(ours, theirs, tolerance=LOSS):
    """Return the largest relative difference of the losses of some steps."""
    error = _largest(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
    if not error <= tolerance:
        raise Differs(f"the losses are {ours} and {theirs}")
    return error


def _arrays(ours, theirs):
    """Return the largest difference of any array, relative to its largest element."""
    errors = {}
    with contextlib.closing(np.load(ours)) as left, contextlib.closing(np.load(theirs)) as right:
        if odd := sorted(set(left.files) ^ set(right.files)):
            raise Differs(f"only one of them has {odd[0]}")
        for name in left.files:
            a, b = left[name], right[name]
            errors[name] = float(abs(a - b).max() / abs(b).max())
    worst = list(errors)[int(np.argmax(list(errors.values())))]  # NaN counts as the largest
    if not errors[worst] <= GRADIENT:
        raise Differs(f"{worst} differs by {errors[worst]:.1e} of its largest element")
    return errors[worst]


def _lengths(ours, theirs, tolerance):
    """Return the relative difference of the lengths of the two gradients."""
    lengths = []
    for path in (ours, theirs):
        with np.load(path) as arrays:
            squares = [np.sum(arrays[name].astype("float64") ** 2) for name in arrays]
        lengths.append(float(np.sum(squares)) ** 0.5)
    error = abs(lengths[0] / lengths[1] - 1)
    if not error <= tolerance:
        raise Differs(f"the lengths of the gradients are {lengths}")
    return error


def _sentences(ours, theirs):
    """Return the fraction of equal translations, and the largest difference of their ln P."""
    equal = [
        abs(a[1] - b[1]) / abs(b[1]) for a, b in zip(ours, theirs, strict=True) if a[0] == b[0]
    ]
    fraction = _enough(len(equal) / len(ours))
    if not _largest(equal) <= PROBABILITY:
        raise Differs(f"ln P of a translation differs by {_largest(equal):.1e}")
    return {"same translations": fraction, "ln P": _largest(equal)}


def _largest(errors):
    """Return the largest number, or NaN if one is NaN, which max() would ignore."""
    return float(np.max(list(errors)))


if __name__ == "__main__":
    sys.exit(main())
