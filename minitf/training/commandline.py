"""The trainer's command line, of lessons/09_train_wmt.py and minitf-train, and its call in Python:
begins or resumes a run, and scores its model.
"""

import contextlib
import dataclasses
import functools
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable

import numpy as np

from minitf import backend
from minitf.cli import counted, plain_streams, quoted, settle_streams
from minitf.config import Config
from minitf.data.dataset import Dataset, endings, prepare, read_corpus
from minitf.errors import UserError, in_file
from minitf.gpu.matmul import use_precision
from minitf.public.named import folder_of
from minitf.training.checkpoints import RunFolder, kept_notes
from minitf.training.distributed import Ranks, launched
from minitf.training.evaluation import score_files
from minitf.training.log import RunLog
from minitf.training.planning import plan
from minitf.training.results import finish, to_translate
from minitf.training.settings import (
    Settings,
    as_typed,
    check,
    check_model,
    check_stored,
    check_together,
    flag,
    model_changes,
    parse,
    resumed,
    resumed_model,
)
from minitf.training.signals import Interrupted, stop_on_signals
from minitf.training.trainer import Trainer
from minitf.transformer import Transformer
from minitf.translation.loading import check_size, load_model

__all__ = ["build", "main", "train"]

# The translating command that belongs to each training command.
TRANSLATE = {"minitf-train": "minitf-translate", "python": "python -m minitf.translation"}
NO_MODEL = 1.0  # BLEU on the validation text; a model with less cannot translate
LEARNED = 10  # the perplexity of a text that a model has learned
KNOWN = 30  # times that of the training text: then the validation text is of another kind
CUT_SHORT = 3  # the exit code of a run that ended early, with such a model


# What a run begins with ---------------------------------------------------------------------------


@dataclasses.dataclass
class Start:
    """Everything that a run begins with; rank 0 reads it, and sends it to the other ranks.

    weights: None if they are drawn from the seed. optimizer, meta: the rest of a checkpoint, None
    for a new run. changes: {option: (before, now)} of a resumed run. notes: those of --start-from
    that the new model keeps. library: the name of the array library in use.
    """

    settings: Settings
    config: Config
    dataset: Dataset
    weights: dict[str, np.ndarray] | None
    optimizer: dict[str, np.ndarray] | None = None
    meta: dict | None = None
    changes: dict[str, tuple] = dataclasses.field(default_factory=dict)
    notes: dict = dataclasses.field(default_factory=dict)
    library: str = dataclasses.field(default_factory=lambda: backend.xp.__name__)


def build(
    settings: Settings,
    given: Collection[str] = (),
    ranks: Ranks | None = None,
    model: Callable[..., Transformer] = Transformer,
) -> Trainer:
    """Return the Trainer for the settings: new, from another model's weights, or from a checkpoint.

    given: the names of the settings that were asked for, which --resume changes. ranks: those that
    share the run. model: makes the model, as for `Trainer`.
    Raises UserError.
    """
    ranks = ranks or Ranks()
    start, log = None, RunLog(None)
    stamp = RunFolder(settings.out).stamp()
    if ranks.rank == 0:
        read = _read_checkpoint if settings.resume else _read_new
        start, log = read(settings, given, model)
    start = ranks.tell(start)
    if ranks.rank:
        _choose_device(dataclasses.replace(start.settings, backend=start.library))
    ranks.connect()
    trainer = Trainer(start.settings, start.dataset, start.config, log, ranks, model)
    trainer.stamp, trainer.notes = stamp, start.notes
    if start.meta:
        with in_file(trainer.folder.checkpoint):
            trainer.load(start.weights, start.optimizer, start.meta)
        _say_resumed(trainer, start)
    elif start.weights:
        _load_first(trainer.model, start.weights, settings)
    ranks.copy_first(trainer.optimizer.data)  # other machines may draw weights with other last bits
    _say_machine(trainer)
    return trainer


def _read_new(settings, given, model):
    """Return the Start of a new run, and its log. Raises UserError."""
    if not settings.plan:
        folder = RunFolder(settings.out)
        folder.must_be_unlocked()  # says more than that there are files
        folder.must_be_free()
    _choose_device(settings)
    weights = config = subwords = None
    notes = {}
    if settings.start_from:
        folder = folder_of(settings.start_from, RunLog(None).say)
        first, subwords, notes = load_model(folder, model)
        weights, config = first.state(), first.config.replace(**model_changes(settings.set))
        del first  # its memory is needed for the text
        check_model(settings, config, len(subwords))
        if settings.set:  # said before the text is read
            _load_first(model(config, initialise=False), weights, settings)
    corpus = _read_corpus(settings)
    log = RunLog(None if settings.plan else settings.out)
    if settings.start_from:
        corpus = _with_languages(settings, corpus, notes, log)
    dataset = prepare(settings, corpus, log.say, subwords)
    if config is None:
        config = Config.preset(
            settings.preset, len(dataset.subwords), **model_changes(settings.set)
        )
        check_model(settings, config, len(dataset.subwords))
    return Start(settings, config, dataset, weights, notes=kept_notes(notes)), log


