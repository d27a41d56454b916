"""It does not learn: each symptom of DEBUGGING.md, made by one planted mistake.

    python lessons/debugging.py             all symptoms, in about a minute
    python lessons/debugging.py NAME        one of them

The task is small enough for seconds: to write a word of three to seven letters
backwards. The mistakes are in this file, as small wrong functions and subclasses; the
library is as it is. Each function prints what its section of DEBUGGING.md quotes, and
returns the numbers.
"""

import functools
import math
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
from threadpoolctl import threadpool_limits

from minitf import Config, Transformer
from minitf import functions as F
from minitf.check import grad_check
from minitf.cli import quiet_when_closed
from minitf.data import toy
from minitf.data.dataset import UpdateBatches
from minitf.decode import Decoding, beam_search, greedy
from minitf.errors import UserError
from minitf.loss import label_smoothed_cross_entropy
from minitf.nn import LayerNorm
from minitf.optim import Adam, gradient_norm, warmup_rate
from minitf.tensor import no_grad, record
from minitf.text import BOS, EOS, PAD, make_batch
from minitf.training.evaluation import bleu
from minitf.training.update import Updater
from minitf.transformer import Decoder, MultiHeadAttention, padding_mask

LETTERS = "abcdefghij"
FIRST = 4  # the id of "a": ids 0 to 3 are padding, unknown, start mark, end mark
V = FIRST + len(LETTERS)
RANKS = np.arange(1, len(LETTERS) + 1)
FREQUENCIES = (1 / RANKS) / (1 / RANKS).sum()  # unequal, as in a language: "a" leads
FLOOR = -0.9 * math.log(0.9) - 0.1 * math.log(0.1 / (V - 1))  # of the smoothed loss


# The task, and a training without mistakes -------------------------------------------


def words(rng, n, shortest=3, longest=7):
    """Return n words as lists of ids."""
    lengths = rng.integers(shortest, longest + 1, n)
    letters = np.arange(FIRST, V)
    return [rng.choice(letters, length, p=FREQUENCIES).tolist() for length in lengths]


def text(ids):
    """Return ids as letters; the end mark and padding are left out."""
    return "".join(LETTERS[i - FIRST] for i in ids if i >= FIRST)


def backwards(sources):
    """Return the right answers."""
    return [source[::-1] for source in sources]


def right_pairs(rng, n=32):
    """Return a batch of pairs as they should be."""
    sources = words(rng, n)
    return make_batch(sources, backwards(sources), V)


def right_loss(model, batch):
    """Return the loss as it should be computed."""
    loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
    return loss


def new_model(kind=Transformer, **changes):
    """Return a new small model, in float64: so computers differ little."""
    sizes = {"n_layers": 1, "d_model": 32, "d_ff": 64, "n_heads": 4, "dropout": 0.0}
    return kind(Config(V, **{**sizes, **changes}), seed=1).astype(np.float64)


def model_with(kind, wrong):
    """Return a new model in which each module of one class is of a wrong subclass."""
    model = new_model()
    for module in model.modules():
        if type(module) is kind:
            module.__class__ = wrong
    return model


def update(model, adam, loss, rate):
    """Change the weights once; return the norm of the gradient."""
    model.zero_grad()
    loss.backward()
    norm = float(gradient_norm(adam.gather_gradients()))
    adam.step(rate)
    return norm


def train(
    model,
    steps=300,
    draw=right_pairs,
    loss_of=right_loss,
    factor=0.4,
    warmup=40,
    update=update,
):
    """Train on new batches; return the losses and the gradient norms of all updates."""
    rng = np.random.default_rng(0)
    adam = Adam(model.named_parameters())
    losses = []
    norms = []
    for step in range(1, steps + 1):
        loss = loss_of(model, draw(rng))
        rate = warmup_rate(step, model.config.d_model, warmup, factor)
        norms.append(update(model, adam, loss, rate))
        losses.append(float(loss))
    return losses, norms


@functools.cache
def healthy():
    """Return a trained model without mistakes, and its losses. It is trained once."""
    model = new_model()
    losses, _ = train(model, 400)
    return model, losses


def held_out(n=100):
    """Return n words drawn apart from all trainings, none the same backwards."""
    drawn = words(np.random.default_rng(7), 200)
    return [word for word in drawn if word != word[::-1]][:n]


def held_out_batch():
    """Return the held-out words with their right answers."""
    return make_batch(held_out(), backwards(held_out()), V)


def sources_of(rows):
    """Return rows of ids as source ids."""
    return make_batch(rows, rows, V).source


def answers(model, rows, **limits):
    """Return the model's greedy answers to rows of ids."""
    return [hypothesis.ids for hypothesis in greedy(model, sources_of(rows), **limits)]


def share_right(found, wanted):
    """Return which share of the answers is right."""
    return float(np.mean([a == b for a, b in zip(found, wanted, strict=True)]))


def accuracy(model, batch):
    """Return the share of right tokens if each is predicted after the right ones."""
    with model.evaluating(), no_grad():
        guesses = model(batch.source, batch.target_in).numpy().argmax(axis=-1)
    counts = batch.target_out != PAD
    return float((guesses == batch.target_out)[counts].mean())


