"""Measure the memory that training pairs take, on generated text: run by hand, on Linux, with some
gigabytes of disk.

    python tests/support/measure_memory.py 500000 999999 2000000
        from text: subwords, cutting, planning, batches
    python tests/support/measure_memory.py --planned 9000000 36000000
        only planning and batches, at full size

Each size is measured in a process of its own; seconds are those of all cores together. Pages
of a mapped file are the system's, which takes them back when it wants to; they are counted
here all the same.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from minitf.data import corpora
from minitf.data.dataset import Dataset, prepare, read_corpus
from minitf.data.rows import Encoded
from minitf.text import Subwords
from minitf.training.settings import Settings

TOKENS = 25_000  # of a batch
EN_FR = 36_000_000
LEARNING = ("learning subwords", "after it")


def memory(most=False):
    """The process's memory in bytes, now or at most since it was asked last."""
    status = Path("/proc/self/status").read_text()
    value = int(status.split("VmHWM:" if most else "VmRSS:")[1].split()[0]) * 1024
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget the maximum
    return value


def write_text(folder, n):
    """Write text with the sizes of WMT: 25 words a line, a million forms, Zipf's frequencies."""
    rng = np.random.default_rng(0)
    letters = np.array(list("bcdfghjklmnprstvwzaeiouäöüyé"))
    forms = np.array(
        ["".join(rng.choice(letters, rng.integers(2, 11))) for _ in range(1_000_000)], object
    )
    for language in ("en", "fr"):
        with open(folder / f"train.{language}", "w", encoding="utf-8") as file:
            for start in range(0, n, 10_000):
                lengths = np.maximum(
                    1, rng.poisson(25, min(10_000, n - start)) + rng.integers(-15, 16)
                )
                words = forms[
                    np.exp(rng.random(lengths.sum()) * np.log(len(forms))).astype(np.int64) - 1
                ]
                ends = np.cumsum(lengths)
                file.writelines(
                    " ".join(words[end - k : end]) + "\n"
                    for end, k in zip(ends, lengths, strict=True)
                )
    for language in ("en", "fr"):
        (folder / f"valid.{language}").write_text("one two\n")


def fake(folder, n, rng):
    """Write the files of n pairs of about 30 ids a side, without a text."""
    lengths = rng.integers(5, 56, (2, n), np.uint16)
    n_ids = int(lengths.sum())
    folder.mkdir()
    with open(folder / "ids.bin", "wb") as file:
        for start in range(0, n_ids, 1 << 24):
            file.write(rng.integers(4, 37_000, min(1 << 24, n_ids - start), np.uint16))
    np.save(folder / "lengths.npy", lengths)
    (folder / "counts.json").write_text(json.dumps({"counts": {"kept": n}, "unknown": 0}))


def epoch(dataset, stages):
    """Plan two epochs, as at the change from one to the next, and make a thousand batches."""
    plan, started = dataset.plan(0, TOKENS, 0), time.process_time()
    plan = dataset.plan(1, TOKENS, 0)
    stages["planning"], seconds = memory(most=True), time.process_time() - started
    dataset.largest(plan)
    stages["the largest batches"] = memory(most=True)
    started = time.process_time()
    for rows in plan[:1000]:
        dataset.batch(rows)
    stages["a thousand batches"] = memory(most=True)
    each = (time.process_time() - started) / min(1000, len(plan))
    stages["between batches"] = memory()
    print(
        f"CPU: planning {seconds:.1f} s, a batch {1000 * each:.1f} ms, {len(plan):,} batches",
        file=sys.stderr,
    )


def opened(folder):
    """Return the text in the folder as a trainer opens it if it is too long for the memory."""
    os.environ["MINITF_DATA"] = str(folder)
    corpora.MAX_IN_MEMORY = 0
    names = {
        name: [str(folder / f"{name}.{language}") for language in ("en", "fr")]
        for name in ("train", "valid")
    }
    settings = Settings(**names, vocabulary_size=37_000, batch_tokens=TOKENS)
    return settings, read_corpus(settings)


def learnt(folder, n):
    settings, corpus = opened(folder)
    started = time.process_time()
    subwords = Subwords.train(corpus.train.source + corpus.train.target, settings.vocabulary_size)
    print(f"CPU: subwords {time.process_time() - started:.0f} s", file=sys.stderr)
    subwords.save(folder / Subwords.file_name)
    return dict(zip(LEARNING, (memory(most=True), memory()), strict=True))


def cut(folder, n):
    settings, corpus = opened(folder)
    started = time.process_time()
    dataset = prepare(
        settings, corpus, lambda line: None, Subwords.load(folder / Subwords.file_name)
    )
    seconds = time.process_time() - started
    size = sum(path.stat().st_size for path in (folder / "encoded").rglob("*.bin")) / 1e9
    print(f"CPU: cutting {seconds:.0f} s, {size:.2f} GB on the disk", file=sys.stderr)
    stages = {"cutting": memory(most=True)}
    epoch(dataset, stages)
    return stages


def planned(folder, n):
    fake(folder / "x", n, np.random.default_rng(0))
    memory(most=True)
    file = Encoded(folder / "x", np.uint16)
    stages = {"opening": memory(most=True)}
    words = type("Vocabulary", (), {"__len__": lambda self: 37_000})()
    epoch(Dataset(None, words, file.sources, file.targets, corpora.Pairs([], []), file), stages)
    return stages


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--planned", action="store_true")
    parser.add_argument("--measure", choices=("learnt", "cut", "planned"), help=argparse.SUPPRESS)
    parser.add_argument("sizes", type=int, nargs="+")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(globals()[options.measure](Path.cwd(), *options.sizes)))
        return
    found = {}
    for n in sorted(options.sizes):
        with tempfile.TemporaryDirectory() as folder:
            if not options.planned:
                write_text(Path(folder), n)
            found[n] = {}
            for measure in ("planned",) if options.planned else ("learnt", "cut"):
                command = [sys.executable, __file__, "--measure", measure, str(n)]
                done = subprocess.run(
                    command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True
                )
                found[n] |= json.loads(done.stdout)
        print(
            f"{n:,} pairs:",
            ", ".join(f"{what} {value / 1e9:.2f} GB" for what, value in found[n].items()),
            flush=True,
        )
    if len(found) > 1:
        few, many = sorted(found)[-2:]
        for what, value in found[many].items():
            if what in LEARNING:  # uses two million lines at most
                continue
            slope = (value - found[few][what]) / (many - few)
            print(
                f"{what}: {slope:.0f} bytes a pair, {(value + slope * (EN_FR - many)) / 1e9:.2f} "
                f"GB for {EN_FR:,}"
            )


if __name__ == "__main__":
    main()
