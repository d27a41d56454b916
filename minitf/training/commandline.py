"""The trainer's command line, and `train` in Python: begins or resumes a run, scores its model."""

import contextlib
import dataclasses
import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable

import numpy as np

from minitf import backend
from minitf.atomic import save_text
from minitf.cli import amount, exit_code, quote
from minitf.config import Config
from minitf.data.dataset import Dataset, prepare, read_corpus
from minitf.errors import UserError, in_file
from minitf.files.arrays import user_errors
from minitf.files.models import kept_notes, read_notes
from minitf.gpu.matmul import use_precision
from minitf.public import model_folder
from minitf.training.checkpoints import RunFolder
from minitf.training.distributed import Ranks, rank_and_size
from minitf.training.evaluation import ValidationScores, paper_bleu, score_files
from minitf.training.log import RunLog, versions
from minitf.training.planning import check_model, log_plan
from minitf.training.settings import Settings, check, merge, model_changes, parse, stored_settings
from minitf.training.signals import Interrupted, stop_on_signals
from minitf.training.trainer import Trainer
from minitf.transformer import Transformer
from minitf.translation import Translator
from minitf.translation.loading import check_size, load_model

__all__ = ["build", "main", "train"]

RESULTS = "results.json"
PAPER_CORPORA = ("wmt14-en-de", "wmt14-en-fr")
MIN_BLEU = 1.0  # BLEU on the validation text; a model with less cannot translate
EXIT_NO_MODEL = 3  # the exit code of a run that ended early, with a model that cannot translate


# What a run begins with ---------------------------------------------------------------------------


@dataclasses.dataclass
class Start:
    """Everything that a run begins with; rank 0 reads it, and sends it to the other ranks.

    weights: None if they are drawn from the seed. optimizer, meta: the rest of a checkpoint, None
    for a new run. changes: {option: (before, now)} of a resumed run. notes: those of --start-from
    that the new model keeps.
    """

    settings: Settings
    config: Config
    dataset: Dataset
    weights: dict[str, np.ndarray] | None
    optimizer: dict[str, np.ndarray] | None = None
    meta: dict | None = None
    changes: dict[str, tuple] = dataclasses.field(default_factory=dict)
    notes: dict = dataclasses.field(default_factory=dict)


def build(
    settings: Settings,
    chosen: Collection[str] = (),
    ranks: Ranks | None = None,
    model: Callable[..., Transformer] = Transformer,
) -> Trainer:
    """Return the Trainer for the settings: new, from another model's weights, or from a checkpoint.

    chosen: the names of the settings that the user chose, which --resume changes. ranks: those that
    share the run. model: makes the model, as for `Trainer`. Raises UserError.
    """
    ranks = ranks or Ranks()
    read = _read_checkpoint if settings.resume else _read_new
    silent = RunLog(None, write=lambda text: None)
    start, log = read(settings, chosen, model) if ranks.rank == 0 else (None, silent)
    start, library = ranks.broadcast((start, backend.xp.__name__))
    if ranks.rank:
        _choose_device(dataclasses.replace(start.settings, backend=library))
    ranks.connect()
    trainer = Trainer(start.settings, start.dataset, start.config, log, ranks, model)
    trainer.notes = start.notes
    if start.meta:
        with in_file(trainer.folder.checkpoint), user_errors("its values"):
            trainer.load(start.weights, start.optimizer, start.meta)
        if {"--corpus", "--valid"} & start.changes.keys():
            # Scores on another text can neither be improved on nor compared.
            trainer.scores = ValidationScores()
        _say_resumed(trainer, start)
    elif start.weights:
        trainer.model.load_state(start.weights)
    # Other machines may draw weights with other last bits.
    ranks.broadcast_array(trainer.optimizer.data)
    _say_machine(trainer)
    return trainer


def _read_new(settings, chosen, model):
    """Return the Start of a new run, and its log. Raises UserError."""
    if not settings.plan:
        RunFolder(settings.out).check_new()
    _choose_device(settings)
    weights, subwords, notes = None, None, {}
    if settings.start_from:
        folder = model_folder(settings.start_from, RunLog(None).say)
        first, subwords, notes = load_model(folder, model)
        weights, config = first.state(), first.config.replace(**model_changes(settings.set))
        del first  # its memory is needed for the text
        check_model(settings, config, len(subwords))
        with in_file(settings.start_from):  # a size that --set changed, before the text is read
            model(config, initialise=False).load_state(weights)
    log = RunLog(None if settings.plan else settings.out)
    dataset = prepare(settings, _read_corpus(settings, notes), log.say, subwords)
    if not settings.start_from:
        config = Config.preset(
            settings.preset, len(dataset.subwords), **model_changes(settings.set)
        )
        check_model(settings, config, len(dataset.subwords))
    return Start(settings, config, dataset, weights, notes=kept_notes(notes)), log


