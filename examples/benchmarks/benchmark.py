"""Measure minitf against PyTorch and CTranslate2 on this machine, and print a table.

    python examples/benchmarks/benchmark.py --python PATH --json benchmark.json
    python examples/benchmarks/benchmark.py --earlier CHECKOUT --rivals

PATH is an interpreter in which the rivals are installed (pip install torch ctranslate2 numpy); a
rival that is not installed is skipped. CHECKOUT is a folder with an earlier commit (git worktree
add), to see whether anything has become slower.

Each side runs in its own process. The sides take turns, so that other work on the machine slows all
of them alike; the result is the median ratio of neighbouring timings. Before a rival is timed, both
sides compute the same thing from the same weights, and the results are compared. The other files of
this folder are the sides; rows.py has the rows.
"""

import argparse
import contextlib
import datetime
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

LONG = 0.1  # seconds; shorter work is repeated until a measurement takes as long
IMPORTED = {"minitf": "minitf", "earlier": "minitf", "torch": "torch"}
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples")]

from benchmarks import compare, rows, work  # noqa: E402
from benchmarks.protocol import Importer, Missing, Worker, cores  # noqa: E402


def main(arguments=None):
    """Measure the chosen rows; returns exit code 1 if two sides computed different things."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory() as folder:
        contest = Contest(options, folder)
        report = contest.describe()
        _say(_head(report))
        report["rows"] = []
        for row in options.rows:
            report["rows"].append(contest.measure(row))
            _say(_table(report["rows"][-1]))
            if options.json:  # after each row, or an error would lose an hour of measuring
                Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if options.plot:
        from benchmarks.picture import draw

        try:
            draw(report["rows"], options.plot)
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
        help="rows, or beginnings of their names (default: all but growth)",
    )
    parser.add_argument(
        "--rivals", nargs="*", choices=rows.RIVALS, help="the rivals to measure (default: all)"
    )
    parser.add_argument(
        "--earlier",
        metavar="CHECKOUT",
        help="a checkout of an earlier commit, to measure as well",
    )
    parser.add_argument("--pairs", type=int, help="measurements of each side (default: 15)")
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="an interpreter in which the rivals are installed",
    )
    parser.add_argument("--threads", type=int, help="of each side (default: as installed)")
    parser.add_argument("--json", metavar="FILE", help="write all measurements")
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="draw the rows that differ in one number, such as growth-length",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="try whether everything works: tiny sizes, 2 pairs; the times mean nothing",
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
        python = self.options.python if contender.rival else sys.executable
        root = Path(self.options.earlier).resolve() if name == "earlier" else ROOT
        if row and row.kind == "import":
            return Importer(IMPORTED[name], python, root)
        return Worker(contender.module, python, self.options.threads, contender.environment, root)

    def describe(self):
        """Return the machine, the versions of all sides, and the missing ones."""
        report = _machine() | {
            "pairs": self.options.pairs,
            "quick": self.options.quick,
            "sides": {},
        }
        wanted = {name for row in self.options.rows for name in self.names(row)}
        for name in ("minitf", "torch", "ctranslate2"):
            sides = [
                key
                for key in rows.CONTENDERS
                if rows.CONTENDERS[key].module == rows.CONTENDERS[name].module
            ]
            if wanted & set(sides):
                try:
                    with self.worker(name) as worker:
                        report["sides"][name] = worker.call(
                            job="about", threads=self.options.threads
                        )
                except Missing as reason:
                    self.missing |= dict.fromkeys(sides, str(reason))
        if self.options.earlier:
            with self.worker("earlier") as worker:
                about = worker.call(job="about", threads=self.options.threads)
            report["sides"]["earlier"] = {"earlier": _commit(self.options.earlier)} | about
        report["missing"] = self.missing
        return report

    # One row --------------------------------------------------------------------------------------

    def measure(self, row):
        """Compare the sides of a row, then time them in turn."""
        task = row.task | {"threads": self.options.threads, "job": row.kind}
        result = {
            "row": row.name,
            "title": row.title.format(**row.task),
            "task": row.task,
            "sides": {},
            "skipped": {},
            "equal": {},
        }
        if "model" in task and row.kind != "epoch":
            task["weights"] = str(self._weights(task))
        names = self.names(row)
        for name in names[1:]:
            self._compare(name, row, task, result)
        with contextlib.ExitStack() as stack:
            workers, seconds, facts = {}, {}, {}
            for name in names:
                if name in result["skipped"]:
                    continue
                try:
                    worker = stack.enter_context(self.worker(name, row))
                    answer = worker.prepare(task | rows.CONTENDERS[name].options)
                except Missing as reason:
                    if name == "minitf" and row.kind != "epoch":
                        raise RuntimeError(f"{row.name}: {reason}") from None
                    result["skipped"][name] = str(reason)
                    continue
                workers[name], seconds[name] = worker, answer["seconds"]
                facts |= answer.get("facts", {})
            result["facts"] = facts | _items(row)
            if workers:
                result["sides"] = _statistics(self._time(workers, seconds))
        return result

    def _weights(self, task):
        """Return the file of the weights that all sides of a row start from."""
        sizes = "-".join(str(value) for value in task["model"].values())
        path = self.folder / f"weights-{sizes}-{'decode' if 'beam' in task else 'train'}.npz"
        if not path.exists():
            with self.worker("minitf") as worker:
                worker.call(**{**task, "job": "draw", "weights": str(path)})
        return path

    def _compare(self, name, row, task, result):
        """Compare a contender with minitf, unless another one with the same code was compared."""
        contender = rows.CONTENDERS[name]
        done = {
            (rows.CONTENDERS[other].module, str(rows.CONTENDERS[other].options))
            for other in result["equal"]
        }
        key = contender.module, str(contender.options)
        if row.kind == "import" or name == "products" or key in done:
            return
        try:
            with self.worker("minitf") as ours, self.worker(name) as theirs:
                found = compare.compare(
                    row.kind, task | contender.options, ours, theirs, self.folder
                )
            result["equal"][name] = found
        except Missing as reason:
            result["skipped"][name] = str(reason)
        except compare.Differs as error:
            self.wrong = True
            same = [
                other
                for other in row.contenders
                if rows.CONTENDERS[other].module == contender.module
            ]
            result["skipped"] |= dict.fromkeys(
                same, f"not timed, it computes something else: {error}"
            )

    def _time(self, workers, seconds):
        """Time the workers in turn.

        Every other round is in reverse order, so that pairs are neighbours.
        """
        times = min(100, max(1, math.ceil(LONG / min(seconds.values()))))
        warm = 1 if max(seconds.values()) < 3 * LONG else 0
        found = {name: [] for name in workers}
        for i in range(self.options.pairs):
            for name in list(workers) if i % 2 == 0 else reversed(workers):
                found[name].append(workers[name].run(times, warm))
        return found


def _items(row):
    """Return the number of tokens or sentences in one piece of work."""
    if row.kind == "train":
        source, _, target = work.batch(row.task)
        return {"tokens": int(np.count_nonzero(source) + np.count_nonzero(target))}
    return (
        {"sentences": row.task["pairs"], "words": row.task["pairs"] * row.task["length"]}
        if row.kind == "decode"
        else {}
    )


def _statistics(found):
    """Return medians and quartiles of the seconds, and of the ratios of pairs.

    Above 1, minitf is faster.
    """
    sides = {}
    base = found["minitf"]
    for name, runs in found.items():
        seconds = [run["seconds"] for run in runs]
        ratios = [
            theirs["seconds"] / ours["seconds"] for ours, theirs in zip(base, runs, strict=True)
        ]
        peaks = [run["memory"] for run in runs if run["memory"]]
        sides[name] = {
            "seconds": seconds,
            "median": statistics.median(seconds),
            "quartiles": _quartiles(seconds),
            "ratio": statistics.median(ratios),
            "ratio quartiles": _quartiles(ratios),
            "memory": max(peaks) if peaks else None,
        }
    return sides


def _quartiles(values):
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


# What is printed ----------------------------------------------------------------------------------


def _machine():
    """Return the machine, the versions and the date, for a report."""
    model = platform.processor()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(ROOT),
        "processor": model or platform.machine(),
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


def _head(report):
    lines = [
        (
            f"{report['processor']}, {report['cores']} cores, {report['system']}, "
            f"Python {report['python']}"
        )
    ]
    lines += [
        ", ".join(f"{key} {value}" for key, value in side.items())
        for side in report["sides"].values()
    ]
    lines.append(
        f"commit {report['commit']}, {report['date']}, medians of {report['pairs']} "
        "pairs [quartiles]"
    )
    if (report["load"] or 0) > 0.5 * report["cores"]:
        lines.append(
            f"the machine is busy (load {report['load']:.1f}): times and ratios are unreliable"
        )
    for reason in sorted(set(report["missing"].values())):
        names = [
            rows.CONTENDERS[name].title
            for name in rows.CONTENDERS
            if report["missing"].get(name) == reason
        ]
        lines.append(f"skipped: {', '.join(names)}: {reason}")
    lines.append("ratio: time of a side / time of minitf (above 1: minitf is faster)")
    lines.append("memory: the peak of the process, and minitf's peak relative to it")
    return lines


def _table(result):
    """Return the lines of one row: one for each side, and conclusions."""
    lines = ["", f"{result['row']}: {result['title']}"]
    for name, found in result["equal"].items():
        errors = ", ".join(
            f"{what} {error:.0%}" if error > 0.1 else f"{what} {error:.1e}"
            for what, error in found.items()
        )
        lines.append(f"  same as {rows.CONTENDERS[name].title}: {errors}")
    for name, side in result["sides"].items():
        low, high = (_time(value) for value in side["quartiles"])
        cells = (
            f"  {rows.CONTENDERS[name].title:28}{_time(side['median']):>9} {f'[{low}, {high}]':22}"
        )
        if name != "minitf":
            low, high = side["ratio quartiles"]
            cells += f"{side['ratio']:6.2f} [{low:.2f}, {high:.2f}]"
        cells = f"{cells:85}" + "".join(f"{text:>20}" for text in _rates(result, name, side))
        lines.append(cells.rstrip())
    lines += [f"  {line}" for line in _conclusions(result)]
    return lines + [
        f"  skipped: {rows.CONTENDERS[name].title}: {why}"
        for name, why in result["skipped"].items()
    ]


def _rates(result, name, side):
    """Return work per second and memory as text."""
    counts = {
        key: value for key, value in result["facts"].items() if key in ("tokens", "sentences")
    }
    if counts and name != "products":
        (what, count), *_ = counts.items()
        yield f"{count / side['median']:,.4g} {what}/s"
    if side["memory"] and name != "products":
        share = side["memory"] / result["sides"]["minitf"]["memory"]
        yield f"{side['memory'] / 2**20:,.0f} MB" + (
            "" if name == "minitf" else f" ({1 / share:.0%})"
        )


def _conclusions(result):
    """Yield conclusions from the times of the matrix products."""
    sides, facts = result["sides"], result["facts"]
    if "padding" in facts:
        yield (
            f"{facts['padding']:.1%} of the positions are padding; the epoch has "
            f"{facts['batches']:,} batches"
        )
    if "products" in sides:
        products = sides["products"]
        yield f"{products['ratio']:.0%} of minitf's step are matrix products"
        for name in ("torch", "torch-kept"):
            if name in sides:
                ratios = [
                    a / b for a, b in zip(sides[name]["seconds"], products["seconds"], strict=True)
                ]
                title, limit = rows.CONTENDERS[name].title, statistics.median(ratios)
                yield (
                    f"if everything else took no time, the ratio of {title} would be {limit:.2f}"
                )


def _time(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


if __name__ == "__main__":
    sys.exit(main())
