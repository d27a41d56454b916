"""The calls on which forms are compared with their equations: with gradients, and without.

`test_forms` runs each with the equations and with the forms.
"""

import contextlib
import functools
import importlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from unittest import mock

import gradient_table
import models
import numpy as np
from sizes import B, D, H, K, S, T, V

from minitf import decode, forms, loss, optim, transformer
from minitf import functions as F
from minitf.backend import to_device, to_numpy
from minitf.beyond import sampling
from minitf.config import Config
from minitf.nn import Dropout, LayerNorm, Linear, Module, Parameter
from minitf.tensor import Tensor, no_grad
from minitf.transformer import FeedForward, MultiHeadAttention, Residual

FOLDERS = {"cpu": "numpy", "gpu": "kernels"}  # the library whose arrays the forms of a folder take


@dataclass
class Row:
    """A call of a differentiable function.

    declined: the folders whose form leaves this call to the equation. constants: the indices of
    arguments that are float64 arrays and not Tensors. compute: calls a function that takes layers,
    with layers of these arguments.
    """

    name: str
    function: object
    arguments: tuple
    options: dict = field(default_factory=dict)
    declined: tuple = ()
    constants: tuple = ()
    compute: object = None

    def __str__(self):
        return f"{self.function.__name__}: {self.name}"


def rows():
    """Return the rows of the gradient table, and rows for each branch of each form."""
    named = []
    for function, arguments, options in gradient_table.table():
        shapes = [str(getattr(x, "shape", "number")) for x in arguments if not isinstance(x, list)]
        named.append(
            Row(f"{' '.join(shapes)} {options or ''}".strip(), function, arguments, options)
        )
    rng = np.random.default_rng(8)
    return [*named, *_attention(rng), *_layers(rng), *_losses(rng)]


def _attention(rng):
    def inputs(front=(B, H), t=T, s=S):
        return tuple(rng.normal(size=(*front, *shape)) for shape in ((t, K), (s, K), (s, D)))

    def mask(*shape):
        return rng.random(shape) < 0.6

    nothing, last = mask(B, 1, T, S), np.arange(S) > 0
    nothing[1] = False  # a sentence whose queries may attend to no key
    past = np.tri(S, dtype=bool)
    function = F.attention
    not_finite = rng.normal(size=(B, H, S, K))
    not_finite[0, 0, 0], not_finite[0, 1, 0], not_finite[1, 0, 0] = np.nan, np.inf, -np.inf
    return [
        Row("one query", function, inputs(t=1)),
        Row("one query, a mask of keys", function, (*inputs(t=1), mask(B, 1, 1, S))),
        Row("one query of one head", function, inputs((), t=1), declined=("gpu",)),
        Row("one key", function, inputs(s=1)),
        Row("no query", function, inputs(t=0), declined=("cpu", "gpu")),
        Row("no key", function, inputs(s=0), declined=("cpu", "gpu")),
        Row("no sentence", function, inputs((0, H)), declined=("cpu", "gpu")),
        Row("one head without axes in front", function, inputs(()), declined=("gpu",)),
        Row("one axis in front", function, (*inputs((B,)), mask(B, T, S)), declined=("gpu",)),
        Row("three axes", function, (*inputs((2, B, H)), mask(H, T, S)), declined=("gpu",)),
        Row("a mask for all sentences and heads", function, (*inputs(), mask(T, S))),
        Row("a mask of each sentence's keys", function, (*inputs(), mask(B, 1, 1, S))),
        Row("a mask of queries", function, (*inputs(), mask(B, 1, T, 1))),
        Row("a mask of each head", function, (*inputs(), mask(H, T, S))),
        Row("nothing to attend to", function, (*inputs(), nothing)),
        Row("nothing to attend to, dropout", function, (*inputs(), nothing, 0.4), {"seed": 4}),
        Row("causal", function, (*inputs(t=S), past)),
        Row("the keys of one sentence for all", function, (*inputs()[:1], *inputs((1, H))[1:])),
        Row("large scores", function, (100 * inputs()[0], *inputs()[1:])),
        Row("keys not finite, masked", function, (inputs()[0], not_finite, inputs()[2], last)),
        Row("dropout by the state", function, (*inputs(), mask(B, 1, 1, S), 0.3)),
        *(
            Row(f"float64 constants {constants}", function, inputs(), constants=constants)
            for constants in ((0,), (1,), (2,), (0, 1), (1, 2))
        ),
        Row("long", function, (*inputs((1, 2), 37, 41), mask(1, 1, 37, 41), 0.2), {"seed": 9}),
        Row("large scores, one mask for all", F.attention_weights, (*inputs()[:2], mask(T, S))),
        Row("a mask of more axes than all", function, (*inputs((B, 1)), mask(B, H, T, S))),
        Row("scores far above 0", function, (30 * abs(inputs()[0]), *map(abs, inputs()[1:]))),
        Row("scores far below 0", function, (-60 * abs(inputs()[0]), *map(abs, inputs()[1:]))),
    ]