def _with_languages(settings, corpus, notes, log):
    """Return the corpus with the languages of the model of --start-from, if it has none itself.

    Log it if that model was not trained for the languages of the text.
    """
    source, target = (str(notes.get(f"{side}_language", side)) for side in ("source", "target"))
    text = corpus.source_language, corpus.target_language
    if settings.train:
        text = tuple(ending.removeprefix(".") for ending in endings(settings.train))
    if text == (target, source):
        log.say(
            f"notice   {settings.start_from} translates {source} to {target}, but the text has "
            f"{text[0]} and {text[1]}: give a model of this direction, or the files in the other "
            "order"
        )
    elif target.startswith("trees") and not text[1].startswith("tree"):
        log.say(
            f"notice   {settings.start_from} is a parser, which writes trees: for another text, "
            "give a translator"
        )
    if not settings.train:
        return corpus
    if text != (target, source):
        text = source, target
    return dataclasses.replace(corpus, source_language=text[0], target_language=text[1])


def _check_files(settings, given):
    """Raise UserError if a resumed run does not find a file that it was begun with."""
    for name in ("train", "valid", "add"):
        for path in getattr(settings, name) or ():
            if name not in given and not os.path.exists(path):
                raise UserError(
                    f"{path} is not there: the run was begun with {flag(name)} "
                    f"{quoted(*getattr(settings, name))}: continue in the same folder as then, "
                    "or give the files again"
                )


def _load_first(model, weights, settings):
    """Give a model the weights of --start-from. Raises UserError if --set changed its sizes."""
    try:
        model.load_state(weights)
    except UserError as error:
        advice = ", without --set" if settings.set else ""
        raise UserError(f"{settings.start_from}: {error}{advice}") from None


def _read_checkpoint(settings, given, model):
    """Return the Start of a resumed run, and its log. Raises UserError."""
    folder = RunFolder(settings.out)
    if not settings.plan:
        folder.must_be_unlocked()
    weights, optimizer, meta, subwords = folder.read_checkpoint()
    assignments = settings.set if "set" in given else []
    with in_file(folder.checkpoint):
        check_stored(meta["settings"])
        config = Config.from_dict(meta["config"])
        if model is Transformer:
            check_size(config, weights)
    settings, changes = resumed(settings, given, meta["settings"])
    _check_files(settings, given)
    config, model_changed = resumed_model(config, assignments)
    _choose_device(settings)
    check_model(settings, config, len(subwords))  # looks at the memory of the device
    corpus = _read_corpus(settings)
    if settings.train and len(languages := meta["languages"]) == 2:
        source, target = map(str, languages)
        corpus = dataclasses.replace(corpus, source_language=source, target_language=target)
    log = RunLog(None if settings.plan else settings.out, after=meta["step"])
    dataset = prepare(settings, corpus, log.say, subwords)
    changes = {flag(name): pair for name, pair in changes.items()} | model_changed
    return Start(settings, config, dataset, weights, optimizer, meta, changes), log


def _read_corpus(settings):
    """Read the corpus; files that the user named must exist before anything is written."""
    # Said first, because a long text takes its time.
    texts = [*(settings.train or [settings.corpus]), *(settings.add or [])]
    RunLog(None).say(f"corpus   {', '.join(texts)}")
    return read_corpus(settings)


def _choose_device(settings):
    if settings.backend:
        backend.use(settings.backend)
    use_precision(settings.precision)


def _say_resumed(trainer, start):
    changes = start.changes | trainer.changes(start.meta)
    differences = [f"{name} {before} -> {now}" for name, (before, now) in changes.items()]
    if trainer.has_other_pairs(start.meta):
        differences.append("the training pairs are not those of the checkpoint")
    if differences:
        trainer.log.say(
            "notice   the result will differ from that of an uninterrupted run: "
            f"{'; '.join(differences)}"
        )
    if trainer.has_other_valid_text(start.meta):
        trainer.log.say(
            "notice   the validation text is not that of the checkpoint: earlier scores do not "
            "count for --patience and for the choice of the model"
        )
    cursor = trainer.cursor
    trainer.log.say(
        f"resumed  after step {trainer.step:,}, epoch {cursor.epoch + 1}, batch {cursor.position}"
    )