def _read_checkpoint(settings, chosen, model):
    """Return the Start of a resumed run, and its log. Raises UserError."""
    folder = RunFolder(settings.out)
    weights, optimizer, meta, subwords = folder.read_checkpoint()
    with in_file(folder.checkpoint), user_errors("its values"):
        before = stored_settings(meta["settings"])
        config = Config.from_dict(meta["config"])
        source, target = meta["languages"]
        if model is Transformer:
            check_size(config, weights)
    settings, changes = merge(settings, chosen, before)
    _choose_device(settings)
    check_model(settings, config, len(subwords))  # looks at the memory of the device
    corpus = _read_corpus(settings, {"source_language": source, "target_language": target})
    log = RunLog(None if settings.plan else settings.out, after=meta["step"])
    dataset = prepare(settings, corpus, log.say, subwords)
    return Start(settings, config, dataset, weights, optimizer, meta, changes), log


def _read_corpus(settings, notes):
    """Read the corpus; files that the user named must exist before anything is written.

    notes: of the model that is trained further.
    """
    # Name the text before it is read: a long one takes a while.
    texts, say = [*(settings.train or [settings.corpus]), *(settings.add or [])], RunLog(None).say
    say(f"corpus   {', '.join(texts)}")
    return read_corpus(settings, notes, say)


def _choose_device(settings):
    if settings.backend:
        backend.use(settings.backend)
    use_precision(settings.precision)


def _say_resumed(trainer, start):
    facts, before, say = trainer.facts, start.meta["facts"], trainer.log.say
    other = {
        name: (before.get(name), now) for name, now in facts.items() if now != before.get(name)
    }
    for title, changes in (
        ("changed ", start.changes),
        ("notice   the result will differ from that of an uninterrupted run:", other),
    ):
        if changes:
            listed = (f"{name} {old} -> {new}" for name, (old, new) in changes.items())
            say(f"{title} {'; '.join(listed)}")
    epoch, position = trainer.cursor.epoch + 1, trainer.cursor.position
    say(f"resumed  after step {trainer.step:,}, epoch {epoch}, batch {position}")


def _say_machine(trainer):
    facts, say = trainer.facts, trainer.log.say
    if trainer.ranks.size > 1:
        say(f"ranks    {trainer.ranks.description}")
    count = sum(p.size for p in trainer.model.parameters())
    say(f"model    {count:,} parameters, {len(trainer.dataset.subwords):,} subwords")
    say(
        f"machine  {facts['arrays']}, matrix products by {facts['matrix products']}; "
        f"{amount(facts['replicas'], 'replica')} of the model"
    )


# Training -----------------------------------------------------------------------------------------


def train(settings: Settings, model: Callable[..., Transformer] = Transformer) -> dict | None:
    """Train from Python as the command line does; return the content of results.json.

    One process trains; of several ranks each must call `main`, which connects them.
    Returns None if a signal stopped the run, and with plan=True, which trains nothing.

        texts = {"train": ["my.en", "my.de"], "valid": ["valid.en", "valid.de"]}
        results = train(Settings(**texts, out="runs/variant"), model=MyTransformer)
        translator = Translator.load("runs/variant", model=MyTransformer)

    model: makes the model, as for `Trainer`. With resume=True, the settings that differ from the
    defaults replace those of the checkpoint.
    Raises UserError.
    """
    settings, defaults = dataclasses.replace(settings), vars(Settings())  # checked once more
    chosen = {name for name, value in vars(settings).items() if value != defaults[name]}
    check(settings, chosen)
    return _session(settings, chosen, Ranks(), model, "minitf.training.train", "resume=True")[0]


