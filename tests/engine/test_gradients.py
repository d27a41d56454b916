"""The gradient of everything: run with -v, this reads like the engine's table of contents."""

import inspect
import sys

import numpy as np
import pytest
from gradient_table import operators, table

from minitf import functions, loss, tensor
from minitf.beyond import functions as variations
from minitf.check import grad_check
from minitf.config import Config
from minitf.tensor import Tensor
from minitf.transformer import Transformer

NOT_DIFFERENTIABLE = {"dropout_mask", "dropout_state"}


def _title(row):
    function, arguments, options = row
    shapes = [str(getattr(x, "shape", "number")) for x in arguments if not isinstance(x, list)]
    return f"{function.__name__} {' '.join(shapes)} {options or ''}".strip()


@pytest.mark.parametrize("row", table(), ids=_title)
def test_function(row):
    function, arguments, options = row
    if isinstance(arguments[0], list):
        error = grad_check(
            lambda *tensors: function(list(tensors), **options),
            *arguments[0],
            name=function.__name__,
        )
    else:
        error = grad_check(
            lambda *args: function(*args, **options), *arguments, name=function.__name__
        )
    assert error < 1e-8


@pytest.mark.parametrize("row", operators(), ids=lambda row: row[0])
def test_operator(row):
    name, function, arguments = row
    assert grad_check(function, *arguments, name=name) < 1e-8


def test_the_table_holds_every_function():
    public = {*functions.__all__, *variations.__all__, *loss.__all__}
    assert {function.__name__ for function, _, _ in table()} == public - NOT_DIFFERENTIABLE


def test_the_table_holds_every_operator_of_tensor():
    """Whatever method of Tensor records is called by a row."""
    functions = [f for f in vars(tensor.Tensor).values() if inspect.isfunction(f)]
    records = {f.__code__ for f in functions if "record(" in inspect.getsource(f)}
    called = set()
    sys.setprofile(lambda frame, *_: called.add(frame.f_code))
    try:
        for _, function, arguments in operators():
            function(*map(Tensor, arguments))
    finally:
        sys.setprofile(None)
    assert len(records) > 10 and records <= called


@pytest.mark.parametrize("norm", ["post", pytest.param("pre", marks=pytest.mark.slow)])
def test_the_whole_model(norm, rng):
    """Every parameter of a small Transformer, from the loss, with padding and dropout."""
    config = Config(
        7, 1, 4, 5, 2, d_v=3, norm=norm, eps=1e-3, attention_dropout=0.2, feed_forward_dropout=0.1
    )
    model = Transformer(config).astype("float64")
    source, target_in = rng.integers(4, 7, (3, 5)), rng.integers(4, 7, (3, 4))
    target_out = rng.integers(4, 7, (3, 4))
    source[1, 3:], target_in[2, 2:], target_out[2, 2:] = 0, 0, 0
    parameters = model.parameters()

    def loss_of(*values):
        for parameter, value in zip(parameters, values, strict=True):
            parameter.data = value.data
        with functions.dropout_state(1, 2):
            loss, _ = model.loss(source, target_in, target_out)
        names = [value for value in values if isinstance(value, Tensor)]

        def backward(gy):
            for parameter in parameters:
                parameter.grad = None
            loss.backward(gy)
            return tuple(parameter.grad for parameter in parameters)

        return tensor.record(loss.data.copy(), tuple(names), backward)

    # one direction through all of the weights, and every element of each
    grad_check(
        loss_of,
        *[parameter.data + 0.1 for parameter in parameters],
        name=f"{norm}-norm Transformer",
    )
    assert sum(np.abs(p.grad).sum() > 0 for p in parameters) == len(parameters)
