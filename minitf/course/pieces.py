"""The pieces of `my_transformer.py`: where each is derived, how it is tried, how it goes wrong.

A piece is a function or a method of examples/whole.py. `try_it` calls it in a module with that
page's names, and returns what came out as named arrays; the student's and the page's must agree.
`wrong` has typical mistakes, each as (text of the page, the wrong text, what a student is told).
The result of a wrong answer is compared with theirs, so that the message names the mistake.
"""

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np

__all__ = ["PIECES", "Piece", "Refused"]


class Refused(Exception):
    """What is wrong with an answer, in words."""


class Piece(NamedTuple):
    """A function of the page whose body the student writes.

    name: as in `softmax` or `Tensor.backward`. section: the heading in the lesson that derives it.
    """

    name: str
    lesson: str
    section: str
    hint: str
    try_it: Callable[[ModuleType], dict]
    wrong: list


def numbers(*shape, seed=0):
    """Return random numbers, none of them near 0."""
    rng = np.random.default_rng([seed, *shape])
    return rng.uniform(0.2, 1.5, shape) * rng.choice([-1, 1], shape)


def walked(w, function, **arrays):
    """Return the result of a function of Tensors, and the gradient of each of its inputs.

    L is the sum of the outputs, each times a random number, as lesson 02 advises.
    """
    inputs = {name: w.Tensor(array) for name, array in arrays.items()}
    return gradients_of(w, function(*inputs.values()), inputs)


def gradients_of(w, y, inputs):
    """Walk back from y; return its value and the gradients of the inputs."""
    if not isinstance(y, w.Tensor):
        raise Refused(f"it returns {kind_of(y)}, where a Tensor is needed")
    found = {"the result": np.array(y.data)}
    c = numbers(*y.data.shape, seed=7)
    w.Tensor((c * y.data).sum(), (y,), lambda gy: (gy * c,)).backward()
    for name, x in inputs.items():
        found[f"the gradient of {name}"] = np.array(x.grad)
    return found


def kind_of(value):
    """Return "nothing", "an array" or another word for what a function returned."""
    if value is None:
        return "nothing (is `return` missing?)"
    return "an array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def config(**changes):
    """Return the settings of a small model, whose sizes all differ."""
    c = SimpleNamespace(V=11, N=2, N_decoder=2, d_model=12, d_ff=16, h=3, pre_norm=False)
    c.P_drop, c.epsilon_ls, c.training = 0.5, 0.1, False
    vars(c).update(changes)
    return c


def filled(module, seed=1):
    """Give every parameter of a module other numbers, in double precision; return the module."""
    for i, x in enumerate(module.parameters().values()):
        x.data = numbers(*x.data.shape, seed=seed + i) * 0.5
    return module


def tried(w, module, *arguments, seed=3):
    """Call a module; return the result, and the gradients of its parameters and of its inputs."""
    w.rng = np.random.default_rng(seed)  # for dropout
    inputs = {f"input {i}": x for i, x in enumerate(arguments, 1) if isinstance(x, w.Tensor)}
    return gradients_of(w, module(*arguments), inputs | module.parameters())


def under(title, found):
    """Return the named arrays with the case in front of each name."""
    return {f"{title}: {name}": array for name, array in found.items()}


SOURCE = np.array([[4, 5, 6, 3], [9, 3, 0, 0]])
TARGET = np.array([[2, 7, 8, 7, 9], [2, 10, 4, 0, 0]])
MASK = np.array([[True, True, False, True, True, False], [True] * 6])[:, None, None, :]


# Lesson 01 ----------------------------------------------------------------------------------------


def _try_softmax(w):
    x = numbers(2, 3, 5)
    return {"the weights": w.softmax(x), "of scores near 1000": w.softmax(x + 1000)}


def _try_attention_weights(w):
    Q, K = numbers(2, 3, 4, 5), numbers(2, 3, 6, 5, seed=1)
    everything = np.ones((1, 1, 1, 6), dtype=bool)
    return {
        "without a mask": w.attention_weights(Q, K, everything),
        "with a mask": w.attention_weights(Q, K, MASK),
    }


def _try_padding_mask(w):
    return {"the mask": w.padding_mask(SOURCE)}


def _try_causal_mask(w):
    return {"the mask of 4 positions": w.causal_mask(4), "of 1 position": w.causal_mask(1)}


# Lesson 02 ----------------------------------------------------------------------------------------


def diamond(w):
    """Return b = 2a, c = 3b, d = b + c, and d + a: a and b are used twice."""
    a = w.Tensor(numbers(2, 3))
    b = a * 2.0
    c = b * 3.0
    d = b + c
    return {"a": a, "b": b, "c": c, "d": d, "d + a": d + a}


def _try_backward(w):
    nodes = diamond(w)
    nodes["d + a"].backward()
    found = {f"the gradient of {name}": np.array(node.grad) for name, node in nodes.items()}
    (nodes["a"] * 5.0).backward()
    return found | {"a, after a second graph": np.array(nodes["a"].grad)}


def _try_inputs_first(w):
    nodes = list(diamond(w).values())
    found = w.inputs_first(nodes[-1], [], set())
    if not isinstance(found, list):
        raise Refused(f"it returns {kind_of(found)}, where a list is needed")
    places = {id(node): place for place, node in enumerate(found)}
    after = [places.get(id(x), 99) < places[id(node)] for node in found for x in node.inputs]
    return {
        "the number of nodes in the list": len(found),
        "how many of them are different": len(places),
        "every node is after its inputs": all(after),
        "the last one is the node itself": bool(found) and found[-1] is nodes[-1],
    }


def _try_add(w):
    same = walked(w, lambda a, b: a + b, a=numbers(2, 3, 4), b=numbers(2, 3, 4, seed=1))
    bias = walked(w, lambda a, b: a + b, a=numbers(2, 3, 4), b=numbers(4, seed=1))
    return under("a sum of equal shapes", same) | under("a bias", bias)


def _try_matmul(w):
    one = walked(w, lambda x, W: x @ W, x=numbers(3, 4), W=numbers(4, 5))
    many = walked(w, lambda x, W: x @ W, x=numbers(2, 3, 4), W=numbers(4, 5))
    return under("(3, 4) times (4, 5)", one) | under("(2, 3, 4) times (4, 5)", many)


def _try_transpose(w):
    two = walked(w, lambda x: x.transpose(1, 0), x=numbers(2, 3))
    four = walked(w, lambda x: x.transpose(1, 2, 0, 3), x=numbers(2, 3, 4, 5))
    return under("axes 1, 0", two) | under("axes 1, 2, 0, 3", four)


def _try_attention(w):
    arrays = {"Q": numbers(2, 3, 4, 5), "K": numbers(2, 3, 6, 5), "V": numbers(2, 3, 6, 5, seed=2)}
    return walked(w, lambda Q, K, V: w.attention(Q, K, V, MASK), **arrays)


# Lesson 03 ----------------------------------------------------------------------------------------


def _try_split_heads(w):
    return walked(w, lambda x: w.split_heads(x, 3), x=numbers(2, 5, 12))


def _try_merge_heads(w):
    return walked(w, w.merge_heads, heads=numbers(2, 3, 5, 4))


def _try_multi_head(w):
    module = filled(w.MultiHeadAttention(config()))
    return tried(w, module, w.Tensor(numbers(2, 5, 12)), w.Tensor(numbers(2, 6, 12)), MASK)


# Lesson 04 ----------------------------------------------------------------------------------------


def _try_layer_norm(w):
    arrays = {"x": 2 + numbers(2, 3, 5), "gain": numbers(5), "bias": numbers(5, seed=1)}
    equal = {"x": np.full((1, 1, 4), 3.0), "gain": numbers(4), "bias": numbers(4, seed=1)}
    return walked(w, w.layer_norm, **arrays) | under("equal features", walked_forward(w, equal))


def walked_forward(w, arrays):
    """Return the result of layer_norm alone."""
    return {"the result": w.layer_norm(*map(w.Tensor, arrays.values())).data}


def _try_relu(w):
    return walked(w, w.relu, x=numbers(2, 3, 5))


