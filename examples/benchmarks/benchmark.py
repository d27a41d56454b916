"""Measure minitf against PyTorch and CTranslate2 on this machine, and print a table.

    python examples/benchmarks/benchmark.py --python PATH --json benchmark.json
    python examples/benchmarks/benchmark.py --earlier CHECKOUT --rivals

PATH is an interpreter in which the rivals are installed (pip install torch transformers ctranslate2
sentencepiece); a rival that is not installed is skipped. CHECKOUT is a folder with an earlier
commit (git worktree add), to see whether anything has become slower.

Each contender runs in its own process. They take turns, so that other work on the machine slows all
of them alike; the result is the median ratio of neighbouring timings. Before a contender is timed,
it and minitf compute the same thing from the same weights, and the results are compared. The report
begins with the machine. rows.py has the rows, table.py turns reports into tables.
"""

import argparse
import contextlib
import datetime
import json
import math
import os
import platform
import shutil
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
LONG = 0.1  # seconds; shorter work is repeated until a measurement takes as long
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples")]

from benchmarks import compare, report, rows, work  # noqa: E402
from benchmarks.protocol import Missing, Worker, cores  # noqa: E402

SUBWORDS = ROOT / "examples" / "models" / "en-de" / "subwords.model"


def main(arguments=None):
    """Measure the chosen rows; return exit code 1 if a contender computed something else."""
    options = _options(arguments)
    if options.isa:
        os.environ.update(AVX2)  # for the processes of the contenders
    with tempfile.TemporaryDirectory() as folder:
        contest = Contest(options, folder)
        found = contest.describe()
        _say(report.head(found))
        _say([contest.expected()])
        found["rows"] = []
        for row in options.rows:
            found["rows"].append(contest.measure(row))
            _say(report.lines_of(found["rows"][-1]))
            if options.json:  # after each row, or an error would lose an hour of measuring
                Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.plot:
        from benchmarks.picture import draw

        try:
            draw(found["rows"], options.plot)
        except ValueError as error:
            print(f"benchmark.py: {error}", file=sys.stderr)
            return 2
    return 1 if contest.wrong else 0


def _options(arguments):
    parser = argparse.ArgumentParser(description="Measure minitf against PyTorch and CTranslate2.")
    parser.add_argument(
        "--rows",
        nargs="+",
        metavar="NAME",
        help="rows, or beginnings of their names: train, greedy, beam, attention, start-up, file, "
        "import, growth (default: all but growth)",
    )
    parser.add_argument(
        "--rivals",
        nargs="*",
        choices=rows.RIVALS,
        metavar="NAME",
        help=f"the programs to compare with minitf, of {', '.join(rows.RIVALS)} (default: all of "
        "them; --rivals without a name: none)",
    )
    parser.add_argument(
        "--earlier",
        metavar="CHECKOUT",
        help="a folder with an earlier commit of minitf, to measure as well",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        metavar="N",
        help="timings of each program; fewer than 6 give no interval (default: 15)",
    )
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="the Python interpreter in which PyTorch and CTranslate2 are installed (default: this "
        "one)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="threads of each program (default: as many as it chooses)",
    )
    parser.add_argument(
        "--isa",
        choices=["avx2"],
        help="keep all programs from using wider instructions, on a processor that has them: what "
        "most laptops have",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write all measurements to this file, for table.py"
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="draw the rows that differ in one number, such as growth-length",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="check that everything works: tiny sizes, 2 pairs; the times mean nothing",
    )
    return _checked(parser, parser.parse_args(arguments))


def _checked(parser, options):
    """Fill in dependent options, and refuse impossible ones."""
    if (
        options.earlier
        and not (Path(options.earlier) / "examples" / "benchmarks" / "ours.py").is_file()
    ):
        parser.error(f"--earlier {options.earlier}: not a checkout of minitf")
    try:
        options.rows = rows.chosen(options.rows or rows.DEFAULT)
    except ValueError as error:
        parser.error(str(error))
    if options.quick:
        options.rows = [rows.quick(row) for row in options.rows]
        if options.rivals is None:  # compiling takes minutes
            options.rivals = [name for name in rows.RIVALS if name != "torch-compile"]
    if options.rivals is None:
        options.rivals = rows.RIVALS
    if options.pairs is None:
        options.pairs = 2 if options.quick else 15
    if shutil.which(options.python) is None:
        parser.error(f"--python {options.python}: there is no such program")
    for flag, path in (("--json", options.json), ("--plot", options.plot)):
        # Refused now, and not after an hour of measuring.
        if path and not Path(path).absolute().parent.is_dir():
            parser.error(f"{flag} {path}: there is no such folder")
    if options.pairs < 2:
        parser.error("--pairs must be 2 or more")
    return options


