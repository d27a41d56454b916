"""A recorded run is resumed with the losses that minitf 0.1 computed, up to rounding.

On the recorded machine it also has the bits that were recorded with this version.

How fixtures/recorded-run/ was made: with minitf 0.1 (commit b8bc38b) and OPENBLAS_NUM_THREADS=1,
beside 80 and 8 pairs of the toy corpus,

    python -m minitf train --train train.en train.de --valid valid.en valid.de \
        --vocabulary-size 318 --set n_layers=1 --set d_model=4 --set d_ff=8 --set n_heads=2 \
        --set attention_dropout=0.1 \
        --batch-tokens 256 --accumulate 2 --clip 0.4 --replicas 1 --warmup-steps 8 --valid-every 8 \
        --average 2 --log-every 1 --max-extra 2 --steps 14 --out run

without its curves, results and test translations; its arrays were then stored in the files of
today. In a copy of the run of 0.1,

    python -m minitf train --resume --out run --steps 30

and resumed.json has what log.jsonl says of updates 15 to 30 (the loss and the length of the
gradient) and of the validations, the sha256 of the arrays of the checkpoint in the order of their
names, and the machine as `machine` describes it. Later forms round differently.
"""

import hashlib
import json
import os
import platform
import shutil

import numpy as np
import pytest
from paths import FIXTURES
from threadpoolctl import threadpool_info, threadpool_limits

from minitf.files.arrays import load_arrays
from minitf.training import commandline
from minitf.training.log import RunLog, read_history
from minitf.translation.translator import Translator


def machine():
    """Return the facts that the last bits of a sum depend on."""
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    facts = ("internal_api", "version", "architecture")
    instructions = np.show_config(mode="dicts").get("SIMD Extensions", {})
    return {
        "arrays": f"numpy {np.__version__}",
        "matrix products": sorted(
            {" ".join(str(library.get(fact)) for fact in facts) for library in libraries}
        ),
        "instructions": sorted({*instructions.get("baseline", ()), *instructions.get("found", ())}),
        "libc": " ".join(platform.libc_ver()),
    }


def digest(found):
    """Return the sha256 of results that JSON can hold, exact to the last bit."""
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


RUN = FIXTURES / "recorded-run"
EXPECTED = json.loads((RUN / "resumed.json").read_text(encoding="utf-8"))
BITS = json.loads((FIXTURES / "bits.json").read_text(encoding="utf-8"))
SAME_MACHINE = machine() == BITS["machine"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(RUN, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.setattr(RunLog, "draw", lambda self, seconds=0: None)
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def resume():
    """Go on to update 30, on one thread; returns ({update: figures}, {update: perplexity})."""
    with threadpool_limits(1, "blas"):
        assert commandline.main(["--resume", "--out", "run", "--steps", "30"]) == 0
    entries = [entry for entry in read_history("run") if entry["step"] > 14]
    updates = {e["step"]: [e["loss"], e["gradient_norm"]] for e in entries if "loss" in e}
    validations = {e["step"]: e["valid_perplexity"] for e in entries if "valid_perplexity" in e}
    return updates, validations


def expected(key):
    return {int(step): figures for step, figures in EXPECTED[key].items()}


@pytest.mark.parametrize(
    "with_forms",
    [True, pytest.param(False, marks=pytest.mark.slow)],
    ids=["forms", "equations"],
)
def test_it_goes_on_as_it_would_have(folder, monkeypatch, with_forms):
    """To 1e-5; where forms compute on the recorded machine also bit for bit as before."""
    if not with_forms:
        monkeypatch.setenv("MINITF_FORMS", "off")
    updates, validations = resume()
    assert updates.keys() == expected("updates").keys()
    for step, figures in expected("updates").items():
        assert updates[step] == pytest.approx(figures, rel=1e-5), step
    assert validations == pytest.approx(expected("validations"), rel=1e-5)
    arrays, meta = load_arrays("run/checkpoint.safetensors")
    weights = ["weights-00000016.safetensors", "weights-00000024.safetensors"]
    assert (meta["step"], meta["weights"]) == (30, weights)
    if with_forms and SAME_MACHINE:
        content = b"".join(arrays[name].tobytes() for name in sorted(arrays))
        found = digest([updates, validations, hashlib.sha256(content).hexdigest()])
        assert found == BITS["resumed run"], f"the digest is {found}"


def test_its_model_translates(folder):
    translator = Translator.load("run")
    assert translator.model.config.attention_dropout == 0.1
    assert isinstance(translator.translate(["He looked for a newspaper."])[0][0].text, str)