def _try_dropout(w):
    x = numbers(40, 50)
    found = under("not training", walked(w, lambda x: w.dropout(x, config()), x=x))
    for P_drop in (0.25, 0.5):
        c = config(training=True, P_drop=P_drop)
        w.rng = np.random.default_rng(5)
        mask = walked(w, lambda x, c=c: w.dropout(x, c), x=x)
        result, gradient = mask["the result"] / x, mask["the gradient of x"]
        again = w.dropout(w.Tensor(x), c).data / x
        found |= {
            f"P_drop {P_drop}: the share of zeros": np.round((result == 0).mean(), 1),
            f"P_drop {P_drop}: the other numbers, divided by x": np.unique(
                np.round(result[result != 0], 9)
            ),
            f"P_drop {P_drop}: the gradient, divided by gy": np.unique(
                np.round(gradient / numbers(40, 50, seed=7), 9)
            ),
            f"P_drop {P_drop}: the gradient is 0 where the result is": (
                (gradient == 0) == (result == 0)
            ).all(),
            f"P_drop {P_drop}: a second call has another mask": not np.array_equal(result, again),
        }
    return found


def _try_feed_forward(w):
    return tried(w, filled(w.FeedForward(config())), w.Tensor(numbers(2, 5, 12)))


def _try_residual(w):
    found = {}
    for title, changes in {
        "the paper's": {},
        "the paper's, training": {"training": True},
        "pre_norm": {"pre_norm": True},
        "pre_norm, training": {"pre_norm": True, "training": True},
    }.items():
        module = filled(w.Residual(config(**changes)))
        x = w.Tensor(numbers(2, 3, 12))
        call = Call(lambda x, m=module: m(x, lambda y: y * 3.0), module.parameters)
        found |= under(title, tried(w, call, x))
    return found


class Call:
    """A call, and the parameters whose gradients it is to show."""

    def __init__(self, call, parameters):
        self.call, self.parameters = call, parameters

    def __call__(self, *arguments):
        return self.call(*arguments)


# Lessons 05 and 06 --------------------------------------------------------------------------------


def _try_embedding(w):
    return walked(w, lambda E: w.embedding(E, TARGET), E=numbers(11, 4))


def _try_sinusoids(w):
    return {"7 positions": w.sinusoids(7, 12), "1 position": w.sinusoids(1, 4)}


def _try_enter(w):
    found = {}
    for training in (False, True):
        model = filled(w.Transformer(config(training=training, N=1, N_decoder=1)))
        module = Call(lambda m=model: w.enter(TARGET, m.E, m.c), lambda m=model: {"E": m.E})
        found |= under("training" if training else "translating", tried(w, module))
    return found


def _try_decoder_layer(w):
    layer = filled(w.DecoderLayer(config()))
    y, memory = w.Tensor(numbers(2, 5, 12)), w.Tensor(numbers(2, 6, 12, seed=1))
    return tried(w, layer, y, memory, w.causal_mask(5), MASK)


def _try_encode(w):
    return whole_model(w, lambda model: model.encode(SOURCE))


def _try_decode(w):
    memory = w.Tensor(numbers(2, 4, 12))
    return whole_model(w, lambda model: model.decode(TARGET, memory, SOURCE))


def whole_model(w, call):
    """Return what a call of a model gives, with the norms after the sub-layers and before them."""
    found = {}
    for pre_norm in (False, True):
        model = filled(w.Transformer(config(pre_norm=pre_norm)))
        parameters = {"E": model.E} | (
            {"the last norm": model.encoder_norm.gain} if pre_norm else {}
        )
        module = Call(lambda model=model: call(model), lambda p=parameters: p)
        found |= under("pre_norm" if pre_norm else "the paper's", tried(w, module))
    return found


def _try_make_batch(w):
    pairs = [([4, 5, 6], [7, 8]), ([9], [10, 5, 4, 6, 7])]
    batch = w.make_batch(pairs)
    if not isinstance(batch, tuple) or len(batch) != 3:
        raise Refused("it must return three arrays: source, target_in, target_out")
    found = dict(zip(["source", "target_in", "target_out"], batch, strict=True))
    return found | {"the pairs that were given": str(pairs)}


# Lesson 07 ----------------------------------------------------------------------------------------


def _try_cross_entropy(w):
    found = {}
    for epsilon in (0.1, 0.0):
        case = walked(
            w, lambda z, e=epsilon: w.cross_entropy(z, TARGET, e), logits=2 * numbers(2, 5, 11)
        )
        found |= under(f"epsilon_ls {epsilon}", case)
    large = w.Tensor(numbers(2, 5, 11) + 1000)
    return found | {"logits near 1000": np.array(w.cross_entropy(large, TARGET, 0.1).data)}


def _try_learning_rate(w):
    steps = [1, 2, 39, 40, 41, 400]
    return {f"step {step}": w.learning_rate(step, 12, 40) for step in steps}


def _try_adam(w):
    x, y = w.Tensor(numbers(2, 3)), w.Tensor(numbers(4))
    adam = w.Adam([x, y])
    found = {}
    for step in (1, 2, 3):
        x.grad, y.grad = numbers(2, 3, seed=step), 1e-3 * numbers(4, seed=step)
        adam.update(0.1)
        found[f"the parameter after update {step}"] = np.array(x.data)
        found[f"one with small gradients after update {step}"] = np.array(y.data)
        found[f"its gradient after update {step}"] = np.array(y.grad)
        found[f"m after update {step}"] = np.array(adam.m[0])
        found[f"v after update {step}"] = np.array(adam.v[0])
        found[f"t after update {step}"] = adam.t
    return found


# Lesson 08 ----------------------------------------------------------------------------------------


class TableModel:
    """A model of random numbers: its logits depend on all tokens so far, and on the source."""

    def __init__(self, w, seed):
        self.w, self.sources = w, []
        rng = np.random.default_rng(seed)
        self.of_last, self.of_sum = rng.normal(0, 1.5, (2, 11, 11))
        self.of_last[:, w.EOS] += seed % 4 - 1  # some end their texts later than others

    def encode(self, source):
        self.sources.append(np.array(source))
        return self.w.Tensor(np.array(source)[:, :, None] * 1.0)

    def decode(self, target, memory, source):
        if not len(target) == len(memory.data):
            raise Refused(f"{len(target)} texts, but {len(memory.data)} rows of memory")
        sums = np.cumsum(target, axis=1) + int(memory.data[0].sum())
        return self.w.Tensor(self.of_last[target] + self.of_sum[sums % 11])


def _try_next_ln_p(w):
    model = TableModel(w, 1)
    memory, texts = w.Tensor(np.ones((2, 4, 1))), [[2, 5, 6], [2, 9, 8]]
    found = {"ln p": np.array(w.next_ln_p(model, texts, memory, SOURCE))}
    model.of_last = model.of_last + 1000
    return found | {"of logits near 1000": np.array(w.next_ln_p(model, texts, memory, SOURCE))}


def _try_greedy(w):
    found = {}
    for seed in range(1, 9):
        model = TableModel(w, seed)
        model.of_last[:, w.EOS] -= 99 * (seed % 2)  # half of the texts never end
        text = np.array(w.greedy(model, [4, 5, 6][: 1 + seed % 3]))
        found[f"the source, as it is encoded, {seed}"] = model.sources[-1]
        found[f"the text of model {seed}"] = text
    return found


def _try_length_penalty(w):
    return {f"length {n}, alpha {a}": w.length_penalty(n, a) for n in (1, 7, 13) for a in (0.6, 1)}


def _try_beam_search(w):
    found = {}
    for seed in range(1, 27):
        model = TableModel(w, seed)
        model.of_last[:, w.EOS] -= 99 * (seed % 12 == 0)  # two texts never end
        alpha = (0.6, 1.0, 0.0, 2.0, 0.6)[seed % 5]
        ids, beam = [4, 5, 6][: 1 + seed % 3], 2 + seed % 2 * 2
        text = np.array(w.beam_search(model, ids, beam, alpha))
        found[f"the source, as it is encoded, {seed}"] = model.sources[-1]
        found[f"the text of model {seed}, beam {beam}, alpha {alpha}"] = text
        if seed < 4:
            text = np.array(w.beam_search(TableModel(w, seed), ids))
            found[f"the text of model {seed}, without beam and alpha"] = text
    return found