def _layers(rng):
    def normal(*shape):
        return rng.normal(size=shape)

    ids = rng.integers(0, V, (B, T))
    found = []
    shapes = {"one row": (1, D), "no row": (0, D), "one axis": (D,), "three axes": (B, T, D)}
    for name, shape in (shapes | {"rows beyond a tile": (67, D)}).items():
        scaled = 3 * normal(*shape) + 5, normal(D), normal(D)
        found.append(Row(name, F.layer_norm, scaled, {"eps": 1e-3}))
        found.append(Row(name, F.linear, (normal(*shape), normal(D, 16), normal(16))))
        found.append(Row(f"{name}, no bias", F.linear, (normal(*shape), normal(D, 16))))
        found.append(Row(name, F.dropout, (normal(*shape), 0.3), {"seed": 3}))
        sum_of = normal(*shape), normal(*shape), normal(D), normal(D)
        found.append(_add_and_norm(name, *sum_of, 1e-3))
        found.append(_add_and_norm(f"{name}, dropout", *sum_of, 1e-3, 0.4))
        two_maps = normal(*shape), normal(D, 16), normal(16), normal(16, D), normal(D)
        found.append(_network(name, *two_maps))
        found.append(_network(f"{name}, dropout", *two_maps, 0.4))
    one_for_all = normal(1, D), normal(B, T, D), normal(D), normal(D)
    unbiased = normal(B, T, D), normal(D, 16), None, normal(16, D), None
    found += [
        _add_and_norm("one row for all", *one_for_all, declined=("gpu",)),
        _network("no biases", *unbiased, declined=("gpu",)),
        Row("one feature", F.layer_norm, (normal(B, T, 1), normal(1), normal(1)), {"eps": 1e-2}),
        Row("four axes", F.linear, (normal(2, B, T, D), normal(D, 16), normal(16))),
        Row("one column", F.linear, (normal(B, T, D), normal(D, 1), normal(1))),
        Row("one id", F.embedding, (normal(V, D), np.array(3))),
        Row("no id", F.embedding, (normal(V, D), np.zeros((0, 3), np.int64))),
        Row("one id many times", F.embedding, (normal(V, D), np.full((B, T), V - 1))),
        Row("ids of 16 bits", F.embedding, (normal(V, D), ids.astype(np.uint16))),
        Row("one column", F.embedding, (normal(V, 1), ids)),
        Row("by the state", F.dropout, (normal(B, T, D), 0.3)),
        Row("rows that draw twice", F.dropout, (normal(2, 600), 0.5)),
        Row("nearly all", F.dropout, (normal(B, T, D), 0.999), {"seed": 3}),
    ]
    return found


def _add_and_norm(name, *arguments, declined=()):
    """Return a row that adds and normalises: x, added, gain, bias, eps, rate."""

    def compute(x, added, gain, bias, eps=1e-6, rate=0.0):
        norm = LayerNorm(len(gain), eps)
        norm.gain, norm.bias = gain, bias
        return transformer.add_and_norm(x, added, Dropout(rate), norm)

    return Row(name, transformer.add_and_norm, arguments, declined=declined, compute=compute)


def _network(name, *arguments, declined=()):
    """Return a row of a feed-forward network: x, W_1, b_1, W_2, b_2, rate."""

    def compute(x, w_1, b_1, w_2, b_2, rate=0.0):
        inner, outer = Linear(1, 1, None), Linear(1, 1, None)
        inner.weight, inner.bias, outer.weight, outer.bias = w_1, b_1, w_2, b_2
        return transformer.feed_forward_network(x, inner, F.relu, Dropout(rate), outer)

    op = transformer.feed_forward_network
    return Row(name, op, arguments, declined=declined, compute=compute)


