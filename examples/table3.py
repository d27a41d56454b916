"""Table 3 of the paper, small: what each choice of the Transformer is worth, in an evening or two.

Each row of the table changes one thing about the base model. This program trains small versions of
all rows with several seeds, and compares each with the small base model of the same seed:

    python examples/table3.py --out runs/table3

One quarter of the paper's widths, half of its layers, the same numbers of heads; Multi30k, which is
downloaded, in place of WMT; equal updates for all rows. It trains as many models at a time as the
machine has cores, and can be stopped at any time: the same command goes on. Each trained row is
added to table3.json in that folder; a row that is in it already, such as in a copy of ours, is not
trained again. At the end it writes table3.md as well, which can be made again:

    python examples/table3.py --show runs/table3/table3.json
"""

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

from minitf.atomic import save_text, writing
from minitf.cli import OptionParser, exit_code, number, signals_as_exceptions
from minitf.config import Config
from minitf.cpu.machine import cores
from minitf.data import corpora
from minitf.errors import UserError
from minitf.files.arrays import user_errors

CORPUS = "multi30k"
KEPT = "table3.json"
VOCABULARY = 4000
# Chosen on the base row, so that little is left to learn: the last tenth of its updates lowers
# validation perplexity by 1.5%; with a cooldown of 0.4 it was 2.1%, without one 2.7 to 4.6%, at
# three learning rates.
# The warm-up is that of the deepest row: with one of 500 updates, base was no better and N = 4
# hardly learned (perplexity 11, BLEU 16). As in the paper's Table 3: beam 4, alpha 0.6, and nothing
# is averaged.
RECIPE = (
    "--batch-tokens 1024 --accumulate 2 --learning-rate 1 --warmup-steps 1000 --cooldown 0.5 "
    "--steps 4000 --valid-every 400 --average 1 --patience 0 --beam 4 --alpha 0.6 --replicas 1 "
    "--log-every 100"
)
TRAINER = (sys.executable, "-m", "minitf", "train")

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


# The rows -----------------------------------------------------------------------------------------


