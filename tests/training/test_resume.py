"""A stopped run continues bit for bit as if it had not been stopped, or says why it cannot."""

import errno
import functools
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from runs import assert_same_run, at_step, copied_run, prepare_folder, run, terminate, write_text
from saved_files import assert_same

from minitf.cpu.machine import instruction_sets
from minitf.data.corpora import read_pairs
from minitf.data.dataset import Dataset
from minitf.errors import UserError
from minitf.files.arrays import load_arrays, save_arrays
from minitf.files.models import read_model
from minitf.training import commandline, trainer, update
from minitf.training.checkpoints import RunFolder
from minitf.training.evaluation import Validator, perplexity
from minitf.training.log import read_history
from minitf.training.settings import Settings
from minitf.training.signals import StopRequest, stop_on_signals
from minitf.training.trainer import Trainer
from minitf.translation import Translator

slow = functools.partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return prepare_folder(tmp_path, monkeypatch)


# Resuming -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas, accumulate", [slow(1, 1), slow(2, 1), (2, 2)])
def test_a_resumed_run_is_bit_exact(folder, monkeypatch, replicas, accumulate):
    monkeypatch.setattr(update, "_MIN_ACTIVATIONS", 1)  # else batches this small would not be cut
    shape = [
        "--replicas",
        str(replicas),
        "--accumulate",
        str(accumulate),
        "--set",
        "attention_dropout=0.1",
    ]
    order = []
    batch = Dataset.batch
    monkeypatch.setattr(
        Dataset, "batch", lambda self, rows: (order.append(rows.tolist()), batch(self, rows))[1]
    )
    assert run("whole", *shape) == 0
    steps = 13 * accumulate
    whole_order = order[-steps:]
    seen = []
    stops = sorted(
        np.random.default_rng(replicas + accumulate)
        .choice(np.arange(1, 13), 3, replace=False)
        .tolist()
    )
    for i, stop in enumerate([*stops, 13]):
        order.clear()
        with monkeypatch.context() as patch:
            at_step(patch, stop, terminate)
            assert run("parts", *shape, *(["--resume"] if i else [])) == 0
        n = (stop - (stops[i - 1] if i else 0)) * accumulate
        seen += order[-n:]
        assert load_arrays("parts/checkpoint.safetensors")[1]["step"] == stop
        # After a signal no test text is translated.
        assert not Path("parts/results.json").exists()
    assert seen == whole_order
    # Stopped after the last step: only the scoring is left to do.
    assert run("parts", "--resume", text=False) == 0
    assert Path("parts/results.json").exists()
    assert_same_run("whole", "parts")


def test_a_run_with_subwords_and_a_cooldown_is_bit_exact(folder, monkeypatch):
    """Stopped in the middle of an epoch, at its end, and in the cooldown."""
    more = shlex.split(
        "--subwords sentencepiece --vocabulary-size 290 --cooldown 0.4 "
        "--batch-tokens 200 --accumulate 2 --steps 24 --save-every 2 --average 9"
    )
    assert run("whole", *more) == 0
    for i, stop in enumerate((3, 11, 20, 24)):
        with monkeypatch.context() as patch:
            at_step(patch, stop, terminate)
            assert run("parts", *more, *(["--resume"] if i else [])) == 0
    assert run("parts", *more, "--resume", text=False) == 0
    meta = load_arrays("parts/checkpoint.safetensors")[1]
    assert meta["epoch"] >= 2
    saved = [int(name[8:16]) for name in meta["weights"]]
    assert saved == [16, 18, 20, 22, 24], "only weights of the cooldown are averaged"
    assert_same_run("whole", "parts", averaged=5)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such lock")
@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_two_trainers_do_not_share_a_folder(folder, monkeypatch, capsys, resume):
    """The second is refused while the first reads its text; what the first writes stays."""
    if resume:
        assert run("here", "--steps", "3") == 0
    read_corpus = commandline.read_corpus

    def slowly(*arguments):
        monkeypatch.setattr(commandline, "read_corpus", read_corpus)
        assert run("here", "--steps", "5", *resume) == 2
        assert "another process is writing to here: wait" in capsys.readouterr().err
        return read_corpus(*arguments)

    monkeypatch.setattr(commandline, "read_corpus", slowly)
    assert run("here", "--steps", "6", *resume) == 0
    steps = [entry["step"] for entry in read_history("here") if "loss" in entry]
    assert steps == [1, 2, 3, 4, 5, 6]


