"""The figures of a row, and the text that benchmark.py prints about the machine and each row."""

import math
import statistics

from benchmarks import rows

MISSED = 0.05  # the probability that an interval does not contain the median


# Figures ------------------------------------------------------------------------------------------


def figures(found):
    """Return the figures of each contender from its runs: {name: [answer of Worker.run, ...]}.

    A ratio is the contender's time divided by minitf's, of two runs that are neighbours: above 1,
    minitf is faster.
    """
    result = {}
    for name, runs in found.items():
        seconds = [run["seconds"] for run in runs]
        cpu = [run["cpu"] for run in runs if run.get("cpu") is not None]
        peaks = [run["memory"] for run in runs if run["memory"]]
        ratios = [b["seconds"] / a["seconds"] for a, b in zip(found["minitf"], runs, strict=True)]
        result[name] = {
            "seconds": seconds,
            "median": statistics.median(seconds),
            "quartiles": _quartiles(seconds),
            "ratio": statistics.median(ratios),
            "ratio interval": median_interval(ratios),
            "cpu seconds": cpu,
            "cpu": statistics.median(cpu) if cpu else None,
            "memory": max(peaks) if peaks else None,
        }
    return result


def _quartiles(values):
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


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
        f"{report['processor']}, {report['cores']} cores, {report['system']}, "
        f"Python {report['python']}",
        *_machine(report["machine"]),
    ]
    lines += [
        ", ".join(f"{key} {value}" for key, value in versions.items())
        for versions in report["versions"].values()
    ]
    lines.append(f"commit {report['commit']}, {report['date']}")
    if (report["load"] or 0) > 0.5 * report["cores"]:
        lines.append(
            f"the machine is busy (load {report['load']:.1f}): times and ratios are unreliable"
        )
    for reason in sorted(set(report["missing"].values())):
        names = [name for name in rows.CONTENDERS if report["missing"].get(name) == reason]
        lines.append(f"skipped: {', '.join(map(_title, names))}: {reason}")
    lines.append(f"time: the median of {report['pairs']} runs [quartiles]")
    lines.append(
        "ratio: time of a contender / time of minitf (above 1: minitf is faster), the median of "
        f"{report['pairs']} pairs {_interval_explained(report['pairs'])}"
    )
    lines.append("memory: the peak of the process, and minitf's peak relative to it")
    return lines


def _interval_explained(n):
    k = rank(n)
    if not k:
        return "(fewer than 6 pairs have no interval)"
    ranks = "smallest and largest" if k == 1 else f"{_nth(k)} smallest and {_nth(k)} largest"
    return f"[its 95% interval: the {ranks} of {n} ratios]"


def _nth(k):
    return f"{k}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(k, 'th') }"


def _machine(machine):
    """Return the lines about the processor and its speed."""
    caches = ", ".join(f"{level} {size}" for level, size in machine["caches"].items())
    names = (
        machine["vendor"],
        machine["family"] and f"family {machine['family']}",
        machine["model"] and f"model {machine['model']}",
        f"instructions {' '.join(machine['instructions']) or 'unknown'}",
        f"caches {caches or 'unknown'}",
    )
    products = ", ".join(
        f"{flops / 1e9:.0f} GFLOP/s on {count} thread{'s' * (count != '1')}"
        for count, flops in machine["products"].items()
    )
    return [
        ", ".join(filter(None, names)),
        f"{machine['additions'] / 1e6:.1f} million additions a second in Python, "
        f"{machine['array call'] * 1e6:.2f} us for a call of NumPy, "
        f"copies {machine['copy'] / 1e9:.1f} GB/s on 1 thread, products {products}",
    ]


def lines_of(result):
    """Return the lines of one row: one for each contender, and conclusions."""
    lines = ["", f"{result['row']}: {result['title']}"]
    for name, found in result["equal"].items():
        errors = ", ".join(
            f"{quantity} {error:.0%}" if error > 0.1 else f"{quantity} {error:.1e}"
            for quantity, error in found.items()
        )
        lines.append(f"  same as {_title(name)}: {errors}")
    width = 1 + max((len(_title(name)) for name in result["contenders"]), default=0)
    for name, contender in result["contenders"].items():
        low, high = (time(value) for value in contender["quartiles"])
        cells = f"  {_title(name):{width}}{time(contender['median']):>9} {f'[{low}, {high}]':22}"
        if name != "minitf":
            cells += ratio(contender, "6.2f")
        cells = f"{cells:{width + 57}}" + "".join(
            f"{cell:>20}" for cell in _rates(result, name, contender)
        )
        lines.append(cells.rstrip())
    lines += [f"  {line}" for line in _conclusions(result)]
    return lines + [f"  skipped: {_title(name)}: {why}" for name, why in result["skipped"].items()]


def _rates(result, name, contender):
    """Yield work per second, CPU seconds and memory as text."""
    counts = [
        (count, unit) for unit, count in result["facts"].items() if unit in ("tokens", "sentences")
    ]
    if counts and name != "products":
        count, unit = counts[0]
        yield f"{count / contender['median']:,.4g} {unit}/s"
    if result["kind"] == "command" and contender["cpu"]:
        yield f"CPU {time(contender['cpu'])}"
    if contender["memory"] and name != "products":
        fraction = result["contenders"]["minitf"]["memory"] / contender["memory"]
        yield megabytes(contender["memory"]) + ("" if name == "minitf" else f" ({fraction:.0%})")


def _conclusions(result):
    """Yield conclusions from several figures."""
    contenders, facts = result["contenders"], result["facts"]
    if "padding" in facts:
        yield (
            f"{facts['padding']:.1%} of the positions are padding; the epoch has "
            f"{facts['batches']:,} batches"
        )
    if "imports" in contenders and contenders["imports"]["cpu"]:
        pairs = zip(
            contenders["minitf"]["cpu seconds"], contenders["imports"]["cpu seconds"], strict=True
        )
        ratios = [ours / imports for ours, imports in pairs]
        cpu = {"ratio": statistics.median(ratios), "ratio interval": median_interval(ratios)}
        yield f"minitf takes {ratio(cpu)} times the CPU seconds of {_title('imports')}"
    if "products" in contenders:
        products = contenders["products"]
        yield f"{products['ratio']:.0%} of minitf's step are matrix products"
        for name in ("torch", "torch-kept"):
            if name in contenders:
                pairs = zip(contenders[name]["seconds"], products["seconds"], strict=True)
                limit = statistics.median(theirs / ours for theirs, ours in pairs)
                yield (
                    f"if everything else took no time, the ratio of {_title(name)} would be "
                    f"{limit:.2f}"
                )


def _title(name):
    return rows.CONTENDERS[name].title


def time(seconds):
    """Return seconds with three digits, as text."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{1000 * seconds:.3g} ms"


def ratio(contender, form=".2f"):
    """Return a ratio and its interval, if it has one, as text."""
    text = f"{contender['ratio']:{form}}"
    if contender["ratio interval"]:
        low, high = contender["ratio interval"]
        text += f" [{low:.2f}, {high:.2f}]"
    return text


def megabytes(count):
    """Return bytes as text."""
    return f"{count / 2**20:,.0f} MB"