def curve(losses, every=50):
    """Return losses as text: the mean of ten updates at the start and after each 50."""
    means = [np.mean(losses[:10])]
    means += [np.mean(losses[i - 10 : i]) for i in range(every, len(losses) + 1, every)]
    return "  ".join(f"{mean:.2f}" for mean in means)


def show_answers(found, n=3):
    """Print the first held-out words with the right answer and the found one."""
    for source, answer in zip(held_out(n), found, strict=False):
        right = text(source[::-1])
        written = text(answer)
        if len(written) > 24:
            written = f"{written[:24]}... ({len(written)} letters)"
        print(f"  {text(source):8} right: {right:8} written: {written}")


# The checks: short functions that tell one mistake from another ----------------------


def first_loss(model):
    """Return the loss before any update: near ln V + 1/2 in minitf."""
    return float(right_loss(model, right_pairs(np.random.default_rng(3), 200)))


def overfit(model, batch=None, loss_of=right_loss, steps=200):
    """Train on one batch of eight pairs again and again; return the last loss."""
    batch = batch or right_pairs(np.random.default_rng(3), 8)
    losses, _ = train(model, steps, lambda rng: batch, loss_of)
    return losses[-1]


def leak(model):
    """Return how far earlier logits move if the last token changes."""
    batch = right_pairs(np.random.default_rng(3), 8)
    changed = batch.target_in.copy()
    changed[:, -1] = np.where(changed[:, -1] == FIRST, FIRST + 1, FIRST)
    with model.evaluating(), no_grad():
        before = model(batch.source, batch.target_in).numpy()
        after = model(batch.source, changed).numpy()
    return float(abs(after - before)[:, :-1].max())


def other_sources(model):
    """Return the loss with the right sources, and with those of other rows."""
    batch = held_out_batch()
    right = float(right_loss(model, batch))
    batch.source = np.roll(batch.source, 1, axis=0)
    return right, float(right_loss(model, batch))


def entropy_of_frequencies():
    """Return the loss of a model that knows how frequent each token is, and no more."""
    targets = right_pairs(np.random.default_rng(3), 3000).target_out
    counts = np.bincount(targets[targets != PAD], minlength=V)
    p = counts / counts.sum()
    smoothed = 0.9 * p + 0.1 * (1 - p) / (V - 1)
    return float(-(smoothed * np.log(smoothed)).sum())


def five_checks():
    """The five checks before any long run, on a model without mistakes."""
    model = new_model()
    first = first_loss(model)
    print(f"1. first loss {first:.2f}; ln V + 1/2 = {math.log(V) + 0.5:.2f}")
    one = overfit(new_model())
    print(f"2. one batch, 200 updates: loss {one:.3f}; floor {FLOOR:.3f}")
    x = np.random.default_rng(3).standard_normal((4, 6))
    error = grad_check(F.layer_norm, x, np.ones(6), np.zeros(6), verbose=False)
    print(f"3. gradient check of layer norm: relative error below 1e-6: {error < 1e-6}")
    moved = leak(model)
    print(f"4. earlier logits move by {moved:.1f} if a later token changes")
    trained, _ = healthy()
    rows = words(np.random.default_rng(0), 32)  # the first batch of the training
    share = share_right(answers(trained, rows), backwards(rows))
    print(f"5. training set decoded: {share:.0%} right")
    return {"first": first, "one": one, "leak": moved, "share": share}


# The loss does not fall as it should --------------------------------------------------


def cleared_update(model, adam, loss, rate):
    """Change no weight: the gradient is cleared between backward and step."""
    loss.backward()
    model.zero_grad()  # the mistake: this line belongs before backward
    norm = float(gradient_norm(adam.gather_gradients()))
    adam.step(rate)
    return norm


def no_update():
    """Stuck at the first loss: the gradient is cleared between backward and step."""

    def change_by(update, steps):
        model = new_model()
        before = model.state()
        losses, norms = train(model, steps, update=update)
        after = model.state()
        moved = max(abs(after[name] - before[name]).max() for name in before)
        return losses, norms[-1], float(moved)

    losses, norm, moved = change_by(cleared_update, 60)
    _, right_norm, right_moved = change_by(update, 1)
    rate = warmup_rate(1, 32, 40, 0.4)
    print(f"loss {curve(losses, 20)}")
    print(
        f"60 updates: gradient norm {norm:.2f}, largest change of a weight {moved:.5f}"
    )
    print(f"one right update, at the rate {rate:.5f}:")
    print(
        f"gradient norm {right_norm:.2f}, largest change of a weight {right_moved:.5f}"
    )
    return {"last": losses[-1], "moved": moved, "right": right_moved, "rate": rate}


def large_model():
    """Return a new model whose embeddings have variance 1, not 1 / d_model."""
    model = new_model()
    model.embedding.weight.data *= 32**0.5  # the mistake: nn.Embedding's default
    return model


