"""Table 3 of the paper, small: what each choice of the Transformer is worth, in an evening or two.

Each row of the table changes one thing about the base model. This program trains small versions of
all rows with several seeds, and compares each with the small base model of the same seed:

    python examples/table3.py --out runs/table3

One quarter of the paper's widths, half of its layers, the same numbers of heads; Multi30k, which is
downloaded, in place of WMT; equal updates for all rows. It trains as many models at a time as the
machine has cores, and can be stopped at any time: the same command goes on. Each trained row is
added to table3.json in that folder; a row that is in it already, such as in a copy of ours, is not
trained again. At the end it writes table3.png and table3.md as well, which can be made again:

    python examples/table3.py --show runs/table3/table3.json
"""

import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from minitf.atomic import save_text
from minitf.cli import OptionParser, exit_code, number
from minitf.config import Config
from minitf.cpu.machine import cores
from minitf.data import corpora
from minitf.errors import UserError
from minitf.plot import label_axes, new_figure, save_figure
from minitf.training.settings import parse

CORPUS = "multi30k"
KEPT = "table3.json"
VOCABULARY = 4000
SEEDS = 2
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

# What else the trainer may be told: nothing that changes what a row or a seed means, or that lets
# rows have different numbers of updates.
OF_TRAINER = [
    *("--batch-tokens", "--accumulate", "--learning-rate", "--warmup-steps", "--cooldown"),
    *("--clip", "--steps", "--valid-every", "--save-every", "--log-every", "--beam", "--alpha"),
    *("--max-length", "--vocabulary-size", "--backend", "--precision"),
]
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


def changes(row):
    """Return what a row changes about the small base model: {field: value}."""
    base, other = small("base").to_dict(), small(row).to_dict()
    return {name: other[name] for name in WORDS if other[name] != base[name]}


def named(row):
    """Return the name of a row for a reader, such as (B) d_k 4.

    >>> named("B-dk16"), named("C-d1024"), named("base")
    ('(B) d_k 4', '(C) d_model 256, d_k 32, d_v 32', 'base')
    """
    if row == "base":
        return row
    group = f"({row[0]})" if row[1] == "-" else f"{row}:"
    return f"{group} {', '.join(f'{WORDS[name]} {value}' for name, value in changes(row).items())}"


class Trainers:
    """The trainers that run at the moment, each a process, so that all can be stopped at once."""

    def __init__(self):
        self._lock = threading.Lock()
        self._running = set()
        self.stopped = False

    def run(self, command, log):
        """Run a command to its end, with what it prints in the file `log`."""
        with log.open("a", encoding="utf-8") as output, self._started(command, output) as process:
            process.wait()

    @contextlib.contextmanager
    def _started(self, command, output):
        with self._lock:  # so none can begin unseen while stop() looks
            if self.stopped:
                raise UserError("stopped")
            # In a session of its own, so that Ctrl-C reaches it once, through stop().
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env=one_thread(), start_new_session=True
            )
            self._running.add(process)
        try:
            yield process
        finally:
            with self._lock:
                self._running.discard(process)

    def stop(self):
        """Let each trainer save its state and end, and start no other."""
        with self._lock:
            self.stopped = True
            for process in self._running:
                process.terminate()


def train(row, seed, folder, data, options, trainers):
    """Train one row with one seed in a process of its own, or go on; return what is kept of it.

    data: the folder of the corpus. options: of the trainer, after those of RECIPE.
    Raises UserError if the trainer fails.
    """
    if not (folder / "results.json").exists():
        given = ["--resume", *options]
        if not (folder / "checkpoint.safetensors").exists():
            given = [*files(data), *sizes(row), *RECIPE.split(), "--seed", str(seed), *options]
        log = folder.with_name(f"{folder.name}.log")
        try:
            trainers.run([*TRAINER, *given, "--out", str(folder)], log)
        except OSError as error:
            raise UserError(f"{row}, seed {seed}: {log}: {error.strerror}") from None
        if not (folder / "results.json").exists():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
            raise UserError(f"{row}, seed {seed}: the trainer ended: {lines[-1]}")
    return kept(row, seed, folder)


def kept(row, seed, folder):
    """Return what is kept of a row that was trained in a folder.

    Raises UserError for damaged files.
    """
    try:
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
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder}: results.json or config.json is damaged ({error!r}): delete the folder; "
            f"the row is then trained again, unless {KEPT} has it"
        ) from None


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