def test_resuming_from_python_takes_the_settings_that_were_changed(folder):
    assert run("here", "--steps", "3") == 0
    results = commandline.train(Settings(out=Path("here"), resume=True, steps=5))
    assert results["step"] == 5 and results["settings"]["train"] == ["train.en", "train.de"]
    with pytest.raises(UserError, match="--valid-every must be at least 1, not 0"):
        commandline.train(Settings(out="here", resume=True, valid_every=0))


def test_a_run_from_python_tells_how_python_continues(folder, monkeypatch, capsys):
    texts = {"train": ["train.en", "train.de"], "valid": ["valid.en", "valid.de"]}
    sizes = {"set": ["n_layers=1", "d_model=16", "d_ff=24", "n_heads=2"], "subwords": "none"}
    given = Settings(**texts, **sizes, out="my run", batch_tokens=60, max_extra=2, minutes=0.5)
    with monkeypatch.context() as patch:
        at_step(patch, 2, terminate)
        assert commandline.train(given) is None
    said = capsys.readouterr().out
    assert "received after step 2: continue with resume=True\n" in said
    monkeypatch.setattr(Trainer, "_limit_reached", lambda self: "time")
    assert commandline.train(Settings(resume=True, out="my run"))["step"] == 2
    said = capsys.readouterr().out
    assert "--model 'my run'\n" in said, "it can be copied to a shell"
    assert "continue with resume=True and more minutes\n" in said


def test_fewer_steps_end_a_run_with_its_average(folder, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        at_step(patch, 9, terminate)
        assert run("here", "--steps", "100") == 0
    assert read_model("here").notes["step"] == 8, "the average stays, also behind the checkpoint"
    assert run("here", "--resume", "--steps", "8", text=False) == 0
    assert "average  of the last 2 checkpoints: " in capsys.readouterr().out


def test_a_run_goes_on_without_forms_but_says_so(folder, capsys, monkeypatch):
    assert run("here", "--steps", "3") == 0
    monkeypatch.setenv("MINITF_FORMS", "off")
    assert run("here", "--resume", "--steps", "5") == 0
    assert "notice   the result will differ" in (said := capsys.readouterr().out)
    assert "forms on -> off" in said


def test_a_run_goes_on_with_other_programs_of_numpy_but_says_so(folder, capsys, monkeypatch):
    """As with NPY_DISABLE_CPU_FEATURES: they decide how exp and tanh round."""
    copied_run("here", "--steps", "3")
    before, after = instruction_sets(), {"SIMD Extensions": {"baseline": ["OLD"], "found": ["NEW"]}}
    monkeypatch.setattr(np, "show_config", lambda mode: after)
    assert run("here", "--resume", "--steps", "5") == 0
    assert "notice   the result will differ" in (said := capsys.readouterr().out)
    assert f": instruction sets {before} -> OLD NEW\n" in said


@pytest.mark.parametrize("ends", [(6, 13), slow((3, 6, 10, 13))])
def test_a_run_that_ended_can_continue_as_if_it_had_not(folder, ends):
    copied_run("whole")
    for i, steps in enumerate(ends):
        if i:
            arrays, meta = load_arrays("parts/checkpoint.safetensors")
            save_arrays("parts/checkpoint.safetensors", arrays, meta | {"seconds": i * 1e6})
        assert run("parts", "--steps", str(steps), *(["--resume"] if i else [])) == 0
        assert load_arrays("parts/checkpoint.safetensors")[1]["seconds"] > i * 1e6
        # Rounded: the first updates may take less than it shows.
        assert json.loads(Path("parts/results.json").read_text())["seconds"] >= i * 1e6
        assert Translator.load("parts").translate(["the cat"], beam=1)
    assert_same_run("whole", "parts")


def test_an_interrupted_validation_is_repeated(folder, monkeypatch):
    copied_run("whole")
    translate = Translator.translate

    def interrupted(self, *arguments, **options):
        terminate()
        return translate(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate", interrupted)
        assert run("parts") == 0
    assert load_arrays("parts/checkpoint.safetensors")[1]["validated"] == 0
    # Even so early, a model is saved.
    assert len(Translator.load("parts").translate(["the cat"], beam=1)) == 1
    assert run("parts", "--resume") == 0
    assert_same_run("whole", "parts")


def test_a_model_whose_code_was_changed_is_not_trained_on(folder, capsys):
    assert run("here", "--steps", "5", "--valid-every", "4", "--log-every", "3") == 0
    logged = [entry["step"] for entry in read_history("here") if "loss" in entry]
    assert logged == [3, 4, 5], "also before each validation"
    arrays, meta = load_arrays("here/checkpoint.safetensors")
    probe = [2 * number + 1 for number in meta["probe"]]
    save_arrays("here/checkpoint.safetensors", arrays, meta | {"probe": probe})
    assert run("here", "--resume", "--steps", "7") == 2
    assert "computes other numbers than when it was saved" in capsys.readouterr().err


def test_a_signal_at_the_end_postpones_the_scoring(folder, monkeypatch, capsys):
    copied_run("whole")
    finish = commandline.finish
    with monkeypatch.context() as patch:
        patch.setattr(commandline, "finish", lambda *arguments: (terminate(), finish(*arguments)))
        assert run("parts") == 0
    said = "stopped  SIGTERM received after the last step: score it with --resume --out parts\n"
    assert said in capsys.readouterr().out
    assert not Path("parts/results.json").exists()
    assert run("parts", "--resume") == 0
    assert_same_run("whole", "parts")
    assert Path("parts/valid.out").read_text() == Path("whole/valid.out").read_text()


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (errno.ENOSPC, "the disk is full: free some space, or choose another disk"),
        slow(errno.EROFS, "you may not write there: choose another folder"),
        slow(errno.EIO, "free some space or choose another folder"),
    ],
    ids=lambda value: errno.errorcode.get(value, ""),
)
def test_a_full_disk_loses_no_checkpoint(folder, monkeypatch, capsys, error, advice):
    copied_run("whole")
    calls = itertools.count()

    def refuse(handle):
        if next(calls) >= 22:
            raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        assert run("parts") == 2
    said = capsys.readouterr().err
    assert f"could not be written ({os.strerror(error)}): {advice}; an existing file" in said
    assert said.count("\n") == 1
    assert 0 < load_arrays("parts/checkpoint.safetensors")[1]["step"] < 12 and not list(
        Path("parts").glob("*.tmp")
    )
    assert run("parts", "--resume") == 0
    assert_same_run("whole", "parts")
    calls = itertools.count(20)  # the subwords are written, and the first checkpoint is not
    monkeypatch.setattr(os, "fsync", refuse)
    assert run("new") == 2
    assert not Path("new").exists(), "the run can begin again"