def _losses(rng):
    smoothed, projected = loss.label_smoothed_cross_entropy, loss.projected_cross_entropy

    def logits(*shape):
        return 3 * rng.normal(size=shape)

    targets = rng.integers(1, V, (B, T))
    padded = targets.copy()
    padded[0], padded[1, 2:] = 0, 0
    certain = logits(B, T, V)
    certain[0, 0, :5] = -np.inf  # impossible words cost nothing without smoothing
    targets[0, 0] = 7
    found = [
        Row("impossible words", smoothed, (certain, targets, 0.0)),
        Row("large logits", smoothed, (100 * logits(B, T, V), targets)),
        Row("padding in front", smoothed, (logits(B, T, V), padded), {"pad_id": 0}),
        Row("one row", smoothed, (logits(V), np.array(4))),
        Row("no row", smoothed, (logits(0, V), np.zeros(0, np.int64))),
        Row("all padding", smoothed, (logits(B, T, V), 0 * targets), {"pad_id": 0}),
        Row("two words", smoothed, (logits(5, 2), np.array([0, 1, 1, 0, 1]))),
        Row("many words", smoothed, (logits(3, 700), np.array([0, 699, 333]))),
    ]
    for name, target, options in (
        ("padding", padded, {"pad_id": 0}),
        ("all padding", 0 * targets, {"pad_id": 0}),
        ("no smoothing", targets, {"smoothing": 0.0}),
    ):
        found.append(Row(name, projected, (logits(B, T, D), logits(V, D) / 3, target), options))
    hidden, impossible = np.abs(logits(B, T, D)), logits(V, D) / 3
    impossible[targets[0, 1], 0] = -np.inf  # one word, which is the true one of some positions
    both = ("cpu", "gpu")
    for smoothing in (0.0, 0.1):
        arguments = hidden, impossible, targets, smoothing
        found.append(Row(f"an impossible word, {smoothing}", projected, arguments))
    for smoothing in (0.5, 1 - 1 / V, 0.95, 1.0):  # q is not larger for the true word
        for weight in (logits(V, D) / 3, impossible):
            arguments = hidden, weight, targets, smoothing
            name = f"smoothing {smoothing:.2f}, {weight is impossible}"
            found.append(Row(name, projected, arguments, declined=both))
    found += _biased_losses(logits, targets)
    many = rng.integers(0, V, 67)
    found.append(Row("rows beyond a chunk", projected, (logits(67, D), logits(V, D) / 3, many)))
    found.append(Row("one row", projected, (logits(D), logits(V, D), np.array(4))))
    none = np.zeros(0, np.int64)
    found.append(Row("no row", projected, (logits(0, D), logits(V, D), none)))
    return found


def _biased_losses(logits, targets):
    """Return rows of the loss with a bias, which makes some ids impossible."""
    hidden, weight, bias = logits(B, T, D), logits(V, D) / 3, logits(V)
    never, found, op = bias.copy(), [], loss.projected_cross_entropy
    never[-2:] = -np.inf
    possible = np.minimum(targets, V - 3)
    for name, last in {"a bias": bias, "impossible ids": never}.items():
        for smoothing in (0.0, 0.1):
            arguments = hidden, weight, possible, smoothing, None, None, last
            found.append(Row(f"{name}, {smoothing}", op, arguments))
    arguments = logits(67, D), weight, np.arange(67) % (V - 2), 0.1, None, None, never
    found.append(Row("impossible ids, rows beyond a chunk", op, arguments))
    arguments = hidden, weight, targets, 0.1, 0, 23, bias.astype("float32")
    found.append(Row("a constant bias", op, arguments, constants=(6,)))
    return found


def strided(array):
    """Return an equal array with its numbers in another order in memory, with gaps between."""
    wide = np.empty((*array.shape[::-1], 2), array.dtype)
    view = wide[..., 0].T
    view[...] = array
    return view


@np.errstate(invalid="ignore")  # some rows have arguments that are not finite
def outcome(row, dtype, layout=np.ascontiguousarray, recording=True):
    """Return the results of a row's call, and its arguments' gradients for a random cotangent.

    Raises AssertionError if the call changes an array that it was given.
    """
    results, walk_back = call(row, dtype, layout, recording)
    return results + (walk_back() if recording else [])


def call(row, dtype, layout=np.ascontiguousarray, recording=True, change=lambda x: x):
    """Return the results of a row's call, and a function that walks back and returns gradients.

    change: a function applied to each array of numbers before the call.
    """
    given, tensors = [], []

    def tensor(x):
        if isinstance(x, list):
            return [tensor(one) for one in x]
        if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
            return x
        x = change(x).astype(dtype)
        given.append((to_device(layout(x) if x.ndim else x), x.copy()))
        tensors.append(Tensor(given[-1][0]))
        return tensors[-1]

    def constant(x):
        x = change(x)
        given.append((to_device(x), x.copy()))
        return given[-1][0]

    with F.dropout_state(seed=5, step=3, first_row=2), contextlib.ExitStack() as stack:
        if not recording:
            stack.enter_context(no_grad())
        arguments = [
            constant(x) if i in row.constants else tensor(x) for i, x in enumerate(row.arguments)
        ]
        y = (row.compute or row.function)(*arguments, **row.options)
    results = list(y) if isinstance(y, tuple) else [y]
    before = [to_numpy(one.data).copy() for one in results]

    def walk_back():
        gy = np.random.default_rng(11).normal(size=before[0].shape).astype(dtype)
        given.append((to_device(layout(gy) if gy.ndim else gy), np.array(gy)))
        results[0].backward(given[-1][0])
        after = [to_numpy(one.data) for one in results]
        assert all(map(_equal, before, after)), f"{row}: the result was changed afterwards"
        assert all(_equal(to_numpy(array), copy) for array, copy in given), (
            f"{row}: an argument was changed"
        )
        return [to_numpy(one.grad) for one in tensors if one.grad is not None]

    return before, walk_back