def _session(settings, chosen, ranks, model, command, resume):
    """Plan or train a run; return the content of results.json, and the exit code.

    The content is None after a plan, or if a signal stopped the run. command: for results.json.
    resume: what continues the run, options or an argument of Settings.
    """
    writes = ranks.rank == 0 and not settings.plan
    with RunFolder(settings.out).locked() if writes else contextlib.nullcontext():
        trainer = build(settings, chosen, ranks, model)
        if settings.plan:
            log_plan(trainer)
            return ranks.broadcast((None, 0))
        # The trainer reports an overflow in one line, with its place.
        quiet = warnings.catch_warnings(action="ignore", category=RuntimeWarning)
        with stop_on_signals(trainer.stop), quiet:
            ended = _train(trainer, command, resume)
            # Here the other ranks wait while rank 0 scores: they must not die of a signal.
            return ranks.broadcast(ended)


def _train(trainer, command, resume):
    """Train, and on rank 0 score the model; return what `_session` does."""
    log, stop = trainer.log, trainer.stop
    try:
        finished = trainer.run()
    except UserError:
        log.draw()  # the curves show how the loss diverged
        raise
    log.draw()
    try:
        if finished and trainer.ranks.rank == 0:
            results = finish(trainer, command)
            return results, log_next_steps(trainer, results["valid"], resume)
    except Interrupted:
        log.say(f"stopped  {stop.reason} after the last step: score it with {resume}")
    if not finished:
        reason = stop.reason or "another rank received a signal"
        log.say(f"stopped  {reason} after step {trainer.step:,}: continue with {resume}")
    return None, 0


# The end of a run ---------------------------------------------------------------------------------


def finish(trainer: Trainer, command: str) -> dict:
    """Keep the better of the averaged and the last weights, and score it on the test texts.

    Averaging helps if the last checkpoints are about equally good (section 6.1 of the paper).
    After a short run the older ones are worse, and pull the average down: then the weights of the
    last step are kept. Writes results.json and returns its content.
    """
    translator, valid = _better_model(trainer)
    # Without a test, the validation text.
    texts = trainer.dataset.corpus.tests or {"valid": trainer.dataset.valid}
    results = {
        "tests": {name: _test(trainer, translator, name, pairs) for name, pairs in texts.items()},
        "valid": valid,
        "command": command,
        "step": trainer.step,
        "seconds": round(trainer.clock.total(), 1),
        "settings": dataclasses.asdict(trainer.settings),
        "versions": versions(),
        "machine": trainer.updater.machine,
    }
    save_text(trainer.folder.path / RESULTS, json.dumps(results, indent=1) + "\n")
    return results


def _better_model(trainer):
    """Compare the averaged weights with the last; return the better Translator, and the scores."""
    log, folder = trainer.log, trainer.folder.path
    # max_length: lines of that length were trained on, so they need not be split into clauses.
    load = functools.partial(
        Translator.load, folder, trainer.settings.max_length, trainer.make_model
    )
    translator = load()
    perplexity, score = trainer.validator.measure(translator)
    valid = {
        "averaged": {"perplexity": perplexity, "bleu": score.score},
        "signature": score.signature,
        "reference_length": score.reference_length,
    }
    averaged = read_notes(folder).get("averaged")
    line = f"average  of the last {amount(averaged, 'checkpoint')}"
    line += f": perplexity {perplexity:.3f}  BLEU {score.score:.2f}"
    validations = [
        entry for entry in log.history if "valid_bleu" in entry and entry["step"] == trainer.step
    ]
    kept = valid["averaged"]
    if validations and averaged != 1:
        perplexity, bleu = validations[-1]["valid_perplexity"], validations[-1]["valid_bleu"]
        valid["last"] = {"perplexity": perplexity, "bleu": bleu}
        line += f"; the last one alone: perplexity {perplexity:.3f}  BLEU {bleu:.2f}"
        kept = max(valid["averaged"], valid["last"], key=by_quality)
    log.say(line)
    if kept is not valid["averaged"]:
        log.say("average  did not help: keeping the weights of the last step")
        trainer.save_model(trainer.model.state(), 1)
        translator = load()
    return translator, valid | kept


def by_quality(scores):
    """Sort by BLEU, as it is printed, and between equal BLEU by perplexity.

    >>> max({"bleu": 0.001, "perplexity": 5.7}, {"bleu": 0.0, "perplexity": 2.1}, key=by_quality)
    {'bleu': 0.0, 'perplexity': 2.1}
    """
    return round(scores["bleu"], 2), -scores["perplexity"]


