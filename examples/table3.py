"""Table 3 of the paper, small: what each choice of the Transformer is worth, in an evening or two.

Each row of the table changes one thing about the base model. This program trains small versions of
all rows with several seeds, and compares each with the small base model of the same seed:

    python examples/table3.py --out runs/table3

One quarter of the paper's widths, half of its layers, the same numbers of heads; Multi30k, which is
downloaded, in place of WMT; equal updates for all rows. It trains as many models at a time as the
machine has cores, and can be stopped at any time: the same command goes on. At the end it writes
table3.json, table3.png and table3.md to the folder. The last two can be made again from the first:

    python examples/table3.py --show lessons/results/table3.json
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from minitf.config import Config
from minitf.cpu.machine import cores
from minitf.data import corpora
from minitf.errors import UserError
from minitf.files.atomic import save_text
from minitf.plot import label_axes, new_figure, save_figure

CORPUS = "multi30k"
VOCABULARY = 4000
SEEDS = 2
# Chosen on the base row alone. The rest is the paper's: no cooldown, and nothing is averaged.
RECIPE = (
    "--batch-tokens 1024 --accumulate 2 --warmup-steps 500 --steps 4000 --valid-every 400 "
    "--average 1 --patience 0 --beam 4 --alpha 0.6 --replicas 1 --log-every 100"
)

# Perplexity and BLEU of newstest2013, from Table 3.
PAPER = {
    "base": (4.92, 25.8),
    "A-h1": (5.29, 24.9),
    "A-h4": (5.00, 25.5),
    "A-h16": (4.91, 25.8),
    "A-h32": (5.01, 25.4),
    "B-dk16": (5.16, 25.1),
    "B-dk32": (5.01, 25.4),
    "C-N2": (6.11, 23.7),
    "C-N4": (5.19, 25.3),
    "C-N8": (4.88, 25.5),
    "C-d256": (5.75, 24.5),
    "C-d1024": (4.66, 26.0),
    "C-ff1024": (5.12, 25.4),
    "C-ff4096": (4.75, 26.2),
    "D-dropout0.0": (5.77, 24.6),
    "D-dropout0.2": (4.95, 25.5),
    "D-smoothing0.0": (4.67, 25.3),
    "D-smoothing0.2": (5.47, 25.7),
    "E-learned": (4.92, 25.7),
    "big": (4.33, 26.4),
}
# By what each size of the paper is divided. The numbers of heads and the rates stay.
SMALLER = {"n_layers": 2, "d_model": 4, "d_ff": 4, "d_k": 4, "d_v": 4}
WORDS = {
    "n_layers": "N",
    "d_model": "d_model",
    "d_ff": "d_ff",
    "n_heads": "h",
    "d_k": "d_k",
    "d_v": "d_v",
    "dropout": "dropout",
    "label_smoothing": "smoothing",
    "positions": "positions",
}


def small(row):
    """Return the Config of a row of Table 3, with its sizes divided.

    >>> base, wide = small("base"), small("C-d1024")
    >>> base.n_layers, base.d_model, base.d_ff, base.n_heads, base.d_k
    (3, 128, 512, 8, 16)
    >>> wide.d_model, wide.n_heads, wide.d_k
    (256, 8, 32)
    """
    paper = Config.preset(row, VOCABULARY)
    sizes = {name: getattr(paper, name) // by for name, by in SMALLER.items()}
    return paper.replace(**sizes, n_decoder_layers=sizes["n_layers"])


def changes(row):
    """Return what a row changes about the small base model: {field: value}."""
    base, other = small("base").to_dict(), small(row).to_dict()
    return {name: other[name] for name in WORDS if other[name] != base[name]}


def named(row):
    """Return the name of a row for a reader, such as (B) d_k 4.

    >>> named("B-dk16"), named("C-d1024"), named("base")
    ('(B) d_k 4', '(C) d_model 256, d_k 32, d_v 32', 'base')
    """
    group = f"({row[0]}) " if row[1] == "-" else "" if row == "base" else f"{row}: "
    return (
        group + ", ".join(f"{WORDS[name]} {value}" for name, value in changes(row).items()) or row
    )


def train(row, seed, folder, data, options):
    """Train one row with one seed in a process of its own, or go on; return what is kept of it.

    data: the folder of the corpus. options: of the trainer, after those of RECIPE.
    Raises UserError if the trainer fails.
    """
    results, log = folder / "results.json", folder.with_suffix(".log")
    if not results.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        given = ["--resume", *options]
        if not (folder / "checkpoint.safetensors").exists():
            given = [*files(data), *sizes(row), *RECIPE.split(), "--seed", str(seed), *options]
        command = [sys.executable, "-m", "minitf.training", *given, "--out", str(folder)]
        with log.open("a", encoding="utf-8") as said:
            ended = subprocess.run(command, stdout=said, stderr=said, env=one_thread(), check=False)
        if not results.exists():
            last = (log.read_text(encoding="utf-8").splitlines() or [""])[-1]
            code = ended.returncode
            raise UserError(f"{row}, seed {seed}: the trainer ended with code {code}: {last}")
    found = json.loads(results.read_text(encoding="utf-8"))
    return {
        "row": row,
        "seed": seed,
        "perplexity": found["valid"]["averaged"]["perplexity"],  # of one checkpoint, the last
        "BLEU": found["tests"]["valid"]["bleu"],
        "parameters": small(row).count_parameters(),
        "updates": found["step"],
        "minutes": round(found["seconds"] / 60, 1),
        "versions": found["versions"],
    }


def files(data):
    """Return the trainer's options for the texts of the corpus: its test text decides nothing."""
    return [
        *("--train", str(data / "train.en"), str(data / "train.de")),
        *("--valid", str(data / "val.en"), str(data / "val.de")),
        *("--vocabulary-size", str(VOCABULARY)),
    ]