def _equal(a, b):
    return np.array_equal(a, b, equal_nan=True)


def close(got, expected, dtype, name="", tolerance=None):
    """Compare arrays with the expected ones, to 1e-9 in float64 and 1e-5 in float32.

    The error of an array is relative to its largest number, however small that is; of an array of
    zeros, it is absolute.
    """
    tolerance = tolerance or (1e-9 if np.dtype(dtype) == np.float64 else 1e-5)
    assert len(got) == len(expected), (
        f"{name}: {len(got)} arrays, but the equation returns {len(expected)}"
    )
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype, (
            f"{name}: array {i} is {a.dtype} {a.shape}, not {b.dtype} {b.shape}"
        )
        if b.dtype.kind != "f":
            assert np.array_equal(a, b), f"{name}: array {i} has other integers"
            continue
        finite = np.isfinite(b)
        assert _equal(a[~finite], b[~finite]), f"{name}: array {i} is infinite, or NaN, elsewhere"
        largest = np.abs(b[finite]).max(initial=0.0) or 1.0
        error = (
            np.abs(np.asarray(a, np.float64)[finite] - np.asarray(b, np.float64)[finite]).max(
                initial=0.0
            )
            / largest
        )
        assert error <= tolerance, f"{name}: array {i} is off by {error:.1e}"


@contextlib.contextmanager
def watched(folder):
    """Collect in a set the ops whose forms took their arguments."""
    load(folder)
    taken = set()

    def watch(op, form):
        def watching(*arguments, **options):
            result = form(*arguments, **options)
            if result is not NotImplemented:
                taken.add(op)
            return result

        return watching

    watching = {op: watch(op, form) for op, form in forms._forms[folder].items()}
    with mock.patch.dict(forms._forms[folder], watching), forms.on():
        yield taken


def load(folder):
    """Import the forms of a folder."""
    importlib.import_module(f"minitf.{folder}")


def refused():
    """Return calls that an op refuses; a form must raise the error of its equation."""
    x, vector, matrix, ids = np.ones((2, 4)), np.ones(4), np.ones((4, 3)), np.array([1, 2])
    return [
        Row("other features", F.linear, (x, np.ones((3, 4)))),
        Row("a vector as its weight", F.linear, (x, vector)),
        Row("a bias of another size", F.linear, (x, matrix, vector)),
        Row("a gain of another size", F.layer_norm, (x, np.ones(3), vector)),
        Row("a bias of another size", F.layer_norm, (x, vector, np.ones((1, 4)))),
        Row("no features", F.layer_norm, (np.ones((2, 0)), np.ones(0), np.ones(0))),
        Row("an id beyond the end", F.embedding, (matrix, np.array([0, 4]))),
        Row("a negative id", F.embedding, (matrix, np.array([-1]))),
        Row("ids that are no integers", F.embedding, (matrix, np.array([1.0]))),
        Row("a vector as its table", F.embedding, (vector, ids)),
        Row("a rate of 1", F.dropout, (x, 1.0)),
        Row("a mask of numbers", F.attention, (x, x, x, np.ones((2, 2)))),
        Row("keys of another size", F.attention, (x, np.ones((2, 3)), x)),
        Row("fewer values than keys", F.attention, (x, x, x[:1])),
        Row("a mask of another size", F.attention, (x, x, x, np.ones((3, 2), bool))),
        Row("a target too many", loss.label_smoothed_cross_entropy, (x, np.array([1, 2, 3]))),
        Row("a target that is no word", loss.label_smoothed_cross_entropy, (x, np.array([1, 4]))),
        Row("targets that are no integers", loss.label_smoothed_cross_entropy, (x, np.ones(2))),
        Row("one word, and smoothing", loss.label_smoothed_cross_entropy, (x[:, :1], 0 * ids)),
        Row("divided by 0", loss.label_smoothed_cross_entropy, (x, ids), {"n_tokens": 0}),
        Row("other features", loss.projected_cross_entropy, (x, np.ones((5, 3)), ids)),
        Row("a target that is no word", loss.projected_cross_entropy, (x, np.ones((2, 4)), ids)),
    ]