class Killed(BaseException):
    """Nothing may catch this: it simulates the death of the process."""


def killed_at(call, fatal):
    """Train in parts/, from its checkpoint if it has one; return whether the process was killed.

    call: "replace" or "unlink", of os. fatal: the call, among those for parts/, that is not made.
    """
    done, real = 0, getattr(os, call)

    def count_and_die(*arguments, **keywords):
        nonlocal done
        done += "parts" in str(arguments[0])
        if done == fatal:
            raise Killed
        return real(*arguments, **keywords)

    resume = ["--resume"] if Path("parts/checkpoint.safetensors").exists() else []
    if not resume:  # a vocabulary may be left
        shutil.rmtree("parts", ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, count_and_die)
        try:
            assert run("parts", *resume) == 0
        except Killed:
            return True
    return False


def assert_complete(out):
    """The checkpoint and the model are complete, those that there are."""
    if Path(out, "checkpoint.safetensors").exists():
        for name in load_arrays(f"{out}/checkpoint.safetensors")[1]["weights"]:
            load_arrays(f"{out}/{name}")
    if Path(out, "config.json").exists():
        read_model(out)


@pytest.mark.parametrize("call", ["replace", slow("unlink")])
def test_killed_in_each_of_its_sessions_a_run_loses_nothing(folder, call):
    copied_run("whole")
    count = 0
    for fatal in (*range(1, 22, 4), None):
        count += killed_at(call, fatal)
        assert_complete("parts")
        if Path("parts/results.json").exists():
            break
    assert count >= (2 if call == "replace" else 1)
    assert_same_run("whole", "parts")


@pytest.mark.slow
@pytest.mark.parametrize("call, least", [("replace", 20), ("unlink", 25)])
def test_killed_between_any_two_files_nothing_is_lost(folder, call, least):
    copied_run("whole")
    for fatal in itertools.count(1):
        shutil.rmtree("parts", ignore_errors=True)
        if not killed_at(call, fatal):
            break
        assert_complete("parts")
        assert not killed_at(call, None)
        assert_same_run("whole", "parts")
    assert fatal > least