def large_embeddings():
    """Starts far above ln V: embeddings of variance 1 are also the output layer."""

    def deviation(model):
        batch = held_out_batch()
        with no_grad():
            return model(batch.source, batch.target_in).numpy().std()

    first = first_loss(large_model())
    right_first = first_loss(new_model())
    losses, _ = train(large_model())
    _, right_losses = healthy()
    print(f"first loss {first:.1f}; first logits +-{deviation(large_model()):.1f}")
    print(f"loss {curve(losses)}")
    print(f"right: {right_first:.1f}; first logits +-{deviation(new_model()):.1f}")
    print(f"loss {curve(right_losses[:300])}")
    return {"first": first, "right": right_first, "losses": losses}


def of_probabilities(model, batch):
    """Return the loss of probabilities, as if they were logits."""
    probabilities = F.softmax(model(batch.source, batch.target_in))  # the mistake
    return label_smoothed_cross_entropy(probabilities, batch.target_out, pad_id=PAD)


def softmax_twice():
    """Stuck near ln V: the loss applies its own softmax to probabilities."""
    losses, _ = train(new_model(), 150, loss_of=of_probabilities)
    one = overfit(new_model(), loss_of=of_probabilities)
    right = overfit(new_model())
    # The best it can do: probability 1 for the true token, used as if it were a logit.
    logsumexp = math.log(math.e + V - 1)
    least = 0.9 * (logsumexp - 1) + 0.1 * logsumexp
    print(f"loss {curve(losses)}; ln V = {math.log(V):.2f}")
    print(f"one batch overfitted: {one:.2f}; the least possible {least:.2f}")
    print(f"without the mistake: {right:.2f}; the floor {FLOOR:.2f}")
    return {"last": losses[-1], "one": one, "least": least, "right": right}


def frequencies():
    """Stuck at the entropy of the token frequencies: a high rate without a warm-up."""

    def train_four_layers(warmup_from):
        model = new_model(n_layers=4)
        adam = Adam(model.named_parameters())
        rng = np.random.default_rng(0)
        losses = []
        for step in range(1, 151):
            loss = right_loss(model, right_pairs(rng))
            rate = warmup_rate(max(step, warmup_from), 32, 60, factor=0.5)
            update(model, adam, loss, rate)
            losses.append(float(loss))
        return model, losses

    model, losses = train_four_layers(60)  # the mistake: the peak rate from step 1
    right, right_losses = train_four_layers(1)
    entropy = entropy_of_frequencies()
    own, other = other_sources(model)
    right_own, right_other = other_sources(right)
    print(f"loss {curve(losses)}; entropy of the frequencies {entropy:.2f}")
    show_answers(answers(model, held_out()))
    print(f"loss with the right sources {own:.2f}, with others {other:.2f}")
    print(f"with a warm-up: loss {curve(right_losses)}")
    print(f"loss with the right sources {right_own:.2f}, with others {right_other:.2f}")
    one = overfit(new_model(n_layers=4))
    print(f"one batch overfitted: {one:.2f}; floor {FLOOR:.2f}")
    return {
        "last": losses[-1],
        "entropy": entropy,
        "one": one,
        "gap": other - own,
        "right_gap": right_other - right_own,
    }


def after_warmup():
    """Up at the end of the warm-up: the peak of the rate is too high."""

    def run(factor):
        return train(new_model(n_layers=2), 200, factor=factor, warmup=100)

    losses, norms = run(5.0)
    right, right_norms = run(0.5)
    for factor, found, lengths in ((5.0, losses, norms), (0.5, right, right_norms)):
        peak = warmup_rate(100, 32, 100, factor)
        print(f"peak rate {peak:.3f}: loss          {curve(found, 25)}")
        print(f"                 gradient norm {curve(lengths, 25)}")
    print(f"entropy of the frequencies {entropy_of_frequencies():.2f}")
    return {"losses": losses, "right": right}


def too_slow():
    """Falls, but too slowly: a warm-up of 4,000 steps in a run of 300."""
    losses, _ = train(new_model(), warmup=4000, factor=1.0)
    rate = warmup_rate(300, 32, 4000)
    _, right = healthy()
    right_rate = warmup_rate(40, 32, 40, 0.4)
    print(f"warm-up of 4,000 steps: loss {curve(losses)}")
    print(f"                        rate of step 300, the highest: {rate:.4f}")
    print(f"warm-up of 40 steps:    loss {curve(right[:300])}")
    print(f"                        rate of step 40, the highest: {right_rate:.4f}")
    return {"last": np.mean(losses[-10:]), "right": np.mean(right[290:300])}


def norm_without_mean_terms(x, gain, bias, eps=1e-6):
    """Layer norm with a backward that takes mean and deviation for constants."""
    deviation = np.sqrt(x.data.var(axis=-1, keepdims=True) + eps)
    normal = (x.data - x.data.mean(axis=-1, keepdims=True)) / deviation

    def backward(gy):
        gx = gy * gain.data / deviation  # the mistake
        rows = tuple(range(gy.ndim - 1))
        return gx, (gy * normal).sum(axis=rows), gy.sum(axis=rows)

    return record(normal * gain.data + bias.data, (x, gain, bias), backward)


class WrongNorm(LayerNorm):
    """A layer norm with the wrong backward."""

    def __call__(self, x):
        return norm_without_mean_terms(x, self.gain, self.bias, self.eps)