def train_all(pairs, out, data, used, jobs):
    """Train each (row, seed) that is missing, `jobs` at a time, and keep those that succeed."""
    printing, trainers = threading.Lock(), Trainers()

    def one(pair):
        row, seed = pair
        try:
            run = train(row, seed, out / f"{row}-{seed}", data, used["options"], trainers)
            message = (
                f"{named(row)}, seed {seed}: perplexity {run['perplexity']:.2f}, "
                f"BLEU {run['BLEU']:.1f}, {run['minutes']:.0f} minutes"
            )
        except UserError as error:  # the other rows can still be compared
            run, message = None, f"not trained: {error}"
        with printing:
            if run:
                keep(out, used)
            if run or not trainers.stopped:
                say(message)

    done = {(run["row"], run["seed"]) for run in trained(out, used)}
    missing = sorted(set(pairs) - done, key=last_the_small)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for job in [pool.submit(one, pair) for pair in missing]:
                job.result()
        except BaseException:  # Ctrl-C: the trainers save their state, and no other begins
            trainers.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def last_the_small(pair):
    """Return a key that puts the large rows of a seed first, so that no core is idle at the end.

    >>> sorted([("big", 1), ("C-N2", 0), ("big", 0), ("base", 0)], key=last_the_small)
    [('big', 0), ('base', 0), ('C-N2', 0), ('big', 1)]
    """
    row, seed = pair
    return seed, -small(row).count_parameters(), row


def say(text):
    """Print a text; the work goes on if nobody reads it any more."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


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


def spread(runs, value):
    """Return the standard deviation of a value between seeds, and its degrees of freedom.

        s^2 = sum_r sum_s (x_rs - mean of x_r)^2 / sum_r (n_r - 1)

    Two or three seeds tell little about the spread of one row, but twenty rows together tell it
    well, if all have about the same. The values are pooled, not the differences from base: those
    share the runs of base, so their deviations are not independent.
    """
    by_row = defaultdict(list)
    for run in runs:
        by_row[run["row"]].append(value(run))
    deviations = [x - statistics.fmean(row) for row in by_row.values() for x in row]
    free = sum(len(row) - 1 for row in by_row.values())
    return (math.sqrt(sum(d * d for d in deviations) / free) if free else math.inf), free


def intervals(runs, value):
    """Return {row: (mean difference from base, half of its 95% interval)}.

    mean of d_r +- t(0.975) s sqrt(2 / n_r)

    2, because both the row and base vary. An effect that a seed has on all rows alike cancels in
    the difference, and makes the interval wider than it had to be.
    """
    s, free = spread(runs, value)
    t = student_t(free) if free else math.inf
    return {
        row: (statistics.fmean(found), t * s * math.sqrt(2 / len(found)))
        for row, found in differences(runs, value).items()
    }


def student_t(free):
    """Return the 0.975 quantile of Student's t distribution, to two digits.

    Source: Abramowitz and Stegun 1964, 26.7.5, which is exact enough from 3 degrees on.

    >>> [round(student_t(free), 2) for free in (1, 2, 3, 5, 20, 1000)]
    [12.71, 4.3, 3.18, 2.57, 2.09, 1.96]
    """
    if free < 3:
        return (12.706, 4.303)[free - 1]
    z = statistics.NormalDist().inv_cdf(0.975)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / free**power for power, term in enumerate(terms))


def bleu(run):
    return run["BLEU"]


def ln_perplexity(run):
    return math.log(run["perplexity"])


def undecided(runs):
    """Return the rows whose mean difference in BLEU is smaller than its spread between seeds."""
    s, free = spread(runs, bleu)
    if not free:  # one seed has no spread
        return []
    found = differences(runs, bleu)
    return [row for row in found if abs(statistics.fmean(found[row])) < math.sqrt(2) * s]


def tendency(ours, half, paper):
    """Say how a difference from the base model compares with the paper's, in a few words.

    >>> tendency(-1.2, 0.5, -0.9), tendency(0.7, 0.5, -0.9), tendency(0.3, 0.5, -0.9)
    ('the same tendency', 'the opposite tendency', 'too small to tell')
    >>> tendency(0.7, 0.5, 0.0), tendency(0.7, math.inf, 0.9)
    ('a difference, where the paper has none', 'too few seeds to tell')
    """
    if half == math.inf:
        return "too few seeds to tell"
    if abs(ours) <= half:
        return "too small to tell"
    if round(paper, 6) == 0:
        return "a difference, where the paper has none"
    return "the same tendency" if (ours > 0) == (paper > 0) else "the opposite tendency"


class Difference(NamedTuple):
    """A difference from base, half of its 95% interval, the paper's, and how they compare."""

    here: float
    half: float
    paper: float
    says: str


