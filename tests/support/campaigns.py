"""Fault injection against the promises of reliability: python tests/support/campaigns.py NAME

    resume    a run stopped by SIGTERM at random steps and resumed in a new process each time equals
              a run without stops
    kills     kill -9 at random moments of a run that saves after every step: no checkpoint is lost
              or incomplete
    stops     SIGTERM at random moments; a disk that is full, and one that becomes read-only
              (mounts, so root only)
    models    damaged models and checkpoints, in the formats of both editions: each is refused in
              one line or still readable, without pickle, a crash or more than twice the memory
    public    damaged public models, in each format: refused in one line, or finite logits; at most
              twice the memory of the file
    lines     random lines through translate.py: as many come out, in order, without
              control characters
    trees     sentences and random lines through parse.py: for each a tree over exactly its words
    mutants   each mistake of lesson_mutants, planted in the library: the lesson that teaches the
              broken piece must notice it

--seed decides the random moments and damages. A campaign that succeeds prints one line; one that
fails prints the reason and exits with 1. tests/project/test_campaigns.py runs short forms.
"""

import argparse
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lesson_programs
import numpy as np
import public_damage
from command import CONTROL, Command, is_well, lines_of
from lesson_files import LESSONS
from mistakes import TEXTS
from odd_lines import ODD, random_line
from paths import ROOT, SUPPORT
from runs import SMALL, assert_same_run, write_text
from tiny_translator import LONGEST, make_subwords, save

from minitf.data import corpora
from minitf.errors import UserError
from minitf.files.arrays import load_arrays
from minitf.files.models import read_model
from minitf.text.vocabulary import printable

LESSON = str(ROOT / "lessons" / "09_train_wmt.py")
STEP = re.compile(rb"^step +([\d,]+)  epoch", re.MULTILINE)


def start(command, folder, **streams):
    """Start Python with these arguments in a folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MINITF_DATA": str(Path(folder, "no-data")),
    }
    pipes = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        **streams,
    }
    return subprocess.Popen([sys.executable, *command], cwd=folder, env=environment, **pipes)


def finish(process, code=0):
    """Wait for a process that must end with this exit code; returns stdout and stderr."""
    out, err = process.communicate(timeout=3600)
    assert process.returncode == code, (
        f"exit code {process.returncode}, not {code}: {err.decode()[-2000:]}"
    )
    return out, err.decode()


# Exact resume -------------------------------------------------------------------------------------

WATCHED = """
import hashlib, json, os, signal, sys
from minitf.training import commandline
from minitf.data.dataset import Dataset
from minitf.training.trainer import Trainer
stop, order, batch, update = int(sys.argv[1]), [], Dataset.batch, Trainer.update
def watched_batch(self, rows):
    order.append(rows.tolist())
    return batch(self, rows)
def watched_update(self):
    order.clear()
    loss, nll, norm, tokens = update(self)
    with open(self.settings.out + ".steps", "a") as file:
        json.dump([self.step, float(loss).hex(), float(norm).hex(), tokens, order], file)
        file.write("\\n")
    if self.step == stop:
        os.kill(os.getpid(), signal.SIGTERM)
    return loss, nll, norm, tokens