def _say_machine(trainer):
    ranks, facts = trainer.ranks, trainer.updater.machine
    if ranks.size > 1:
        trainer.log.say(f"ranks    {ranks.description}")
    count = sum(p.size for p in trainer.model.parameters())
    trainer.log.say(f"model    {count:,} parameters, {len(trainer.dataset.subwords):,} subwords")
    line = f"machine  {facts['arrays']}, matrix products by {facts['matrix products']}"
    if facts["replicas"] > 1:
        line += f"; {facts['replicas']} replicas of the model"
    trainer.log.say(line)


# Training -----------------------------------------------------------------------------------------


def train(settings: Settings, model: Callable[..., Transformer] = Transformer) -> dict | None:
    """Train from Python as the command line does; return the content of results.json.

    Returns None if a signal stopped the run, and with plan=True, which trains nothing.

        texts = {"train": ["my.en", "my.de"], "valid": ["valid.en", "valid.de"]}
        results = train(Settings(**texts, out="runs/variant"), model=MyTransformer)
        translator = Translator.load("runs/variant", model=MyTransformer)

    model: makes the model, as for `Trainer`. With resume=True, the settings that differ from the
    defaults replace those of the checkpoint.
    Raises UserError.
    """
    settings = dataclasses.replace(settings)  # plain values, also where somebody assigned others
    check(settings)
    given = {
        field.name
        for field in dataclasses.fields(Settings)
        if getattr(settings, field.name) != getattr(Settings(), field.name)
    }
    check_together(settings, given)
    trainer = build(settings, given, model=model)
    if settings.plan:
        plan(trainer)
        return None
    results, _ = _train(trainer, "minitf.training.train", None)
    return results


def _train(trainer, command, started):
    """Train, and on rank 0 score the model; return the content of results.json and the exit code.

    The content is None if a signal stopped the run, and on the other ranks. started: how the
    program was started, such as "python my.py", to tell how to continue; None for a call of
    `train`.
    """
    resume = functools.partial(_resume, trainer.settings, started, trainer.make_model)
    # Only rank 0 writes to the folder.
    locked = contextlib.nullcontext() if trainer.ranks.rank else trainer.folder.locked()
    with locked, stop_on_signals(trainer.stop), _without_warnings():
        if not trainer.ranks.rank:
            # The text was read without the lock.
            trainer.folder.must_be_as(trainer.stamp)
            if not trainer.settings.resume:
                trainer.folder.must_be_free(to_translate(trainer.dataset))
            trainer.log.begin()
        try:
            finished = trainer.run()
        except UserError:
            trainer.log.draw()  # the curves show how the loss diverged
            raise
        if not finished:
            reason = trainer.stop.reason or "another rank received a signal"
            trainer.log.say(f"stopped  {reason}: {resume()} continues from step {trainer.step:,}")
        trainer.log.draw()
        if not finished or trainer.ranks.rank:
            return None, 0
        try:
            results = finish(trainer, command)
        except Interrupted:
            trainer.log.say(
                f"stopped  {trainer.stop.reason}: all updates are done; "
                f"{resume(steps=trainer.step)} scores the model"
            )
            return None, 0
    _say_usage(trainer, command)
    valid = results["valid"]
    figures = [found["perplexity"] for found in valid.values() if isinstance(found, dict)]
    perplexity = min(figures, default=0)
    return results, _exit_code(trainer, valid["bleu"], perplexity, started)


def _resume(settings, started, make_model=Transformer, **changes):
    """Return the command that continues a run, or for started=None the call in Python."""
    if started is None:
        given = "".join(f", {name}={value!r}" for name, value in changes.items())
        model = "" if make_model is Transformer else ", model=..."
        return f"train(Settings(resume=True, out={settings.out!r}{given}){model})"
    given = "".join(f" {flag(name)} {value}" for name, value in changes.items())
    return f"{started} --resume --out {quoted(settings.out)}{given}".lstrip()