class Contest:
    """The contenders, and the folder with the weights that all of them start from."""

    def __init__(self, options, folder):
        self.options, self.folder = options, Path(folder)
        self.missing, self.wrong = {}, False  # contenders that cannot take part: {name: why}

    def names(self, row):
        """Return the contenders of a row, minitf first."""
        rivals = [
            name
            for name in row.contenders
            if name in self.options.rivals and name not in self.missing
        ]
        return ["minitf", *(["earlier"] if self.options.earlier else []), *rivals]

    def worker(self, name, row=None):
        """Return a new process for a contender."""
        contender = rows.CONTENDERS[name]
        python = self.options.python if contender.foreign else sys.executable
        if row and row.kind == "command":
            module, root = "command", ROOT
        else:
            module, root = contender.module, self.root(name)
        return Worker(module, python, self.options.threads, contender.environment, root)

    def root(self, name):
        """Return the checkout whose code a contender runs."""
        return Path(self.options.earlier).resolve() if name == "earlier" else ROOT

    def describe(self):
        """Return the machine, the versions of all contenders, and the missing ones."""
        with Worker("machine", threads=self.options.threads) as worker:
            machine = worker.call(job="about", threads=self.options.threads)
        if self.options.isa:
            machine["instructions"] = [self.options.isa]
        found = _circumstances() | {
            "processor": machine["model name"],
            "machine": machine,
            "pairs": self.options.pairs,
            "quick": self.options.quick,
            "versions": {},
        }
        wanted = {name for row in self.options.rows for name in self.names(row)}
        for name in ("minitf", "torch", "ctranslate2", "transformers"):
            same = _same_program(name)
            if wanted & set(same):
                try:
                    with self.worker(name) as worker:
                        found["versions"][name] = worker.call(
                            job="about", threads=self.options.threads
                        )
                except Missing as reason:
                    self.missing |= dict.fromkeys(same, str(reason))
        if self.options.earlier:
            with self.worker("earlier") as worker:
                about = worker.call(job="about", threads=self.options.threads)
            found["versions"]["earlier"] = {"earlier": _commit(self.options.earlier)} | about
        found["missing"] = self.missing
        return found

    def expected(self):
        """Return a line that says about how long all rows take."""
        pairs = self.options.pairs
        seconds = [rows.expected(row, len(self.names(row)), pairs) for row in self.options.rows]
        if self.options.quick:  # tiny sizes
            seconds = [0.5 * rows.START * len(self.names(row)) for row in self.options.rows]
        return (
            f"expected time: {math.ceil(sum(seconds) / 60)} min on two idle cores of an AMD EPYC "
            "(--rows, --rivals and --pairs choose less)"
        )

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
        names = self.names(row)
        shared = self._shared(row, names, result)
        for name in names[1:]:
            self._compare(name, row, shared, result)
        with contextlib.ExitStack() as stack:
            workers, seconds, facts = {}, {}, {}
            for name in names:
                if name in result["skipped"]:
                    continue
                try:
                    worker = stack.enter_context(self.worker(name, row))
                    answer = worker.prepare(self._task(name, row, shared))
                except Missing as reason:
                    if name == "minitf" and row.kind != "epoch":
                        raise RuntimeError(f"{row.name}: {reason}") from None
                    result["skipped"][name] = str(reason)
                    continue
                workers[name], seconds[name] = worker, answer["seconds"]
                facts |= answer.get("facts", {})
            result["facts"] = facts | _items(row)
            if workers:
                found = self._time(workers, seconds, result["skipped"])
                result["contenders"] = report.figures(found)
        return result

    def _shared(self, row, names, result):
        """Write the files that all contenders of a row start from, and return their common task.

        A contender that cannot read them is skipped.
        """
        task = row.task | {"threads": self.options.threads, "job": row.kind}
        if "model" in task and row.kind != "epoch":
            task["weights"] = str(self._weights(task))
        if "lines" in task:
            model, files = self._bundled(task["lines"])
            task["files"] = files
            if "ctranslate2" in names:
                try:
                    with self.worker("ctranslate2") as worker:
                        worker.call(job="convert", model=model, **files)
                except Missing as reason:
                    result["skipped"]["ctranslate2"] = str(reason)
        return task

    def _bundled(self, lines):
        """Write lines to translate, and the weights of the bundled model.

        Returns the sizes of the model, and the names of all files that programs read.
        """
        files = {
            "input": self.folder / "lines.txt",
            "weights": self.folder / "bundled.npz",
            "folder": self.folder / "bundled",  # for the model of CTranslate2
            "subwords": SUBWORDS,
        }
        files["folder"].mkdir(exist_ok=True)
        files = {name: str(path) for name, path in files.items()}
        with self.worker("minitf") as worker:
            model = worker.call(
                job="bundled", lines=lines, weights=files["weights"], input=files["input"]
            )
        return model, files

    def _task(self, name, row, shared):
        """Return the task of one contender."""
        if row.kind != "command":
            return shared | rows.CONTENDERS[name].options
        files = shared.get("files", {}) | {"output": str(self._output(name))}
        program = shared["programs"]["minitf" if name == "earlier" else name]
        arguments = [argument.format(**files) for argument in program]
        return {"job": "command", "arguments": arguments, "root": str(self.root(name))}

    def _output(self, name):
        """Return the file into which a command of a contender writes its translations."""
        return self.folder / f"{name}.txt"

    def _weights(self, task):
        """Return the file of the weights that all contenders of a row start from."""
        sizes = "-".join(str(value) for value in task["model"].values())
        path = self.folder / f"weights-{sizes}-{'decode' if 'beam' in task else 'train'}.npz"
        if not path.exists():
            with self.worker("minitf") as worker:
                worker.call(**{**task, "job": "draw", "weights": str(path)})
        return path

    def _compare(self, name, row, shared, result):
        """Compare a contender with minitf, unless another one with the same code was compared."""
        contender = rows.CONTENDERS[name]
        done = {
            (rows.CONTENDERS[other].module, str(rows.CONTENDERS[other].options))
            for other in result["equal"]
        }
        key = contender.module, str(contender.options)
        silent = row.kind == "command" and "lines" not in row.task
        if silent or name == "products" or name in result["skipped"] or key in done:
            return
        try:
            with self.worker("minitf", row) as ours, self.worker(name, row) as theirs:
                if row.kind == "command":
                    ours.prepare(self._task("minitf", row, shared))
                    theirs.prepare(self._task(name, row, shared))
                    found = compare.texts(self._output("minitf"), self._output(name))
                else:
                    task = shared | contender.options
                    found = compare.compare(row.kind, task, ours, theirs, self.folder)
            result["equal"][name] = found
        except Missing as reason:
            result["skipped"][name] = str(reason)
        except compare.Differs as error:
            self.wrong = True
            why = f"not timed, it computes something else: {error}"
            same = [
                other for other in _same_program(name) if other in row.contenders or other == name
            ]
            result["skipped"] |= dict.fromkeys(same, why)

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


def _same_program(name):
    """Return the contenders that run the same module as this one."""
    module = rows.CONTENDERS[name].module
    return [other for other in rows.CONTENDERS if rows.CONTENDERS[other].module == module]


def _items(row):
    """Return the number of tokens or sentences in one run, for a rate."""
    if row.kind == "train":
        source, _, target = work.batch(row.task)
        return {"tokens": int(np.count_nonzero(source) + np.count_nonzero(target))}
    if row.kind == "decode":
        return {"sentences": row.task["pairs"]}
    return {"sentences": row.task["lines"]} if "lines" in row.task else {}


def _circumstances():
    """Return the date, the commit and the system, for a report."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(ROOT),
        "cores": cores(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def _commit(root):
    """Return the commit of a checkout, for a report."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def _say(lines):
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    sys.exit(main())