# Lesson 09 ----------------------------------------------------------------------------------------


def _try_make_batches(w):
    w.rng = np.random.default_rng(1)
    lengths = np.random.default_rng(2).integers(2, 30, (99, 1)) + [[0, 1], [0, 0], [1, 0]] * 33
    pairs = [([7] * int(s), [i] * int(t)) for i, (s, t) in enumerate(lengths)]
    batches = [batch for batch in w.make_batches(pairs, 100) if len(batch)]
    longest = [max(max(len(s), len(t)) for s, t in batch) + 1 for batch in batches]
    tokens = [len(batch) * n for batch, n in zip(batches, longest, strict=True)]
    rows = sorted(target[0] for batch in batches for _, target in batch)
    return {
        "every pair is in one batch": rows == list(range(99)),
        "the batches with more than n_tokens": sum(n > 100 for n in tokens),
        "pairs of about equal length are together": sum(tokens) < 1.2 * (lengths.max(1) + 1).sum(),
        "the batches are full": len(batches) < 30,
        "short batches do not all come first": sorted(longest) != longest,
    }


def _try_average(w):
    rows = [[numbers(2, 3, seed=i), numbers(4, seed=i)] for i in range(5)]
    return {f"array {i}": array for i, array in enumerate(w.average(rows), 1)}