def wrong_gradient():
    """Falls, but ends too high: the backward of an op of one's own is wrong."""
    losses, _ = train(model_with(LayerNorm, WrongNorm))
    _, right = healthy()
    x = np.random.default_rng(3).standard_normal((4, 6))
    arguments = (x, np.ones(6), np.zeros(6))
    print(f"wrong backward: loss {curve(losses)}")
    print(f"right backward: loss {curve(right[:300])}")
    noticed = False
    try:
        grad_check(norm_without_mean_terms, *arguments)
    except AssertionError as error:
        noticed = True
        print(f"grad_check: {error}")
    grad_check(F.layer_norm, *arguments, verbose=False)
    return {
        "last": np.mean(losses[-10:]),
        "right": np.mean(right[290:300]),
        "noticed": noticed,
    }


class InfiniteMask(MultiHeadAttention):
    """Attention as many write it: -infinity at hidden scores, then a plain softmax."""

    def attend(self, queries, keys, values, mask, positions):
        scores = (queries @ keys.transpose(0, 1, 3, 2)) * queries.shape[-1] ** -0.5
        if mask is not None:
            scores = scores + np.where(mask, 0.0, -np.inf)
        return F.softmax(scores) @ values


def first_not_finite(model, batch):
    """Return the name of the first layer whose output is not finite."""
    mask = padding_mask(batch.source, PAD)
    x = model.source_positions(model.embedding(batch.source) * 32**0.5)
    for i, layer in enumerate(model.encoder.layers):
        x = layer(x, mask)
        rows = np.flatnonzero(~np.isfinite(x.numpy()).all(axis=(1, 2)))
        if len(rows):
            return f"encoder.layers.{i}, row {rows[0]} of the batch"
    return "no layer"


def message_of_the_trainer(model, batch):
    """Return what minitf's trainer says instead of making this update."""
    data = SimpleNamespace(batch=lambda indices: batch)
    updater = Updater(model, Adam(model.named_parameters()), data)
    try:
        updater.update(UpdateBatches(0, 0, [np.arange(len(batch.source))]), rate=0.001)
    except UserError as error:
        return str(error)
    return ""


def nan():
    """NaN: an empty line may attend to nothing, and all its scores are -infinity."""
    sources = words(np.random.default_rng(3), 8)
    batch = make_batch(sources, backwards(sources), V)
    for ids in (batch.source, batch.target_in, batch.target_out):
        ids[5] = PAD  # an empty line, without an end mark
    model = new_model()
    naive = model_with(MultiHeadAttention, InfiniteMask)
    losses = []
    places = []
    with np.errstate(invalid="ignore"):
        message = message_of_the_trainer(naive, batch)
        adam = Adam(naive.named_parameters())
        for _ in range(2):
            loss = right_loss(naive, batch)
            naive.zero_grad()
            loss.backward()
            losses.append(float(loss))
            places.append(first_not_finite(naive, batch))
            adam.step(0.001)
    right = right_loss(model, batch)
    right.backward()
    print(f"loss of step 1: {losses[0]:.2f}; loss of step 2: {losses[1]}")
    print(f"first output that is not finite at step 1: {places[0]}")
    print(f"trainer: {message}")
    print(f"without the mistake: {first_not_finite(model, batch)}")
    return {"losses": losses, "place": places[0], "message": message}


# The loss is too good -----------------------------------------------------------------


def with_padding(model, batch):
    """Return the loss divided by all positions."""
    n = batch.target_out.size  # the mistake: padding counts
    loss, _ = model.loss(batch.source, batch.target_in, batch.target_out, n)
    return loss


def below_floor():
    """Below the floor of the smoothed loss: the sum is divided by padding as well."""
    model, _ = healthy()
    batch = held_out_batch()
    found = float(with_padding(model, batch))
    right = float(right_loss(model, batch))
    padding = 1 - batch.n_tokens / batch.target_out.size
    print(f"loss {found:.3f}; floor {FLOOR:.3f}; positions with padding {padding:.0%}")
    print(f"divided by the real tokens only: loss {right:.3f}")
    return {"found": found, "right": right}


class LeakyDecoder(Decoder):
    """A decoder whose mask is missing: each position sees the tokens after it."""

    def __call__(self, x, memory, target_mask, source_mask, caches=None):
        return super().__call__(x, memory, None, source_mask, caches)


class Leaky(Transformer):
    """A Transformer with the leaky decoder."""

    def __init__(self, config, seed=0):
        super().__init__(config, seed)
        self.decoder = LeakyDecoder(config, np.random.default_rng(seed))


def no_causal_mask():
    """Good loss, nonsense when decoding: the decoder sees the answer."""
    model = new_model(Leaky)
    losses, _ = train(model, 200)
    right, right_losses = healthy()
    batch = held_out_batch()
    found = answers(model, held_out())
    share = share_right(found, backwards(held_out()))
    moved = leak(model)
    print(f"leak:     loss {curve(losses)}")
    print(f"no leak:  loss {curve(right_losses[:200])}")
    print(f"next tokens right, after the right ones: {accuracy(model, batch):.0%}")
    print(f"decoded words right: {share:.0%}")
    show_answers(found)
    print(f"earlier logits move by {moved:.1f} if a later token changes; else by 0.0")
    return {
        "accuracy": accuracy(model, batch),
        "share": share,
        "leak": moved,
        "right": leak(right),
    }


