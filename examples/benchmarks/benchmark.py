"""Measure minitf against PyTorch and CTranslate2 on this machine, and print a table.

    python examples/benchmarks/benchmark.py --python PATH --json benchmark.json
    python examples/benchmarks/benchmark.py --earlier CHECKOUT --rivals

PATH is an interpreter in which the rivals are installed (pip install torch ctranslate2
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

# What keeps all contenders from using more than AVX2: OpenBLAS, oneDNN, MKL, PyTorch, CTranslate2.
AVX2 = {
    "OPENBLAS_CORETYPE": "HASWELL",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "CT2_FORCE_CPU_ISA": "AVX2",
}
LONG = 0.1  # seconds; shorter work is repeated until a measurement takes as long
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from benchmarks import compare, report, rows  # noqa: E402
from benchmarks.protocol import ON_GPU, Missing, Worker, cores  # noqa: E402
from minitf.cli import number  # noqa: E402


def main(arguments=None):
    """Measure the chosen rows; return exit code 1 if a contender computed something else."""
    options = _options(arguments)
    if options.isa:
        os.environ.update(AVX2)  # for the processes of the contenders
    contest = Contest(options)
    found = contest.describe()
    print("\n".join(report.head(found)), flush=True)
    found["rows"] = []
    _write(found, options.json)
    for row in options.rows:
        found["rows"].append(contest.measure(row))
        print("\n".join(report.lines_of(found["rows"][-1])), flush=True)
        _write(found, options.json)  # after each row, or an error would lose an hour of measuring
    return 1 if contest.wrong else 0


def _write(found, path):
    if path:
        Path(path).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _options(arguments):
    parser = argparse.ArgumentParser(description="Measure minitf against PyTorch and CTranslate2.")
    add = parser.add_argument
    beginnings = "train, greedy, beam, opus, start-up, file, import, gpu"
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
                    answer = worker.prepare(self._task(name, row, shared))
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
        if "model" in task or "lines" in task:
            with self.worker("minitf") as worker:
                worker.call(**task, job="draw" if "model" in task else "bundled")
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
                    ours.prepare(self._task("minitf", row, shared))
                    theirs.prepare(self._task(name, row, shared))
                    found = compare.texts(*(_output(each, shared) for each in ("minitf", name)))
                else:
                    found = compare.compare(row.kind, shared, ours, theirs)
            result["equal"][name] = found
        except Missing as reason:
            result["skipped"][name] = str(reason)
        except compare.Differs as error:
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


if __name__ == "__main__":
    sys.exit(main())
