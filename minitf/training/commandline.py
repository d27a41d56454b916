"""The command line of lessons/09_train_wmt.py: begin or resume a training, and score the
model it makes.
"""

import contextlib
import dataclasses
import functools
import json
import os
import shlex
import sys
import types
import warnings
from collections.abc import Callable, Collection, Iterable

from minitf import backend
from minitf.config import Config
from minitf.cpu.replicas import keep_to_cores
from minitf.data.dataset import prepare, read_corpus
from minitf.errors import UserError, in_file
from minitf.files.atomic import save_text
from minitf.files.models import read_notes
from minitf.gpu.matmul import use_precision
from minitf.training.checkpoints import RunFolder
from minitf.training.distributed import Ranks, launched
from minitf.training.evaluation import paper_bleu, score_files
from minitf.training.log import RunLog, versions
from minitf.training.planning import report
from minitf.training.settings import (
    Settings,
    as_typed,
    check_model,
    check_stored,
    model_changes,
    parse,
    resumed,
    resumed_model,
)
from minitf.training.signals import Interrupted, stop_on_signals
from minitf.training.trainer import COUNTS, Trainer
from minitf.transformer import Transformer
from minitf.translation import Translator
from minitf.translation.loading import check_size, load_model, load_weights

__all__ = ["build", "finish", "main", "train"]

RESULTS = "results.json"
# By the trainer's command.
TRANSLATE = {"minitf-train": "minitf-translate", "python": "python -m minitf.translation"}
NO_MODEL = 1.0  # BLEU on the validation text: a model with less than this cannot translate
CUT_SHORT = 3  # the exit code of a run that ended early, with such a model


def build(
    settings: Settings,
    given: Collection[str] = (),
    ranks: Ranks | None = None,
    model: Callable[..., Transformer] = Transformer,
) -> Trainer:
    """Make the Trainer for the settings: new, from another model's weights, or where the last
    checkpoint was.

    given: the names of the settings that were asked for, which --resume changes. ranks: who
    shares the run; this is the first of them. model: what makes the model, as for `Trainer`.
    Raises UserError.
    """
    trainer = (
        _resume(settings, given, ranks, model)
        if settings.resume
        else _begin(settings, ranks, model)
    )
    if trainer.ranks.size > 1:
        _hand_out(trainer)
    count = sum(p.size for p in trainer.model.parameters())
    trainer.log.say(f"model    {count:,} parameters, {len(trainer.dataset.subwords):,} subwords")
    trainer.log.say(
        f"machine  {', '.join(f'{value} {what}' for what, value in trainer.machine.items())}"
    )
    return trainer


def _hand_out(trainer):
    """Give the other ranks the data and the state, so that nothing is read or drawn twice."""
    counts = {key: getattr(trainer, key) for key in COUNTS}
    state = trainer.model.state(), trainer.optimizer.state(), counts
    # Not what a variable says elsewhere.
    settings = dataclasses.replace(trainer.settings, backend=backend.xp.__name__)
    trainer.ranks.tell((settings, trainer.dataset, trainer.config, state))
    trainer.ranks.connect()
    trainer.log.say(f"ranks    {trainer.ranks.place}")


def _follow(ranks, model):
    """Be one of the other ranks: take what `_hand_out` gives, and do what the first rank does
    until it ends.
    """
    if (given := ranks.tell()) is None:
        return
    settings, dataset, config, state = given
    _choose_device(settings)
    ranks.connect()
    trainer = Trainer(
        settings, dataset, config, types.SimpleNamespace(say=lambda text: None), ranks, model
    )
    trainer.load(*state)
    with _quiet():
        trainer.run()