# The loss is good, and the text is not ------------------------------------------------


def own_loop(model, rows, newest=-1):
    """Return the answers of a decoding loop as many write it, without a cache."""
    source = sources_of(rows)
    texts = np.full((len(rows), 1), BOS)
    for _ in range(9):
        with no_grad():
            logits = model(source, texts).numpy()
        texts = np.hstack([texts, logits[:, newest].argmax(axis=-1)[:, None]])
    return [until_end(row[1:].tolist()) for row in texts]


def until_end(ids):
    """Return ids up to the end mark."""
    return ids[: ids.index(EOS)] if EOS in ids else ids


def same_token():
    """The same token again and again: the loop reads the logits of position 0."""
    model, _ = healthy()
    wrong = own_loop(model, held_out(), newest=0)
    right = own_loop(model, held_out())
    show_answers(wrong)
    share = accuracy(model, held_out_batch())
    print(f"next tokens right, after the right ones: {share:.0%}")
    wanted = backwards(held_out())
    print(f"decoded words right: {share_right(wrong, wanted):.0%}")
    print(f"with logits[:, -1]: {share_right(right, wanted):.0%}")
    library = share_right(answers(model, held_out()), wanted)
    print(f"with minitf's greedy: {library:.0%}")
    return {
        "accuracy": share,
        "wrong": share_right(wrong, wanted),
        "right": share_right(right, wanted),
        "library": library,
    }


def shuffled(row):
    """Return ids as letters by a vocabulary that was built again, in another order."""
    # As list(set(text)), whose order differs from process to process.
    letters = np.random.default_rng(1).permutation(list(LETTERS))
    return "".join(letters[i - FIRST] for i in row if i >= FIRST)


def another_vocabulary():
    """Nonsense after loading: the vocabulary was built again, in another order."""
    model, _ = healthy()
    rows = held_out()
    found = answers(model, rows)
    wanted = [text(row) for row in backwards(rows)]
    for source, answer, want in zip(rows[:3], found, wanted, strict=False):
        print(f"  {text(source):8} right: {want:8} written: {shuffled(answer)}")
    share = share_right([shuffled(row) for row in found], wanted)
    before = share_right([text(row) for row in found], wanted)
    print(f"words right: before saving {before:.0%}, after loading {share:.0%}")
    print(f"accuracy in ids: {accuracy(model, held_out_batch()):.0%}")
    print(f"there and back: {text(rows[0])} -> {rows[0]} -> {shuffled(rows[0])}")
    return {"before": before, "share": share}


def dropout_when_decoding():
    """Different answers from run to run: dropout is still on."""
    model = new_model(dropout=0.1)
    with F.dropout_state(seed=0, step=0):
        train(model, 500)
    model.train()  # the mistake: model.eval() is missing
    with F.dropout_state(seed=1, step=0):  # so that this page can be printed again
        first = own_loop(model, held_out())
        second = own_loop(model, held_out())
    model.eval()
    off = own_loop(model, held_out())
    again = own_loop(model, held_out())
    wanted = backwards(held_out())
    print(f"dropout on:  {share_right(first, wanted):.0%} right")
    print(f"the same again: {share_right(first, second):.0%} of the answers are equal")
    print(f"dropout off: {share_right(off, wanted):.0%} right")
    print(f"the same again: {share_right(off, again):.0%} of the answers are equal")
    return {
        "on": share_right(first, wanted),
        "equal": share_right(first, second),
        "off": share_right(off, wanted),
        "off_equal": share_right(off, again),
    }


# The source does not matter, or too much ----------------------------------------------


class InvertedMask(Transformer):
    """A Transformer that reads True in a mask as "hide": it attends to padding only."""

    def encode(self, source):
        mask = ~padding_mask(source, PAD)  # the mistake: `~`
        x = self.embedding(source) * self.config.d_model**0.5
        return self.encoder(self.source_positions(x), mask), mask


def inverted_mask():
    """Fluent and unrelated to the source: the padding mask is inverted."""
    model = new_model(InvertedMask)
    losses, _ = train(model, 200)
    right, _ = healthy()
    own, other = other_sources(model)
    right_own, right_other = other_sources(right)
    one = overfit(new_model(InvertedMask), steps=400)
    attention = model.decoder.layers[-1].source_attention
    attention.keep_weights = True
    batch = held_out_batch()
    with no_grad():
        model(batch.source, batch.target_in)
    attention.keep_weights = False
    real = (batch.source != PAD)[:, None, None, :]
    on_words = float((attention.weights * real).sum(axis=-1).max())
    print(f"loss {curve(losses)}")
    print(f"entropy of the frequencies {entropy_of_frequencies():.2f}")
    show_answers(answers(Decoding(model, cached=False), held_out()))
    print(f"loss with the right sources {own:.2f}, with others {other:.2f}")
    print(f"without the mistake {right_own:.2f}, with others {right_other:.2f}")
    print(f"attention weights of the source tokens, at most: {on_words:.2f}")
    print(f"one batch overfitted: {one:.2f}; floor {FLOOR:.2f}")
    return {
        "gap": other - own,
        "right_gap": right_other - right_own,
        "on_words": on_words,
        "one": one,
    }