@contextlib.contextmanager
def _without_warnings():
    """Leave out NumPy's warnings of overflow: the trainer reports in one line where it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _say_usage(trainer, command):
    """Say how to translate with the model."""
    out = trainer.settings.out
    if trainer.make_model is Transformer:
        translate = TRANSLATE.get(command.split()[0], "python examples/translate.py")
        usage = f"{translate} --model {quoted(out)}"
    else:
        usage = f"Translator.load({out!r}, model=...)"
    trainer.log.say(f"model    in {out}: {usage}")


def _exit_code(trainer, score, perplexity, started):
    """Return the exit code of a run, and say so if its model cannot translate.

    score, perplexity: on the validation text. started: as for `_train`.
    """
    s, done = trainer.settings, trainer.step
    if score >= NO_MODEL:
        return 0
    references = trainer.dataset.references(trainer.dataset.valid.target)
    if all(len(line.split()) < 4 for line in references):
        trainer.log.say(
            "notice   BLEU cannot judge this model, as it counts four words in a row, and the "
            "sentences of the validation text are shorter: judge it by the perplexity, or validate "
            "on longer sentences"
        )
        return 0
    trained = [entry["perplexity"] for entry in trainer.log.history if "perplexity" in entry]
    if trained and trained[-1] < LEARNED and KNOWN * trained[-1] < perplexity:
        trainer.log.say(
            f"notice   the model cannot translate: its perplexity is {trained[-1]:.1f} on the "
            f"training text and {perplexity:.0f} on the validation text. Are the two files of the "
            "validation text in the order of the training text's? If they are, the model knows a "
            "small text by heart: train on more"
        )
    else:
        _say_continue(trainer, score, started)
    return 0 if done >= s.steps else CUT_SHORT


def _say_continue(trainer, score, started):
    """Say how to train a model further that cannot translate yet."""
    s, done, in_python = trainer.settings, trainer.step, started is None
    if done >= s.steps:
        more = f"a larger {'steps' if in_python else '--steps'}"
    elif trainer.out_of_patience():
        more = "patience=0" if in_python else "--patience 0"
    else:
        more = f"the same {'minutes' if in_python else '--minutes'} or more"
    # A whole command would be too long here: its options are enough.
    resume = _resume(s, None if in_python else "", trainer.make_model)
    warmup = f" (the learning rate rises for the first {counted(s.warmup_steps, 'update')})"
    trainer.log.say(
        f"notice   the model cannot translate yet: {score:.2f} BLEU on the validation text after "
        f"{done:,} of {counted(s.steps, 'update')}{warmup if done < s.warmup_steps else ''}: "
        f"continue with {resume} and {more}"
    )


# The command --------------------------------------------------------------------------------------


def main(
    arguments: Iterable[str] | None = None,
    program: str = "09_train_wmt.py",
    model: Callable[..., Transformer] = Transformer,
) -> int:
    """Run the command line; return the exit code, which --help explains.

    model: makes the model, as for `Trainer`: `main(model=MyTransformer)` is a trainer of it,
    with all options.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    plain_streams()
    ranks = Ranks(*launched())
    try:
        with ranks.quiet():
            return _run(arguments, program, model, ranks)
    except UserError as error:
        message, code = str(error), 2
    except MemoryError:
        message = "out of memory: choose a smaller model or corpus, or lower --batch-tokens"
        code = 2
    except KeyboardInterrupt:
        message, code = _interrupted(arguments, program), 130
    finally:
        settle_streams()  # of a terminal that was closed
    ranks.fail(f"{program}: {' '.join(message.splitlines())}", code)
    return code


def _interrupted(arguments, program):
    """Return the message after Ctrl-C stopped the command at once."""
    try:
        settings, _ = parse(arguments, program)
    except UserError:  # also for --score
        return "stopped at once"
    if settings.plan:
        return "stopped at once"
    if RunFolder(settings.out).has_checkpoint():
        resume = _resume(settings, _started(program))
        return f"stopped at once; the last checkpoint is intact: {resume} continues from it"
    return "stopped before the first checkpoint: nothing was saved; start again without --resume"


def _started(program):
    """Return how the program was started, as the user typed it."""
    script = sys.argv[0]
    if script.endswith(".py") and os.path.basename(script) != "__main__.py":
        return f"python {quoted(script)}"
    return as_typed(program)


def _run(arguments, program, model, ranks):
    """Do what the arguments ask for; return the exit code."""
    if len(arguments) == 3 and arguments[0] == "--score":
        print(score_files(*arguments[1:]))
        return 0
    ranks.join()
    ranks.keep_to_cores()
    settings, given = parse(arguments, program)
    with ranks.together():
        trainer = build(settings, given, ranks, model)
        if settings.plan:
            plan(trainer)
            return ranks.tell(0)
        # In effect until the end: the other ranks wait in `tell` while rank 0 scores the model.
        with stop_on_signals(trainer.stop):
            command = f"{as_typed(program)} {quoted(*arguments)}"
            # Not for several ranks: how these were launched is not known.
            started = _started(program) if ranks.size == 1 else ""
            _, code = _train(trainer, command, started)
            return ranks.tell(code)


def installed(program="minitf-train"):
    """Run the command of the installed package; return the exit code.

    Without arguments nothing is trained.
    """
    if len(sys.argv) > 1:
        return main(program=program)
    print(
        f"{program}: say what to train, such as --quick, or --train SOURCE TARGET (--help)",
        file=sys.stderr,
    )
    return 2
