"""The figures of a row, what benchmark.py prints, and tables of its reports in Markdown.

    python examples/benchmarks/report.py REPORT.json ... [--rows NAME ...] [--contenders NAME ...]

prints a table for each kind of processor. Where several reports of one processor have a row, their
figures are separated by commas, in the order of the reports.
"""

import argparse
import json
import math
import statistics
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import rows  # noqa: E402

MISSED = 0.05  # the probability that an interval does not contain the median
# The widest instruction set decides how fast matrices are multiplied.
WIDEST = {"amx_tile": "AMX", "avx512f": "AVX-512", "avx2": "AVX2", "sve": "SVE", "asimd": "NEON"}
# Their versions are stated.
PROGRAMS = ("minitf", "earlier", "NumPy", "matrix products", "PyTorch", "CTranslate2", "Marian")


# Figures ------------------------------------------------------------------------------------------


def figures(found):
    """Return the figures of each contender from its runs: {name: [answer of Worker.run, ...]}.

    A ratio is the contender's time divided by minitf's, of two runs that are neighbours: above 1,
    minitf is faster.
    """
    result = {}
    for name, runs in found.items():
        seconds = [run["seconds"] for run in runs]
        peaks = [run["memory"] for run in runs if run["memory"]]
        ratios = [b["seconds"] / a["seconds"] for a, b in zip(found["minitf"], runs, strict=True)]
        result[name] = {
            "seconds": seconds,
            "median": statistics.median(seconds),
            "ratio": statistics.median(ratios),
            "ratio interval": median_interval(ratios),
            "memory": max(peaks) if peaks else None,
        }
    return result


def rank(n):
    """Return the k for which the 95% interval is from the k-th smallest to the k-th largest value.

    It is the largest k that is allowed. The median of a distribution is outside the interval if
    fewer than k of n values are on one side of it:

        2 P(Binomial(n, 1/2) < k) <= 5%

    0 for n below 6: even the extremes miss the median more often.
    """
    k, at_most_k = 0, 1  # the ways in which at most k of n values are below the median
    while 2 * at_most_k / 2**n <= MISSED:
        k += 1
        at_most_k += math.comb(n, k)
    return k


def median_interval(values):
    """Return the 95% interval of the median, [low, high], or None for fewer than 6 values.

    It holds for every distribution, because only ranks are used.
    """
    k = rank(len(values))
    return [sorted(values)[k - 1], sorted(values)[-k]] if k else None


# What is printed ----------------------------------------------------------------------------------


def head(report):
    """Return the lines above the rows: the machine, the versions, how to read the figures."""
    lines = [
        f"{kind(report)}; {report['system']}; Python {report['python']}",
        *_circumstances([report]),
        "ratio: time of a contender / time of minitf (above 1: minitf is faster), in brackets its "
        "95% interval; memory: the peak of the process",
    ]
    if (report["load"] or 0) > 0.5 * report["cores"]:
        lines.append(f"the machine is busy (load {report['load']:.1f}): ratios are unreliable")
    missing = report["missing"].items()
    return lines + [f"skipped: {rows.CONTENDERS[name].title}: {why}" for name, why in missing]


def lines_of(result):
    """Return the lines of one row: one for each contender."""
    lines = ["", f"{result['row']}: {result['title']}"]
    for name, found in result["equal"].items():
        errors = ", ".join(f"{quantity} {error:.2g}" for quantity, error in found.items())
        lines.append(f"  same as {rows.CONTENDERS[name].title}: {errors}")
    for name, found in result["contenders"].items():
        words = f"{time(found['median']):>9}  {'' if name == 'minitf' else ratio(found):20}"
        words += f"{megabytes(found['memory']):>9}"
        lines.append(f"  {rows.CONTENDERS[name].title:38}{words}".rstrip())
    skipped = result["skipped"].items()
    return lines + [f"  skipped: {rows.CONTENDERS[name].title}: {why}" for name, why in skipped]