def last_first(rows):
    """Return rows with the last one first."""
    return rows[-1:] + rows[:-1]


def shifted_pairs(rng, n=32):
    """Return pairs whose target lines are shifted by one against the source lines."""
    sources = words(rng, n)
    return make_batch(sources, last_first(backwards(sources)), V)


def shifted_lines():
    """Fluent and unrelated to the source: the lines of the two files are shifted."""
    model = new_model()
    losses, _ = train(model, 200, shifted_pairs)
    own, other = other_sources(model)
    batch = shifted_pairs(np.random.default_rng(3), 8)
    one = overfit(new_model(), batch)
    print(f"loss {curve(losses)}")
    print(f"entropy of the frequencies {entropy_of_frequencies():.2f}")
    show_answers(answers(model, held_out()))
    print(f"loss with the right sources {own:.2f}, with others {other:.2f}")
    print(f"one batch overfitted: {one:.2f}; floor {FLOOR:.2f}")
    return {"gap": other - own, "one": one, "last": losses[-1]}


def half_copied_pairs(rng, n=32):
    """Return pairs of which half have the source as their target."""
    sources = words(rng, n)
    targets = backwards(sources)
    half = n // 2
    return make_batch(sources, sources[:half] + targets[half:], V)


def copies():
    """Copies of the source: half of the training pairs are not translated."""
    model = new_model()
    losses, _ = train(model, 400, half_copied_pairs)
    found = answers(model, held_out())
    show_answers(found)
    rng = np.random.default_rng(0)
    batch = half_copied_pairs(rng)
    pairs = zip(batch.source, batch.target_out, strict=True)
    equal = np.mean([text(source) == text(target) for source, target in pairs])
    print(f"loss {curve(losses)}")
    print(f"answers equal to the source: {share_right(found, held_out()):.0%}")
    print(f"right answers: {share_right(found, backwards(held_out())):.0%}")
    print(f"training pairs with two equal sides: {equal:.0%}")
    right, _ = healthy()
    copied = share_right(answers(right, held_out()), held_out())
    print(f"without such pairs, answers equal to the source: {copied:.0%}")
    return {
        "copied": share_right(found, held_out()),
        "equal": float(equal),
        "right": copied,
    }


# The length is wrong ------------------------------------------------------------------


def truncated_pairs(rng, n=32):
    """Return pairs whose answers are cut to four letters, as by a length limit."""
    sources = words(rng, n)
    return make_batch(sources, [answer[:4] for answer in backwards(sources)], V)


def too_short():
    """Outputs too short: the training targets were cut off at a length limit."""
    model = new_model()
    train(model, 400, truncated_pairs)
    right, _ = healthy()
    wanted = sum(len(row) for row in held_out())

    def ratio(model, alpha):
        found = beam_search(model, sources_of(held_out()), beam=4, alpha=alpha)
        return sum(len(best[0].ids) for best in found) / wanted

    show_answers(answers(model, held_out()))
    ratios = {alpha: ratio(model, alpha) for alpha in (0.0, 0.6, 2.0)}
    for alpha, found in ratios.items():
        print(f"alpha {alpha}: length of the output / of the reference = {found:.2f}")
    print(f"trained on complete targets, alpha 0.6: {ratio(right, 0.6):.2f}")
    return {**ratios, "right": ratio(right, 0.6)}


def short_beams():
    """Outputs too short, and shorter with a wider beam: no length penalty."""
    model = new_model()
    train(model, 60)
    wanted = sum(len(row) for row in held_out())
    found = {}
    for beam, alpha in ((1, 0.0), (4, 0.0), (20, 0.0), (4, 0.6), (4, 1.0)):
        best = beam_search(model, sources_of(held_out()), beam=beam, alpha=alpha)
        found[beam, alpha] = sum(len(one[0].ids) for one in best) / wanted
        print(
            f"beam {beam:2}, alpha {alpha}: length of the output / of the reference = "
            f"{found[beam, alpha]:.2f}"
        )
    return found


def without_end(model, batch):
    """Return the loss without the end marks."""
    logits = model(batch.source, batch.target_in)
    target = np.where(batch.target_out == EOS, PAD, batch.target_out)  # the mistake
    return label_smoothed_cross_entropy(logits, target, pad_id=PAD)


def never_ends():
    """Outputs that never end: the loss takes the end mark for padding."""
    model = new_model()
    losses, _ = train(model, loss_of=without_end)
    found = answers(model, held_out(), max_extra=20)
    right, _ = healthy()
    right_found = answers(right, held_out(), max_extra=20)
    print(f"loss {curve(losses)}")
    show_answers(found)

    def at_the_limit(found):
        pairs = zip(found, held_out(), strict=True)
        return float(np.mean([len(a) >= len(row) + 20 for a, row in pairs]))

    def end_after_right_answer(model):
        batch = held_out_batch()
        with no_grad():
            p = F.softmax(model(batch.source, batch.target_in)).numpy()
        return float(p[batch.target_out == EOS][:, EOS].mean())

    print(f"answers cut off at the length limit: {at_the_limit(found):.0%}")
    print(f"P(end mark) after the right answer: {end_after_right_answer(model):.3f}")
    print(f"without the mistake: {at_the_limit(right_found):.0%} are cut off,")
    print(f"P(end mark) after the right answer: {end_after_right_answer(right):.3f}")
    return {
        "cut": at_the_limit(found),
        "p": end_after_right_answer(model),
        "right_cut": at_the_limit(right_found),
        "right_p": end_after_right_answer(right),
    }