def sizes(row):
    """Return the trainer's options for the model of a row."""
    config = small(row).to_dict()
    given = [["--set", f"{name}={config[name]}"] for name in WORDS]
    return ["--preset", "base", *(word for option in given for word in option)]


def one_thread():
    """Return the environment of a process that shares the machine with others."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    return os.environ | dict.fromkeys(names, "1")


def train_all(pairs, out, data, options, jobs):
    """Train each (row, seed), `jobs` at a time; return what is kept of each, in the same order."""
    printing = threading.Lock()

    def one(pair):
        row, seed = pair
        run = train(row, seed, out / f"{row}-{seed}", data, options)
        with printing:
            print(
                f"{named(row)}, seed {seed}: perplexity {run['perplexity']:.2f}, "
                f"BLEU {run['BLEU']:.1f}, {run['minutes']:.0f} minutes",
                flush=True,
            )
        return run

    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(one, pair) for pair in pairs]
        try:
            return [job.result() for job in waiting]
        except BaseException:  # Ctrl-C, or a row that failed: begin no other row
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def differences(runs, value):
    """Return {row: [its value - that of the base model, for each seed that both have]}.

    value: a function of a run.
    """
    base = {run["seed"]: value(run) for run in runs if run["row"] == "base"}
    found = defaultdict(list)
    for run in runs:
        if run["row"] != "base" and run["seed"] in base:
            found[run["row"]].append(value(run) - base[run["seed"]])
    return dict(found)


def spread(differences):
    """Return the standard deviation of a difference between seeds, and its degrees of freedom.

        s^2 = sum_r sum_s (d_rs - mean of d_r)^2 / sum_r (n_r - 1)

    Two or three seeds tell little about the spread of one row, but twenty rows together tell it
    well, if all have about the same.
    """
    deviations = [d - statistics.fmean(row) for row in differences.values() for d in row]
    free = sum(len(row) - 1 for row in differences.values())
    return (math.sqrt(sum(d * d for d in deviations) / free) if free else math.inf), free


def intervals(differences):
    """Return {row: (mean difference, half of its 95% interval)}.

    mean of d_r +- t(0.975) s / sqrt(n_r)
    """
    s, free = spread(differences)
    t = student_t(free) if free else math.inf
    return {
        row: (statistics.fmean(found), t * s / math.sqrt(len(found)))
        for row, found in differences.items()
    }


def student_t(free):
    """Return the 0.975 quantile of Student's t distribution, to two digits from 3 degrees on.

    Source: Abramowitz and Stegun 1964, 26.7.5.

    >>> [round(student_t(free), 2) for free in (3, 5, 20, 1000)]
    [3.18, 2.57, 2.09, 1.96]
    """
    z = statistics.NormalDist().inv_cdf(0.975)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / free**power for power, term in enumerate(terms))


def undecided(runs):
    """Return the rows whose mean difference in BLEU is smaller than the spread between seeds."""
    found = differences(runs, lambda run: run["BLEU"])
    s, _ = spread(found)
    return [row for row in found if abs(statistics.fmean(found[row])) < s]


def tendency(ours, half, paper):
    """Say how a difference from the base model compares with the paper's, in a few words.

    >>> tendency(-1.2, 0.5, -0.9), tendency(0.7, 0.5, -0.9), tendency(0.3, 0.5, -0.9)
    ('the same tendency', 'the opposite tendency', 'too small to tell')
    >>> tendency(0.7, 0.5, 0.0)
    'a difference, where the paper has none'
    """
    if abs(ours) <= half:
        return "too small to tell"
    if round(paper, 6) == 0:
        return "a difference, where the paper has none"
    return "the same tendency" if (ours > 0) == (paper > 0) else "the opposite tendency"


def table(runs):
    """Return the rows of the comparison, a dictionary each, in the order of the paper's table."""
    by_row = defaultdict(list)
    for run in runs:
        by_row[run["row"]].append(run)
    perplexity = intervals(differences(runs, lambda run: math.log(run["perplexity"])))
    bleu = intervals(differences(runs, lambda run: run["BLEU"]))
    rows = []
    for row in PAPER:
        if row not in by_row:
            continue
        found = by_row[row]
        line = {
            "row": row,
            "name": named(row),
            "parameters": found[0]["parameters"],
            "seeds": len(found),
            "perplexity": math.exp(statistics.fmean(math.log(r["perplexity"]) for r in found)),
            "BLEU": statistics.fmean(run["BLEU"] for run in found),
            "minutes": statistics.fmean(run["minutes"] for run in found),
        }
        if row in bleu:
            mean, half = perplexity[row]
            (paper_perplexity, paper_bleu), (base_perplexity, base_bleu) = PAPER[row], PAPER["base"]
            line["perplexity %"] = (100 * math.expm1(mean), 100 * half * math.exp(mean))
            line["paper %"] = 100 * (paper_perplexity / base_perplexity - 1)
            line["BLEU +-"] = bleu[row]
            line["paper BLEU +-"] = paper_bleu - base_bleu
            line["perplexity says"] = tendency(mean, half, line["paper %"])
            line["BLEU says"] = tendency(*bleu[row], line["paper BLEU +-"])
        rows.append(line)
    return rows