# Without gradients --------------------------------------------------------------------------------


@dataclass
class Case:
    """A program without gradients: compute(dtype) returns arrays. ops: the forms that it uses."""

    name: str
    ops: tuple
    compute: object
    folders: tuple = ("cpu", "gpu")

    def __str__(self):
        return self.name


def cases():
    """Return the second table: Adam, the caches and continuations of decoding, packed weights."""
    return [
        *_adam_cases(),
        Case("Adam, on threads", (optim.adam_update,), _adam_on_threads, ("cpu",)),
        *_decoding_cases(),
        Case("the training of a public model", (loss.projected_cross_entropy,), _public),
        Case("dropout's mask, bit for bit", (F.dropout,), _mask, ("gpu",)),
        Case("sampling", (decode.fast_decoding,), _sampled),
        Case("continuations", (decode.continuations,), _continuations),
        Case("logsumexp", (decode.logsumexp,), _logsumexp),
        *_module_cases(),
    ]


def _adam_cases():
    adam, both = (optim.adam_update,), ("cpu", "gpu")
    rows = [
        ("five steps", adam, both, (35,), 5),
        ("two axes", adam, ("cpu",), (7, 5), 2),
        ("two axes on a GPU", (), ("gpu",), (7, 5), 2),
        ("no axis", (), both, (), 2),
        ("one number", adam, both, (1,), 3),
        ("no number", adam, both, (0,), 1),
        ("several blocks", adam, ("cpu",), (300_001,), 2),
        ("tiny gradients", adam, both, (9,), 3, 1e-9),
    ]
    for name, ops, folders, *given in rows:
        yield Case(f"Adam, {name}", ops, lambda dtype, x=given: _adam(dtype, *x), folders)


def _decoding_cases():
    """Yield the cases of translation, with and without caches."""
    searches = (decode.fast_decoding,)  # which may find the continuations itself
    greedy = lambda dtype: _written(decode.greedy(*_task(dtype, ONE_SIZE), max_extra=6))  # noqa: E731
    yield Case("greedy", searches, greedy)
    yield Case("greedy without a cache", (), _uncached)
    yield Case("a beam of 4, with a spare thread", searches, _with_spare, ("cpu",))
    yield Case("a beam of 4, attention by distance", searches[1:], _near)
    yield Case("a beam of 4, maps without biases", searches, _unbiased)
    rows = [
        ("a beam of 4", ONE_SIZE),
        ("a beam of 4, pre-norm", PRE_NORM),
        ("a beam of 3, learned positions", LEARNED | ONE_SIZE, 3, 3),
        ("a beam of 1", PRE_NORM, 1),
        ("a beam of 4, a public model", models.PUBLIC | ONE_SIZE),
    ]
    for name, *given in rows:
        yield Case(name, searches, lambda dtype, x=given: _beams(dtype, *x))
    of_two_sizes = lambda dtype: _beams(dtype, LEARNED)  # noqa: E731
    yield Case("a beam of 4, heads of two sizes", searches, of_two_sizes, ("cpu",))


def _module_cases():
    """Return the cases of layers and modules with parameters."""
    return [
        Case("modules", (transformer.feed_forward_network, transformer.add_and_norm), _modules),
        Case("heads", (transformer.multi_head_attention,), _heads),
        Case("inputs that the heads leave to the equation", (), _of_other_inputs),
        Case("a shared matrix", (F.linear,), _shared_matrix, ("cpu",)),
        Case("a table that is used twice", (F.embedding,), _table_used_twice),
    ]


LEARNED = {"positions": "learned", "max_length": 16}
ONE_SIZE = {"d_k": 6, "d_v": 6}  # of all heads, which some forms on a GPU need
PRE_NORM = {"norm": "pre", "eps": 1e-2, "tie": False} | ONE_SIZE


def _adam(dtype, shape, steps, size=1.0):
    """Return the parameters, m and v after each step."""
    rng = np.random.default_rng(2)
    x, *moments = (
        to_device(array.astype(dtype)) for array in (rng.normal(size=shape), *np.zeros((2, *shape)))
    )
    found = []
    for t in range(1, steps + 1):
        g = size * rng.normal(size=shape)
        optim.adam_update(x, to_device(g.astype(dtype)), *moments, t, 0.01 * t)
        found += [to_numpy(array).copy() for array in (x, *moments)]
    return found


