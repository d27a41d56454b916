"""The end of a run: the better of two models is kept, and scored on the test texts."""

import dataclasses
import functools
import json

from minitf.cli import counted
from minitf.errors import UserError
from minitf.files.atomic import save_text
from minitf.files.models import read_notes
from minitf.training.checkpoints import RESULTS, translations
from minitf.training.evaluation import paper_bleu
from minitf.training.log import versions
from minitf.training.trainer import Trainer
from minitf.translation import Translator

__all__ = ["finish", "to_translate"]

PAPER_CORPORA = ("wmt14-en-de", "wmt14-en-fr")


def finish(trainer: Trainer, command: str) -> dict:
    """Keep the better of the averaged and the last weights, and score it on the test texts.

    Averaging helps if the last checkpoints are about equally good (section 6.1 of the paper).
    After a short run the older ones are worse, and pull the average down: then the weights of the
    last step are kept. Writes results.json and returns its content.
    """
    translator, valid = _better_model(trainer)
    texts = to_translate(trainer.dataset)
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


def to_translate(dataset):
    """Return {name: pairs} of the texts to translate, without a test the validation text."""
    return dataset.corpus.tests or {"valid": dataset.valid}


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
        entry
        for entry in log.history
        if "valid_bleu" in entry
        and entry["step"] == trainer.step
        # Earlier versions did not log it.
        and entry.get("valid_text", trainer.valid_text) == trainer.valid_text
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
    s, validator = trainer.settings, trainer.validator
    title = "validation text" if name == "valid" else name
    sentences = counted(len(pairs.source), "sentence")
    trainer.log.say(f"{title}: {sentences}, beam {s.beam}, alpha {s.alpha}")
    task = f"sentences of {name} translated"
    lines = validator.translate(translator, pairs.source, task, s.beam)
    save_text(trainer.folder.path / translations(name), "".join(line + "\n" for line in lines))
    score = validator.score(lines, pairs.target)
    trainer.log.say(f"{title}: {score.text}")
    found = {
        "bleu": score.score,
        "signature": score.signature,
        "sentences": len(lines),
        "text": score.text,
    }
    corpus = trainer.dataset.corpus
    if corpus.name in PAPER_CORPORA:
        try:
            paper = paper_bleu(lines, pairs.target, corpus.target_language)
        except UserError as error:
            trainer.log.say(f"{title}: {error}")
        else:
            found["paper_style"] = {
                "bleu": paper.score,
                "signature": paper.signature,
                "text": paper.text,
            }
            trainer.log.say(f"{title}: {paper.text}")
    return found