# Later in a run, and after it ---------------------------------------------------------


def perplexity(model, batch):
    """Return the perplexity: exp of the loss without label smoothing."""
    with model.evaluating(), no_grad():
        _, nll = model.loss(batch.source, batch.target_in, batch.target_out)
    return math.exp(float(nll))


def overfitting():
    """Validation gets worse while training improves: too few pairs."""

    def perplexities(n_pairs, smoothing):
        rng = np.random.default_rng(0)
        sources = words(rng, n_pairs)
        model = new_model(label_smoothing=smoothing)
        adam = Adam(model.named_parameters())
        training = []
        validation = []
        for step in range(1, 501):
            chosen = [sources[i] for i in rng.integers(0, n_pairs, 32)]
            batch = make_batch(chosen, backwards(chosen), V)
            loss, nll = model.loss(batch.source, batch.target_in, batch.target_out)
            update(model, adam, loss, warmup_rate(step, 32, 40, 0.4))
            if step % 100 == 0:
                training.append(math.exp(float(nll)))
                validation.append(perplexity(model, held_out_batch()))
        return training, validation

    few = perplexities(100, 0.0)
    smoothed = perplexities(100, 0.1)
    many = perplexities(10_000, 0.0)
    for name, (training, validation) in (
        ("100 pairs", few),
        ("100 pairs, label smoothing 0.1", smoothed),
        ("10,000 pairs", many),
    ):
        print(f"{name}: perplexity after 100, 200 ... updates")
        print("  training   " + "  ".join(f"{value:6.2f}" for value in training))
        print("  validation " + "  ".join(f"{value:6.2f}" for value in validation))
    return {"few": few, "smoothed": smoothed, "many": many}


def resume():
    """Worse after --resume: Adam's moments and the step are not in the checkpoint."""

    def run(stopped=True, adam_restored=True, step_restored=True):
        model = new_model()
        adam = Adam(model.named_parameters())
        rng = np.random.default_rng(0)
        losses = []
        for step in range(1, 301):
            if stopped and step == 201:
                state = model.state()
                moments = adam.state()
                model = new_model()
                model.load_state(state)
                adam = Adam(model.named_parameters())
                if adam_restored:
                    adam.load_state(moments)
            now = step if step_restored or step <= 200 else step - 200
            loss = right_loss(model, right_pairs(rng))
            update(model, adam, loss, warmup_rate(now, 32, 40, 0.4))
            losses.append(float(loss))
        return losses

    never_stopped = run(stopped=False)
    right = run()
    no_moments = run(adam_restored=False)
    from_one = run(adam_restored=False, step_restored=False)
    for name, losses in (
        ("never stopped      ", never_stopped),
        ("everything restored", right),
        ("without the moments", no_moments),
        ("and from step 1    ", from_one),
    ):
        near = [np.mean(losses[i : i + 5]) for i in (195, 200, 205, 210, 230, 250, 295)]
        print(f"{name}  " + "  ".join(f"{loss:.2f}" for loss in near))
    equal = right == never_stopped
    print(f"all 300 losses of the first two equal, to the last bit: {equal}")
    return {
        "equal": equal,
        "right": right,
        "no_moments": no_moments,
        "from_one": from_one,
    }


def bleu_zero():
    """BLEU near 0, but the text looks right: subwords not joined, lines mixed up."""
    english, references = toy.pairs(200, seed=5)

    def pieces(line):
        cut = [textwrap.wrap(word, 3) for word in line.split()]
        return " ".join("@@ ".join(parts) for parts in cut)

    outputs = {
        "the references themselves": references,
        "subwords not joined": [pieces(line) for line in references],
        "lines sorted by length": sorted(references, key=len),
        "scored against the source": english,
    }
    scores = {}
    for name, lines in outputs.items():
        scores[name] = bleu(lines, references).score
        print(f"{name:25} BLEU {scores[name]:5.1f}   {lines[0][:40]}")
    return scores


def tokenized(line):
    """Return a line with spaces before its marks."""
    return line.replace(".", " .").replace("?", " ?").replace(",", " ,")


def counting():
    """BLEU much lower or higher than elsewhere: other tokens are counted."""
    _, references = toy.pairs(200, seed=5)
    output = []
    for i, line in enumerate(references):
        words_of_line = line.split()
        if i % 2:  # every other line has two words exchanged
            words_of_line[:2] = words_of_line[1::-1]
        output.append(" ".join(words_of_line))
    both = [[tokenized(line) for line in side] for side in (output, references)]
    scores = {
        "plain text, 13a": bleu(output, references).score,
        "plain text, none": bleu(output, references, tokenize="none").score,
        "plain text, char": bleu(output, references, tokenize="char").score,
        "tokenised, none": bleu(*both, tokenize="none").score,
        "tokenised output only": bleu(both[0], references, tokenize="none").score,
    }
    for name, score in scores.items():
        print(f"{name:23} BLEU {score:.1f}")
    signature = bleu(output, references).signature
    print(signature.partition("|version")[0])
    return scores