def _adam_on_threads(dtype):
    from minitf.cpu import threads  # only now: a mutant may have replaced it

    with ThreadPoolExecutor(2) as pool, threads.use_pool(pool, 2):
        return _adam(dtype, (1_300_001,), 1)


def _task(dtype, switches):
    return models.small_model(dtype, **switches), models.sources(1, 4, 2, 5)


def _uncached(dtype):
    model, source = _task(dtype, {})
    return _written(decode.greedy(decode.Decoding(model, cached=False), source, max_extra=3))


def _written(hypotheses):
    """Return the ids of translations, and their ln P and scores."""
    hypotheses = list(hypotheses)  # a generator could be read only once
    words = [np.array([*h.ids, -1]) for h in hypotheses]
    return [np.concatenate(words), np.array([(h.log_probability, h.score) for h in hypotheses])]


def _beams(dtype, switches, beam=4, n_best=1):
    """Return the translations of four sentences that end at different steps."""
    found = decode.beam_search(*_task(dtype, switches), beam, n_best=n_best, max_extra=6)
    return _written(h for sentence in found for h in sentence)


def _with_spare(dtype):
    """Return the translations for which a second thread computes halves of products."""
    from minitf.cpu import threads  # only now: a mutant may have replaced it

    with threads.use_second_thread():
        return _beams(dtype, {})


class Near(MultiHeadAttention):
    """Attention in which a key counts less the further it is from its query."""

    def attend(self, queries, keys, values, mask, positions):
        of_queries, of_keys = positions
        far = to_device(
            abs(of_queries[:, None, :, None] - of_keys[:, None, None, :]), queries.dtype
        )
        scores = queries @ keys.transpose(0, 1, 3, 2) - far
        return F.softmax(scores if mask is None else F.where(mask, scores, -1e9)) @ values


def _near(dtype):
    """Return translations that need the position of each word in the cache."""
    model, source = _task(dtype, {})
    for layer in model.decoder.layers:
        layer.self_attention = Near(model.config, np.random.default_rng(9)).astype(dtype)
    return _written(h for (h,) in decode.beam_search(model, source, max_extra=12))


def _unbiased(dtype):
    """Return translations by a decoder whose feed-forward networks have one bias, or none."""
    model, source = _task(dtype, ONE_SIZE)
    for i, layer in enumerate(model.decoder.layers):
        network = layer.feed_forward
        network.inner.bias = None
        network.outer.bias = network.outer.bias if i else None
    return _written(h for (h,) in decode.beam_search(model, source, max_extra=3))


def _mask(dtype):
    ones = to_device(np.ones((7, 600), dtype))
    with F.dropout_state(seed=2**63 + 1, step=9, first_row=3):
        return [to_numpy(F.dropout(ones, rate).data) > 0 for rate in (0.1, 0.5)]


def _sampled(dtype):
    return _written(sampling.sample(*_task(dtype, ONE_SIZE), seed=3, temperature=1.3))


def _continuations(dtype):
    """Return the best of scores with many ties, for vocabularies of several sizes."""
    rng, found = np.random.default_rng(3), []
    for size in (11, 32, 64, 75, 200):
        for beams, count in ((1, 2), (4, 8), (3, 6)):
            scores = rng.normal(size=(2 * beams, size)).astype(dtype)
            totals = rng.normal(size=(2, beams))
            equal, none = scores.round(), totals.copy()
            none[:, 1:] = -np.inf  # at the first step the other beginnings are not there
            equal[:, 5:] = -np.inf
            for a, b in (
                (scores, totals),
                (scores.round(), 0 * totals),
                (scores, none),
                (equal, totals.round()),
            ):
                # The scores as ln P: two sums that are rounded apart would decide between equals.
                with mock.patch.object(decode, "logsumexp", lambda logits: np.zeros(len(logits))):
                    found += map(to_numpy, decode.continuations(to_device(a), b, count))
    return found


def _logsumexp(dtype):
    logits = np.random.default_rng(4).normal(size=(5, 40)) * 30
    found = [logits.astype(dtype), logits[:1].astype(dtype), logits[:0].astype(dtype)]
    found += [(logits + 1000).astype(dtype), logits]  # the last in float64
    return [decode.logsumexp(to_device(x)) for x in found]


def _public(dtype):
    """Return the loss of a model with the switches of public models, and all its gradients."""
    switches = models.PUBLIC | {"suppressed_ids": (0, 1, 2, 7)}
    model = models.small_model(dtype, label_smoothing=0.2, **switches)
    batch = models.random_batch(np.random.default_rng(5))
    results = model.loss(batch.source, batch.target_in, batch.target_out)
    results[0].backward()
    found = [to_numpy(one.data) for one in results]
    named = model.named_parameters()  # the softmax ignores a key's bias: its gradient is rounding
    return found + [to_numpy(p.grad) for name, p in named if not name.endswith("key.bias")]