def small(row):
    """Return the Config of a row of Table 3, with its sizes divided.

    >>> base, wide = small("base"), small("C-d1024")
    >>> base.n_layers, base.d_model, base.d_ff, base.n_heads, base.d_k
    (3, 128, 512, 8, 16)
    >>> wide.d_model, wide.n_heads, wide.d_k
    (256, 8, 32)
    """
    paper = Config.preset(row, VOCABULARY)
    sizes = {name: getattr(paper, name) // divisor for name, divisor in SMALLER.items()}
    return paper.replace(**sizes, n_decoder_layers=sizes["n_layers"])


def named(row):
    """Return the name of a row for a reader: its group in the paper, and what it changes.

    >>> named("B-dk16"), named("C-d1024"), named("base")
    ('(B) d_k 4', '(C) d_model 256, d_k 32, d_v 32', 'base')
    """
    if row == "base":
        return row
    base, other = small("base").to_dict(), small(row).to_dict()
    changed = (f"{WORDS[name]} {other[name]}" for name in WORDS if other[name] != base[name])
    group = f"({row[0]})" if row[1] == "-" else f"{row}:"
    return f"{group} {', '.join(changed)}"


def sizes(row):
    """Return the trainer's options for the model of a row."""
    config = small(row).to_dict()
    given = [["--set", f"{name}={config[name]}"] for name in WORDS]
    return ["--preset", "base", *(word for option in given for word in option)]


# Training -----------------------------------------------------------------------------------------


class Trainers:
    """The trainers that run at the moment, each a process, so that all can be stopped at once."""

    def __init__(self):
        self._lock, self._running, self.stopped = threading.Lock(), set(), False

    def run(self, command, log):
        """Run a command to its end, with what it prints in the file `log`."""
        names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
        one_thread = os.environ | dict.fromkeys(names, "1")  # they share the cores
        with log.open("a", encoding="utf-8") as output:
            with self._lock:  # so none can begin unseen while stop() looks
                if self.stopped:
                    raise UserError("stopped")
                # In a session of its own, so that Ctrl-C reaches it once, through stop().
                process = subprocess.Popen(
                    command, stdout=output, stderr=output, env=one_thread, start_new_session=True
                )
                self._running.add(process)
            process.wait()
            self._running.discard(process)

    def stop(self):
        """Let each trainer save its state and end, and start no other."""
        with self._lock:
            self.stopped = True
            for process in self._running:
                process.terminate()


def train(row, seed, folder, data, steps, trainers):
    """Train one row with one seed in a process of its own, or go on; return what is kept of it.

    data: the folder of the corpus. Raises UserError if the trainer fails.
    """
    if not (folder / "results.json").exists():
        given = ["--resume"]
        if not (folder / "checkpoint.safetensors").exists():
            given = [
                *("--train", str(data / "train.en"), str(data / "train.de")),
                *("--valid", str(data / "val.en"), str(data / "val.de")),
                *("--vocabulary-size", str(VOCABULARY), *sizes(row), *RECIPE.split()),
                *("--steps", str(steps), "--seed", str(seed)),
            ]
        log = folder.with_name(f"{folder.name}.log")
        with writing(log):
            trainers.run([*TRAINER, *given, "--out", str(folder)], log)
        if not (folder / "results.json").exists():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
            raise UserError(f"{row}, seed {seed}: the trainer ended: {lines[-1]}")
    with user_errors(folder):
        found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return {
            "row": row,
            "seed": seed,
            "perplexity": found["valid"]["averaged"]["perplexity"],  # of one checkpoint, the last
            "BLEU": found["tests"]["valid"]["bleu"],
            "parameters": Config.from_dict(config["model"]).count_parameters(),
            "updates": found["step"],
            "minutes": round(found["seconds"] / 60, 1),
            "versions": found["versions"],
        }


def train_all(pairs, out, steps, jobs):
    """Train each (row, seed) that is missing, `jobs` at a time, and keep those that succeed."""
    lock, trainers, data = threading.Lock(), Trainers(), corpora.data_folder() / CORPUS

    def one(pair):
        row, seed = pair
        try:
            run = train(row, seed, out / f"{row}-{seed}", data, steps, trainers)
        except UserError as error:  # the other rows can still be compared
            if not trainers.stopped:
                print(f"not trained: {error}", flush=True)
            return
        with lock:
            keep(out, steps, [*kept_runs(out, steps), run])
        print(
            f"{named(row)}, seed {seed}: perplexity {run['perplexity']:.2f}, "
            f"BLEU {run['BLEU']:.1f}, {run['minutes']:.0f} minutes",
            flush=True,
        )

    # The large rows of a seed first, so that no core is idle at the end.
    pairs = sorted(pairs, key=lambda pair: (pair[1], -small(pair[0]).count_parameters()))
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for job in [pool.submit(one, pair) for pair in pairs]:
                job.result()
        except BaseException:  # Ctrl-C: the trainers save their state, and no other begins
            trainers.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def kept_runs(out, steps):
    """Return the runs of table3.json in a folder, [] if there is none.

    Raises UserError for a damaged file, and for runs that were trained otherwise.
    """
    path = out / KEPT
    if not path.exists():
        return []
    found = read_kept(path)
    if {name: found.get(name) for name in recipe(steps)} != recipe(steps):
        raise UserError(f"{path} has runs of another recipe: choose another --out")
    return found["runs"]


def read_kept(path):
    """Return the content of a table3.json. Raises UserError for another file."""
    with user_errors(path):
        found = json.loads(path.read_text(encoding="utf-8"))
        table(found["runs"])
        return found


def recipe(steps):
    """Return how rows are trained, for table3.json."""
    return {"recipe": RECIPE.replace("4000", str(steps)), "vocabulary": VOCABULARY}


def keep(out, steps, runs):
    runs = sorted(runs, key=lambda run: (list(PAPER).index(run["row"]), run["seed"]))
    save_text(out / KEPT, json.dumps(recipe(steps) | {"runs": runs}, indent=1) + "\n")


# The comparison -----------------------------------------------------------------------------------


def spread(by_row):
    """Return the standard deviation of a value between seeds, and its degrees of freedom.

        s^2 = sum_r sum_s (x_rs - mean of x_r)^2 / sum_r (n_r - 1)

    Two or three seeds tell little about the spread of one row, but twenty rows together tell it
    well, if all have about the same. The values are pooled, not the differences from base: those
    share the runs of base, so their deviations are not independent.
    by_row: {row: {seed: value}}.
    """
    rows = [list(row.values()) for row in by_row.values()]
    squares = sum((x - statistics.fmean(row)) ** 2 for row in rows for x in row)
    free = sum(len(row) - 1 for row in rows)
    return (math.sqrt(squares / free) if free else math.inf), free


def intervals(runs, value):
    """Return {row: (mean difference from base within a seed, half of its 95% interval)}.

    mean of d_r +- t(0.975) s sqrt(2 / n_r)

    2, because both the row and base vary. An effect that a seed has on all rows alike cancels in
    the difference, and makes the interval wider than it had to be. Student's t is that of
    Abramowitz and Stegun 1964, 26.7.5, to three terms: 0.5% too small with 6 degrees of freedom.
    """
    by_row = defaultdict(dict)
    for run in runs:
        by_row[run["row"]][run["seed"]] = value(run)
    (s, free), z, base = spread(by_row), statistics.NormalDist().inv_cdf(0.975), by_row["base"]
    t = math.inf
    if free:
        t = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    found = {}
    for row, values in by_row.items():
        differences = [x - base[seed] for seed, x in values.items() if seed in base]
        if row != "base" and differences:
            half = t * s * math.sqrt(2 / len(differences))
            found[row] = statistics.fmean(differences), half
    return found


HEADINGS = (
    *("row", "parameters", "seeds", "perplexity", "from base", "the paper's"),
    *("BLEU", "from base", "the paper's", "minutes"),
)
NOTE = (
    "Differences are means of those between runs of the same seed; where a row and base have "
    "different numbers of seeds, the columns do not subtract to them. All rows are compared with "
    "the same runs of base: if those were lucky, all rows look worse. Of twenty such intervals, "
    "about one misses. Minutes depend on the machine and on what else it does.\n"
)


def table(runs):
    """Return the comparison as a table in Markdown, in the order of the paper's."""
    by_row, lines = defaultdict(list), [HEADINGS, ["---"] * len(HEADINGS)]
    for run in runs:
        by_row[run["row"]].append(run)
    in_perplexity = intervals(runs, lambda run: math.log(run["perplexity"]))
    in_bleu = intervals(runs, lambda run: run["BLEU"])
    for row in sorted(by_row, key=list(PAPER).index):
        found = by_row[row]
        perplexity = bleu = ("", "")
        if row in in_bleu:
            (base_perplexity, base_bleu), (their_perplexity, their_bleu) = PAPER["base"], PAPER[row]
            mean, half = in_perplexity[row]
            here = f"{100 * math.expm1(mean):+.1f}% ± {100 * half * math.exp(mean):.1f}"
            perplexity = here, f"{100 * (their_perplexity / base_perplexity - 1):+.1f}%"
            mean, half = in_bleu[row]
            bleu = f"{mean:+.2f} ± {half:.2f}", f"{their_bleu - base_bleu:+.1f}"
        line = [named(row), f"{found[0]['parameters'] / 1e6:.2f} million", str(len(found))]
        line += [f"{statistics.geometric_mean(run['perplexity'] for run in found):.2f}"]
        line += [*perplexity, f"{statistics.fmean(run['BLEU'] for run in found):.2f}", *bleu]
        lines.append([*line, f"{statistics.fmean(run['minutes'] for run in found):.0f}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{NOTE}"


def show(runs, folder):
    """Print the table of runs, and write it into a folder."""
    text = table(runs)
    save_text(folder / "table3.md", text)
    print(text)
    print(f"wrote {folder / 'table3.md'}")


# The command --------------------------------------------------------------------------------------


def options_of(arguments):
    """Return the options of the command line."""
    parser = OptionParser(
        prog="table3.py",
        description="Train small versions of the rows of the paper's Table 3, and compare them.",
    )
    add = parser.add_argument
    add("--out", type=Path, help="a folder (default runs/table3; with --show, that of the file)")
    rows = f"only these, and base; of {', '.join(PAPER)}"
    add("--rows", nargs="+", choices=PAPER, default=list(PAPER), metavar="ROW", help=rows)
    add("--seeds", type=number(int, 1, 100), default=2, help="of each row (default 2)")
    add("--steps", type=number(int, 1, 10**9), default=4000, help="updates of each (default 4000)")
    jobs = "models that train at a time (default: one on each core)"
    add("--jobs", type=number(int, 1, 1000), default=cores(), help=jobs)
    show_help = "train nothing: show the runs in this table3.json"
    add("--show", type=Path, metavar="FILE", help=show_help)
    return parser.parse_args(arguments)


def main(arguments):
    """Train what is missing, and show the table."""
    options = options_of(arguments)
    out = options.out or (options.show.parent if options.show else Path("runs/table3"))
    shown = read_kept(options.show)["runs"] if options.show else None
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    if shown:
        show(shown, out)
        return
    done = {(run["row"], run["seed"]) for run in kept_runs(out, options.steps)}
    corpora.load(CORPUS)  # downloads it, if it is missing
    rows = dict.fromkeys(["base", *options.rows])
    pairs = {(row, seed) for seed in range(options.seeds) for row in rows}
    try:
        train_all(pairs - done, out, options.steps, options.jobs)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; the same command goes on") from None
    runs = kept_runs(out, options.steps)
    missing = pairs - {(run["row"], run["seed"]) for run in runs}
    if not any(row == "base" for row, _ in missing):
        show(runs, out)
    if missing:
        names = ", ".join(f"{row}-{seed}" for row, seed in sorted(missing))
        raise UserError(f"not trained: {names}; see their .log in {out}")


if __name__ == "__main__":
    with signals_as_exceptions():  # which stop the trainers, as Ctrl-C does
        sys.exit(exit_code("table3.py", lambda: main(sys.argv[1:])))
