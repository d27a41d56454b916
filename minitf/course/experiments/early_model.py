"""The early model of lesson 08: the toy model, after so few updates that it makes mistakes.

The rule that chooses it, written down before the training:

    Train by the command of lessons/toy-model/README.md, but for 1,500 updates and on one core, and
    keep the weights of every 50th update, each as it is: no average. The early model is the first
    of these 30 whose greedy translations of the 500 sentences of `valid` reach a BLEU of 60.

The sentences of `test` decide nothing: lesson 08 measures on them.

    python -m minitf.course.experiments.early_model

trains, measures all 30 checkpoints on `valid`, and saves the chosen one for the lesson, in three
CPU minutes.
"""

import functools
import tempfile
from pathlib import Path

from threadpoolctl import threadpool_limits

from minitf.course.experiments import write
from minitf.data import toy
from minitf.decode import beam_search, greedy
from minitf.files.arrays import load_arrays
from minitf.files.models import read_notes, save_model
from minitf.text.batches import pad_rows
from minitf.training import main as train
from minitf.training.evaluation import bleu
from minitf.translation import Translator
from minitf.translation.loading import probe

ENOUGH = 60  # BLEU of the greedy translations of `valid`
COMMAND = (
    "--corpus toy --preset tiny --vocabulary-size 1600 --set dropout=0.0 "
    "--set label_smoothing=0.05 --batch-tokens 2048 --warmup-steps 500 --learning-rate 0.7 "
    "--valid-every 1500 --save-every 50 --average 30 --replicas 1 --steps 1500"
)
FOLDER = Path(__file__).parents[3] / "lessons" / "toy-model-early"


def best_of_four(model, source, alpha):
    """Return the best translation that a beam of four finds, for each row of source."""
    return [found[0] for found in beam_search(model, source, beam=4, alpha=alpha)]


def measure(translator, english, german):
    """Return BLEU and the length in % of the references', for each way to search."""
    model, subwords = translator.model, translator.subwords
    source = pad_rows(subwords.encode(english), len(subwords), last=model.config.eos_id)
    row, searches = {}, {"greedy": greedy}
    for alpha in (0, 0.6, 1):
        searches[f"beam 4, alpha {alpha}"] = functools.partial(best_of_four, alpha=alpha)
    for name, search in searches.items():
        texts = subwords.decode([found.ids for found in search(model, source)])
        score = bleu(texts, german)
        length = 100 * score.hypothesis_length / score.reference_length
        row[name] = {"BLEU": round(score.score, 2), "length": round(length, 1)}
    return row


def choose(rows):
    """Return the number of updates of the first checkpoint that the rule accepts."""
    return next(row["updates"] for row in rows if row["greedy"]["BLEU"] >= ENOUGH)


def save(translator, arrays, updates, notes):
    """Write the chosen checkpoint into the lessons' folder."""
    subwords, config = translator.subwords, translator.model.config.to_dict()
    notes = notes | {"step": updates, "averaged": 1}
    probe_of_model = functools.partial(probe, translator.model)
    save_model(FOLDER, arrays, config, subwords, notes=notes, probe=probe_of_model)


def main():
    """Train, measure every checkpoint, and keep the one that the rule chooses."""
    english, german = toy.splits(n_train=0)["valid"]
    rows, weights = [], {}
    with threadpool_limits(1, "blas"), tempfile.TemporaryDirectory() as folder:
        train([*COMMAND.split(), "--out", folder])
        translator, notes = Translator.load(folder), read_notes(folder)
        for path in sorted(Path(folder).glob("weights-*")):
            arrays, values = load_arrays(path)
            # As they would be read from a model's folder.
            rounded = {name: array.astype("float16") for name, array in arrays.items()}
            translator.model.load_state(rounded)
            row = {"updates": values["step"]} | measure(translator, english, german)
            rows, weights[values["step"]] = [*rows, row], rounded
            print(row, flush=True)
    chosen = choose(rows)
    save(translator, weights[chosen], chosen, notes)
    write("early_model", {"chosen": chosen, "checkpoints": rows})


if __name__ == "__main__":
    main()