class Row(NamedTuple):
    """A row of the comparison; its differences (perplexity: in percent) are None for base."""

    name: str
    parameters: int
    seeds: int
    perplexity: float
    bleu: float
    minutes: float
    perplexity_difference: Difference | None = None
    bleu_difference: Difference | None = None


def table(runs):
    """Return the Rows of the comparison, in the order of the paper's table."""
    by_row = defaultdict(list)
    for run in runs:
        by_row[run["row"]].append(run)
    in_perplexity, in_bleu = intervals(runs, ln_perplexity), intervals(runs, bleu)
    rows = []
    for row in PAPER:
        if row not in by_row:
            continue
        found = by_row[row]
        line = Row(
            named(row),
            found[0]["parameters"],
            len(found),
            math.exp(statistics.fmean(map(ln_perplexity, found))),
            statistics.fmean(map(bleu, found)),
            statistics.fmean(run["minutes"] for run in found),
        )
        if row in in_bleu:
            paper = [x - base for x, base in zip(PAPER[row], PAPER["base"], strict=True)]
            mean, half = in_perplexity[row]
            line = line._replace(
                perplexity_difference=Difference(
                    100 * math.expm1(mean),
                    100 * half * math.exp(mean),
                    100 * paper[0] / PAPER["base"][0],
                    tendency(mean, half, paper[0]),
                ),
                bleu_difference=Difference(
                    *in_bleu[row], paper[1], tendency(*in_bleu[row], paper[1])
                ),
            )
        rows.append(line)
    return rows


HEADINGS = (
    "row", "parameters", "seeds", "perplexity", "from base", "the paper's", "BLEU", "from base",
    "the paper's", "minutes", "compared with the paper",
)  # fmt: skip
NOTE = (
    "Differences are means of those between runs of the same seed; where a row and base have "
    "different numbers of seeds, the columns do not subtract to them. All rows are compared with "
    "the same runs of base: if those were lucky, all rows look worse. Each verdict goes by its own "
    "interval; of twenty such intervals, about one misses. Minutes depend on the machine and on "
    "what else it does.\n"
)


def verdict(row):
    """Return how a Row compares with the paper's."""
    in_perplexity, in_bleu = row.perplexity_difference.says, row.bleu_difference.says
    if in_perplexity == in_bleu:
        return f"both: {in_bleu}"
    return f"perplexity: {in_perplexity}; BLEU: {in_bleu}"


def markdown(rows):
    """Return the comparison as a table in Markdown."""
    lines = [HEADINGS, ["---"] * len(HEADINGS)]
    for row in rows:
        perplexity = bleu = ("", "")
        if row.bleu_difference:
            here, half, paper, _ = row.perplexity_difference
            perplexity = f"{here:+.1f}% ± {half:.1f}", f"{paper:+.1f}%"
            here, half, paper, _ = row.bleu_difference
            bleu = f"{here:+.2f} ± {half:.2f}", f"{paper:+.1f}"
        lines.append([
            row.name, f"{row.parameters / 1e6:.2f} million", str(row.seeds),
            f"{row.perplexity:.2f}", *perplexity, f"{row.bleu:.2f}", *bleu,
            f"{row.minutes:.0f}", verdict(row) if row.bleu_difference else "",
        ])  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{NOTE}"


BLUE = "#1f5fa8"