def time(seconds):
    """Return seconds with three digits, as text."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def ratio(contender):
    """Return a ratio and its interval, if it has one, as text."""
    text = f"{contender['ratio']:.2f}"
    if contender["ratio interval"]:
        low, high = contender["ratio interval"]
        text += f" [{low:.2f}, {high:.2f}]"
    return text


def megabytes(count):
    """Return bytes as text, nothing if they are unknown."""
    return f"{count / 2**20:,.0f} MB" if count else ""


# Tables -------------------------------------------------------------------------------------------


def tables(arguments, folder=Path()):
    """Return one table for each kind of processor, each under a line about the machine.

    arguments: of the command line. folder: where the paths of the reports begin.
    """
    parser = argparse.ArgumentParser(description="Print reports of benchmark.py as tables.")
    parser.add_argument("reports", nargs="+", metavar="REPORT", help="a file that --json wrote")
    said = "rows, or beginnings of their names (default: all)"
    parser.add_argument("--rows", nargs="+", default=[""], metavar="NAME", help=said)
    default = ["torch", "torch-kept", "ctranslate2", "marian"]
    said = f"the columns besides minitf (default: {' '.join(default)})"
    parser.add_argument("--contenders", nargs="+", default=default, metavar="NAME", help=said)
    parser.add_argument("--memory", action="store_true", help="peak memory instead of times")
    options = parser.parse_args(arguments)
    groups = {}
    for path in options.reports:
        found = json.loads((folder / path).read_text(encoding="utf-8"))
        groups.setdefault(kind(found), []).append(found)
    return "\n".join(_table(name, reports, options) for name, reports in groups.items())


def kind(found):
    """Return the kind of processor of a report, such as "AMD EPYC, AVX-512"."""
    widest = [title for name, title in WIDEST.items() if name in found["machine"]["instructions"]]
    return ", ".join([found["processor"], *widest[:1]])


def _table(name, reports, options):
    """Return the lines of one table as text."""
    results = {}
    for found in reports:
        for result in found["rows"]:
            results.setdefault(result["row"], []).append(result)
    order = {row: i for i, row in enumerate(rows.ROWS)}  # a row that is gone: before new processes
    chosen = [row for row in results if row.startswith(tuple(options.rows))]
    chosen.sort(key=lambda row: order.get(row, order["start-up"] - 1))
    present = {other for row in chosen for result in results[row] for other in result["contenders"]}
    names = [other for other in ("minitf", *options.contenders) if other in present]
    lines = [
        f"**{name}**: {'; '.join(_circumstances(reports))}",
        "",
        f"| work | {' | '.join(rows.CONTENDERS[other].title for other in names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    for row in chosen:
        cells = [_cell(results[row], other, options.memory) for other in names]
        lines.append(f"| {results[row][0]['title']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(results, name, memory):
    """Return the figures of one contender in one row, from each report that has them."""
    found = [result["contenders"][name] for result in results if name in result["contenders"]]
    if memory:
        return ", ".join(megabytes(each["memory"]) for each in found if each["memory"])
    return ", ".join(time(each["median"]) if name == "minitf" else ratio(each) for each in found)


def _circumstances(reports):
    """Return what is said about the machine, the programs and the runs of reports."""
    machine = reports[0]["machine"]
    products = [f"{flops / 1e9:.0f}" for flops in machine["products"].values()]
    return [
        f"{reports[0]['cores']} cores",
        ", ".join(_versions(reports)),
        f"commit {_all(found['commit'] for found in reports)}",
        _all(found["date"][:10] for found in reports),
        f"medians of {_all(str(found['pairs']) for found in reports)} pairs",
        f"family {machine['family']}, model {machine['model']}, "
        f"{machine['additions'] / 1e6:.0f} million additions a second in Python, "
        f"copies {machine['copy'] / 1e9:.0f} GB/s on one thread, products "
        f"{' and '.join(products)} GFLOP/s on {' and '.join(machine['products'])} threads",
    ]


def _versions(reports):
    """Return the versions of all programs in reports: ["NumPy 2.4.6", ...]."""
    versions = {}
    for found in reports:
        for name, programs in found["versions"].items():
            for program, version in programs.items():
                if program in PROGRAMS and (program == "earlier") == (name == "earlier"):
                    versions.setdefault(program, []).append(version)
    return [f"{program} {_all(texts)}" for program, texts in versions.items()]


def _all(texts):
    return " and ".join(dict.fromkeys(texts))


if __name__ == "__main__":
    print(tables(sys.argv[1:]), end="")
