"""Bad input by name, for the trainer and for translate.py: each command line ends in one line
that says this.

A name is the rest of the command line, run in a folder that `prepare` filled.
tests/project/test_mistakes.py gives all of them to the programs.
"""

import json
import shutil
from pathlib import Path

from saved_files import weights_in

from minitf.files.arrays import load_arrays, save_arrays

TEXTS = "--train train.en train.de --valid valid.en valid.de"

LONG = "x" * 300  # no file system has such names

TRAINER = {
    # the command line
    "--steps soon": "--steps must be a whole number, not 'soon'",
    "--learning-rate low": "--learning-rate must be a number, not 'low'",
    "--step 5": "unknown option --step: did you mean --steps?",
    "--learning_rate=0.5": "unknown option --learning_rate: did you mean --learning-rate?",
    "surplus": "unknown option: surplus",
    "--out": "--out: expected one argument",
    "--train train.en train.de": "--train needs --valid",
    "--corpus toy --train train.en train.de": "choose one of them",
    # numbers
    "--steps 0": "--steps must be at least 1, not 0",
    "--learning-rate 0": "--learning-rate must be at least 1e-12, not 0",
    f"{TEXTS} --add train.en valid.de": "train.en has 60 lines but valid.de has 5",
    f"{TEXTS} --add nowhere.en train.de": "nowhere.en cannot be read",
    "--train latin1.txt latin1.txt --valid valid.en valid.de": "iconv -f cp1252 -t utf-8",
    "--train train.en utf16.de --valid valid.en valid.de": (
        "utf16.de is not text, or in an unknown encoding"
    ),
    f"{TEXTS} --add train.en": "--add: expected 2 arguments",
    "--train train.en --resume": "--train: expected 2 arguments",
    "--seed 99999999999999999999": "--seed must be at most 9223372036854775807",
    "--replicas 9999": "--replicas must be at most 256",
    # texts
    "--train nowhere.en train.de --valid valid.en valid.de": "nowhere.en cannot be read",
    f"--start-from {LONG}": "cannot be read (File name too long)",
    f"--train {LONG} train.de --valid valid.en valid.de": "cannot be read (File name too long)",
    f"{TEXTS} --out {LONG}": "could not be written (File name too long): choose a shorter",
    "--train . train.de --valid valid.en valid.de": ". is a folder: name a text file",
    "--train space space --valid valid.en valid.de": "are empty",
    "--train train.en train.de --valid long long --max-length 20": (
        "to validate on; left out: 3 too long"
    ),
    "--train long long --valid valid.en valid.de --max-length 20": (
        "no pair is left to train on; left out: 3 too long"
    ),
    "--train line line --valid valid.en valid.de --subwords none": (
        "no pair is left to train on; left out: 1 too long"
    ),
    f"{TEXTS} --vocabulary-size 20": "choose a --vocabulary-size of at least",
    "--corpus klingon": "unknown corpus 'klingon': choose from toy",
    "--corpus tatoeba-en-de": "set MINITF_DATA",
    # the model
    "--preset huge": "unknown preset 'huge'",
    "--set d_model": "--set d_model: write KEY=VALUE",
    "--set d_mode=12": "where KEY is one of n_layers",
    "--set d_model=wide": "--set d_model must be a whole number, not 'wide'",
    "--set dropout=1.5": "dropout must be at least 0 and at most 0.9999",
    "--set d_model=30": "d_model 30 is not a multiple of n_heads 4",
    "--set norm=between": "norm must be post or pre",
    "--set suppressed_ids=1,b": "must be a list of whole numbers such as 1,5, not '1,b'",
    f"{TEXTS} --subwords none --set d_ff=999999999999": "choose a smaller --preset",
    f"{TEXTS} --set positions=learned --set max_length=9": "--max-length 8",
    "--backend torch": "unknown backend 'torch': choose numpy or cupy",
    "--precision float16": "--precision must be one of float32, tf32, bfloat16",
    "--precision tf32": "precision tf32 needs a GPU",
    # folders
    "--out train.en": "there is a file of this name: choose another folder",
    f"{TEXTS} --out train.en/deeper": "could not be written (Not a directory)",
    f"{TEXTS} --out run": (
        "run already contains a run: resume it with --resume, or choose another folder with --out"
    ),
    f"{TEXTS} --out model": "model is not empty (it contains config.json): choose a new",
    "--start-from nowhere": "nowhere: no such folder",
    "--start-from .": ". is not the folder of a trained model: it has no config.json: name the",
    "--start-from nowhere --preset small": "leave out --preset",
    f"{TEXTS} --start-from model --set d_ff=8": (
        "inner.weight has shape (16, 24) in the weights and (16, 8) in the model: use the settings "
        "and the code that it was saved with"
    ),
    f"{TEXTS} --start-from model-cut": ".safetensors: changed since it was saved",
    f"{TEXTS} --start-from model-card": "model-card/config.json: damaged",
    "--train other other --valid other other --start-from model": (
        "100% of the tokens are not in the vocabulary"
    ),
    # runs to go on with
    "--resume --out nowhere": "nowhere contains no checkpoint: omit --resume",
    f"--plan --resume --out {LONG}": "cannot be read (File name too long)",
    "--resume --out run-cut": "run-cut/checkpoint.safetensors: damaged",
    "--resume --out run-flipped": "checkpoint.safetensors: damaged (its sha256 differs)",
    "--resume --out run-swapped": "not a checkpoint (it has arrays only)",
    "--resume --out run-edited": (
        "inner.weight has shape (16, 24) in the weights and (16, 8) in the model"
    ),
    "--resume --out run-words": "words.txt: changed since the checkpoint",
    "--resume --out run --preset small": "cannot change --preset (the run has --preset tiny)",
    "--resume --out run --quick": "new model of your own: leave them out, or leave out --resume",
    "--resume --out run --set d_ff=8": "cannot change --set (the run has --set n_layers=1 ",
}