def picture(rows, path):
    """Draw each row's difference from base, with its interval, and the paper's beside it."""
    rows = [row for row in rows if row.bleu_difference][::-1]
    figure = new_figure(11, 1.2 + 0.32 * len(rows), 0.1)
    panels = (
        (
            "perplexity: difference from base, %",
            "lower is better",
            [r.perplexity_difference for r in rows],
        ),
        ("BLEU: difference from base", "higher is better", [r.bleu_difference for r in rows]),
    )
    heights = range(len(rows))
    for axes, (label, better, found) in zip(
        figure.subplots(1, 2, sharey=True), panels, strict=True
    ):
        means, halves, papers, _ = zip(*found, strict=True)
        axes.axvline(0, color="#888888", linewidth=1)
        ours = "minitf, one seed" if math.inf in halves else "minitf, 95% interval"
        axes.errorbar(means, heights, xerr=halves, fmt="o", color=BLUE, label=ours)
        axes.plot(papers, heights, "D", color="#d1701f", fillstyle="none", label="the paper")
        _cut_off_an_outlier(axes, means, halves, papers)
        axes.set_yticks(heights, [row.name for row in rows])
        axes.grid(alpha=0.3)
        label_axes(axes, label, "", better, 11, 9)
    figure.axes[0].legend(frameon=False, fontsize=9, loc="upper right")
    try:
        save_figure(figure, path)
    except ValueError as error:
        raise UserError(str(error)) from None


def _cut_off_an_outlier(axes, means, halves, papers):
    """Let an axis end before a row much farther from base than all others and the paper's rows.

    Its difference is written there. Else the others could not be told apart.
    """
    outlier = max(range(len(means)), key=lambda i: abs(means[i]))
    others = [i for i in range(len(means)) if i != outlier]
    farthest = max(map(abs, [*papers, *(means[i] for i in others)]))
    if len(others) < 2 or abs(means[outlier]) < 1.5 * farthest:
        return
    ends = [*papers]
    for i in others:
        half = halves[i] if halves[i] < math.inf else 0
        ends += [means[i] - half, means[i] + half]
    margin = 0.15 * (max(ends) - min(ends))
    axes.set_xlim(min(ends) - margin, max(ends) + margin)
    text, x, side = f"+{means[outlier]:.1f} →", 0.99, "right"
    if means[outlier] < 0:
        text, x, side = f"← −{-means[outlier]:.1f}", 0.01, "left"
    across = axes.get_yaxis_transform()  # from 0 to 1
    axes.text(x, outlier, text, transform=across, ha=side, va="center", color=BLUE, fontsize=9)


def show(kept, folder):
    """Print the table of the kept runs, and write it and the picture into a folder.

    Raises UserError if no row can be compared with base.
    """
    rows = table(kept["runs"])
    if not any(row.bleu_difference for row in rows):
        raise UserError("there is no row to compare with base: train one, or leave --rows out")
    text = markdown(rows)
    save_text(folder / "table3.md", text)
    say(text)
    picture(rows, folder / "table3.png")
    say(f"wrote {folder / 'table3.md'} and {folder / 'table3.png'}")