@contextlib.contextmanager
def _quiet():
    """Leave out NumPy's warnings of overflow: the trainer stops for that, and says in one
    line where it was.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _begin(settings, ranks, model):
    if not settings.plan:
        RunFolder(settings.out).must_be_free()
    _choose_device(settings)
    weights = config = subwords = None
    if settings.start_from:
        start, subwords, _ = load_model(settings.start_from, model)
        weights, config = start.state(), start.config.replace(**model_changes(settings.set))
        del start
        check_model(settings, config, len(subwords))
    _say_reading(settings)
    corpus = read_corpus(settings)  # what the user named must be there before anything is written
    log = RunLog(None if settings.plan else settings.out)
    dataset = prepare(settings, corpus, log.say, subwords)
    if config is None:
        config = Config.preset(
            settings.preset, len(dataset.subwords), **model_changes(settings.set)
        )
        check_model(settings, config, len(dataset.subwords))
    trainer = Trainer(settings, dataset, config, log, ranks, model)
    if weights:
        with in_file(settings.start_from):
            load_weights(trainer.model, weights)
    return trainer


def _say_reading(settings):
    """Say at once what is read: a long text takes its time."""
    texts = [*(settings.train or [settings.corpus]), *(settings.add or [])]
    RunLog(None).say(f"corpus   {', '.join(texts)}")


def _choose_device(settings):
    if settings.backend:
        backend.use(settings.backend)
    use_precision(settings.precision)


def _resume(settings, given, ranks, model):
    folder = RunFolder(settings.out)
    weights, optimizer, meta, subwords = folder.read_checkpoint()
    assignments = settings.set if "set" in given else []
    with in_file(folder.checkpoint):
        check_stored(meta["settings"])
        config = Config.from_dict(meta["config"])
        if model is Transformer:
            check_size(config, weights)
    settings, changes = resumed(settings, given, meta["settings"])
    config, more_changes = resumed_model(config, assignments)
    _choose_device(settings)
    check_model(settings, config, len(subwords))  # which looks at the memory of the device
    _say_reading(settings)
    corpus = read_corpus(settings)
    log = RunLog(None if settings.plan else settings.out, after=meta["step"])
    trainer = Trainer(
        settings, prepare(settings, corpus, log.say, subwords), config, log, ranks, model
    )
    with in_file(folder.checkpoint):
        trainer.load(weights, optimizer, meta)
    changes |= more_changes | trainer.changes(meta)
    if changes:
        what = "; ".join(
            f"{name} was {before}, is {now}" for name, (before, now) in changes.items()
        )
        log.say(f"notice   not bit for bit as without the stop: {what}")
    log.say(
        f"resumed  after step {trainer.step:,}, epoch {trainer.epoch + 1}, batch {trainer.position}"
    )
    return trainer


def finish(trainer: Trainer, command: str) -> dict:
    """Choose between the averaged weights and the last, and score them on the test texts;
    writes results.json.

    Averaging helps when the last checkpoints are about equally good (section 6.1 of the paper).
    After a short run the older ones are worse, and pull the average down: then the weights of the
    last step are the model.
    """
    settings, log, folder = trainer.settings, trainer.log, trainer.folder.path
    # Scored line by line.
    load = functools.partial(Translator.load, folder, settings.max_length, trainer.make_model)
    translator = load()
    value, score = trainer.measure(translator)
    valid = {"averaged": {"perplexity": value, "bleu": score.score}, "signature": score.signature}
    averaged = read_notes(folder).get("averaged")
    what = (
        f"average  of the last {averaged} checkpoints"
        if averaged != 1
        else "weights  of the last step"
    )
    line = f"{what}: perplexity {value:.3f}  BLEU {score.score:.2f}"
    for entry in [entry for entry in log.history if "valid_bleu" in entry and averaged != 1][-1:]:
        valid["last"] = {"perplexity": entry["valid_perplexity"], "bleu": entry["valid_bleu"]}
        line += f"; the last alone: {entry['valid_perplexity']:.3f}  {entry['valid_bleu']:.2f}"
    log.say(line)
    valid["bleu"] = max(score.score, valid.get("last", {}).get("bleu", 0))
    if valid["bleu"] > score.score:
        log.say("average  did not help: the model keeps the weights of the last step")
        trainer.save_model(trainer.model.state(), 1)
        translator = load()
    texts = trainer.dataset.corpus.tests or {"valid": trainer.dataset.valid}
    tests = {name: _test(trainer, translator, name, pairs) for name, pairs in texts.items()}
    results = {"tests": tests, "valid": valid}
    results |= {
        "command": command,
        "step": trainer.step,
        "seconds": round(trainer.trained_seconds(), 1),
    }
    results |= {
        "settings": dataclasses.asdict(settings),
        "versions": versions(),
        "machine": trainer.machine,
    }
    save_text(folder / RESULTS, json.dumps(results, indent=1) + "\n")
    return results


def _test(trainer, translator, name, pairs):
    """Translate a text with the beam, keep the translations beside the model, and score them."""
    s = trainer.settings
    what = "validation text" if name == "valid" else name
    trainer.log.say(f"{what}: {len(pairs.source):,} sentences, beam {s.beam}, alpha {s.alpha}")
    with trainer.watch(f"sentences of {name} translated") as progress:
        found = translator.translate(pairs.source, s.beam, s.alpha, s.max_extra, progress=progress)
    lines = [best[0].text for best in found]
    save_text(trainer.folder.path / f"{name}.out", "".join(line + "\n" for line in lines))
    score = trainer.score(lines, pairs.target)
    trainer.log.say(f"{what}: {score.text}")
    found = {
        "bleu": score.score,
        "signature": score.signature,
        "sentences": len(lines),
        "text": score.text,
    }
    if trainer.dataset.corpus.name in ("wmt14-en-de", "wmt14-en-fr"):  # what the paper reports
        try:
            paper = paper_bleu(lines, pairs.target, trainer.dataset.corpus.target_language)
            found["paper_style"] = {
                "bleu": paper.score,
                "signature": paper.signature,
                "text": paper.text,
            }
            trainer.log.say(f"{what}: {paper.text}")
        except UserError as error:
            trainer.log.say(f"{what}: paper-style BLEU: not counted: {error}")
    return found


def train(settings: Settings, model: Callable[..., Transformer] = Transformer) -> dict | None:
    """Train from Python as the command line does, and return what results.json says; None if a
    signal stopped it.

        texts = {"train": ["my.en", "my.de"], "valid": ["valid.en", "valid.de"]}
        results = train(Settings(**texts, out="runs/variant"), model=MyTransformer)
        translator = Translator.load("runs/variant", model=MyTransformer)

    model: what makes the model, as for `Trainer`. Raises UserError.
    """
    trainer = build(settings, model=model)
    with stop_on_signals(trainer), _quiet():
        return _train(trainer, "minitf.training.train")[0]


def _train(trainer, command):
    """Train, and score the model; a signal leaves either of them so that --resume goes
    on from there.

    Returns what results.json says (None after a signal), and the exit code.
    """
    try:
        finished = trainer.run()
    except UserError:
        trainer.log.draw()  # how it diverged can be seen
        raise
    trainer.log.draw()
    if not finished:
        return None, 0
    try:
        results = finish(trainer, command)
    except Interrupted:
        trainer.log.say(
            f"stopped  {trainer.stopping}: all steps are done, --resume scores the model"
        )
        return None, 0
    out = trainer.settings.out
    translate = TRANSLATE.get(command.split()[0], "python examples/translate.py")
    use = (
        f"{translate} --model {out}"
        if trainer.make_model is Transformer
        else f"Translator.load({out!r}, model=...)"
    )
    trainer.log.say(f"model    in {out}: {use}")
    return results, _judge(trainer, results["valid"]["bleu"])


def _judge(trainer, score):
    """Say so if the model cannot translate; returns the exit code."""
    s, done = trainer.settings, trainer.step
    if score >= NO_MODEL:
        return 0
    if done >= s.steps:
        more, code = "a larger --steps", 0
    else:
        more, code = (
            "--patience 0" if trainer.patience_is_over() else "the same --minutes or more",
            CUT_SHORT,
        )
    trainer.log.say(
        f"notice   the model cannot translate yet, it has {score:.2f} BLEU on the validation "
        f"text after {done:,} of {s.steps:,} updates (the learning rate rises for the first "
        f"{s.warmup_steps:,}): train on with --resume --out {s.out} and {more}"
    )
    return code


def main(
    arguments: Iterable[str] | None = None,
    program: str = "09_train_wmt.py",
    model: Callable[..., Transformer] = Transformer,
) -> int:
    """Run the command line; returns the exit code, which --help explains.

    model: what makes the model, as for `Trainer`: `main(model=MyTransformer)` is a trainer of it,
    with all options.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # A name that the terminal cannot show is no reason to stop.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a notebook's has not
            stream.reconfigure(errors="backslashreplace")
    ranks, code = Ranks(*launched()), 0
    try:
        if len(arguments) == 3 and arguments[0] == "--score":
            print(score_files(*arguments[1:]))
            return 0
        ranks.join()
        keep_to_cores()
        if ranks.rank:
            _follow(ranks, model)
            return 0
        settings, given = parse(arguments, program)
        trainer = build(settings, given, ranks, model)
        if settings.plan:
            for line in report(trainer):
                trainer.log.say(line)
        else:
            with stop_on_signals(trainer), _quiet():
                _, code = _train(trainer, f"{as_typed(program)} {shlex.join(arguments)}")
        if trainer.log.closed:
            # Otherwise Python complains at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    except UserError as error:
        message, code = str(error), 2
    except MemoryError:
        message, code = "out of memory: choose a smaller model, corpus or --batch-tokens", 2
    except KeyboardInterrupt:
        message, code = "stopped at once; what was saved before is whole", 130
    ranks.fail(f"{program}: {' '.join(message.splitlines())}", code)
    return code


def installed(program="minitf-train"):
    """Run the command of the installed package; returns the exit code.

    Without arguments nothing is trained.
    """
    if len(sys.argv) > 1:
        return main(program=program)
    print(
        f"{program}: say what to train, such as --quick, or --train SOURCE TARGET (--help)",
        file=sys.stderr,
    )
    return 2