TRANSLATE = {
    "--beam 4 --nbest 5 'the dog'": "--beam 5",
    "-Hello.": "unknown option -Hello.: put -- before text",
    "-o x 'the dog'": "unknown option -o",
    "--temperature 0.5 'the dog'": "only used with --sample: add it",
    "--sample --beam 4 'the dog'": "leave out --beam",
    "--sample --top-k 0 'the dog'": "from 1 to",
    "--beam 0 'the dog'": "from 1 to",
    "--alpha nan 'the dog'": "from 0 to",
    "--max-extra 111111111111111111111111111111 'the dog'": "from 0 to",
    "--format xml 'the dog'": "json",
    "--backend abacus 'the dog'": "cupy",
    "--bream 4 'the dog'": "unknown option --bream: did you mean --beam?",
    "--src de --tgt en 'the dog'": "unknown option --src: each model has its languages: choose",
    "--ouput=x.txt 'the dog'": "unknown option --ouput: did you mean --output?",
    "--layer 1 'the dog'": "only used with --attention FILE: add it",
    "--attention a.png --attention-kind self 'the dog'": "encoder",
    "--attention a.xyz 'the dog'": "unknown picture format '.xyz': use .png",
    "--attention no/a.png 'the dog'": "no/a.png: cannot be written (No such file or directory):",
    "--attention a.png --layer 3 'the dog'": "1 to 1",
    "--with-model 'the dog'": "only used with --attention PAGE.html: add it",
    "--attention a.html --layer 1 'the dog'": "a page shows all kinds and layers: leave out",
    "--input x --input y": "--input is given twice: give it once",
    "--input .": ".: cannot be read",
    "--input letter.docx": (
        "letter.docx is a Word, LibreOffice or zip file: save it as plain text, in UTF-8"
    ),
    "--input latin1.txt": "is not UTF-8 but probably cp1252: iconv -f cp1252 -t utf-8",
    "--input bytes": "is not text, or in an unknown encoding: save it as plain text, in UTF-8",
    "--input train.en --output ./train.en": (
        "the text would be replaced by its translation: give --output another name"
    ),
    "--output train.en/x 'the dog'": "its folder is a file",
    "--model no/such/folder 'the dog'": "or a public model, such as firefox-fr-en: --list-models",
    "--model '\n\x1b[31m' 'the dog'": "no such folder",
    f"--model {LONG} 'the dog'": "cannot be read (File name too long)",
    "--model . 'the dog'": "config.json",
    "--model model-cut 'the dog'": ".safetensors: changed since it was saved",
    "--model model-card 'the dog'": "model-card/config.json: damaged",
    "--model model-words 'the dog'": "model-words/words.txt: changed since it was saved",
    "--model model-edited 'the dog'": (
        "inner.weight has shape (16, 24) in the weights and (16, 8) in the model"
    ),
}


def prepare(folder, run):
    """Fill a folder with texts that are none, and a run and a model that are damaged
    in several ways.

    There are train.* and valid.* already. run: trains a little, into the folder it is given.
    """
    for name, content in {
        "long": ("word " * 90 + "\n") * 3,
        "line": "word " * 20_000,
        "space": "\n \n\n",
        "other": "nothing that was seen before\n" * 5,
    }.items():
        Path(folder, name).write_text(content)
    for name, content in {
        "letter.docx": b"PK\x03\x04\x14\0",
        "bytes": bytes(range(256)),
        "utf16.de": ("Grüße!\n" * 60).encode("utf-16-le"),
    }.items():
        Path(folder, name).write_bytes(content)
    Path(folder, "latin1.txt").write_bytes("Grüße!".encode("latin1"))
    run(str(Path(folder, "run")))
    for name, change in COPIES.items():
        shutil.copytree(Path(folder, "run"), Path(folder, name))
        change(Path(folder, name))
    shutil.copytree(Path(folder, "run"), Path(folder, "model"))
    Path(folder, "model", "checkpoint.safetensors").unlink()


def _cut(name):
    def change(folder):
        (path,) = Path(folder).glob(name)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])

    return change


def _flip(folder):
    """Change one bit of the last array."""
    content = bytearray(Path(folder, "checkpoint.safetensors").read_bytes())
    content[-100] ^= 4
    Path(folder, "checkpoint.safetensors").write_bytes(content)


def _edit_checkpoint(folder):
    arrays, meta = load_arrays(Path(folder, "checkpoint.safetensors"))
    meta["config"]["d_ff"] = 8
    save_arrays(Path(folder, "checkpoint.safetensors"), arrays, meta)


def _edit_card(folder):
    card = json.loads(Path(folder, "config.json").read_text())
    card["model"]["d_ff"] = 8
    Path(folder, "config.json").write_text(json.dumps(card))


COPIES = {
    "run-cut": _cut("checkpoint.safetensors"),
    "run-flipped": _flip,
    "run-swapped": lambda folder: shutil.copy(
        weights_in(folder), folder / "checkpoint.safetensors"
    ),
    "run-edited": _edit_checkpoint,
    "run-words": lambda folder: Path(folder, "words.txt").write_text("other\n"),
    "model-cut": _cut("model-*.safetensors"),
    "model-card": _cut("config.json"),
    "model-words": lambda folder: Path(folder, "words.txt").write_text("other\n"),
    "model-edited": _edit_card,
}