def _test(trainer, translator, name, pairs):
    """Translate a text with beam search, write the translations to a file, and score them."""
    settings, validator = trainer.settings, trainer.validator
    title = "validation text" if name == "valid" else name
    sentences = amount(len(pairs.source), "sentence")
    trainer.log.say(f"{title}: {sentences}, beam {settings.beam}, alpha {settings.alpha}")
    task = f"sentences of {name} translated"
    lines = validator.translate(translator, pairs.source, task, settings.beam)
    save_text(trainer.folder.path / f"{name}.out", "".join(line + "\n" for line in lines))
    score = validator.score(lines, pairs.target)
    trainer.log.say(f"{title}: {score.text}")
    scores = {**_as_values(score), "sentences": len(lines)}
    corpus = trainer.dataset.corpus
    if corpus.name in PAPER_CORPORA:
        try:
            paper = paper_bleu(lines, pairs.target, corpus.target_language)
        except UserError as error:
            trainer.log.say(f"{title}: {error}")
        else:
            scores["paper_style"] = _as_values(paper)
            trainer.log.say(f"{title}: {paper.text}")
    return scores


def _as_values(score):
    return {"bleu": score.score, "signature": score.signature, "text": score.text}


def log_next_steps(trainer, valid, resume):
    """Log how to use the model, or what to change if it cannot translate; return the exit code.

    valid: the scores on the validation text, as in results.json. resume: what continues the run.
    BLEU says nothing if the lines of that text have fewer than the four tokens in a row that it
    counts. A perplexity above the size of the vocabulary is worse than guessing; a run whose
    perplexity is also higher than in its first updates, after the warm-up, has diverged.
    """
    settings, done, perplexity = trainer.settings, trainer.step, valid["perplexity"]
    out, size = settings.out, trainer.config.vocabulary_size
    usage = f"python -m minitf translate --model {quote(out)}"
    if trainer.make_model is not Transformer:
        usage = f"Translator.load({out!r}, model=...)"
    trainer.log.say(f"model    in {out}: {usage}")
    first = [entry["perplexity"] for entry in trainer.log.history if "perplexity" in entry][:1]
    if done > settings.warmup_steps and perplexity > max([size, *first]):
        trainer.log.say(
            f"notice   training has diverged: a perplexity of {perplexity:.3g} on the validation "
            f"text is worse than guessing among {size:,} subwords: begin again, with a "
            f"--learning-rate lower than {settings.learning_rate:g}"
        )
    elif valid["bleu"] >= MIN_BLEU:
        return 0
    elif valid["reference_length"] < 4 * len(trainer.dataset.valid.target):
        trainer.log.say(
            "notice   BLEU cannot judge this model, as it counts four words in a row, and the "
            "sentences of the validation text are shorter: judge it by the perplexity, or validate "
            "on longer sentences"
        )
        return 0
    else:
        more = "patience 0" if trainer.out_of_patience() else "more minutes"
        trainer.log.say(
            f"notice   the model cannot translate yet: {valid['bleu']:.2f} BLEU on the validation "
            f"text after {done:,} of {amount(settings.steps, 'update')}: continue with {resume} "
            f"and {'more steps' if done >= settings.steps else more}"
        )
    return EXIT_NO_MODEL if done < settings.steps else 0


# The command --------------------------------------------------------------------------------------


def main(
    arguments: Iterable[str] | None = None,
    program: str | None = None,
    model: Callable[..., Transformer] = Transformer,
) -> int:
    """Run the command line; return the exit code, which --help explains.

    program: the command that the user has typed, by default the name of the script. model: makes
    the model, as for `Trainer`: `main(model=MyTransformer)` is a trainer of it, with all options.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    typed = program or os.path.basename(sys.argv[0])
    ranks = Ranks(*rank_and_size())
    return exit_code(
        typed.removeprefix("python -m "),
        lambda: _run(arguments, typed, model, ranks),
        ranks.report_error,
    )


def _run(arguments, typed, model, ranks):
    """Do what the arguments ask for; return the exit code, EXIT_NO_MODEL for a run cut short."""
    if not arguments:
        raise UserError(
            "say what to train, such as --quick, or --train SOURCE TARGET (--help tells the rest)"
        )
    if len(arguments) == 3 and arguments[0] == "--score":
        print(score_files(*arguments[1:]))
        return 0
    ranks.join()
    ranks.limit_threads()
    settings, chosen = parse(arguments, typed)
    command, resume = f"{typed} {quote(*arguments)}", f"--resume --out {quote(settings.out)}"
    return _session(settings, chosen, ranks, model, command, resume)[1]