class DoubledLinear(Linear):
    """A changed module, which no form may skip."""

    def __call__(self, x):
        return super().__call__(x) * 2


class DoubledDropout(Dropout):
    """Another changed module."""

    def __call__(self, x):
        return super().__call__(x) * 2


class Doubling(Module):
    """A module of another kind, in place of dropout."""

    rate = 0.0

    def __call__(self, x):
        return x * 2


def _modules(dtype):
    """Return the results and gradients of a residual sub-layer, also with changed modules."""
    rng, found = np.random.default_rng(8), []
    x = Tensor(to_device(rng.normal(size=(B, T, D)).astype(dtype)))
    for changes in ({}, {"norm": "pre"}, {"activation": "swish"}):
        rates = {"dropout": 0.2, "feed_forward_dropout": 0.3}
        config = Config(V, d_model=D, d_ff=16, n_heads=H, **rates, **changes)
        for changed in ("nothing", "training", "a layer", "dropout", "no dropout"):
            network, residual = FeedForward(config, rng), Residual(config)
            if changed == "training":
                network.eval()
            elif changed == "a layer":
                network.inner.__class__ = DoubledLinear
            elif changed == "dropout":
                network.dropout.__class__ = residual.dropout.__class__ = DoubledDropout
            elif changed == "no dropout":
                network.dropout = residual.dropout = Doubling()
            for module in (network, residual):
                module.astype(dtype)
            found += _with_gradients(
                functools.partial(residual, sublayer=network), x, (network, residual)
            )
    return found


def _with_gradients(compute, x, modules):
    """Return a result, and the gradients that two updates without `zero_grad` add up to.

    The parameters' gradients are slices of a flat array, as those of a model in training.
    """
    flat = optim.Flat(enumerate(p for module in modules for p in module.parameters()))
    for _ in range(2):
        x = Tensor(x.data)
        with F.dropout_state(seed=3, step=4):
            y = compute(x)
        y.backward(to_device(np.random.default_rng(5).normal(size=y.shape).astype(y.dtype)))
    return [to_numpy(array).copy() for array in (y.data, x.grad, flat.gradients)]


def _of_other_inputs(dtype):
    """Return attention to one memory for all sentences, with its gradients, to an empty one, and
    whether two dtypes, masks that do not fit, and a memory of two axes are refused.
    """
    rng = np.random.default_rng(10)
    module = MultiHeadAttention(Config(V, d_model=D, n_heads=H), rng).astype(dtype)
    x, memory = (
        Tensor(to_device(rng.normal(size=shape), dtype)) for shape in ((B, T, D), (1, S, D))
    )
    other = memory.astype("float32" if dtype == "float64" else "float64")
    refused = []
    try:
        module(x, F.concatenate([other] * B, axis=0))
    except TypeError as error:
        refused.append("mixes float32 and float64" in str(error))
    for shape in ((B, 1, 1, T + 1), (2, B, H, T, T)):  # masks that do not fit
        try:
            module(x, x, to_device(np.ones(shape, dtype=bool)))
        except ValueError as error:
            refused.append("attention takes a query" in str(error))
    try:
        module(x, memory[0, :B])
    except ValueError as error:
        refused.append("x must be (B, T, D)" in str(error))
    results = [module(x, y) for y in (memory, x[:, :0])]
    results[0].sum().backward()
    arrays = *(y.data for y in results), x.grad, memory.grad
    return [*map(to_numpy, arrays), np.array(refused, dtype=dtype)]