HEADINGS = (
    "row", "parameters", "seeds", "perplexity", "from base", "the paper's", "BLEU", "from base",
    "the paper's", "minutes", "compared with the paper",
)  # fmt: skip


def verdict(row):
    """Return how a line of the table compares with the paper's."""
    of_perplexity, of_bleu = row["perplexity says"], row["BLEU says"]
    if of_perplexity == of_bleu:
        return f"both: {of_bleu}"
    return f"perplexity: {of_perplexity}; BLEU: {of_bleu}"


def markdown(rows):
    """Return the comparison as a table in Markdown."""
    lines = [HEADINGS, ["---"] * len(HEADINGS)]
    for row in rows:
        compared = ["", "", "", "", ""]
        if "BLEU +-" in row:
            compared = [
                "{:+.1f}% ± {:.1f}".format(*row["perplexity %"]),
                f"{row['paper %']:+.1f}%",
                "{:+.2f} ± {:.2f}".format(*row["BLEU +-"]),
                f"{row['paper BLEU +-']:+.1f}",
                verdict(row),
            ]
        lines.append([
            row["name"], f"{row['parameters'] / 1e6:.2f} million", str(row["seeds"]),
            f"{row['perplexity']:.2f}", *compared[:2], f"{row['BLEU']:.2f}", *compared[2:4],
            f"{row['minutes']:.0f}", compared[4],
        ])  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def picture(rows, path):
    """Draw each row's difference from base, with its interval, and the paper's beside it."""
    rows = [row for row in rows if "BLEU +-" in row][::-1]
    figure = new_figure(11, 1.2 + 0.32 * len(rows), 0.1)
    panels = (
        ("perplexity: difference from base, %", "perplexity %", "paper %", "less is better"),
        ("BLEU: difference from base", "BLEU +-", "paper BLEU +-", "more is better"),
    )
    heights = range(len(rows))
    for axes, (label, ours, paper, better) in zip(
        figure.subplots(1, 2, sharey=True), panels, strict=True
    ):
        axes.axvline(0, color="#888888", linewidth=1)
        means, halves = zip(*(row[ours] for row in rows), strict=True)
        axes.errorbar(means, heights, xerr=halves, fmt="o", color="#1f5fa8", label="here, 95%")
        axes.plot(
            *([row[paper] for row in rows], heights, "D"), color="#d1701f", fillstyle="none",
            label="the paper",
        )  # fmt: skip
        axes.set_yticks(heights, [row["name"] for row in rows])
        axes.grid(alpha=0.3)
        label_axes(axes, label, "", better, 11, 9)
    axes.legend(frameon=False, fontsize=9)
    save_figure(figure, path)


