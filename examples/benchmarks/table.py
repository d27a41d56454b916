"""Tables of the reports of benchmark.py, in Markdown, so that nobody copies a figure by hand.

    python examples/benchmarks/table.py REPORT.json ... [--rows NAME ...] [--contenders NAME ...]
    python examples/benchmarks/table.py --fill examples/benchmarks/README.md

The first command prints a table for each kind of processor. Where several reports of one processor
have a row, their figures are separated by commas, in the order of the reports. The second command
replaces the tables of a page: each is between a line such as

    <!-- table.py examples/benchmarks/results/cpu.json --rows train -->

with the arguments of the first command (but paths begin at the repository), and `<!-- end -->`.
"""

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples")]

from benchmarks import report, rows  # noqa: E402

# The widest instruction set decides how fast matrices are multiplied.
WIDEST = {"amx_tile": "AMX", "avx512f": "AVX-512", "avx2": "AVX2", "sve": "SVE", "asimd": "NEON"}
# Their versions are stated.
PROGRAMS = (
    "minitf",
    "earlier",
    "NumPy",
    "matrix products",
    "PyTorch",
    "transformers",
    "CTranslate2",
)
MARKED = re.compile(r"(<!-- table\.py (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def main(arguments=None):
    """Print the tables, or fill them into pages; return the exit code."""
    options = _options(arguments)
    try:
        for page in options.fill or ():
            text = Path(page).read_text(encoding="utf-8")
            Path(page).write_text(filled(text), encoding="utf-8")
        if not options.fill:
            print(tables(options), end="")
    except (OSError, ValueError) as error:
        print(f"table.py: {error}", file=sys.stderr)
        return 2
    return 0


def _options(arguments):
    parser = argparse.ArgumentParser(description="Print reports of benchmark.py as tables.")
    parser.add_argument("reports", nargs="*", metavar="REPORT", help="a file that --json wrote")
    parser.add_argument(
        "--rows",
        nargs="+",
        metavar="NAME",
        help="rows, or beginnings of their names (default: all)",
    )
    parser.add_argument(
        "--contenders",
        nargs="+",
        choices=rows.CONTENDERS,
        default=["torch", "torch-kept", "transformers", "ctranslate2"],
        metavar="NAME",
        help=f"the columns besides minitf, of {', '.join(list(rows.CONTENDERS)[1:])} (default: "
        "torch, torch-kept, transformers, ctranslate2)",
    )
    parser.add_argument(
        "--quantity",
        choices=["ratio", "memory", "cpu"],
        default="ratio",
        help="in these columns: ratios with intervals (default), peak memory, or CPU seconds",
    )
    parser.add_argument(
        "--fill", nargs="+", metavar="PAGE", help="make the tables of these Markdown pages again"
    )
    options = parser.parse_args(arguments)
    if bool(options.reports) == bool(options.fill):
        parser.error("name reports, or pages to --fill")
    return options


def filled(text):
    """Return the text of a page with its tables made from the reports."""

    def made(match):
        first, arguments, last = match.groups()
        return f"{first}\n{tables(_options(shlex.split(arguments)), ROOT)}\n{last}"

    return MARKED.sub(made, text)


def tables(options, folder=Path()):
    """Return one table for each kind of processor, each under a line about the machine.

    folder: where the paths of the reports begin.
    """
    groups = {}
    for path in options.reports:
        found = json.loads((folder / path).read_text(encoding="utf-8"))
        groups.setdefault(kind(found), []).append(found)
    return "\n".join(_table(name, reports, options) for name, reports in groups.items())


def kind(found):
    """Return the kind of processor of a report, such as "AMD EPYC, AVX-512"."""
    instructions = found.get("machine", {}).get("instructions", [])
    widest = [title for name, title in WIDEST.items() if name in instructions]
    return ", ".join([found["processor"], *widest[:1]])


def _table(name, reports, options):
    """Return the lines of one table as text."""
    results = {}
    for found in reports:
        for result in found["rows"]:
            results.setdefault(result["row"], []).append(result)
    chosen = [row.name for row in rows.chosen(options.rows or rows.ROWS) if row.name in results]
    names = ["minitf", *options.contenders]
    present = {other for row in chosen for result in results[row] for other in result["contenders"]}
    names = [other for other in names if other in present]
    lines = [
        f"**{name}**: {_circumstances(reports)}",
        "",
        f"| work | {' | '.join(rows.CONTENDERS[other].title for other in names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    for row in chosen:
        title = rows.ROWS[row].title.format(**results[row][0]["task"])
        cells = [_cell(results[row], other, options.quantity) for other in names]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _circumstances(reports):
    """Return the cores, the versions, the commit, the date and the pairs, as text."""
    versions = {}
    for found in reports:
        for name, programs in found["versions"].items():
            for program, version in programs.items():
                if program in PROGRAMS and (program == "earlier") == (name == "earlier"):
                    versions.setdefault(program, []).append(version)
    programs = [f"{program} {_all(texts)}" for program, texts in versions.items()]
    return "; ".join(
        filter(
            None,
            [
                f"{reports[0]['cores']} cores",
                ", ".join(programs),
                f"commit {_all(found['commit'] for found in reports)}",
                _all(found["date"][:10] for found in reports),
                f"medians of {_all(str(found['pairs']) for found in reports)} pairs",
                _machine(reports[0].get("machine")),
            ],
        )
    )


def _all(texts):
    return " and ".join(dict.fromkeys(texts))


def _machine(machine):
    """Return the model and the speed of a processor as text; earlier reports do not have them."""
    if not machine:
        return ""
    products = [f"{flops / 1e9:.0f}" for flops in machine["products"].values()]
    return (
        f"family {machine['family']}, model {machine['model']}, "
        f"{machine['additions'] / 1e6:.0f} million additions a second in Python, "
        f"copies {machine['copy'] / 1e9:.0f} GB/s on one thread, products "
        f"{' and '.join(products)} GFLOP/s on {' and '.join(machine['products'])} threads"
    )


def _cell(results, name, quantity):
    """Return the figures of one contender in one row, from each report that has them."""
    found = [result["contenders"][name] for result in results if name in result["contenders"]]
    return ", ".join(filter(None, (_figure(contender, name, quantity) for contender in found)))


def _figure(contender, name, quantity):
    if quantity == "memory":
        return contender["memory"] and report.megabytes(contender["memory"])
    if quantity == "cpu":
        return contender.get("cpu") and report.time(contender["cpu"])
    return report.time(contender["median"]) if name == "minitf" else report.ratio(contender)


if __name__ == "__main__":
    sys.exit(main())