def test_changes_on_resuming_are_logged(folder, capsys):
    assert run("here", "--steps", "4", "--replicas", "1") == 0
    capsys.readouterr()
    assert run("here", "--resume", "--steps", "5", "--replicas", "1") == 0
    assert "will differ" not in capsys.readouterr().out
    assert run("here", *shlex.split("--replicas 2 --batch-tokens 30 --resume --steps 6")) == 0
    said = capsys.readouterr().out
    assert "changed  --batch-tokens 60 -> 30; --steps 5 -> 6; --replicas 1 -> 2\n" in said
    assert "that of an uninterrupted run: replicas 1 -> 2\n" in said
    write_text("train", 10, seed=5)  # fewer batches than the run has taken of its epoch
    assert run("here", "--resume", "--steps", "12") == 0
    assert "uninterrupted run: training pairs " in capsys.readouterr().out
    assert load_arrays("here/checkpoint.safetensors")[1]["step"] == 12


def last_score(out):
    """Return the perplexity of the last weights that results.json has, and the true one."""
    found = json.loads(Path(out, "results.json").read_text())
    translator = Translator.load(out)
    translator.model.load_state(load_arrays(f"{out}/weights-00000012.safetensors")[0])
    pairs = read_pairs(*found["settings"]["valid"])
    true = perplexity(translator.model, translator.subwords, pairs)
    return found["valid"]["last"]["perplexity"], pytest.approx(true)


@pytest.mark.slow
def test_scores_on_another_validation_text_are_not_compared(folder, monkeypatch, capsys):
    monkeypatch.setattr(commandline, "by_quality", lambda scores: 0)  # the average is kept
    copied_run("here", "--steps", "12")
    write_text("other", 5, seed=9)
    other = ["--valid", "other.en", "other.de"]
    capsys.readouterr()
    assert commandline.main(["--resume", "--out", "here", *other]) == 0
    said = capsys.readouterr().out
    assert len(re.findall(r"step +12  validation:", said)) == 1
    score, true = last_score("here")
    assert score == true
    assert load_arrays("here/checkpoint.safetensors")[1]["validated"] == 12
    for _ in range(2):  # the same text again: nothing is left to validate
        assert commandline.main(["--resume", "--out", "here"]) == 0
        said = capsys.readouterr().out
        assert "validation:" not in said
        assert last_score("here") == (score, true)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("--preset small", "cannot change --preset (the run has --preset tiny): leave it"),
        ("--subwords sentencepiece", "cannot change --subwords"),
        ("--set n_layers=2", "cannot change --set (the run has --set n_layers=1 --set"),
        ("--start-from elsewhere", "cannot change --start-from"),
    ],
)
def test_some_settings_cannot_change_on_resuming(folder, capsys, arguments, words):
    copied_run("here", "--steps", "1")
    before = Path("here/checkpoint.safetensors").read_bytes()
    assert commandline.main(["--out", "here", "--resume", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert Path("here/checkpoint.safetensors").read_bytes() == before


def test_missing_weights(folder, capsys):
    assert run("here", "--steps", "8") == 0
    Path("here/weights-00000004.safetensors").unlink()
    assert run("here", "--resume", "--steps", "12", "--average", "3") == 0
    assert "average  begins again with this step: here/weights-00" in capsys.readouterr().out
    kept = [path.name for path in Path("here").glob("weights-*")]
    assert kept == ["weights-00000012.safetensors"] and read_model("here").notes["averaged"] == 1


def test_a_checkpoint_of_another_version_is_refused_in_one_line(folder, capsys):
    copied_run("here", "--steps", "1")
    arrays, meta = load_arrays("here/checkpoint.safetensors")
    later = meta | {"settings": meta["settings"] | {"of_a_later_version": 1}}
    save_arrays("here/checkpoint.safetensors", arrays, later)
    assert run("here", "--resume", "--steps", "2") == 2
    said = "saved by another version of minitf (its setting of_a_later_version)"
    assert said in capsys.readouterr().err


# Stopping -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1") if hasattr(signal, name)]
)
def test_a_signal_saves_a_checkpoint(folder, monkeypatch, capsys, name):
    number = getattr(signal, name)
    # The tests may run under nohup, which ignores SIGHUP.
    outside = signal.signal(number, signal.SIG_DFL)
    try:
        at_step(monkeypatch, 2, lambda: signal.raise_signal(number))
        assert run("here") == 0
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, outside)
    said = capsys.readouterr().out
    assert f"stopped  {name} received after step 2: continue with --resume --out here\n" in said
    assert load_arrays("here/checkpoint.safetensors")[1]["step"] == 2
    assert read_model("here").notes["step"] == 2, "the first one can be tried"