Dataset.batch, Trainer.update = watched_batch, watched_update
sys.exit(commandline.main(sys.argv[2:]))
"""
# Batches of 2,200 tokens of d_model 64 are large enough for two replicas.
EXACT = (
    "--batch-tokens 2200 --warmup-steps 50 --average 2 --log-every 1 --replicas 2 --max-extra 2 "
)
EXACT += "--subwords none --set n_layers=1 --set d_model=64 --set d_ff=96 --set n_heads=4 "
EXACT += "--set dropout=0.2 --set attention_dropout=0.1 --set feed_forward_dropout=0.1"


def resume(folder, seed, count=20, steps=200):
    """Compare a run that was stopped and resumed with one that was not."""
    rng = np.random.default_rng(seed)
    write_text("train", 3000, seed)
    write_text("valid", 5, seed + 1)
    pace = (
        f"--steps {steps} --valid-every {max(2, steps // 4)} --save-every 7 --accumulate "
        f"{1 + seed % 2} --seed {seed}"
    )
    arguments = shlex.split(f"{TEXTS} {EXACT} {pace}")
    finish(start(["-c", WATCHED, "0", *arguments, "--out", "unstopped"], folder))
    stops = sorted(rng.choice(np.arange(1, steps), count, replace=False).tolist())
    for i, stop in enumerate([*stops, 0]):
        more = ["--resume"] if i else []
        out, _ = finish(
            start(["-c", WATCHED, str(stop), *arguments, "--out", "stopped", *more], folder)
        )
        assert b"will differ" not in out
        if stop:
            assert load_arrays("stopped/checkpoint.safetensors")[1]["step"] == stop
    unstopped, stopped = (
        [json.loads(line) for line in Path(f"{out}.steps").read_text().splitlines()]
        for out in ("unstopped", "stopped")
    )
    assert [row[0] for row in stopped] == list(range(1, steps + 1))
    differing = [one[0] for one, other in zip(unstopped, stopped, strict=True) if one != other]
    assert not differing, f"loss, norm or batches differ from step {differing[0]} on"
    assert_same_run("unstopped", "stopped")
    return (
        f"{steps} steps, stopped at {', '.join(map(str, stops))}: parameters, moments, losses, "
        "batches bit-identical"
    )


# Killed -------------------------------------------------------------------------------------------

KILLED = (
    f"{TEXTS} --batch-tokens 60 --valid-every 1000000 --save-every 1 --log-every 1 "
    "--warmup-steps 8 --average 2"
)


def begin(folder, out, steps, *more):
    """Start or resume a run that saves after every step; returns its process."""
    again = ["--resume"] if Path(out, "checkpoint.safetensors").exists() else []
    arguments = [*shlex.split(KILLED), *SMALL, "--out", out, "--steps", str(steps), *again, *more]
    return start([LESSON, *arguments], folder)


def read_until_step(process):
    """Return the output of a run up to its first step."""
    output = b""
    while not STEP.search(output):
        line = process.stdout.readline()
        assert line, f"it ended before the first step: {process.stderr.read().decode()}"
        output += line
    return output


def check_folder(out):
    """Check that every file of a killed run is complete; returns the step of its checkpoint."""
    arrays, meta = load_arrays(Path(out, "checkpoint.safetensors"))
    assert all(np.isfinite(array).all() for array in arrays.values())
    for name in meta["weights"]:
        load_arrays(Path(out, name))
    if Path(out, "config.json").exists():
        read_model(out)
    return meta["step"]


def kills(folder, seed, count=200):
    """Kill a run at random moments; in the end it equals one that was never killed."""
    rng = random.Random(seed)
    write_text("train", 60, seed)
    write_text("valid", 5, seed + 1)
    last = midway = early = 0
    for _ in range(count):
        process, output = begin(folder, "killed", 10**9), b""
        if rng.random() < 0.1:  # while it starts, too
            time.sleep(rng.uniform(0, 2))
        else:
            output = read_until_step(process)
            time.sleep(rng.uniform(0, 0.3))
        process.kill()
        out, _ = process.communicate()
        steps = STEP.findall(output + out)
        # The step before the last one printed is saved.
        done = int(steps[-1].replace(b",", b"")) - 1 if steps else last
        if not Path("killed/checkpoint.safetensors").exists():
            assert not steps
            shutil.rmtree("killed", ignore_errors=True)
            early += 1
            continue
        step = check_folder("killed")
        assert max(done, last) <= step <= max(done + 1, last + 1), (
            f"the checkpoint is of step {step}, but {done} was saved, and {last} earlier"
        )
        last = step
        midway += any(Path("killed").glob("*.tmp"))
    finish(begin(folder, "killed", last + 3))
    finish(begin(folder, "unkilled", last + 3))
    left = list(Path("killed").glob("*.tmp"))
    assert not left, f"half-written files remain: {left}"
    assert_same_run("killed", "unkilled")
    return (
        f"{count} kills in {last} steps, {midway} in the middle of a file, {early} before the "
        "first checkpoint: none lost, none incomplete, no temporary file left, in the end bit for "
        "bit the run that was not killed"
    )


# Stopped, full, read-only -------------------------------------------------------------------------


def stops(folder, seed, count=20):
    """Stop a run by SIGTERM at random moments, then let its disk fill up or become read-only."""
    rng = random.Random(seed)
    write_text("train", 60, seed)
    write_text("valid", 5, seed + 1)
    for _ in range(count):
        process = begin(folder, "stopped", 10**9)
        output = read_until_step(process)
        time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGTERM)
        out, err = finish(process)
        step = check_folder("stopped")
        assert step == int(STEP.findall(output + out)[-1].replace(b",", b"")) and err == ""
        assert f"after step {step:,}: continue with --resume --out stopped".encode() in out
    finish(begin(folder, "stopped", step + 2))
    return f"{count} times SIGTERM: saved, exit code 0, went on; {disks(folder, rng)}"


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def disks(folder, rng):
    """Fill up a small disk, then make it read-only: one line, and saved files are complete."""
    disk = Path(folder, "disk")
    disk.mkdir()
    try:
        mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", disk)
    except (OSError, subprocess.CalledProcessError):
        return "full and read-only disks not tried: only root can mount them"
    try:
        sizes, saved = [16, 64, *sorted(rng.sample(range(100, 400, 4), 4))], 0
        for size in sizes:
            mount("-o", f"remount,size={size}k", disk)
            _, err = finish(begin(folder, "disk/run", 10**9, "--average", "100"), 2)
            assert "No space left" in err and err.count("\n") == 1 and "free some space" in err, err
            if Path("disk/run/checkpoint.safetensors").exists():
                saved += check_folder("disk/run") > 0
        mount("-o", "remount,size=100m", disk)
        process = begin(folder, "disk/run", 10**9)
        read_until_step(process)
        while True:
            try:  # refused while a file is open for writing
                mount("-o", "remount,ro", disk)
                break
            except subprocess.CalledProcessError:
                time.sleep(rng.uniform(0, 0.01))
        _, err = finish(process, 2)
        assert "Read-only file system" in err and err.count("\n") == 1, err
        step = check_folder("disk/run")
        mount("-o", "remount,rw", disk)
        finish(begin(folder, "disk/run", step + 2))
    finally:
        subprocess.run(["umount", "-l", disk], check=False)
    return (
        f"{len(sizes)} full disks ({saved} after a checkpoint) and a read-only one: one line, "
        "saved files are complete"
    )


# Damaged files ------------------------------------------------------------------------------------


def models(folder, seed, count=5000, batch=250):
    """Read damaged files, 250 in each process, so that a crash is noticed."""
    total, most = {"used": 0, "refused": 0}, 0.0
    for first in range(0, count, batch):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            files = str(seed + first), str(min(batch, count - first))
            try:
                result = json.loads(finish(start([str(SUPPORT / "damage.py"), *files], place))[0])
            except AssertionError as error:
                raise AssertionError(
                    f"crash at file {Path(place, 'current').read_text()}: {error}"
                ) from None
        assert not result["failed"], "; ".join(result["failed"])
        total = {outcome: n + result[outcome] for outcome, n in total.items()}
        most = max(most, result["memory"])
    assert sum(total.values()) == count
    return (
        f"{count} damaged files: {total['refused']} refused in one line, {total['used']} still "
        f"readable; no pickle, no crash, at most {most:.2f} times the memory of the intact files"
    )


def public(folder, seed, count=2000):
    """Import damaged public models."""
    result = public_damage.campaign(folder, range(seed, seed + count))
    assert not result["failed"], "; ".join(result["failed"])
    assert result["refused"] + result["used"] == count
    return (
        f"{count} damaged public models: {result['refused']} refused in one line, "
        f"{result['used']} with finite logits; no crash, at most twice the memory of the file"
    )


# Lines --------------------------------------------------------------------------------------------


def lines(folder, seed, count=10_000):
    """Translate random lines, from a pipe and from a file into a file."""
    rng = random.Random(seed)
    command = Command(save(Path(folder, "tiny"), make_subwords(), {"max_subwords": LONGEST}))
    fuzzed = [random_line(rng) for _ in range(count)]
    content = b"\n".join([*fuzzed, b"the end"]) + rng.choice([b"\n", b""])
    Path(folder, "in.txt").write_bytes(content)
    options = ("--beam", "2", "--max-extra", "3")
    piped = command.start(*options, stdin=subprocess.PIPE)
    out, err = piped.communicate(content, timeout=3600)
    filed = command.start(
        *options, "--format", "json", "--input", "in.txt", "--output", "out.json", cwd=folder
    )
    assert is_well(piped.returncode, err.decode(), content), err
    out_of_file, err_of_file = finish(filed)
    assert out_of_file == b"" and err_of_file.count("\n") == 1 and "not UTF-8" in err_of_file
    found, records = out.decode(), Path(folder, "out.json").read_text()
    assert not CONTROL.search(found) and not CONTROL.search(records)
    records = [json.loads(line) for line in lines_of(records)]
    texts = lines_of(found)
    assert len(texts) == len(records) == count + 1
    wanted = [
        line.removesuffix(b"\r").decode(errors="replace").removeprefix("\ufeff") for line in fuzzed
    ]
    assert [record["source"] for record in records[:-1]] == wanted, "the order"
    assert [record["translation"] for record in records] == texts
    return (
        f"{count:,} random lines in, {len(texts) - 1:,} out, in order, from a pipe and from a file"
    )


def trees(folder, seed, count=10_000):
    """Parse sentences and random lines with the bundled parser, greedily.

    Half are sentences, of the toy corpus and of craft if it is there; the others are random lines.
    """
    rng = random.Random(seed)
    texts = [line for name in ("toy", "craft") for line in _sources(name)]
    content = [rng.choice(texts).encode() for _ in range(count // 2)]
    content += [rng.choice((*ODD.values(), random_line(rng))) for _ in range(count - len(content))]
    rng.shuffle(content)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "parse.py"), "--beam", "1"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    text = b"\n".join([*content, b"the end"])
    out, err = process.communicate(text, timeout=3600)
    assert process.returncode == 0 and err.decode().count("\n") <= 1, err  # what was given up
    found = lines_of(out.decode())
    assert len(found) == count + 1
    brackets = 0
    for line, tree in zip(content, found, strict=False):
        text = line.removesuffix(b"\r").decode(errors="replace").removeprefix("\ufeff")
        letters = "".join(printable(text).split())
        words, depth = read_penn(tree)
        assert "".join(words) == letters.replace("(", "-LRB-").replace(")", "-RRB-"), (line, tree)
        brackets += depth > 1
    return f"{count:,} lines in, {count:,} trees out, each over its words; {brackets:,} are nested"


def _sources(name):
    """Return the source sentences of a corpus, of all its texts; none if it is not there."""
    try:
        corpus = corpora.load(name)
    except UserError:
        return []
    return [line for pairs in (corpus.train, *corpus.tests.values()) for line in pairs.source]


def read_penn(line):
    """Return the words of a tree in Penn form, and how many constituents are around one another.

    Written for this check alone. Raises AssertionError for anything else; an empty line is a tree.
    """
    words, open_now, deepest, before = [], 0, 0, ""
    for token in re.findall(r"\((?:XX [^\s()]+\)|[^\s()]+)|\)|[^\s()]+", line):
        assert token == ")" or token[0] == "(", line
        if token[-1] == ")" and token != ")":  # (XX word)
            assert open_now, line
            words.append(token[4:-1])
        elif token != ")":
            assert open_now or not before, f"two trees: {line}"
            open_now += 1
        else:
            assert open_now and before[-1] == ")", f"an empty bracket: {line}"
            open_now -= 1
        deepest, before = max(deepest, open_now), token
    assert open_now == 0, line
    return words, deepest


# Lessons ------------------------------------------------------------------------------------------


def mutants(folder, seed, count=None):
    """Run the lessons with a mistake planted in the library each time."""
    planted = lesson_programs.mutants()
    names = random.Random(seed).sample(sorted(planted), count or len(planted))
    missed = []
    for name in names:
        lesson = next(path for path in LESSONS if path.stem.startswith(planted[name][0]))
        with tempfile.TemporaryDirectory(dir=folder) as one:
            package = lesson_programs.plant(planted[name], Path(one, "mutant"))
            done = lesson_programs.run(lesson, Path(one), package=package)
        if not lesson_programs.is_noticed(done):
            missed.append(f"{lesson.stem}: {name}")
    assert not missed, f"{len(missed)} of {len(names)} mistakes not noticed: {'; '.join(missed)}"
    return f"{len(names)} mistakes in the library, each noticed by the lesson that teaches it"


CAMPAIGNS = {
    function.__name__: function
    for function in (resume, kills, stops, models, public, lines, trees, mutants)
}


def run(name, seed, count=None, **more):
    """Run a campaign in a temporary folder; returns its line."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return CAMPAIGNS[name](
                Path(folder), seed, **({} if count is None else {"count": count}), **more
            )
        finally:
            os.chdir(before)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="+", choices=CAMPAIGNS, metavar="NAME", help=", ".join(CAMPAIGNS)
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--count", type=int, help="stops, kills, files or lines (default: the full campaign)"
    )
    options = parser.parse_args()
    for name in options.names:
        started = time.monotonic()
        try:
            line = run(name, options.seed, options.count)
        except AssertionError as error:
            print(f"{name}, seed {options.seed}: FAILED: {error}", flush=True)
            return 1
        print(
            f"{name}, seed {options.seed}: {line} ({time.monotonic() - started:.0f} s)", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