# Which check fails for which mistake -------------------------------------------------


def slope_error(model, loss_of):
    """Return the relative error of the slope of the loss along the model's gradient.

    slope: (L(w + h g) - L(w - h g)) / 2h, which is |g|^2 if g is the gradient
    """
    batch = right_pairs(np.random.default_rng(3), 8)
    adam = Adam(model.named_parameters())
    loss_of(model, batch).backward()
    gradient = adam.gather_gradients().copy()
    square = float((gradient**2).sum())
    h = 1e-5 / math.sqrt(square)
    adam.data += h * gradient
    above = float(loss_of(model, batch))
    adam.data -= 2 * h * gradient
    below = float(loss_of(model, batch))
    adam.data += h * gradient
    model.zero_grad()
    return abs((above - below) / (2 * h) / square - 1)


def results(
    build=new_model,
    loss_of=right_loss,
    draw=right_pairs,
    update=update,
    decode=answers,
    read=text,
):
    """Return the results of the five checks, of a program with these parts."""
    first = float(loss_of(build(), draw(np.random.default_rng(3), 200)))
    slope = slope_error(build(), loss_of)
    moved = leak(build())
    batch = draw(np.random.default_rng(3), 8)
    model = build()
    losses, _ = train(model, 200, lambda rng: batch, loss_of, update=update)
    sources = [[i for i in row if i >= FIRST] for row in batch.source.tolist()]
    found = [read(row) for row in decode(model, sources)]
    share = share_right(found, [text(row) for row in batch.target_out])
    return first, losses[-1], slope, moved, share


def which_checks():
    """Which of the five checks each mistake fails: a star."""
    planted = {
        "no mistake": {},
        "no_update": {"update": cleared_update},
        "large_embeddings": {"build": large_model},
        "softmax_twice": {"loss_of": of_probabilities},
        "wrong_gradient": {"build": lambda: model_with(LayerNorm, WrongNorm)},
        "below_floor": {"loss_of": with_padding},
        "no_causal_mask": {"build": lambda: new_model(Leaky)},
        "same_token": {"decode": lambda *given: own_loop(*given, newest=0)},
        "another_vocabulary": {"read": shuffled},
        "inverted_mask": {
            "build": lambda: new_model(InvertedMask),
            "decode": lambda model, rows: answers(Decoding(model, cached=False), rows),
        },
        "shifted_lines": {"draw": shifted_pairs},
        "never_ends": {"loss_of": without_end},
    }
    print("                    1. first  2. one    3. wrong  4. moved  5. decoded")
    print("                    loss      batch     slope     logits    right")
    passed = {}
    for name, mistake in planted.items():
        first, one, slope, moved, share = results(**mistake)
        passed[name] = (
            abs(first - math.log(V) - 0.5) < 0.3,
            abs(one - FLOOR) < 0.02,
            slope < 1e-4,
            moved == 0,
            share > 0.9,
        )
        shown = (
            f"{first:.2f}",
            f"{one:.2f}",
            f"{slope:.1%}",
            f"{moved:.1f}",
            f"{share:.0%}",
        )
        marked = zip(shown, passed[name], strict=True)
        cells = "".join(f"{value + ' *' * (not ok):10}" for value, ok in marked)
        print(f"{name:20}{cells}".rstrip())
    return passed


SYMPTOMS = {
    function.__name__: function
    for function in (
        five_checks,
        which_checks,
        no_update,
        large_embeddings,
        softmax_twice,
        frequencies,
        after_warmup,
        too_slow,
        wrong_gradient,
        nan,
        below_floor,
        no_causal_mask,
        same_token,
        another_vocabulary,
        dropout_when_decoding,
        inverted_mask,
        shifted_lines,
        copies,
        too_short,
        short_beams,
        never_ends,
        overfitting,
        resume,
        bleu_zero,
        counting,
    )
}


def main(arguments):
    """Run the symptoms that are named, or all; return the exit code."""
    if {"-h", "--help"} & set(arguments):
        print(f"{__doc__}\nNAME: {', '.join(SYMPTOMS)}")
        return 0
    unknown = [name for name in arguments if name not in SYMPTOMS]
    if unknown:
        hint = f"choose one of {', '.join(SYMPTOMS)}"
        print(f"debugging.py: unknown symptom {unknown[0]}: {hint}", file=sys.stderr)
        return 2
    threadpool_limits(
        1, "blas"
    )  # products are so small that a second thread only waits
    for name in arguments or SYMPTOMS:
        print(f"{name}: {SYMPTOMS[name].__doc__}")
        SYMPTOMS[name]()
        print(flush=True)
    return 0


if __name__ == "__main__":
    code = 0
    with quiet_when_closed():
        code = main(sys.argv[1:])
    sys.exit(code)
