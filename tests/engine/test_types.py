"""Type hints of what users call: on every argument and result, with names that can be resolved, and
of use to mypy.
"""

import importlib
import inspect
import subprocess
import sys
import typing

import pytest
from paths import ROOT

import minitf
from minitf import backend, tensor
from minitf.page.explained import Explained
from minitf.training.trainer import Trainer

MODULES = (
    *("tensor", "functions", "nn", "transformer", "loss", "optim", "decode", "check", "config"),
    *(
        "beyond.functions",
        "beyond.sampling",
        "beyond.ssru",
        "text",
        "text.batches",
        "files.arrays",
        "files.models",
    ),
    *(
        "translation",
        "translation.loading",
        "translation.reading",
        "training",
        "training.commandline",
    ),
)
CALLED = ("__init__", "__call__")  # what a user calls without writing the name
GOOD = """\
import numpy as np
from minitf import Config, Transformer, functions as F, no_grad
from minitf.optim import Adam, warmup_rate

model = Transformer(Config.preset("tiny", 11)).train()
adam = Adam(model.named_parameters())
loss, _ = model.loss(np.full((1, 3), 5), [[2, 5]], [[5, 3]])
loss.backward()
adam.step(warmup_rate(1, model.config.d_model))
with no_grad(), model.evaluating() as quiet:
    print(F.softmax([1, 2.5]).numpy(), F.exp(2), quiet.encode([[5, 3]])[0].item())
"""
BAD = """\
from minitf import Config, Transformer, functions as F

F.softmax([1.0], axis="last")
F.dropout([1.0], rate="half")
Transformer(11)
Transformer(Config.preset("tiny")).eval().encode([[5, 3]])[0].softmax()
"""


def _methods(kind):
    """Give the public methods that a class of minitf defines itself, and what a user calls
    without its name.
    """
    for name, value in vars(kind).items():
        function = getattr(value, "__func__", value)  # of a class method
        function = function.fget if isinstance(function, property) else function
        # A dataclass has others.
        own = inspect.isfunction(function) and function.__module__ == kind.__module__
        if own and function.__name__ != "<lambda>" and (name in CALLED or not name.startswith("_")):
            yield function


def _is_public(name, thing, module):
    return not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__


def _public():
    """Give every public function and method by its full name."""
    found = [backend.use, backend.using, backend.to_numpy, backend.to_device, Trainer.__init__]
    for module in [minitf, *(importlib.import_module(f"minitf.{name}") for name in MODULES)]:
        own = [name for name, thing in vars(module).items() if _is_public(name, thing, module)]
        for thing in (getattr(module, name) for name in getattr(module, "__all__", own)):
            if inspect.isclass(thing):
                found += _methods(thing)
            elif inspect.isfunction(thing):
                found.append(thing)
    return {f"{function.__module__}.{function.__qualname__}": function for function in found}


PUBLIC = _public()


def _lacking(function):
    """Give what the type hints of a function lack."""
    signature = inspect.signature(function)
    hints = typing.get_type_hints(function, localns={"Explained": Explained})  # imported lazily
    if function.__name__ != "__init__" and signature.return_annotation is signature.empty:
        yield "a type of the result"
    for name, argument in signature.parameters.items():
        if name in ("self", "cls"):
            continue
        if argument.annotation is argument.empty:
            yield f"a type of {name}"
        elif argument.default is None and type(None) not in typing.get_args(hints[name]):
            yield f"None among the types of {name}"


def test_every_argument_and_result_has_a_type():
    lacking = {name: list(_lacking(function)) for name, function in PUBLIC.items()}
    assert not {name: said for name, said in lacking.items() if said}
    for name in ("Tensor.sum", "Tensor.__init__", "Tensor.backward", "record"):
        assert f"{tensor.__name__}.{name}" in lacking, "the engine is among what is checked"


def _mypy(program, folder):
    """Let mypy read a user's program; returns what it prints.

    Only what it says of the program counts.
    """
    (folder / "program.py").write_text(program, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--follow-imports=silent",
        "--cache-dir",
        str(folder / "cache"),
    ]
    done = subprocess.run(
        [*command, "program.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_mypy_accepts_a_program_and_finds_its_mistakes(tmp_path, monkeypatch):
    pytest.importorskip("mypy", reason="pip install -e '.[dev]' brings mypy")
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    assert _mypy(GOOD, tmp_path).startswith("Success")
    found = [
        line.split(": ", 2) for line in _mypy(BAD, tmp_path).splitlines() if ": error: " in line
    ]
    assert [place for place, *_ in found] == [f"program.py:{n}" for n in (3, 4, 5, 6)]