def test_a_terminal_may_be_closed_twice():
    """A shell and the system both send SIGHUP."""
    outside = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
    try:
        stop = StopRequest()
        with stop_on_signals(stop):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)
            assert stop.reason == "SIGHUP received"
            with pytest.raises(KeyboardInterrupt):
                terminate()
    finally:
        signal.signal(signal.SIGHUP, outside)


def test_a_second_signal_stops_at_once(folder, monkeypatch, capsys):
    at_step(monkeypatch, 6, lambda: (terminate(), terminate()))
    assert run("here") == 130
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "stopped at once: --resume continues from the last checkpoint" in error
    assert load_arrays("here/checkpoint.safetensors")[1]["step"] == 4


def test_minutes(folder, monkeypatch, capsys):
    monkeypatch.setattr(
        Validator,
        "measure",
        lambda *_: (9.0, SimpleNamespace(score=50.0, signature="made up", reference_length=99)),
    )
    assert run("here", "--steps", "1000000", "--minutes", "0.001") == 0
    assert re.search(
        r"stopped  time limit of 0\.001 minutes reached after [\d,]+ of 1,000,000 updates",
        capsys.readouterr().out,
    )
    assert Path("here/results.json").exists()


@pytest.mark.parametrize("score, code", [(0.99, commandline.EXIT_NO_MODEL), (1.0, 0)])
def test_the_exit_code_of_a_model_that_cannot_translate(folder, monkeypatch, capsys, score, code):
    """The exit code says so after --minutes or --patience; few --steps were asked for."""
    monkeypatch.setattr(
        Validator,
        "measure",
        lambda *_: (9.0, SimpleNamespace(score=score, signature="made up", reference_length=99)),
    )
    for more, found, hint in (
        ("--steps 1000000 --minutes 0.001", code, "more minutes"),
        ("--steps 100 --valid-every 1 --patience 2", code, "patience 0"),
        ("--steps 2", 0, "more steps"),
    ):
        assert run(hint, *more.split()) == found
        notices = [
            line for line in capsys.readouterr().out.splitlines() if "cannot translate yet" in line
        ]
        assert len(notices) == (score < 1)
        for notice in notices:
            assert (
                notice.endswith(f"continue with --resume --out {shlex.quote(hint)} and {hint}")
                and "0.99 BLEU" in notice
            )


def test_a_run_that_diverged_is_not_told_to_continue(folder, monkeypatch, capsys):
    """Its perplexity is above that of a guess, and above that of its first updates."""
    worse = SimpleNamespace(score=0.0, signature="made up", reference_length=99)
    monkeypatch.setattr(Validator, "measure", lambda *_: (1e6, worse))
    assert run("here", "--steps", "9", "--learning-rate", "2") == 0
    said = capsys.readouterr().out
    assert "notice   training has diverged: a perplexity of 1e+06 on the val" in said
    assert "guessing among 30 subwords: begin again, with a --learning-rate lower" in said
    assert "continue" not in said


def test_short_validation_sentences_are_not_taken_for_a_model_that_cannot_translate(folder, capsys):
    for language in ("en", "de"):
        Path(f"valid.{language}").write_text("rain\n\nold trees\n")
    assert run("here", "--steps", "100", "--valid-every", "1", "--patience", "2") == 0
    said = capsys.readouterr().out
    assert said.count("\nnotice   BLEU cannot judge this model") == 1 and "BLEU 0.00" in said
    assert "cannot translate yet" not in said


