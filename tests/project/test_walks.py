"""The two walks and the table of forms in minitf/README.md are those of the code."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

from paths import PACKAGE
from tiny_translator import TEXT, make_model, make_subwords

import minitf.cpu  # this and the next register their forms
import minitf.gpu
from minitf import forms
from minitf.backend import using
from minitf.config import Config
from minitf.course.trainings import ReversedRows
from minitf.training import Settings
from minitf.training.trainer import Trainer
from minitf.translation import Translator

INSTALLED = f"{Path(minitf.__file__).parent}/"
README = (PACKAGE / "README.md").read_text(encoding="utf-8")


def section(heading):
    """Return the text under a heading."""
    return re.split(r"^#+ ", README.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[
        0
    ]


def calls(act):
    """Return the functions of minitf that are called, as (name, file), in order of first calls."""
    found, before = {}, sys.getprofile()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(INSTALLED):
            file = code.co_filename.removeprefix(INSTALLED)
            found.setdefault((code.co_qualname.rpartition("<locals>.")[2], file))

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return list(found)


def hold(walk, act):
    """Hold a walk to what is called when `act` is called again: proofs of forms are over then."""
    listed = re.findall(
        r"^\d+\. `([\w.]+)` \(`([\w/]+\.py)`\): .+ `->` ", section(walk), re.MULTILINE
    )
    assert 10 < len(listed) <= 20
    with forms.on(), using("numpy"):
        act()
        called = calls(act)
    assert set(listed) <= set(called)
    assert listed == [each for each in called if each in listed]


def test_the_walk_of_a_sentence():
    subwords = make_subwords()
    with forms.on(), using("numpy"):
        translator = Translator(make_model(subwords), subwords)
    hold("A sentence", lambda: translator.translate(TEXT[:1], beam=4))


def test_the_walk_of_an_update(tmp_path):
    settings = Settings(out=str(tmp_path), steps=2, valid_every=2, warmup_steps=1)
    config = Config(9, n_layers=1, d_model=8, d_ff=12, n_heads=2)
    rows, log = [[4, 5, 6, 7], [8, 7, 6, 5]] * 2, SimpleNamespace(say=print)
    trainer = Trainer(settings, ReversedRows(rows, 9), config, log)
    hold("An update", trainer.update)


def test_the_table_of_forms():
    """Each op has the files of its forms."""
    row = r"^\| `([\w.]+)` \| `?([\w/.]+)`? \| `?([\w/.]+)`? \| .+ \|$"
    listed = {op: files for op, *files in re.findall(row, section("All forms"), re.MULTILINE)}
    found = {}
    for place, folder in enumerate(("cpu", "gpu")):
        for op, form in forms._forms[folder].items():
            name = f"{op.__module__.removeprefix('minitf.')}.{op.__name__}"
            file = form.__module__.removeprefix("minitf.").replace(".", "/")
            found.setdefault(name, ["none", "none"])[place] = f"{file}.py"
    assert listed == found