def read_kept(path):
    """Return the content of a table3.json. Raises UserError for another file."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        unknown = {run["row"] for run in kept["runs"]} - set(PAPER)
        table(kept["runs"])
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not a table3.json of this program: give the file that it wrote ({error!r})"
        ) from None
    if unknown:
        raise UserError(
            f"{path} has rows that this version does not know ({', '.join(sorted(unknown))}): use "
            "the version that trained them, or another folder"
        )
    return kept


def options_of(arguments):
    """Return the options of this program, and those for the trainer."""
    parser = OptionParser(
        prog="table3.py",
        description="Train small versions of the rows of the paper's Table 3, and compare them. "
        f"These options of the trainer are taken, too, for all rows alike: {' '.join(OF_TRAINER)}.",
    )
    add = parser.add_argument
    add("--out", type=Path, help="a folder (default runs/table3; with --show, that of the file)")
    add(
        "--rows", nargs="+", choices=PAPER, metavar="ROW",
        help=f"only these, and base; of {', '.join(PAPER)}",
    )  # fmt: skip
    add(
        "--seeds", type=number(int, 1, 100), default=SEEDS,
        help="of each row (default 2); one more where the difference from base is below the spread",
    )  # fmt: skip
    add(
        "--jobs", type=number(int, 1, 1000), default=cores(),
        help="models that train at a time (default: one on each core)",
    )  # fmt: skip
    add(
        "--show", type=Path, metavar="FILE",
        help="train nothing: show the runs in this table3.json, and draw them in --out",
    )  # fmt: skip
    options, trainer_options = parser.parse_known_args(arguments)
    for word in trainer_options:
        name = word.partition("=")[0]
        if name.startswith("-") and not is_number(name) and name not in OF_TRAINER:
            raise UserError(f"{name} is not an option that all rows can share: --help lists these")
    if options.show and (trainer_options or options.rows):
        raise UserError("--show trains nothing: leave out --rows and the trainer's options")
    parse([*sizes("base"), *RECIPE.split(), *trainer_options])  # a wrong value ends here
    return options, trainer_options


def is_number(word):
    """Return whether a word of the command line, such as -0.5, is a number and no option."""
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def main(arguments):
    """Train what is missing, and show the table."""
    try:
        _train_and_show(arguments)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; the same command goes on") from None


def _train_and_show(arguments):
    options, trainer_options = options_of(arguments)
    out = options.out or (options.show.parent if options.show else Path("runs/table3"))
    shown = read_kept(options.show) if options.show else None
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{out} cannot be made ({error.strerror}): choose another folder with --out"
        ) from None
    if shown:
        show(shown, out)
        return
    used = {"recipe": RECIPE, "vocabulary": VOCABULARY, "options": trainer_options}
    remember(used, out / "options.json")
    trained(out, used)  # damaged files end here, and not after an evening
    corpora.load(CORPUS)  # downloads it, if it is missing
    data = corpora.data_folder() / CORPUS
    rows = list(dict.fromkeys(["base", *(options.rows or PAPER)]))
    pairs = [(row, seed) for seed in range(options.seeds) for row in rows]
    train_all(pairs, out, data, used, options.jobs)
    first = [run for run in trained(out, used) if run["seed"] < options.seeds]
    if more := [row for row in undecided(first) if row in rows]:
        thirds = [(row, options.seeds) for row in ["base", *more]]
        train_all(thirds, out, data, used, options.jobs)
        pairs += thirds
    runs = keep(out, used)
    missing = set(pairs) - {(run["row"], run["seed"]) for run in runs}
    misses_base = any(row == "base" for row, _ in missing)
    if not missing or (differences(runs, bleu) and not misses_base):
        show({"runs": runs}, out)
    if missing:
        names = ", ".join(f"{row}-{seed}" for row, seed in sorted(missing))
        raise UserError(f"not trained: {names}; see their .log in {out}")


def trained(out, used):
    """Return what is kept of each run: in table3.json, or in a folder of its own.

    Raises UserError for damaged files, and if those of table3.json were trained otherwise.
    """
    known = {}
    if (path := out / KEPT).exists():
        before = read_kept(path)
        try:
            _same_recipe(before, used, path)
        except (KeyError, TypeError):
            raise UserError(
                f"{path} does not say how its rows were trained: move it away"
            ) from None
        known = {(run["row"], run["seed"]): run for run in before["runs"]}
    pairs = [(row, seed) for row in PAPER for seed in range(101)]
    for row, seed in pairs:
        folder = out / f"{row}-{seed}"
        if (folder / "results.json").exists():
            known[row, seed] = kept(row, seed, folder)
    return [known[pair] for pair in pairs if pair in known]


def keep(out, used):
    """Write what is kept of each run to table3.json, and return it."""
    runs = trained(out, used)
    save_text(out / KEPT, json.dumps(used | {"runs": runs}, indent=1) + "\n")
    return runs


def remember(used, path):
    """Write how the rows are trained to a file.

    Raises UserError if they were trained otherwise, and for a damaged file.
    """
    if path.exists() and any(path.parent.glob("*/checkpoint.safetensors")):
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
            _same_recipe(before, used, path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is damaged ({error!r}): choose another --out") from None
    save_text(path, json.dumps(used, indent=1) + "\n")


def _same_recipe(before, used, path):
    """Raise UserError if the rows of a file were trained otherwise, KeyError if it is damaged."""
    if before["options"] != used["options"]:
        raise UserError(
            f"{path.parent} has runs with other options, {before['options']}: give the same, or "
            "another --out"
        )
    if {name: before[name] for name in used} != used:
        raise UserError(
            f"{path.parent} has runs with another recipe, {before['recipe']}: choose another --out"
        )


def stop_like_ctrl_c():
    """Let a closed terminal and SIGTERM stop the trainers as Ctrl-C does."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP; nohup ignores it
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


if __name__ == "__main__":
    stop_like_ctrl_c()
    sys.exit(exit_code("table3.py", lambda: main(sys.argv[1:])))