def _heads(dtype):
    """Return multi-head attention to the same text and to another, also by changed modules."""
    rng, found = np.random.default_rng(8), []
    x, memory = (to_device(rng.normal(size=(B, n, D)).astype(dtype)) for n in (T, S))
    masks = [to_device(rng.random((B, 1, 1, n)) < 0.7) for n in (T, S)]
    for d_v in (D // H, 2):
        config = Config(V, d_model=D, n_heads=H, d_v=d_v, attention_dropout=0.3)
        for changed in (
            *("nothing", "training", "a bias", "biases", "a bias of the output", "a layer"),
            *("the output", "a class", "a method", "kept", "shared"),
        ):
            module = (Near if changed == "a class" else MultiHeadAttention)(config, rng)
            if changed == "training":
                module.eval()
            elif changed in ("a bias", "biases"):
                module.query.bias = Parameter(rng.normal(size=len(module.query.weight.data[0])))
                if changed == "biases":
                    module.value.bias = Parameter(rng.normal(size=len(module.value.weight.data[0])))
            elif changed == "a bias of the output":
                module.output.bias = Parameter(rng.normal(size=D))
            elif changed == "a layer":
                module.key.__class__ = DoubledLinear
            elif changed == "the output":
                module.output.__class__ = DoubledLinear
            elif changed == "a method":
                module.attend = functools.partial(Near.attend, module)
            elif changed == "kept":
                module.keep_weights = True
            elif changed == "shared":
                module.key.weight = module.query.weight
            module.astype(dtype)
            uses = {
                "itself": (x, lambda y, module=module: module(y, y, masks[0])),
                "a memory": (x, lambda y, module=module: module(y, Tensor(memory), masks[1])),
                "of a memory": (memory, lambda y, module=module: module(Tensor(x), y)),
            }
            for array, compute in uses.values():
                found += _with_gradients(compute, Tensor(array), [module])
            if changed == "kept":
                found.append(to_numpy(vars(module).get("weights", np.zeros(0))))
    return found


def _shared_matrix(dtype):
    """Return the result of a network with one matrix for both maps, which has two gradients."""
    rng = np.random.default_rng(8)
    network = FeedForward(Config(V, d_model=D, d_ff=D, n_heads=H), rng)
    network.outer.weight = network.inner.weight
    x = Tensor(to_device(rng.normal(size=(B, T, D)).astype(dtype)))
    return _with_gradients(network, x, [network.astype(dtype)])


def _table_used_twice(dtype):
    """Return the gradients of a table whose rows are looked up by two calls."""
    rng, module = np.random.default_rng(8), Module()
    module.table = Parameter(rng.normal(size=(V, D)))
    first, second = rng.integers(0, V, (2, B, T))

    def compute(x):
        return x + F.embedding(module.table, first) + F.embedding(module.table, second) * 2

    x = Tensor(to_device(rng.normal(size=(B, T, D)).astype(dtype)))
    return _with_gradients(compute, x, [module.astype(dtype)])


# The sizes at which a form takes another branch: {name: {module: {constant: size}}}.
TILES = {
    "sizes as they are": {},
    "small tiles": {
        "cpu.attention": {"TILE_SCORES": 2 * S, "LONGEST_KEPT": 10**6, "LARGE": 1},
        "cpu.loss": {"CHUNK_ROWS": 3, "CHUNK": 1},
        "cpu.threads": {"_MIN_ITEMS": 1},
        "cpu.decode": {"_CACHED": 80, "_HUGE": 1},
        "common.decoder": {"_GROW_BY": 2},
        "common.beams": {"_BLOCKS": 2},
        "cpu.packed": {"_FEW": 1 << 12, "_WIDTH": 16, "_CUT": True, "_LARGE": 1, "_SLICES": 2},
        "gpu.loss": {"CHUNK_ROWS": 10, "ROW_THREADS": 256},
        "gpu.functions": {"CACHED": 4 * B * T * D},  # the target is in the cache, the source not
        **{f"gpu.{name}": {"STRIPE": 2} for name in ("fused", "kernels", "warps")},
    },
    "tiles of one head": {
        "cpu.attention": {"TILE_SCORES": T * S, "LONGEST_KEPT": 1, "LARGE": 1},
        "cpu.loss": {"CHUNK_ROWS": 10},
        "cpu.packed": {"_CUT": False, "_LARGE": 1},
    },
    "tiles of one query": {
        "cpu.attention": {"TILE_SCORES": 1, "LONGEST_KEPT": S},
        "cpu.loss": {"CHUNK_ROWS": 1},
    },
    "tiles of one sentence": {
        "cpu.attention": {"TILE_SCORES": H * T * S, "LONGEST_KEPT": 1},
        "cpu.loss": {"CHUNK_ROWS": 66},
    },
}
TILED = {F.attention, loss.projected_cross_entropy}  # the functions that all these sizes matter to
TILED_ON_GPU = {loss.projected_cross_entropy}


# Only the host reads their constants. CuPy compiles those of other modules into a kernel at its
# first call, so lowering them afterwards would change one half of a form.
OF_THE_HOST = {"common.decoder", "common.beams", "gpu.loss", "gpu.functions"}


def lower(monkeypatch, tiles, compiled=False):
    """Set the constants of the forms to other sizes; compiled: only those that no kernel reads."""
    for module, sizes in TILES[tiles].items():
        if compiled and module not in OF_THE_HOST:
            continue
        for name, size in sizes.items():
            monkeypatch.setattr(importlib.import_module(f"minitf.{module}"), name, size)
