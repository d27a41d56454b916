"""The end of a run: the better of two models is kept, scored on the test texts, and judged."""

import dataclasses
import functools
import json

from minitf.atomic import save_text
from minitf.cli import counted, quoted
from minitf.errors import UserError
from minitf.files.models import read_notes
from minitf.training.evaluation import paper_bleu
from minitf.training.log import versions
from minitf.training.trainer import Trainer
from minitf.transformer import Transformer
from minitf.translation import Translator

__all__ = ["cannot_translate", "finish", "log_next_steps"]

RESULTS = "results.json"
PAPER_CORPORA = ("wmt14-en-de", "wmt14-en-fr")
NO_MODEL = 1.0  # BLEU on the validation text; a model with less cannot translate


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
    # max_length: lines of that length were trained on, so they need not be cut into clauses.
    load = functools.partial(
        Translator.load, folder, trainer.settings.max_length, trainer.make_model
    )
    translator = load()
    value, score = trainer.validator.measure(translator)
    valid = {"averaged": {"perplexity": value, "bleu": score.score}, "signature": score.signature}
    averaged = read_notes(folder).get("averaged")
    if averaged == 1:
        line = "weights  of the last step"
    else:
        line = f"average  of the last {averaged} checkpoints"
    line += f": perplexity {value:.3f}  BLEU {score.score:.2f}"
    validations = [
        entry for entry in log.history if "valid_bleu" in entry and entry["step"] == trainer.step
    ]
    if validations and averaged != 1:
        value, bleu = validations[-1]["valid_perplexity"], validations[-1]["valid_bleu"]
        valid["last"] = {"perplexity": value, "bleu": bleu}
        line += f"; the last one alone: perplexity {value:.3f}  BLEU {bleu:.2f}"
    log.say(line)
    valid["bleu"] = max(score.score, valid.get("last", {}).get("bleu", 0))
    if valid["bleu"] > score.score:
        log.say("average  did not help: keeping the weights of the last step")
        trainer.save_model(trainer.model.state(), 1)
        translator = load()
    return translator, valid


def _test(trainer, translator, name, pairs):
    """Translate a text with beam search, write the translations to a file, and score them."""
    settings, validator = trainer.settings, trainer.validator
    title = "validation text" if name == "valid" else name
    sentences = counted(len(pairs.source), "sentence")
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
    """Log how to use the model, or what to change if it cannot translate.

    valid: the scores on the validation text, as in results.json. resume: what continues the run.
    """
    out = trainer.settings.out
    usage = f"python -m minitf translate --model {quoted(out)}"
    if trainer.make_model is not Transformer:
        usage = f"Translator.load({out!r}, model=...)"
    trainer.log.say(f"model    in {out}: {usage}")
    if cannot_translate(trainer, valid["bleu"]):
        settings, done = trainer.settings, trainer.step
        more = "patience 0" if trainer.out_of_patience() else "more minutes"
        trainer.log.say(
            f"notice   the model cannot translate yet: {valid['bleu']:.2f} BLEU on the validation "
            f"text after {done:,} of {counted(settings.steps, 'update')}: continue with {resume} "
            f"and {'more steps' if done >= settings.steps else more}"
        )
    elif valid["bleu"] < NO_MODEL:
        trainer.log.say(
            "notice   BLEU cannot judge this model, as it counts four words in a row, and the "
            "sentences of the validation text are shorter: judge it by the perplexity, or validate "
            "on longer sentences"
        )


def cannot_translate(trainer, bleu):
    """Return whether the BLEU on the validation text says so.

    It says nothing if no line of that text has the four words in a row that BLEU counts.
    """
    lines = trainer.dataset.references(trainer.dataset.valid.target)
    return bleu < NO_MODEL and any(len(line.split()) >= 4 for line in lines)