def test_early_stopping_counts_neither_bleu_nor_perplexity(folder, monkeypatch, capsys):
    found = iter([(9, 1), (8, 1), (8, 2), (8, 2), (9, 1), (7, 0), (7, 0), (7, 1), (7, 2), (0, 99)])
    measure = Validator.measure

    def fake(self, translator):
        _, score = measure(self, translator)
        value, bleu = next(found)
        object.__setattr__(score, "score", bleu)
        return value, score

    monkeypatch.setattr(Validator, "measure", fake)
    assert run("here", "--valid-every", "1", "--steps", "100", "--patience", "3") == 0
    assert "neither BLEU nor perplexity improved in 3 validations" in capsys.readouterr().out
    meta = load_arrays("here/checkpoint.safetensors")[1]
    assert meta["step"] == 9  # 7, 8 and 9 were no improvement


@pytest.mark.parametrize("last", [9.0, 3.0])
def test_a_validation_at_the_end_of_a_session_counts_for_nothing(folder, monkeypatch, last):
    """Whether it is better or worse: a run that goes on would not have had it."""
    measure, found = Validator.measure, itertools.chain([5.0], itertools.repeat(last))
    monkeypatch.setattr(Validator, "measure", lambda self, t: (next(found), measure(self, t)[1]))
    run("here", "--steps", "6")  # the only one that is due is after step 4
    meta = load_arrays("here/checkpoint.safetensors")[1]
    counted = meta["validated"], meta["best_perplexity"], meta["bad_validations"]
    assert counted == (4, 5.0, 0) and meta["weights"] == ["weights-00000004.safetensors"]


def test_an_average_has_weights_of_the_cooldown_or_weights_before_it(folder, monkeypatch):
    """And no weights are deleted that the checkpoint on the disk names."""
    averaged, deleted = [], []
    save_model, unlink = trainer.save_model, os.unlink

    def noted(*arguments, notes, probe):
        averaged.append((notes["step"], notes["averaged"]))
        save_model(*arguments, notes=notes, probe=probe)

    def checked(path, **options):
        if (name := Path(path).name).startswith("weights-") and Path(path).exists():
            deleted.append(name)
            assert name not in load_arrays("here/checkpoint.safetensors")[1]["weights"]
        unlink(path, **options)

    monkeypatch.setattr(trainer, "save_model", noted)
    monkeypatch.setattr(os, "unlink", checked)
    run("here", *shlex.split("--steps 5 --cooldown 0.4 --valid-every 1 --average 2"))
    assert averaged[:5] == [(1, 1), (2, 2), (3, 2), (4, 1), (5, 2)], "it begins after step 3"
    assert len(set(deleted)) == 3


def test_a_closed_output_stops_the_run(folder, monkeypatch):
    written = []

    def closed(text):
        written.append(text)
        if re.search("step +2 ", text):
            raise BrokenPipeError

    monkeypatch.setattr("minitf.training.log._print", closed)
    monkeypatch.setattr(os, "dup2", lambda source, target: None)
    assert run("here") == 0
    assert load_arrays("here/checkpoint.safetensors")[1]["step"] == 2
    assert re.search("step +2 ", written[-1])


# The folder of a run ------------------------------------------------------------------------------


def test_the_newest_weights_are_averaged_without_their_file(tmp_path):
    said = []
    run_folder = RunFolder(tmp_path, said.append)
    rng = np.random.default_rng(0)
    states = [{"x": rng.standard_normal(5).astype(np.float32)} for _ in range(3)]
    names = []
    for step, state in enumerate(states, 1):
        names = run_folder.save_weights(names, step, state, 2)
    assert names == ["weights-00000002.safetensors", "weights-00000003.safetensors"]
    mean = {"x": ((states[1]["x"].astype(float) + states[2]["x"]) / 2).astype(np.float32)}
    (tmp_path / names[1]).write_bytes(b"never read")
    taken, averaged = run_folder.average(names, states[2])
    assert taken == names and said == []
    assert_same(averaged, mean)


@pytest.mark.parametrize("damage", ["missing", "of another model"])
def test_an_average_begins_again_after_weights_that_cannot_be_read(tmp_path, damage):
    said, names = [], []
    run_folder = RunFolder(tmp_path, said.append)
    states = [{"x": np.full(5, step, np.float32)} for step in (1, 2, 6)]
    for step, state in enumerate(states, 1):
        names = run_folder.save_weights(names, step, state, 3)
    path = tmp_path / names[1]
    path.unlink()
    if damage == "of another model":
        save_arrays(path, {"x": np.ones(4, np.float32)}, {"step": 2})
    taken, averaged = run_folder.average(names, states[2])
    assert taken == [names[2]] and averaged is states[2]
    assert len(said) == 1 and str(path) in said[0]