def show(kept, folder):
    """Print the table of the kept runs, and write it and the picture into a folder."""
    rows = table(kept["runs"])
    text = markdown(rows)
    save_text(folder / "table3.md", text)
    picture(rows, folder / "table3.png")
    print(text)
    print(f"wrote {folder / 'table3.md'} and {folder / 'table3.png'}")


def read_kept(path):
    """Return the content of a table3.json. Raises UserError for another file."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        table(kept["runs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no table3.json: {error}") from None
    return kept


def main(arguments):
    """Train what is missing, and show the table."""
    parser = argparse.ArgumentParser(
        prog="table3.py",
        description="Train small versions of the rows of the paper's Table 3, and compare them. "
        "Options that are not listed here go to the trainer, for all rows alike.",
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/table3"), help="a folder (default runs/table3)")
    add(
        "--rows", nargs="+", choices=PAPER, metavar="ROW", default=list(PAPER),
        help=f"only these, and base; of {', '.join(PAPER)}",
    )  # fmt: skip
    add(
        "--seeds", type=int, default=SEEDS,
        help="of each row (default 2); one more where the difference from base is below the spread",
    )  # fmt: skip
    add(
        "--jobs", type=int, default=cores(),
        help="models that train at a time (default: one on each core)",
    )  # fmt: skip
    add(
        "--show", type=Path, metavar="FILE",
        help="train nothing: show the runs in this table3.json, and draw them in --out",
    )  # fmt: skip
    options, of_trainer = parser.parse_known_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.show:
        show(read_kept(options.show), options.out)
        return
    corpora.load(CORPUS)  # downloads it, if it is missing
    data = corpora.data_folder() / CORPUS
    rows = list(dict.fromkeys(["base", *options.rows]))
    pairs = [(row, seed) for seed in range(options.seeds) for row in rows]
    runs = train_all(pairs, options.out, data, of_trainer, options.jobs)
    if more := undecided(runs):
        pairs = [(row, options.seeds) for row in ["base", *more]]
        runs += train_all(pairs, options.out, data, of_trainer, options.jobs)
    kept = {"recipe": RECIPE, "vocabulary": VOCABULARY, "options": of_trainer, "runs": runs}
    save_text(options.out / "table3.json", json.dumps(kept, indent=1) + "\n")
    show(kept, options.out)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"table3.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