PIECES = [
    Piece(
        "softmax", "01", "What does the library compute?",
        "Two lines: e, and e divided by its sum. Subtract the largest x of each row first.",
        _try_softmax,
        [
            ("np.exp(x - x.max(axis=-1, keepdims=True))", "np.exp(x.max(axis=-1, keepdims=True) - x)", "the sign of the exponent is turned round: small scores get large weights"),
            ("np.exp(x", "np.exp2(x", "2 to the power of x, where e to the power of x belongs"),
            ("e.sum(axis=-1, keepdims=True)", "(e.sum(axis=-1, keepdims=True) + 1)", "1 is added to the sum"),
            (" - x.max(axis=-1, keepdims=True)", "", "exp overflows: subtract the largest score"),
            ("e.sum(axis=-1, keepdims=True)", "e.sum()", "divided by the sum of all numbers, not of each row"),
            ("x.max(axis=-1, keepdims=True)", "x.max(axis=0)", "the largest was taken over another axis"),
            ("e.sum(axis=-1, keepdims=True)", "e.sum(axis=-2, keepdims=True)", "the columns sum to 1, not the rows"),
            ("return e / e.sum(axis=-1, keepdims=True)", "return e", "the weights do not sum to 1: divide by their sum"),
            ("return e / e.sum(axis=-1, keepdims=True)", "return np.log(e / e.sum(axis=-1, keepdims=True))", "this is the logarithm of the softmax"),
        ],
    ),
    Piece(
        "attention_weights", "01", "How is a position kept from looking?",
        "Scores, root, mask, softmax. swapaxes(-1, -2) transposes the last two axes.",
        _try_attention_weights,
        [
            ("/ math.sqrt(Q.shape[-1])", "* math.sqrt(Q.shape[-1])", "the scores are multiplied by the root, not divided"),
            ("softmax(np.where(mask, scores, -np.inf))", "np.where(mask, scores, -np.inf)", "these are scores: the softmax is missing"),
            (" / math.sqrt(Q.shape[-1])", "", "the scores are not divided by sqrt(d_k)"),
            ("math.sqrt(Q.shape[-1])", "Q.shape[-1]", "divided by d_k, not by its root"),
            ("math.sqrt(Q.shape[-1])", "math.sqrt(Q.shape[-2])", "the root of the number of queries, where d_k belongs"),
            ("np.where(mask, scores, -np.inf)", "scores", "the mask is not used"),
            ("np.where(mask, scores, -np.inf)", "np.where(mask, -np.inf, scores)", "the mask is upside down: True means may look"),
            ("softmax(np.where(mask, scores, -np.inf))", "softmax(scores) * mask", "zero afterwards: the weights no longer sum to 1"),
            ("np.where(mask, scores, -np.inf)", "np.where(mask, scores, 0)", "a masked score of 0 still gets a weight: it must be minus infinity"),
            ("Q @ K.swapaxes(-1, -2)", "K @ Q.swapaxes(-1, -2)", "the keys ask and the queries answer: Q K^T, not K Q^T"),
        ],
    ),
    Piece(
        "padding_mask", "01", "How is a position kept from looking?",
        "ids != PAD is True at tokens. None in an index adds an axis of length 1.",
        _try_padding_mask,
        [
            ("(ids != PAD)", "(1.0 * (ids != PAD))", "numbers, where True and False are needed"),
            ("[:, None, None, :]", "[None, None, :, :]", "the sentences must be the first axis"),
            ("!=", "==", "upside down: True at padding, where nobody may look"),
            ("[:, None, None, :]", "", "the axes for heads and queries are missing"),
            ("[:, None, None, :]", "[:, None, :, None]", "the last axis must be that of the keys: this hides queries"),
            ("[:, None, None, :]", "[:, None, :]", "one axis is missing: (B, 1, 1, S)"),
            ("(ids != PAD)", "(ids != EOS)", "it hides the end mark, not the padding"),
            ("(ids != PAD)", "(ids > EOS)", "it hides all special ids; only padding is to be hidden"),
        ],
    ),
    Piece(
        "causal_mask", "01", "How is a position kept from looking?",
        "np.tri is a triangle of ones.",
        _try_causal_mask,
        [
            ("np.tri(length, dtype=bool)", "np.tri(length, k=-1, dtype=bool)", "a position does not see itself"),
            ("np.tri(length, dtype=bool)", "np.tri(length, k=1, dtype=bool)", "a position sees the next one, which it must predict"),
            ("np.tri(length, dtype=bool)", "np.tri(length, dtype=bool).T", "transposed: positions see the future and not the past"),
            ("np.tri(length, dtype=bool)", "np.ones((length, length), dtype=bool)", "every position sees all others"),
            ("np.tri(length, dtype=bool)", "np.eye(length, dtype=bool)", "a position sees only itself"),
            ("[None, None]", "", "two axes are missing, for sentences and heads"),
            ("np.tri(length, dtype=bool)", "np.tri(length)", "numbers, where True and False are needed"),
            ("np.tri(length, dtype=bool)", "~np.tri(length, dtype=bool)", "upside down: it hides the past"),
        ],
    ),
    Piece(
        "Tensor.backward", "02", "Why does the order matter?",
        "Begin with 1 at this node. inputs_first(self, [], set()) is the order, to be read from its end.",
        _try_backward,
        [
            ("x.grad = x.grad + gx", "x.grad = gx", "a gradient replaces the one that came before: they add up"),
            ("reversed(inputs_first(self, [], set()))", "inputs_first(self, [], set())", "the walk begins at the wrong end"),
            ("x.grad = x.grad + gx", "x.grad = x.grad - gx", "the gradients are subtracted: they add up"),
            ("np.ones_like(self.data)", "np.zeros_like(self.data)", "dL/dL is 1, not 0"),
            ("np.ones_like(self.data)", "self.data", "dL/dL is 1, not L"),
            ("node._backward(node.grad)", "node._backward(self.grad)", "every node is given the gradient of L, not its own"),
            ("reversed(inputs_first(self, [], set()))", "[self]", "only the last node hands its gradient on"),
            ("            if node.inputs:", "            node.grad = node.grad * 2\n            if node.inputs:", "each gradient is doubled"),
        ],
    ),
    Piece(
        "Tensor.__add__", "02", "What does each operation hand back?",
        "Both inputs get gy; one that was added to many rows gets the sum over these rows.",
        _try_add,
        [
            (".reshape(-1, *b_shape).sum(axis=0)", ".sum()", "the bias gets one number: the sum runs over the rows only"),
            ("gy.reshape(-1, *b_shape).sum(axis=0)", "np.zeros(b_shape)", "the second input gets no gradient"),
            ("return gy, gy.re", "return np.zeros_like(gy), gy.re", "the first input gets no gradient"),
            ("return gy, gy.re", "return np.ones_like(gy), gy.re", "the slope alone for the first input: gy is missing"),
            ("return gy, gy.re", "return 2 * gy, gy.re", "the gradient of the first input is doubled"),
            ("self.data + other.data", "self.data * other.data", "this is a product"),
            ("return gy, gy.reshape(-1, *b_shape).sum(axis=0)", "return gy, gy", "a bias gets one gradient for each row: add them up"),
            (".sum(axis=0)", ".mean(axis=0)", "the bias gets the mean over its copies, not the sum"),
            ("gy.reshape(-1, *b_shape).sum(axis=0)", "gy.reshape(-1, *b_shape)[0]", "the bias gets the gradient of the first row only"),
            ("return gy, gy.reshape", "return -gy, gy.reshape", "the gradient of the first input has the wrong sign"),
            ("return gy, gy.reshape", "return gy, -gy.reshape", "the gradient of the second input has the wrong sign"),
            ("return gy, gy.reshape", "return gy * other.data, gy.reshape", "this is the rule of a product for the first input"),
            ("Tensor(self.data + other.data", "Tensor(self.data - other.data", "this is a difference"),
            ("(self, other), backward", "(other, self), backward", "the inputs are listed in the other order than their gradients"),
        ],
    ),
    Piece(
        "Tensor.__matmul__", "02", "What is the gradient of a matrix product?",
        "Make rows of all positions with reshape(-1, x.shape[-1]); then gW is one product.",
        _try_matmul,
        [
            ("rows.T @ g_rows", "-rows.T @ g_rows", "the gradient of W has the wrong sign"),
            ("gy @ W.T, rows", "gy @ W.T / W.shape[1], rows", "gx is a mean over the outputs, not a sum"),
            ("rows.T @ g_rows", "rows.T @ np.ones_like(g_rows)", "the gradient of W misses gy"),
            ("gy @ W.T, rows", "np.ones_like(gy) @ W.T, rows", "the gradient of x misses gy"),
            ("gy @ W.T, rows", "np.zeros_like(x), rows", "x gets no gradient"),
            ("rows = x.reshape(-1, x.shape[-1])", "rows = x.reshape(x.shape[-1], -1).T", "the rows of x are mixed: reshape(-1, D)"),
            ("return gy @ W.T, rows.T @ g_rows", "return rows.T @ g_rows, gy @ W.T", "the two gradients are exchanged"),
            ("rows.T @ g_rows", "(g_rows.T @ rows).T * 2", "the gradient of W is twice too large"),
            ("rows.T @ g_rows", "rows.T @ g_rows / len(rows)", "the gradient of W is a mean over the rows, not a sum"),
            ("gy @ W.T, rows.T", "-gy @ W.T, rows.T", "the gradient of x has the wrong sign"),
            ("rows.T @ g_rows", "g_rows.T @ rows", "gW is transposed: x^T gy, not gy^T x"),
            ("gy @ W.T, rows.T", "gy @ W, rows.T", "W must be transposed in gx"),
            ("rows.T @ g_rows", "x.swapaxes(-1, -2) @ gy", "of several sentences, W gets one gradient for each: add them up"),
            ("rows.T @ g_rows", "np.zeros_like(W)", "W gets no gradient"),
        ],
    ),
    Piece(
        "Tensor.transpose", "02", "What does each operation hand back?",
        "np.argsort(axes) is the order that puts the axes back.",
        _try_transpose,
        [
            ("np.argsort(axes)", "axes[::-1]", "the axes in reverse are not the way back: argsort"),
            ("gy.transpose(back)", "-gy.transpose(back)", "the gradient has the wrong sign"),
            ("gy.transpose(back)", "np.ones_like(gy).transpose(back)", "the slope alone: gy is missing"),
            ("(gy.transpose(back),)", "gy.transpose(back)", "backward must return a tuple, with a comma: (gx,)"),
            ("np.argsort(axes)", "axes", "the axes of the gradient are moved again, not put back"),
            ("gy.transpose(back)", "gy.transpose()", "the axes of the gradient are reversed, which puts back only two of them"),
            ("gy.transpose(back)", "gy", "the gradient keeps y's axes"),
            ("gy.transpose(back)", "gy.reshape(self.data.shape)", "reshape does not move numbers: use transpose"),
            ("self.data.transpose(axes)", "self.data.transpose(back)", "the axes of the result are moved the other way"),
            ("self.data.transpose(axes)", "self.data.reshape([self.data.shape[i] for i in axes])", "the result has the right shape with the numbers in the old order"),
        ],
    ),
    Piece(
        "inputs_first", "02", "Why does the order matter?",
        "Unless the node was seen: first its inputs, by calling this function, then the node.",
        _try_inputs_first,
        [
            ("        order.append(node)", "        order.insert(0, node)", "the list begins with the node: each must come after its inputs"),
            ("if node not in seen:", "if True:", "a node that is used twice is in the list twice"),
            ("        seen.add(node)\n", "        seen.add(node)\n        order.append(node)\n", "each node is listed before its inputs, and after them again"),
            ("for x in node.inputs:", "for x in node.inputs[:1]:", "only the first input is followed"),
            ("for x in node.inputs:", "for x in ():", "the inputs are not followed"),
            ("    return order", "    return None", "it returns nothing: is `return` missing?"),
        ],
    ),
    Piece(
        "attention", "02", "What is the gradient of attention?",
        "The table of that section has the four lines of backward.",
        _try_attention,
        [
            ("gS = gZ / math.sqrt(q.shape[-1])", "gS = gZ", "the gradient misses the division by sqrt(d_k)"),
            ("gS = gZ / math.sqrt(q.shape[-1])", "gS = gZ * math.sqrt(q.shape[-1])", "the gradient is multiplied by the root, not divided"),
            ("P * (gP - (gP * P).sum(axis=-1, keepdims=True))", "P * gP", "in the softmax, the average of gP is not subtracted"),
            ("(gP * P).sum(axis=-1, keepdims=True)", "gP.sum(axis=-1, keepdims=True)", "the sum of gP is taken without the weights P"),
            ("(gP * P).sum(axis=-1, keepdims=True)", "(gP * P).mean(axis=-1, keepdims=True)", "a mean over the keys, where a sum with the weights P belongs"),
            ("(gP * P).sum(axis=-1, keepdims=True)", "(gP * P).sum(axis=-2, keepdims=True)", "the sum runs over the queries, not over the keys"),
            ("P * (gP - (gP", "(gP - (gP", "in the softmax, the factor P in front is missing"),
            ("P * (gP - (gP", "P * (gP + (gP", "in the softmax, the average of gP is added, not subtracted"),
            ("gv = P.swapaxes(-1, -2) @ gy", "gv = P.swapaxes(-1, -2) @ (P @ v)", "gV takes the result where gy belongs"),
            ("return gS @ k, gS.swapaxes(-1, -2) @ q, gv", "return gS @ k, -gS.swapaxes(-1, -2) @ q, gv", "the gradient of K has the wrong sign"),
            ("return gS @ k, gS.swapaxes(-1, -2) @ q, gv", "return gS.swapaxes(-1, -2) @ q, gS @ k, gv", "the gradients of Q and K are exchanged"),
            ("gS.swapaxes(-1, -2) @ q", "gS @ q", "gS must be transposed in gK"),
            ("gS.swapaxes(-1, -2) @ q", "gS.swapaxes(-1, -2) @ k[..., :4, :]", "gK is made of keys: it is gS^T Q"),
            ("P = attention_weights(q, k, mask)", "P = attention_weights(q, k, True)", "the mask is not used"),
            ("Tensor(P @ v, (Q, K, V)", "Tensor(P @ v, (Q, V, K)", "the inputs are listed in another order than their gradients"),
        ],
    ),
    Piece(
        "split_heads", "03", "How are the heads cut apart?",
        "Reshape to (B, T, h, D // h), then exchange the axes of positions and heads.",
        _try_split_heads,
        [
            (".transpose(0, 2, 1, 3)", "", "the heads must come before the positions: the axes were not exchanged"),
            ("x.reshape(B, T, h, D // h).transpose(0, 2, 1, 3)", "x.reshape(B, h, T, D // h)", "the right shape, but each head has whole positions: reshape does not move numbers"),
            ("x.reshape(B, T, h, D // h).transpose(0, 2, 1, 3)", "x.reshape(B, T, D // h, h).transpose(0, 3, 1, 2)", "head i has every h-th feature, not neighbours"),
            ("x.reshape(B, T, h, D // h).transpose(0, 2, 1, 3)", "x.transpose(0, 2, 1).reshape(B, h, D // h, T).transpose(0, 1, 3, 2) * 2.0", "the numbers are doubled"),
            (".transpose(0, 2, 1, 3)", ".transpose(0, 2, 3, 1)", "features and positions are exchanged inside a head"),
            (".transpose(0, 2, 1, 3)", ".transpose(2, 0, 1, 3)", "heads come before the sentences"),
        ],
    ),
    Piece(
        "merge_heads", "03", "How are the heads cut apart?",
        "The way back: exchange the axes first, then reshape.",
        _try_merge_heads,
        [
            ("heads.transpose(0, 2, 1, 3).reshape(B, T, H * K)", "heads.reshape(B, T, H * K)", "the axes were not exchanged back: positions are mixed"),
            ("heads.transpose(0, 2, 1, 3).reshape(B, T, H * K)", "heads.transpose(0, 2, 3, 1).reshape(B, T, H * K)", "the features of the heads alternate: they belong side by side"),
            ("heads.transpose(0, 2, 1, 3).reshape(B, T, H * K)", "heads.transpose(0, 2, 1, 3)", "the heads are not joined: reshape is missing"),
            ("heads.transpose(0, 2, 1, 3).reshape(B, T, H * K)", "heads.transpose(2, 0, 1, 3).reshape(B, T, H * K)", "sentences and positions are exchanged"),
            (".reshape(B, T, H * K)", ".reshape(B, H * K, T)", "positions and features are exchanged"),
        ],
    ),
    Piece(
        "MultiHeadAttention.__call__", "03", "What is multi-head attention, exactly?",
        "Four projections, two cuts: queries from x, keys and values from the memory.",
        _try_multi_head,
        [
            ("V = split_heads(memory", "V = split_heads(x", "the values are made of x: they come from the memory"),
            ("@ self.W_O", "@ self.W_V", "the last product takes W^V, where W^O belongs"),
            ("memory @ self.W_K", "memory @ self.W_Q", "the keys are made by the matrix of the queries"),
            ("attention(Q, K, V, mask)", "attention(Q, K, V, ~mask)", "the mask is upside down"),
            ("K = split_heads(memory @ self.W_K", "K = split_heads(x @ self.W_K", "the keys are made of x: they come from the memory"),
            ("V = split_heads(memory @ self.W_V", "V = split_heads(memory @ self.W_K", "the values are made by the matrix of the keys"),
            ("Q = split_heads(x @ self.W_Q", "Q = split_heads(memory @ self.W_Q", "the queries are made of the memory: they come from x"),
            ("attention(Q, K, V, mask)", "attention(Q, V, K, mask)", "keys and values are exchanged"),
            ("attention(Q, K, V, mask)", "attention(Q, K, V, True)", "the mask is not used"),
            (" @ self.W_O", "", "the last product, with W^O, is missing"),
            ("self.W_Q, self.h)", "self.W_Q, 1)", "the queries are not cut into heads"),
            ("x @ self.W_Q, self.h", "x @ self.W_K, self.h", "the queries are made by the matrix of the keys"),
        ],
    ),
    Piece(
        "layer_norm", "04", "What is the gradient of layer norm?",
        "With u = gain * gy, gx has three terms; each mean runs over the features.",
        _try_layer_norm,
        [
            ("gx = (u - mean_u - n * mean_un) / s", "gx = (u - n * mean_un) / s", "in gx the mean of u is missing: the mean of x depends on x too"),
            ("gx = (u - mean_u - n * mean_un) / s", "gx = (u - mean_u) / s", "in gx the term n * mean of u n is missing: s depends on x too"),
            ("gx = (u - mean_u - n * mean_un) / s", "gx = u / s", "gx treats mean and s as fixed numbers"),
            ("gx = (u - mean_u - n * mean_un) / s", "gx = u - mean_u - n * mean_un", "gx is not divided by s"),
            ("u = gain.data * gy", "u = gy", "in gx the gain is missing"),
            ("var(axis=-1, keepdims=True)", "var(axis=-1, ddof=1, keepdims=True)", "the variance divides by D - 1, where D belongs"),
            (" + 1e-6)", ")", "eps is missing: equal features give 0 / 0"),
            ("np.sqrt(x.data.var(axis=-1, keepdims=True) + 1e-6)", "np.sqrt(x.data.var(axis=-1, keepdims=True)) + 1e-6", "eps belongs inside the root"),
            ("s = np.sqrt(x.data.var(axis=-1, keepdims=True) + 1e-6)", "s = x.data.var(axis=-1, keepdims=True) + 1e-6", "divided by the variance, not by its root"),
            ("mean = x.data.mean(axis=-1, keepdims=True)", "mean = x.data.mean(axis=1, keepdims=True)", "the mean runs over the positions: it belongs to each position alone"),
            ("(x.data - mean) / s", "x.data / s", "the mean is not subtracted"),
            ("(n * gy).sum(axis=(0, 1))", "gy.sum(axis=(0, 1))", "the gradient of the gain misses the factor n"),
            ("(n * gy).sum(axis=(0, 1))", "(n * gy).mean(axis=(0, 1))", "the gradient of the gain is a mean, where a sum belongs"),
            ("(n * gy).sum(axis=(0, 1))", "(x.data * gy).sum(axis=(0, 1))", "the gradient of the gain has x where n belongs"),
            ("gx, (n * gy).sum(axis=(0, 1)), gy.sum(axis=(0, 1))", "gx, gy.sum(axis=(0, 1)), (n * gy).sum(axis=(0, 1))", "the gradients of gain and bias are exchanged"),
            ("gain.data * n + bias.data", "n", "gain and bias are not used"),
        ],
    ),
    Piece(
        "relu", "04", "What is the feed-forward network for?",
        "np.maximum(0, x.data); the slope is 1 where x is positive, and 0 elsewhere.",
        _try_relu,
        [
            ("gy * (x.data > 0)", "-gy * (x.data > 0)", "the gradient has the wrong sign"),
            ("np.maximum(0, x.data)", "np.maximum(x.data, 0.1 * x.data)", "negative numbers become smaller, where they should become 0"),
            ("np.maximum(0, x.data)", "np.maximum(1, x.data)", "the bound is 0, not 1"),
            ("gy * (x.data > 0)", "gy * (gy > 0) * (x.data > 0)", "negative gradients are dropped too: only the sign of x decides"),
            ("gy * (x.data > 0)", "gy * (x.data > 1)", "the slope begins at 0, not at 1"),
            ("gy * (x.data > 0)", "gy", "the gradient passes where x is negative too"),
            ("gy * (x.data > 0)", "np.maximum(0, gy)", "the sign of gy decides: it is the sign of x that does"),
            ("gy * (x.data > 0)", "gy * (x.data < 0)", "the gradient passes where x is negative, and not where it is positive"),
            ("gy * (x.data > 0)", "gy * x.data * (x.data > 0)", "the slope is 1, not x"),
            ("gy * (x.data > 0)", "1.0 * (x.data > 0)", "the slope alone: gy is missing"),
            ("np.maximum(0, x.data)", "np.abs(x.data)", "this is the absolute value"),
            ("np.maximum(0, x.data)", "np.minimum(0, x.data)", "it keeps the negative numbers"),
            ("(gy * (x.data > 0),)", "gy * (x.data > 0)", "backward must return a tuple, with a comma: (gx,)"),
        ],
    ),
    Piece(
        "dropout", "04", "What does dropout do?",
        "rng.random(x.data.shape) >= c.P_drop keeps a number. What keeps the mean?",
        _try_dropout,
        [
            ("return x\n", "return x * (1 - c.P_drop)\n", "not training, the numbers are scaled: the scale belongs to training"),
            ("rng.random(x.data.shape)", "rng.normal(size=x.data.shape)", "random numbers of the normal distribution: take uniform ones, rng.random"),
            ("if not c.training", "if c.training", "it drops when it should not, and does not when it should"),
            (">= c.P_drop", "< c.P_drop", "it keeps with probability P_drop; it must drop with it"),
            (" / (1 - c.P_drop)", "", "the numbers that stay are not scaled by 1 / (1 - P_drop)"),
            (" / (1 - c.P_drop)", " * (1 - c.P_drop)", "the numbers that stay are made smaller: divide by 1 - P_drop"),
            (" / (1 - c.P_drop)", " / c.P_drop", "divided by P_drop, where 1 - P_drop belongs"),
            ("lambda gy: (gy * mask,)", "lambda gy: (gy,)", "the gradient does not pass through the mask"),
            ("lambda gy: (gy * mask,)", "lambda gy: (gy * (mask > 0),)", "the gradient is not scaled"),
            ("    if not c.training:\n        return x\n", "", "it drops numbers although the model is not training"),
            ("rng.random(x.data.shape)", "np.random.default_rng(0).random(x.data.shape)", "every call has the same mask"),
        ],
    ),
    Piece(
        "FeedForward.__call__", "04", "What is the feed-forward network for?",
        "Two products with a relu between them.",
        _try_feed_forward,
        [
            ("relu(x @ self.W_1 + self.b_1) @ self.W_2", "x @ self.W_1 @ self.W_2", "there is neither b_1 nor relu between the two products"),
            ("self.b_1)", "self.b_1 * -1)", "b_1 is subtracted"),
            ("relu(x @ self.W_1 + self.b_1)", "(x @ self.W_1 + self.b_1)", "the relu is missing"),
            ("x @ self.W_1 + self.b_1", "x @ self.W_1", "b_1 is missing"),
            (" @ self.W_2 + self.b_2", " @ self.W_2", "b_2 is missing"),
            ("relu(x @ self.W_1 + self.b_1) @", "(relu(x @ self.W_1) + self.b_1) @", "b_1 is added after the relu"),
            ("return relu(x @ self.W_1 + self.b_1) @ self.W_2 + self.b_2", "return relu(relu(x @ self.W_1 + self.b_1) @ self.W_2 + self.b_2)", "there is a second relu at the end"),
            ("return relu", "return x + relu", "the residual connection is not here but in Residual"),
        ],
    ),
    Piece(
        "Residual.__call__", "04", "Why is x added to the output of a sub-layer?",
        "self.norm(...) is the layer norm, dropout(..., self.c) the dropout; both cases are one line.",
        _try_residual,
        [
            ("self.norm(x + dropout(sublayer(x), self.c))", "x + dropout(sublayer(self.norm(x)), self.c)", "this is pre-norm in both cases; the paper's has the norm last"),
            ("self.norm(x + dropout(sublayer(x), self.c))", "self.norm(dropout(sublayer(x), self.c))", "x is not added"),
            ("self.norm(x + dropout(sublayer(x), self.c))", "x + self.norm(dropout(sublayer(x), self.c))", "the norm must come after the sum"),
            ("self.norm(x + dropout(sublayer(x), self.c))", "self.norm(x + sublayer(x))", "dropout is missing in the paper's case"),
            ("self.norm(x + dropout(sublayer(x), self.c))", "self.norm(dropout(x + sublayer(x), self.c))", "dropout acts on the sum: it belongs to the sub-layer's output alone"),
            ("self.norm(x + dropout(sublayer(x), self.c))", "dropout(self.norm(x + sublayer(x)), self.c)", "dropout comes after the norm: it belongs to the sub-layer's output"),
            ("x + dropout(sublayer(self.norm(x)), self.c)", "x + dropout(sublayer(x), self.c)", "with pre_norm, the norm before the sub-layer is missing"),
            ("x + dropout(sublayer(self.norm(x)), self.c)", "self.norm(x) + dropout(sublayer(self.norm(x)), self.c)", "with pre_norm, x itself is added, without the norm"),
            ("if self.c.pre_norm:", "if not self.c.pre_norm:", "the two cases are exchanged"),
        ],
    ),
    Piece(
        "embedding", "05", "How does a word become a vector?",
        "E.data[ids] are the rows. np.add.at(gE, ids, gy) adds also where an id occurs twice.",
        _try_embedding,
        [
            ("np.add.at(gE, ids, gy)", "np.subtract.at(gE, ids, gy)", "the gradient has the wrong sign"),
            ("np.add.at(gE, ids, gy)", "np.add.at(gE, ids - 1, gy)", "the gradient goes to the row before"),
            ("np.add.at(gE, ids, gy)", "np.add.at(gE, ids[:, :1], gy[:, :1])", "only the first position of each sentence hands its gradient back"),
            ("np.add.at(gE, ids, gy)", "np.add.at(gE, ids, gy)\n        gE /= np.maximum(1, np.bincount(ids.ravel(), minlength=len(gE)))[:, None]", "a row that was taken twice gets the mean of its gradients, not the sum"),
            ("np.add.at(gE, ids, gy)", "np.add.at(gE, ids, gy.mean(axis=-1, keepdims=True))", "all features of a row get the same gradient, their mean"),
            ("return (gE,)", "return gE", "backward must return a tuple, with a comma: (gE,)"),
            ("np.add.at(gE, ids, gy)", "gE[ids] += gy", "a row that was taken twice gets the last gradient only (= and += add once): use np.add.at"),
            ("np.add.at(gE, ids, gy)", "np.add.at(gE, ids, 1.0)", "it counts the uses of a row: gy is missing"),
            ("np.add.at(gE, ids, gy)", "pass", "the table gets no gradient"),
            ("np.zeros_like(E.data)", "E.data.copy()", "the gradient begins with the table itself, not with 0"),
            ("E.data[ids], (E,)", "E.data[ids - 1], (E,)", "every id takes the row before its own"),
            ("E.data[ids], (E,)", "E.data[ids] * math.sqrt(E.data.shape[-1]), (E,)", "the factor sqrt(d_model) is not here but in enter"),
        ],
    ),
    Piece(
        "sinusoids", "05", "How does a position become a vector?",
        "i runs from 0 to d_model / 2 - 1. PE[:, 0::2] are the even columns.",
        _try_sinusoids,
        [
            ("np.sin(angles)", "np.sin(2 * math.pi * angles)", "the sine of the angle itself, not of 2 pi times it"),
            ("np.cos(angles)", "np.sin(angles)", "the odd columns have sines: they need cosines"),
            ("2 * i / d_model", "i / d_model", "the exponent is 2i / d_model, not i / d_model"),
            ("PE[:, 0::2] = np.sin(angles)\n    PE[:, 1::2] = np.cos(angles)", "PE[:, 0::2] = np.cos(angles)\n    PE[:, 1::2] = np.sin(angles)", "sine and cosine are exchanged"),
            ("PE[:, 0::2] = np.sin(angles)\n    PE[:, 1::2] = np.cos(angles)", "PE[:, : d_model // 2] = np.sin(angles)\n    PE[:, d_model // 2 :] = np.cos(angles)", "all sines before all cosines: the paper has them in turn"),
            ("np.arange(length)[:, None] / 10000", "np.arange(length)[:, None] * 10000", "multiplied by the power of 10000, not divided"),
            ("np.arange(length)[:, None]", "np.arange(1, length + 1)[:, None]", "the first position is 0, not 1"),
            ("10000 **", "1000 **", "1000 where 10000 belongs"),
            ("2 * i / d_model", "2 * i / length", "the exponent is divided by d_model, not by the length"),
            ("2 * i / d_model", "2 * (i + 1) / d_model", "i begins with 0"),
        ],
    ),
    Piece(
        "enter", "05", "What enters the model?",
        "Embedding, times the root, plus positions (as a Tensor of the same dtype), dropout.",
        _try_enter,
        [
            ("Tensor(PE.astype", "Tensor(-PE.astype", "the positions are subtracted"),
            (" * math.sqrt(c.d_model)", "", "the factor sqrt(d_model) is missing"),
            (" * math.sqrt(c.d_model)", " * c.d_model", "times d_model, where its root belongs"),
            (" + Tensor(PE.astype(x.data.dtype))", "", "the positions are not added"),
            ("return dropout(x + Tensor(PE.astype(x.data.dtype)), c)", "return x + Tensor(PE.astype(x.data.dtype))", "dropout is missing"),
            ("return dropout(x + Tensor(PE.astype(x.data.dtype)), c)", "return dropout(x, c) + Tensor(PE.astype(x.data.dtype))", "dropout acts on the sum, positions included"),
            ("return dropout(x + Tensor(PE.astype(x.data.dtype)), c)", "return dropout((embedding(E, ids) + Tensor(PE.astype(x.data.dtype))) * math.sqrt(c.d_model), c)", "the positions are scaled too: only the embedding is"),
        ],
    ),
    Piece(
        "DecoderLayer.__call__", "06", "How do the pieces make a Transformer?",
        "EncoderLayer, which is given, shows how a sub-layer goes into its residual.",
        _try_decoder_layer,
        [
            ("self.self_attention(y, y, target_mask)", "self.self_attention(y, y, True)", "self-attention has no mask: it sees the future"),
            ("self.source_attention(y, memory, source_mask)", "self.source_attention(y, memory, True)", "attention to the source has no mask: it sees padding"),
            ("self.source_attention(y, memory, source_mask)", "self.source_attention(memory, y, True)", "the memory asks: the decoder's positions do"),
            ("self.source_attention(y, memory, source_mask)", "self.source_attention(y, y, target_mask)", "the second attention looks at the target, not at the memory"),
            ("self.self_residual(y, lambda y: self.self_attention", "self.self_residual(y, lambda y: self.source_attention", "the first attention uses the numbers of the second"),
            ("return self.feed_forward_residual(y, self.feed_forward)", "return y", "the feed-forward network is missing"),
            ("y = self.source_residual(y, lambda y: self.source_attention", "y = self.self_residual(y, lambda y: self.source_attention", "the second attention uses the residual, and the norm, of the first"),
        ],
    ),
    Piece(
        "Transformer.encode", "06", "How do the pieces make a Transformer?",
        "enter(source, self.E, self.c) makes the first x; each layer of self.encoder takes x and the padding mask.",
        _try_encode,
        [
            ("padding_mask(source)", "True", "the mask is missing: padding is looked at"),
            ("for layer in self.encoder:", "for layer in self.encoder[:1]:", "only the first layer is used"),
            ("for layer in self.encoder:", "for layer in self.encoder[:1] * 2:", "the first layer is used for all"),
            ("for layer in self.encoder:", "for layer in self.encoder[::-1]:", "the layers are in reverse order"),
            ("self.encoder_norm(x) if self.c.pre_norm else x", "x", "with pre_norm, the last norm is missing"),
            ("self.encoder_norm(x)", "self.decoder_norm(x)", "with pre_norm, this is the decoder's norm"),
            ("padding_mask(source)", "causal_mask(source.shape[1])", "the encoder must see the whole source, not only the past"),
        ],
    ),
    Piece(
        "Transformer.decode", "06", "How do the pieces make a Transformer?",
        "As encode, with two masks; at the end y times E^T, where E.transpose(1, 0) is E^T.",
        _try_decode,
        [
            ("causal_mask(target.shape[1])", "padding_mask(target)", "the future is not hidden: a causal mask is needed"),
            ("padding_mask(source)", "True", "the padding of the source is not hidden"),
            ("y @ self.E.transpose(1, 0)", "y @ self.E.transpose(1, 0) * math.sqrt(self.c.d_model)", "the logits are multiplied by sqrt(d_model)"),
            ("for layer in self.decoder:", "for layer in self.decoder[:1]:", "only the first layer is used"),
            ("self.decoder_norm(y) if self.c.pre_norm else y", "y", "with pre_norm, the last norm is missing"),
            ("y = enter(target, self.E, self.c)", "y = embedding(self.E, target)", "the target enters without scale and positions: use enter"),
            ("for layer in self.decoder:", "for layer in self.decoder[:1] * 2:", "the first layer is used for all"),
            ("return y @ self.E.transpose(1, 0)", "return y", "these are vectors: the product with E^T is missing"),
        ],
    ),
    Piece(
        "make_batch", "06", "How can it learn all positions at once without seeing the answer?",
        "target_in is the target shifted to the right by the start mark.",
        _try_make_batch,
        [
            ("pad([[BOS] + target for", "pad([target + [EOS] for", "the decoder reads the very tokens that it must write: shift them"),
            ("pad([[BOS] + target for", "pad([[EOS] + target for", "the decoder's input begins with the end mark"),
            ("pad([source + [EOS] for", "pad([source for", "the end mark of the source is missing"),
            ("pad([target + [EOS] for", "pad([target for", "what is to be written has no end mark"),
            ("pad([[BOS] + target for", "pad([[BOS] + target + [EOS] for", "the decoder's input has an end mark: it is one token too long"),
            ("return source, target_in, target_out", "return source, target_out, target_in", "target_in and target_out are exchanged"),
            ("source + [EOS] for source, _ in", "[BOS] + source + [EOS] for source, _ in", "the source has no start mark"),
        ],
    ),
    Piece(
        "cross_entropy", "07", "Why should a model not be too sure?",
        "Make ln p, then q, then the loss; the gradient is (p - q) / n.",
        _try_cross_entropy,
        [
            ("epsilon_ls / (ln_p.shape[-1] - 1)", "epsilon_ls / ln_p.shape[-1]", "the others share epsilon: divide by V - 1, not by V"),
            ("epsilon_ls / (ln_p.shape[-1] - 1)", "0", "the others get 0: epsilon is not given to them"),
            ("1 - epsilon_ls, axis", "1, axis", "the target has q = 1, not 1 - epsilon"),
            ("loss = -(counts", "loss = (counts", "the loss has the wrong sign"),
            ("counts = (target != PAD)[..., None]", "counts = (target >= 0)[..., None]", "padding counts as a target"),
            ("n = int(counts.sum())", "n = counts.size", "divided by all positions: padding must not be counted"),
            ("n = int(counts.sum())", "n = 1", "a sum over the targets: divide by their number"),
            ("n = int(counts.sum())", "n = len(target)", "divided by the number of sentences, not of targets"),
            ("(np.exp(ln_p) - q)", "(q - np.exp(ln_p))", "the gradient has the wrong sign: p - q"),
            ("(np.exp(ln_p) - q)", "(ln_p - q)", "the gradient has ln p where p belongs"),
            ("(np.exp(ln_p) - q) / n", "(np.exp(ln_p) - q)", "the gradient is not divided by n"),
            ("gy * counts * (np.exp(ln_p) - q)", "gy * (np.exp(ln_p) - q)", "padding gets a gradient"),
            ("gy * counts * (np.exp(ln_p) - q) / n", "counts * (np.exp(ln_p) - q) / n", "gy is missing in the gradient"),
            ("gy * counts * (np.exp(ln_p) - q)", "gy * counts * np.exp(ln_p)", "the gradient is p: q is not subtracted"),
            ("log_softmax(logits.data)", "np.log(softmax(logits.data) + 1e-3)", "something was added to p before the logarithm: log_softmax needs no such help"),
        ],
    ),
    Piece(
        "learning_rate", "07", "How large is the learning rate?",
        "One line, equation 3.",
        _try_learning_rate,
        [
            ("min(", "max(", "max, where min belongs"),
            ("step * warmup_steps**-1.5", "step * warmup_steps**-0.5", "warmup_steps has the exponent -1.5"),
            ("d_model**-0.5 *", "d_model**0.5 *", "d_model has the exponent -0.5"),
            ("d_model**-0.5 * ", "", "the factor d_model^-0.5 is missing"),
            ("min(step**-0.5, step * warmup_steps**-1.5)", "step**-0.5", "there is no warm-up"),
            ("min(step**-0.5, step", "min((step + 1) ** -0.5, (step + 1)", "the first step is 1, not 0: do not add 1"),
            ("min(step**-0.5, step * warmup_steps**-1.5)", "step * warmup_steps**-1.5", "the rate never falls"),
        ],
    ),
    Piece(
        "Adam.update", "07", "What is the usual size of a gradient?",
        "Change m and v in place (m[...] = ...); x.data gets a new array; x.grad becomes 0.0.",
        _try_adam,
        [
            ("mean = m / (1 - beta_1**self.t)", "mean = m", "m is not corrected by 1 - beta_1^t"),
            ("v / (1 - beta_2**self.t)", "v", "v is not corrected by 1 - beta_2^t"),
            ("            x.grad = 0.0", "            pass", "the gradient is kept: the next one would be added to it"),
            ("(1 - beta_2) * x.grad**2", "(1 - beta_2) * x.grad", "v takes the gradient, where its square belongs"),
            ("np.sqrt(v / (1 - beta_2**self.t))", "(v / (1 - beta_2**self.t))", "divided by v, where its root belongs"),
            ("x.data - rate", "x.data + rate", "the step goes uphill: subtract"),
            ("beta_2 * v + (1 - beta_2)", "beta_1 * v + (1 - beta_1)", "v uses beta_1"),
            ("beta_1 * m + (1 - beta_1) * x.grad", "beta_1 * m + x.grad", "in m, the factor 1 - beta_1 is missing"),
            ("        self.t += 1\n", "        self.t += 1\n        self.t = 1\n", "t stays 1: it counts the updates"),
            ("rate * mean / (root + epsilon)", "rate * x.grad / (root + epsilon)", "the gradient itself is used, where m belongs"),
            ("m[...] = beta_1", "m = beta_1", "m is a new array and is lost: write m[...] = ..."),
            ("v[...] = beta_2", "v = beta_2", "v is a new array and is lost: write v[...] = ..."),
            ("np.sqrt(v / (1 - beta_2**self.t))", "np.sqrt(v / (1 - beta_1**self.t))", "v is corrected with beta_1"),
            ("rate * mean / (root + epsilon)", "rate * mean", "the mean is not divided by the root of v"),
            ("rate * mean / (root + epsilon)", "mean / (root + epsilon)", "the rate is missing"),
        ],
    ),
    Piece(
        "next_ln_p", "08", "How does a model write a sentence?",
        "model.decode(...).data[:, -1] are the logits at the last position.",
        _try_next_ln_p,
        [
            (".data[:, -1]", ".data[:, 0]", "these are the logits of the first position, not of the last"),
            ("ln_p[:, [PAD, BOS]] = -np.inf", "pass", "padding and the start mark are possible"),
            ("log_softmax(logits)", "logits", "not normalised: the p must sum to 1"),
            ("log_softmax(logits)", "softmax(logits)", "these are p, not ln p"),
            ("[PAD, BOS]", "[PAD, EOS]", "the end mark is forbidden: no text could end"),
            ("log_softmax(logits)", "log_softmax(logits.ravel()).reshape(logits.shape)", "normalised over all texts together, not each by itself"),
            ("[PAD, BOS]] = -np.inf", "[PAD, BOS]] = 0", "ln p = 0 means p = 1: it must be minus infinity"),
        ],
    ),
    Piece(
        "greedy", "08", "How does a model write a sentence?",
        "Encode once. Then, until the end mark or the limit: ask next_ln_p, append the argmax.",
        _try_greedy,
        [
            ("np.array([ids + [EOS]])", "np.array([ids])", "the source has no end mark"),
            (".argmax()", ".argmin()", "the least probable token"),
            ("len(text) <= len(ids) + 50", "len(text) < len(ids) + 50", "one token too few: at most 50 more than the source, the start mark not counted"),
            ("text[-1] != EOS and ", "", "it goes on after the end mark"),
            ("text = [BOS]", "text = [EOS, BOS]", "the text begins with another token than the start mark"),
            ("next_ln_p(model, [text]", "next_ln_p(model, [text[-1:]]", "the model sees the last token only, not the whole text"),
            ("len(text) <= len(ids) + 50", "len(text) <= 50", "the limit does not depend on the source"),
        ],
    ),
    Piece(
        "length_penalty", "08", "What if the best first word leads nowhere?",
        "One line.",
        _try_length_penalty,
        [
            ("** alpha", "* alpha", "times alpha, where alpha is the exponent"),
            ("((5 + length) / 6) ** alpha", "(5 + length / 6) ** alpha", "5 + length is divided by 6 as a whole"),
            ("((5 + length) / 6) ** alpha", "((5 + length) / 6) ** -alpha", "the exponent is alpha, not -alpha"),
            ("((5 + length) / 6) ** alpha", "length**alpha", "5 and 6 are missing"),
            ("(5 + length)", "(6 + length)", "5, not 6, is added to the length"),
            ("((5 + length) / 6) ** alpha", "(5 + length) ** alpha / 6", "the 6 has the exponent alpha too"),
        ],
    ),
    Piece(
        "beam_search", "08", "What if the best first word leads nowhere?",
        "The program of that section has all rules; continuations, which is given, finds the best.",
        _try_beam_search,
        [
            ("source, 2 * beam)", "source, beam)", "only `beam` continuations: if some end, fewer go on"),
            (" / length_penalty(length, alpha), text", ", text", "the score is not divided by the length penalty"),
            ("return max(finished)[1]", "return min(finished)[1]", "the worst of the finished texts"),
            ("return max(finished)[1]", "return finished[0][1]", "the first text that was finished, not the best"),
            ("for text, total in longer[:beam]:", "for text, total in longer:", "a text is finished although it is not among the `beam` best"),
            ("if text[-1] != EOS][:beam]", "][:beam]", "finished texts go on"),
            ("len(finished) >= beam and best_possible <= max(finished)[0]", "len(finished) >= beam", "it stops when `beam` texts are finished, though another may still win"),
            ("limit = len(ids) + 50", "limit = len(ids) + 5", "the limit is 50 more than the source, not 5"),
            ("np.array([ids + [EOS]])", "np.array([ids])", "the source has no end mark"),
        ],
    ),
    Piece(
        "make_batches", "09", "What is a batch of 25,000 tokens?",
        "Sort by length, fill a batch while it fits, begin the next; at the end rng.shuffle.",
        _try_make_batches,
        [
            ("+ 1 for source, target in pairs", "for source, target in pairs", "the mark at the end is not counted: some batches are too large"),
            ("    rng.shuffle(batches)\n", "", "the short batches all come first"),
            ("np.lexsort((rng.random(len(pairs)), lengths))", "rng.permutation(len(pairs))", "pairs of different length are together: sort them"),
            ("(len(batches[-1]) + 1) * lengths[i] > n_tokens", "sum(len(s) for s, _ in batches[-1]) > n_tokens", "padding is not counted: rows times the longest"),
            ("(len(batches[-1]) + 1) * lengths[i] > n_tokens", "len(batches[-1]) * lengths[i] > n_tokens", "the row that is added is not counted"),
            ("            batches.append([])\n", "            batches = [[]]\n", "batches that are full are lost"),
            ("(len(batches[-1]) + 1) * lengths[i] > n_tokens", "batches[-1]", "every batch has one pair"),
        ],
    ),
    Piece(
        "average", "09", "Why average the last checkpoints?",
        "zip(*checkpoints) gives the same array of all checkpoints, one after the other.",
        _try_average,
        [
            ("sum(arrays) / len(arrays)", "sum(arrays)", "a sum: divide by the number of checkpoints"),
            ("sum(arrays) / len(arrays)", "arrays[-1]", "the last checkpoint alone"),
            ("sum(arrays) / len(arrays)", "arrays[0]", "the first checkpoint alone"),
            ("sum(arrays) / len(arrays)", "sum(arrays) / arrays[0].size", "divided by the size of the array"),
            ("sum(arrays) / len(arrays)", "np.mean(arrays)", "one number: the mean over the checkpoints alone"),
        ],
    ),
]  # fmt: skip
