# %% [markdown]
"""# Lesson 06. The Transformer

Sixty lines of NumPy, and an English sentence comes out in German: the pieces of lessons
01 to 05 become the model of figure 1 (section 3.1, section 3.2.3, table 3 of the
paper).

You need lessons 01 to 05. You will have followed a sentence through figure 1, written
a model that translates it, seen how a model cheats by reading the answer, and counted
the parameters of the paper's model.
"""

# %% [markdown]
# ## What happens to a sentence in a Transformer?
# A small Transformer was trained beforehand on English and German (lesson 07 tells
# how). It gets an English sentence, the *source*. It writes the German one, the
# *target*, token by token (lesson 05). The program repeats three steps:
#
# 1. Give the model the source and the tokens written so far: at first only the *start
#    mark*, whose id is 2.
# 2. For each token *of the target* that it reads, the model returns a row of numbers,
#    one for each subword of the vocabulary: the logits (lesson 05). The softmax turns a
#    row into probabilities of the token that comes next. Only the last row is of use.
# 3. Append the most probable token. Stop if it is the *end mark*, id 3, or if the
#    sentence becomes too long.
#
# In the code, `run` is the model. It is an argument of `write`, because later we want
# to put our own model in its place.

# %%
import math
from types import SimpleNamespace

import numpy as np

from minitf import forms
from minitf import functions as F
from minitf.check import claim, same
from minitf.config import PRESETS, Config
from minitf.course import experiments
from minitf.course.architecture import figure_1
from minitf.course.checks import transformer as checks
from minitf.course.experiments import leaks as experiment
from minitf.course.figures import transformer as figures
from minitf.course.lesson import as_words, begin, draw, finish, kept, show, toy_model
from minitf.tensor import Tensor
from minitf.text import make_batch
from minitf.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    Transformer,
    causal_mask,
    padding_mask,
)

# Reads the options --figures and --backend, and starts to count the claims.
begin("06_transformer")
rng = np.random.default_rng(1)

# %%
toy = toy_model()
trained = toy.model.astype(np.float64)  # 64-bit numbers, for exact comparisons below


def write(source, run):
    """Write the target of a source token by token; return it and its probabilities."""
    written = [2]
    probabilities = []
    while written[-1] != 3 and len(written) < 20:
        logits = run(source, np.array(written))
        after_last = F.softmax(logits).numpy()[-1]  # the row of the newest token
        best = int(after_last.argmax())
        written.append(best)
        probabilities.append(float(after_last[best]))
    return written, probabilities


def words_of(ids):
    """Return ids as words, to print them; "-s" continues the word before it."""
    return as_words(toy.subwords.pieces(ids))


def run_trained(source, target):
    """Return the trained model's logits. [None] makes a batch of one sentence."""
    return trained(source[None], target[None]).numpy()[0]


# %%
english = "The old teacher reads the new book in the garden."
german = "Der alte Lehrer liest das neue Buch im Garten."
english_ids = np.array(toy.subwords.encode([english])[0] + [3])
print("source:", *words_of(english_ids))
written, probabilities = write(english_ids, run_trained)
print("    newest token, its probability, the text so far")
for t, probability in enumerate(probabilities, 1):
    so_far = words_of(written[1 : t + 1])
    print(f"    {so_far[-1]:10s} {probability:.3f}   {' '.join(so_far)}")
text = toy.subwords.decode([written[1:-1]])[0]
claim("the small model writes the German sentence", text == german, text)

# %% [markdown]
# One line for each token: the model was asked eleven times.
#
# [A sentence flows through this model, on its stage](toy-page.html#tokens)
#
# *What to see: press "Play". The encoder runs once, and the decoder once for each
# word.*
#
# All that happens is inside the one call `trained(source, target)`. Figure 1 of the
# paper is the map of that call. Here it is with the steps of a walk, and with the
# shapes of the arrays that this model has at the last moment of the writing.

# %%
shapes = {
    2: "(13, 64)",
    5: "memory (13, 64)",
    6: "(11, 64)",
    8: "scores\n(4, 11, 13)",
    10: "(11, 1600)",
}
draw(figure_1, "06_here.svg", walk=shapes)

# %% [markdown]
# ![Figure 1 of the paper with eleven numbered steps: the encoder on the left turns 13 tokens into the memory (13, 64); a thick arrow brings it, as keys K and values V, to the source attention of the decoder on the right, whose queries Q come from below and whose scores are (4, 11, 13); at the top come logits (11, 1600)](figures/06_here.svg)
#
# *What to see: two towers. The encoder, on the left, reads the source. The decoder, on
# the right, writes the target. The one thick arrow between them is all that the decoder
# ever learns of the source. Beside the boxes are the shapes of a few arrays: 13 tokens
# of the source, 11 of the target, 64 numbers for each, 4 heads, 1,600 subwords.*
#
# The source has 13 tokens: "reads" is cut into "read" and "-s", and the full stop and
# the end mark are tokens, too. The decoder reads 11, the start mark and the ten that
# are written. Each vector has 64 numbers.
#
# 1. **Embedding.** The 13 ids pick 13 rows of the embedding table, times $\sqrt{64}$
#    (lesson 05).
# 2. **Positional encoding.** The sinusoids are added.
# 3. **Multi-head attention** in the encoder is *self-attention*. In each of 4 heads
#    every position asks all 13 (lesson 03). Back come 13 vectors of 64 numbers. *Add &
#    norm* (lesson 04) adds them to the input and normalises the sum.
# 4. **Feed-forward.** Each position by itself: 64 numbers become 256, then 64 again.
#    Add & norm. That was one encoder layer.
# 5. **Memory.** One more layer follows (N ×; in the base model five), with parameters
#    of its own. The array that leaves the last one is the *memory*: a vector for each
#    token of the source, and nothing else. The encoder is done.

# %%
in_encoder = trained.encoder.layers[0].self_attention
in_encoder.keep_weights = True  # keeps the softmax of the scores
memory, no_padding = trained.encode(english_ids[None])
print("scores of step 3:", in_encoder.weights.shape[1:], "memory:", memory.shape[1:])

# %% [markdown]
# 6. **Outputs (shifted right).** The decoder embeds the target written so far,
#    beginning with the start mark, times $\sqrt{64}$, and adds the sinusoids.
# 7. **Masked multi-head attention** is self-attention again, but each position asks
#    only itself and those before it. The mask forbids the scores above the diagonal.
# 8. **Multi-head attention**, in the middle, is the *source attention*: the paper's
#    encoder-decoder attention, now usually called cross-attention. The queries come
#    from the decoder, the keys and values from the memory. So the scores have a row for
#    each target position and a column for each source token.
# 9. **Feed-forward**, and again N ×. Each layer reads the same memory, through matrices
#    of its own. An add & norm follows each of 7, 8 and 9.
# 10. **Linear.** Times the embedding table, transposed: a number for each of the 1,600
#     subwords of the vocabulary at each position. These numbers are the *logits*.
# 11. **Softmax.** Each row becomes probabilities. A row is the model's opinion of the
#     token that follows its position.

# %%
in_decoder = trained.decoder.layers[0]
asking = {"step 7": in_decoder.self_attention, "step 8": in_decoder.source_attention}
for attention in asking.values():
    attention.keep_weights = True
hidden = trained.decode(np.array([written[:-1]]), memory, no_padding)
logits = trained.logits(hidden)
for step, attention in asking.items():
    print(f"the scores of {step}:", attention.weights.shape[1:])
ends = [memory.shape[1:], logits.shape[1:]]
claim("steps 5, 10: memory and logits", ends == [(13, 64), (11, 1600)], ends)

# %% [markdown]
# Then the chosen token is appended to the decoder's input, and steps 6 to 11 run again.
# The decoder remembers nothing between two tokens: each time it reads, from the start,
# all that is written. The encoder need run only once a sentence. Our `write` runs it
# every time; lesson 08 does it right.
#
# ## Why these parts?
#
# Three attentions, in two towers. What is each of them for?
#
# The source is complete before the first German word is written. So one tower can read
# it, in both directions. Its *self-attention* lets each word see the others: "the"
# becomes "der" or "das", depending on the noun. The translation grows, so another tower
# has to ask, word by word, two questions. "What have I written, and what comes next?"
# is for its self-attention, "where in the source is that?" for its *source attention*.
# That is the order in which a decoder layer has them. Each decoder layer reads what
# leaves the encoder's *last* layer. In the encoder's first layer, "bank" is still a
# riddle; what leaves the last has met its neighbours, and is worth reading.
#
# Test it. Take one attention at a time away, in both layers, by setting its last matrix
# $W^O$ to zero: then add & norm adds nothing to its input. What does the model write?


# %%
def without(attentions, ask):
    """Return what `ask` returns while these attentions add nothing."""
    matrices = [attention.output.weight for attention in attentions]
    before = [matrix.data for matrix in matrices]
    for matrix in matrices:
        matrix.data = 0 * matrix.data
    answer = ask()
    for matrix, data in zip(matrices, before, strict=True):
        matrix.data = data
    return answer


def written_text():
    ids_written, _ = write(english_ids, run_trained)
    return toy.subwords.decode([ids_written[1:]])[0]


def n_after_neuen():
    """Return after how many of 20 tokens "neuen" the next one would be "Buch"."""
    neuen = toy.subwords.encode(["neuen"])[0][0]
    logits = run_trained(english_ids, np.full(20, neuen))
    return words_of(logits.argmax(axis=-1)).count("Buch")


encoder_self = [layer.self_attention for layer in trained.encoder.layers]
decoder_self = [layer.self_attention for layer in trained.decoder.layers]
to_memory = [layer.source_attention for layer in trained.decoder.layers]
alone = without(encoder_self, written_text)
forgetful = without(decoder_self, written_text)
blind = without(to_memory, written_text)
print("without the encoder's self-attention:")
print(f"    {alone}")
print("without the decoder's self-attention:")
print("   ", *forgetful.split()[:12], "...")
n_buch = without(decoder_self, n_after_neuen)
print(f"    after 'neuen', 'Buch' comes at {n_buch} of 20 positions")
print("without the source attention:")
print(f"    {blind}")
articles = ("Die alte Lehrer", "die neue Buch", "in der Garten")
wrong = [article for article in articles if article in alone]
claim("without the first, three articles are wrong", len(wrong) == 3, wrong)
repeats = forgetful.count("Buch im neuen")
claim("without the second, it repeats itself, times", repeats >= 2, repeats)
claim("without the third, no teacher", "Lehrer" not in blind, "no Lehrer")

# %% [markdown]
# Each of them fails in its own way:
#
# | without | what goes wrong |
# |---|---|
# | the encoder's self-attention | no "the" has met its noun: three wrong articles |
# | the decoder's self-attention | it repeats: it reads only its newest token |
# | the source attention | German words about nothing: it only continues its own text |
#
# The first should have been **der** alte Lehrer, **das** neue Buch, **im** Garten; and
# "liest" (reads) has become "hat gelesen" (has read), as "read" has not met its "-s".
# Why does the second repeat? It still knows at which position its newest token is. But
# that matters little. We gave it the text "neuen neuen neuen ...", 20 times the word:
# at 18 of the 20 positions it would write "Buch". So when a token comes again, what
# followed it follows again: "Buch im neuen Buch im neuen" is "book in the new book in
# the new". What the third wrote means "Because our friendly He has no time?". A program
# that continues a text is called a *language model*.
#
# So this model uses all three. That is no proof that no model could do with fewer: many
# of today's are [only a decoder](decoder_only.py).
#
# And why $N$ layers? In one layer all words ask at the same moment, so no question can
# depend on the answer to another. You ask Paul where Anna is; "Maria knows", he says.
# Only now do you know whom to ask next. That takes a second layer.
#
# Here is such a task. Six signposts stand in a row. Each names the place where to look
# next:
#
#     place       0  1  2  3  4  5
#     signpost    3  0  4  1  2  2
#
# Begin at place 0. Its signpost names place 3, the second one, there, names place 1,
# and the third one, there, names place 0. A place knows its own signpost. To read the
# second it must look once. To read the third it must look twice, and where to look the
# second time is what the first look has found. Encoders of one layer and of two learn
# it from random rows, as in lesson 07:


# %%
class EncoderOnly(Transformer):
    """A Transformer without its decoder: the logits are made from the memory."""

    def decode(self, target, memory, source_mask):
        return memory


def follow(rows, n):
    """Return for each place what the n-th signpost on its way names."""
    named = rows
    for _ in range(n - 1):
        named = np.take_along_axis(rows, named, axis=1)
    return named


def share_right(n_layers, n):
    """Train an encoder to name the n-th; return how often it is right on new rows."""
    generator = np.random.default_rng(0)
    sizes = Config(10, n_layers, d_model=32, d_ff=64, n_heads=2, dropout=0.0)
    encoder = EncoderOnly(sizes).astype(np.float64)
    batches = []
    for _ in range(500):
        rows = 4 + generator.integers(0, 6, (64, 6))  # ids 0 to 3 are marks
        named = 4 + follow(rows - 4, n)
        pair = SimpleNamespace(source=rows, target_in=rows, target_out=named)
        batches.append(pair)
    with forms.on():  # a faster program of the same equations
        list(experiments.updates(encoder, batches, np.linspace(0.005, 0.0, 500)))
    answers = encoder(4 + new_rows, 4 + new_rows).numpy().argmax(axis=-1) - 4
    return (answers == follow(new_rows, n)).mean()


new_rows = np.random.default_rng(2).integers(0, 6, (1000, 6))
second_named = follow(new_rows, 2)
# Back at the beginning, or at the second place: these signposts have been read.
been_there = (second_named == np.arange(6)) | (second_named == new_rows)
blind_share = (been_there + (1 - been_there) / 6).mean()
print(f"who never reads the third signpost knows or guesses {blind_share:.0%}")
one_look = share_right(n_layers=1, n=2)
one_of_two = share_right(n_layers=1, n=3)
both_looks = share_right(n_layers=2, n=3)
claim("one layer finds the second signpost", one_look > 0.99, f"{one_look:.0%}")
claim("one layer does not find the third", one_of_two < 0.75, f"{one_of_two:.0%}")
claim("two layers do", both_looks > 0.99, f"{both_looks:.0%}")

# %% [markdown]
# One layer is enough for the second signpost. The third it names in 61% of the cases,
# hardly more than the 55% of one who never reads it. Two heads ask two questions, but
# neither waits for the answer to the other. With a second layer it is 100%. **What must
# be looked up one after the other takes one layer for each look.**
#
# How many layers does real text need? The paper tried 2, 4, 6 and 8. BLEU (lesson 08)
# says how good translations are: up to six, the more, the better.

# %%
bleu = {2: 23.7, 4: 25.3, 6: 25.8, 8: 25.5}  # of N layers: Table 3, base and (C)
for n_layers, score in bleu.items():
    print(f"    {n_layers} layers: BLEU {score}")
claim("the best in Table 3 is N =", max(bleu, key=bleu.get) == 6, 6)

# %% [markdown]
# Two layers are much worse, and eight no better than six. The base model has six.
#
# ## How do the pieces make a Transformer?
#
# Now build it. First by hand, in NumPy, for one sentence. Then compare it with the
# library.
#
# **State.** $E$ is the embedding table, $E_{source}$ its rows for the ids of the
# source, $PE$ the sinusoids. Around every *sub-layer* (an attention or a feed-forward
# network) there is an add & norm,
# $x \leftarrow \text{LayerNorm}(x + \text{Sublayer}(x))$:
#
# - **Encoder:** $x = E_{source} · \sqrt{d_{model}} + PE$. Then $N$ times self-attention
#   and feed-forward. The last $x$ is the memory.
# - **Decoder:** $y = E_{target} · \sqrt{d_{model}} + PE$. Then $N$ times masked
#   self-attention, source attention and feed-forward. At the end
#   $\text{logits} = y E^T$.
#
# Dropout acts only in training, so here it is off.
#
# **Derive.** The program below has no masks. Each position is handed the rows that it
# may read, and no others: that is the meaning of a mask. It borrows the numbers of the
# library's layers (`attention.query.weight` is a matrix), but not their code.
#
# The first function is the bottom of figure 1, the embedding and the positions:


# %%
def enter(ids, model):
    """Return the vectors (T, D) that enter a tower, one position at a time."""
    table = model.embedding.weight.numpy()
    d_model = table.shape[1]
    vectors = []
    for position in range(len(ids)):
        angles = position / 10000 ** (np.arange(0, d_model, 2) / d_model)
        waves = np.zeros(d_model)
        waves[0::2] = np.sin(angles)
        waves[1::2] = np.cos(angles)
        vectors.append(table[ids[position]] * math.sqrt(d_model) + waves)
    return np.array(vectors)


print("what enters the encoder:", enter(english_ids, trained).shape)


# %% [markdown]
# Then the sub-layers. In `attend` position $t$ of $x$ asks the rows `readable[t]`, head
# by head. A head owns $d_k$ neighbouring columns of each matrix (lesson 03).


# %%
def attend(x, readable, attention):
    """Return the answers (T, D) to the positions of x."""
    d_k = attention.query.weight.shape[1] // attention.n_heads
    answers = []
    for t in range(len(x)):
        heads = []
        for head in range(attention.n_heads):
            columns = slice(head * d_k, (head + 1) * d_k)
            query = x[t] @ attention.query.weight.numpy()[:, columns]
            keys = readable[t] @ attention.key.weight.numpy()[:, columns]
            values = readable[t] @ attention.value.weight.numpy()[:, columns]
            exponentials = np.exp(keys @ query / math.sqrt(d_k))
            weights = exponentials / exponentials.sum()
            heads.append(weights @ values)
        answers.append(np.concatenate(heads) @ attention.output.weight.numpy())
    return np.array(answers)


def feed_forward(x, network):
    inner = x @ network.inner.weight.numpy() + network.inner.bias.numpy()
    positive = np.maximum(0, inner)
    return positive @ network.outer.weight.numpy() + network.outer.bias.numpy()


def add_and_norm(x, answer, residual):
    total = x + answer
    centred = total - total.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)
    return residual.norm.gain.numpy() * centred / deviation + residual.norm.bias.numpy()


# %% [markdown]
# Now the two towers. The encoder's positions may read all of $x$. In the decoder,
# position $t$ reads the rows up to $t$ of its own tower, `y[: t + 1]`, and, in the
# source attention, all of the memory. The same memory goes into every decoder layer.


# %%
def encoder_by_hand(x, encoder, n_layers):
    for i in range(n_layers):
        layer = encoder.layers[i]
        everything = [x] * len(x)  # every position may read all of x
        answer = attend(x, everything, layer.self_attention)
        x = add_and_norm(x, answer, layer.attention_residual)
        answer = feed_forward(x, layer.feed_forward)
        x = add_and_norm(x, answer, layer.feed_forward_residual)
    return x  # the memory


def decoder_layer_by_hand(y, memory, layer):
    so_far = [y[: t + 1] for t in range(len(y))]
    answer = attend(y, so_far, layer.self_attention)
    y = add_and_norm(y, answer, layer.self_residual)
    everything = [memory] * len(y)
    answer = attend(y, everything, layer.source_attention)
    y = add_and_norm(y, answer, layer.source_residual)
    answer = feed_forward(y, layer.feed_forward)
    return add_and_norm(y, answer, layer.feed_forward_residual)


def decoder_by_hand(y, memory, decoder, n_layers):
    for i in range(n_layers):
        y = decoder_layer_by_hand(y, memory, decoder.layers[i])
    return y


def by_hand(source, target, model):
    """Return the logits (T, V) of one sentence: figure 1."""
    n_layers = model.config.n_layers
    memory = encoder_by_hand(enter(source, model), model.encoder, n_layers)
    hidden = decoder_by_hand(enter(target, model), memory, model.decoder, n_layers)
    return hidden @ model.embedding.weight.numpy().T


# %% [markdown]
# Read `by_hand` aloud: embed, encode, embed, decode, compare with the table. That is
# the model of the paper. Does it translate? Put it in the place of the trained model,
# with the trained model's numbers, and let it write:


# %%
def run_by_hand(source, target):
    return Tensor(by_hand(source, target, trained))


written_by_hand, same_probabilities = write(english_ids, run_by_hand)
text_by_hand = toy.subwords.decode([written_by_hand[1:-1]])[0]
claim("sixty lines of NumPy translate", text_by_hand == german, text_by_hand)
same("with the probabilities of the library", same_probabilities, probabilities)

# %% [markdown]
# Everything between the ids of the English sentence and those of the German one is on
# this page, except the numbers that training found.
#
# **Equate.** Is it the library's Transformer, but for rounding? Both get the same
# random numbers. `[None]` makes a batch of one sentence, `[0]` takes it out again.

# %%
config = Config(20, n_layers=3, d_model=8, d_ff=16, n_heads=2, dropout=0.0)


def with_random_numbers(module):
    """Give all parameters of a module random values, in 64 bits."""
    module.astype(np.float64)
    values = {}
    for name, array in module.state().items():
        values[name] = rng.normal(0, 0.5, array.shape)
    module.load_state(values)
    return module


model = with_random_numbers(Transformer(config))
source = np.array([5, 9, 4, 7, 8, 3])
target = np.array([2, 6, 10, 9, 11])
in_one_run = model(source[None], target[None])[0]
same("Transformer = figure 1 by hand", in_one_run, by_hand(source, target, model))

# %% [markdown]
# What comes out are logits, and not probabilities: the softmax at the top of figure 1
# is left to whoever calls the model.
#
# ## How can it learn all positions at once without seeing the answer?
#
# Writing is slow: one run of the decoder for each token. To learn in this way, our
# sentence would take eleven runs, of $1 + 2 + \ldots + 11 = 66$ positions. The paper's
# decoder learns it in one run of 11 positions, all at once. This section says why that
# is not cheating.
#
# **State.** A translation $Y$ of $T$ tokens, $Y_0 \ldots Y_{T-1}$, of the source $X$
# has the probability
#
# $$P(Y_0 | X) \cdot P(Y_1 | X, Y_0) \cdots P(Y_{T-1} | X, Y_0 \ldots Y_{T-2})$$
#
# where the last token is the end mark. Read the bar as "given": $P(Y_1 | X, Y_0)$ is
# the probability of $Y_1$ when $X$ and $Y_0$ are known. Why a product? It is the share
# of a share: if half of all translations begin with "Der", and a third of these go on
# with "alte", then a sixth begin with "Der alte". Each token is predicted from those
# before it. So while it learns, the decoder reads the target *shifted right* by one
# (section 3.1): the start mark comes first, and every token moves one position to the
# right.
#
# | $t$ | 0 | 1 | 2 | 3 | ... | 10 |
# |---|---|---|---|---|---|---|
# | position $t$ reads | (start) | Der | alte | Lehrer | ... | . |
# | output $t$ must predict | Der | alte | Lehrer | liest | ... | (end) |
#
# The token that output $t$ must predict is read at $t + 1$. So **in
# column $t$ nothing may be seen of column $t + 1$, or of a later one.**
#
# The decoder reads the *true* tokens, whatever it would have written itself. That is
# called *teacher forcing*. When it translates, no teacher is there, and it reads its
# own mistakes, which it never did in training.
#
# **Derive.** $T$ predictions are $T$ runs: first the decoder reads one token, then two,
# and so on, and of each run the last position counts. Can one long run replace them
# all?
#
# In layer 1, position $t$ reads the positions up to $t$. In layer 2 it again reads the
# positions up to $t$, and each of those has read only what is up to itself. So it goes
# through all layers. And the rest of a layer opens no other way: feed-forward, add &
# norm and the logits treat each position alone, and the source attention reads the
# memory, which was made from the source only. So **nothing from after $t$ ever reaches
# $t$.** The later tokens of a longer run change nothing, and the longest run holds all
# the shorter ones.
#
# Draw an arrow from each position to those that read it, for three layers and four
# positions: once with the mask everywhere, and once with one that is missing.

# %%
up_to_own = np.tri(4, dtype=bool)  # row t: position t reads 0 to t
all_four = np.ones((4, 4), dtype=bool)
layers = {
    "the mask in every layer": [up_to_own, up_to_own, up_to_own],
    "layer 2 without its mask": [up_to_own, all_four, up_to_own],
}
words = ["(start)", "Der", "alte", "Lehrer"]
draw(figures.arrows, "06_arrows.png", layers, 2, words, words[1:] + ["liest"])

# %% [markdown]
# ![Two drawings of four positions and three layers. In the first every arrow goes up or up to the right, and the output above "alte" is reached by (start), Der and alte. In the second, layer 2 has three dashed arrows to the left as well, from "Lehrer", and "Lehrer" reaches the output that must predict "Lehrer".](figures/06_arrows.png)
#
# *What to see: blue is all that can reach the output that must predict "Lehrer". In the
# first drawing no arrow points to the left, and the input "Lehrer" has no way to it. In
# the second the dashed arrows of layer 2 lead there, and any one of the three would be
# enough. Of the new arrows to the left, only those from "Lehrer" are drawn.*
#
# **Equate.** $T$ short runs by hand, of each its last position, against one run of the
# library:

# %%
shorter_runs = []
for t in range(len(target)):
    logits_of_run = by_hand(source, target[: t + 1], model)
    shorter_runs.append(logits_of_run[-1])  # the last position
same("one run = a run for each beginning of the target", in_one_run, shorter_runs)

# %% [markdown]
# **Use.** So one run judges each token of a translation. Here is the trained model with
# the true German sentence. `make_batch` adds the marks and makes three arrays:
# `source`, what the encoder reads; `target_in`, what the decoder reads; and
# `target_out`, what it must predict. The last column has the probabilities with which
# the model wrote these words, at the beginning of the lesson.

# %%
# The vocabulary's size tells make_batch which ids there can be.
pair = make_batch(
    toy.subwords.encode([english]), toy.subwords.encode([german]), len(toy.subwords)
)
reads = words_of(pair.target_in[0])
predicts = words_of(pair.target_out[0])
given = F.softmax(trained(pair.source, pair.target_in)).numpy()[0]
of_right_token = []
for t in range(pair.n_tokens):
    of_right_token.append(given[t, pair.target_out[0, t]])
    print(f"    reads {reads[t]:8s} must predict {predicts[t]:8s}", end="")
    print(f": {of_right_token[t]:.3f}   when it wrote: {probabilities[t]:.3f}")
same("the probabilities of the eleven runs of `write`", of_right_token, probabilities)

# %% [markdown]
# The two columns are equal, because the model had written exactly the true sentence.
# There they took eleven runs, here one. That most are about 0.95, and none is 1, is on
# purpose: the model was trained with *label smoothing* (lesson 07).
#
# Where does it look for the next word? In the source, through the source attention of
# its last layer. Here are the weights, the mean of the 4 heads.

# %%
source_attention = trained.decoder.layers[-1].source_attention
source_attention.keep_weights = True
trained(pair.source, pair.target_in)
to_source = source_attention.weights[0].mean(axis=0)  # (11, 13)
source_words = words_of(pair.source[0])
to_lehrer = to_source[predicts.index("Lehrer"), source_words.index("teacher")]
claim("to predict Lehrer, it looks at teacher", to_lehrer > 0.8, to_lehrer)
row = predicts.index("das")
columns = [source_words.index("the"), source_words.index("book")]
to_das = to_source[row, columns]
claim("to predict das, at the and at book", to_das.min() > 0.2, to_das.round(2))
places = [(row, column) for column in columns]
draw(figures.look, "06_source_attention.png", to_source, predicts, source_words, places)

# %% [markdown]
# ![Heat map, eleven German tokens to predict against thirteen English source tokens: the dark cells run along the diagonal, for Lehrer at teacher with 0.95; for im they are at in, for Garten at garden; framed are those of das at the and at book](figures/06_source_attention.png)
#
# *What to see: each row is a query. Nobody told the model which English word belongs to
# which German one. The row "Lehrer" is the query of the position that has read "alte":
# it asks for a word that is not there yet. And "das" needs "the", but also "book" (the
# frames), because the German article depends on the noun.*
#
# So the noun reaches "das" in two ways: in the encoder, where "the" has met "book", and
# here. The second way alone is not enough for this model: without the encoder's
# self-attention it wrote "die neue Buch".
#
# ## Who may look at what, and does the padding matter?
#
# A *batch* holds several sentences in one array, so short ones are filled up with
# padding, id 0. And in one run for all positions, no position may look ahead. The
# program by hand handed out rows. An array program computes all scores and then forbids
# some. The array that says which may stay is the *mask* (lesson 01): True means "may
# attend".
#
# **State.** Section 3.2.3 has three attentions, and each has its mask:
#
# | attention | who asks | who answers | hidden by the mask |
# |---|---|---|---|
# | encoder, self | source | source | the padding of the source |
# | decoder, self | target | target | whatever comes later |
# | decoder, source | target | source | the padding of the source |

# %%
batch = make_batch(
    toy.subwords.encode([english, "The girl sleeps in the kitchen."]),
    toy.subwords.encode([german, "Das Mädchen schläft in der Küche."]),
    len(toy.subwords),
)
arrays = {
    "the encoder reads": batch.source,
    "the decoder reads": batch.target_in,
    "and must predict": batch.target_out,
}
for title, array in arrays.items():
    print(f"    {title}")
    for sentence in array:
        print("       ", *words_of(sentence))
source_padding = padding_mask(batch.source)
up_to_now = causal_mask(batch.target_in.shape[1])
print("    padding mask", source_padding.shape, "  causal mask", up_to_now.shape)
in_source = words_of(batch.source[1])
in_target = words_of(batch.target_in[1])
of_source = source_padding[1, 0]
draw(figures.masks, "06_masks.png", of_source, up_to_now[0, 0], in_source, in_target)

# %% [markdown]
# ![Three masks for the padded sentence "The girl sleeps in the kitchen": in the encoder the 5 columns of the padding are white, in the decoder's self-attention all cells above the diagonal, in the source attention again the 5 columns of the source's padding](figures/06_masks.png)
#
# *What to see: dark means "may attend"; this is the second sentence of the batch, with
# 5 positions of padding in the source and 3 in the target. Padding hides columns (who
# answers), the future hides a triangle. The rows of the padding are dark, as it asks
# like any word; but nobody reads its answers.*
#
# [The masks of a sentence, on the stage](toy-page.html#decoder-3&masks)
#
# *What to see: at the fourth step, the decoder looks back at four tokens; the mask with
# the frame hides the others.*
#
# Why does the padding of the target need no mask? It is on the *right*: it is later
# than every token, and the causal mask hides it already.
#
# Why do the masks that the program prints have axes of size 1? The scores have the axes
# $(B, H, T, S)$. All rows and heads of a padding mask are equal, so one row for each
# sentence is enough: $(B, 1, 1, S)$, here (2, 1, 1, 13). The triangle is the same for
# all sentences and heads: $(1, 1, T, T)$, here (1, 1, 11, 11). NumPy repeats an axis of
# size 1 as often as needed (*broadcasting*).
#
# **Equate.** The program by hand knows no padding: it gets each sentence alone. A batch
# must give what its sentences give alone.

# %%
in_batch = trained(batch.source, batch.target_in).numpy()
n_source = (batch.source != 0).sum(axis=1)  # tokens of each source: 13 and 8
n_target = (batch.target_out != 0).sum(axis=1)  # 11 and 8
claim("the batch has 11 + 8 tokens to predict", batch.n_tokens == 19, batch.n_tokens)
for i in (0, 1):
    source_alone = batch.source[i, : n_source[i]]
    target_alone = batch.target_in[i, : n_target[i]]
    alone_i = by_hand(source_alone, target_alone, trained)
    same(f"sentence {i + 1} in a batch = alone", in_batch[i, : n_target[i]], alone_i)

# %% [markdown]
# Without the padding mask there is no error message, but a sentence changes with its
# neighbours in the batch.
#
# ## How can the future leak in?
# A model that sees the word that it must predict learns one thing: to copy it. Its loss
# is wonderful. Then it is asked to translate, the word is not there yet, and it writes
# nonsense. Such a *leak* is the most expensive mistake of all, because everything looks
# better than it is. So keep a check at hand: change one word, and see which outputs
# move:
#
# | position | 0 | 1 | 2 | 3 |
# |---|---|---|---|---|
# | reads | (start) | Der | alte | Lehrer |
# | must predict | Der | alte | Lehrer | liest |
#
# If "Lehrer" becomes "Mann" (man) at position 3, which reads it, the outputs 0, 1 and 2
# must not move. Here is the trained model, and the same model without its causal mask.


# %%
def logits_with(mask, target_in):
    """Return the trained model's logits, with this mask in the decoder."""
    memory, _ = trained.encode(pair.source)  # _ is the mask of the padding
    entered = trained.target_positions(trained.embedding(target_in) * 8.0)  # sqrt(64)
    return trained.logits(trained.decoder(entered, memory, mask, None)).numpy()[0]


changed = pair.target_in.copy()
changed[0, 3] = toy.subwords.encode(["Mann"])[0][0]  # in place of "Lehrer"
print("    reads, changed:", *words_of(changed[0]))
moved = []  # how far each output moves, with the mask and without it
for mask in (causal_mask(11), None):
    before = logits_with(mask, pair.target_in)
    after = logits_with(mask, changed)
    moved.append(abs(after - before).max(axis=1))
print("    output   must predict   with the mask   without it")
for t in range(6):
    print(f"    {t:6}   {predicts[t]:12s} {moved[0][t]:12.1f} {moved[1][t]:13.1f}")
most = moved[0][:3].max()
claim("with the mask, the first three move by", most == 0, most)
least = moved[1][:3].min()
claim("without it, each of them moves by at least", least > 0.1, least)

# %% [markdown]
# With the mask, the outputs up to the one that must predict "Lehrer" stand still.
# Without it, even output 0 moves. "Not move" means 0.0, to the last digit: a masked
# weight is an exact zero, and the same additions in the same order give the same
# result. So even the smallest difference is a leak.
#
# This check changes the array that the decoder *reads*. But what if the array is wrong:
# say, if somebody forgot to shift it?
#
# | $t$ | 0 | 1 | 2 | 3 |
# |---|---|---|---|---|
# | position $t$ reads, not shifted | Der | alte | Lehrer | liest |
# | output $t$ must predict | Der | alte | Lehrer | liest |
#
# Each position reads its own answer. Our check changes position 3, the first three
# outputs stand still, and nothing is noticed. So change the *text*, and let the program
# make the array from it:
# **change word $t$ of the text, and the outputs 0 to $t$ must not move.**
#
# **Derive.** Here are five ways to see the future. Each looks right at first sight:
#
# | mistake | how it happens | how the future gets in |
# |---|---|---|
# | no causal mask | the mask is not passed on | every position sees all |
# | mask shifted by one | `np.tri(T, k=1)`, one diagonal more | $t$ sees $t + 1$ |
# | mask after the softmax | `softmax(scores) * mask` | its sum has later keys |
# | target not shifted | the decoder gets the target as it is | $t$ reads word $t$ |
# | target in the source | an English line holds both texts | it is in the memory |
#
# Try the check on small new models and random text. Each sentence has 6 words, and each
# word is drawn from 16, whatever the others are (ids 4 to 19). `pair_of` makes what the
# two towers read: the source, and the target shifted right, unless the mistake says
# otherwise.


# %%
def with_another(ids, position):
    """Return the ids with another of the 16 words at this position."""
    other = ids.copy()
    other[:, position] = 4 + (other[:, position] - 3) % 16  # after 19 comes 4
    return other


def most_that_moves(mistake):
    """Change word t of the text; return the most that an output 0 to t moves."""
    leaky = experiment.leaky_model(mistake).astype(np.float64)
    before = leaky(*experiment.pair_of(sources, targets, mistake)).numpy()
    moves = []
    for t in range(6):
        text = with_another(targets, t)
        after = leaky(*experiment.pair_of(sources, text, mistake)).numpy()
        moves.append(abs(after - before)[:, : t + 1].max())  # outputs 0 to t
    return max(moves)


sources, targets = experiment.random_text(np.random.default_rng(3), 4)
five = [
    "no causal mask",
    "mask shifted by one",
    "mask after the softmax",
    "target not shifted",
    "target in the source",
]
most_moved = {}
for mistake in ["none"] + five:
    most_moved[mistake] = most_that_moves(mistake)
    print(f"    {mistake:24s} moves by {most_moved[mistake]:.4f}")
of_honest = most_moved["none"]
claim("the honest model does not move at all", of_honest == 0, float(of_honest))
least_of_five = min(most_moved[mistake] for mistake in five)
claim("each of the five leaks moves by at least", least_of_five > 1e-4, least_of_five)

# %% [markdown]
# ## How good does a leak look?
# The *loss* of a word is $-\ln p$, where $p$ is the probability that the model gave to
# the right word: 0 if the model was sure of it, and the larger, the less it expected
# it. The loss of a model is the mean over all words.
#
# Train each model on random text, new at each update: nothing in it can be learned or
# remembered. So an honest model cannot do better than to give each of the 16 words the
# probability 1/16: its loss is $-\ln(1/16) = \ln 16 = 2.77$.
#
# How good is it as a translator? A translator has the source, the start mark and the
# words written so far, and nothing else. So each of the models now reads these alone.
# In training, output $t$ of the model without the shift read word $t$ itself, its
# answer. Now it reads word $t - 1$. The model that had the target in its source now
# gets only the source, six words. Take $-\ln p$ of word $t$, and call the mean
# *translating*. `python -m minitf.course.experiments.leaks` trained the models, in a
# minute or two.


# %%
results = kept("leaks")
guess = math.log(16)


def print_losses(mistakes):
    print("    mistake                   loss, training  translating")
    for mistake in mistakes:
        last_loss = results[mistake]["training"][-1]
        in_translation = results[mistake]["translating"]
        print(f"    {mistake:26s} {last_loss:13.2f} {in_translation:12.2f}")


print(f"    a guess, ln 16: {guess:.2f}, and a sixth of it: {guess / 6:.2f}")
print_losses(["none"] + five)
sure = -math.log(0.001)
print(f"    the loss of a right word with the probability 0.001: {sure:.1f}")
left = [1 / (1 + math.exp(s)) for s in (0, 2)]
print(f"    the weight left beside a score of 0, of 2: {left[0]:.2f}, {left[1]:.2f}")

# %% [markdown]
# - **Every leak makes the loss look better than a guess.** The decoder reads the start
#   mark and five of the 6 words. So without a mask, or with a shifted one, it copies
#   five and must guess the last: the loss is near a sixth of 2.77, or 0.46. With the
#   mask after the softmax it is on its way there, 0.64 after 400 updates. Why? Take
#   position 0 and two keys: its own, with the score 0, and that of the next word, with
#   the score $s$. The softmax gives its own key the weight $1 / (1 + e^s)$: 0.50 if $s$
#   is 0, and 0.12 if $s$ is 2. The mask leaves it so. Scores differ from word to word,
#   so this weight says which word comes. The last two leaks show all 6 words.
# - **Every leak ruins the translation.** There the loss is 5.42 to 10.18, far *above*
#   the 2.77 of a guess. Why? The model has learned to be sure. Now it is sure of
#   something wrong, and the right word gets next to nothing: with a probability of
#   0.001 its loss is 6.9. That is the look of "good loss, nonsense text".
# - **A loss that is too good is another check.** On random text the yardstick is the
#   guess; on real text it is what others reach (the paper's Table 3). A new model far
#   below that, on text that it has not seen, copies.

# %%
honest = results["none"]["training"][-1]
claim("the honest loss stays at a guess", abs(honest - guess) < 0.05, honest)
worst = max(results[mistake]["training"][-1] for mistake in five)
claim("the highest training loss of the five leaks", worst < guess / 3, worst)
best = min(results[mistake]["translating"] for mistake in five)
claim("their lowest loss when they translate", best > guess + 2, best)

# %%
updates = np.arange(10, 401, 10)  # 10 to 400
chosen = ("none", "mask after the softmax", "no causal mask", "target not shifted")
losses = {name: results[name]["training"] for name in chosen}
draw(figures.leaks, "06_leaks.png", updates, losses, guess)

# %% [markdown]
# ![Training loss of four models on random text over 400 updates: the honest one stays at ln 16, 2.77; the target that is not shifted falls to 0 at once; without causal mask and with the mask after the softmax the loss falls towards 0.46](figures/06_leaks.png)
#
# *What to see: the only honest curve is the one that stays at the upper dashed line.
# Every fall below it is a leak. At the lower line one word of 6 is guessed and the
# others are copied; the unshifted target hands over the last one, too.*
#
# ## How large is the model of the paper?
#
# Our small model and the paper's *base* model have the same form, and other sizes:
#
# | name | base | ours | meaning |
# |---|---|---|---|
# | $N$ | 6 | 2 | layers of the encoder, and layers of the decoder |
# | $d_{model}$ | 512 | 64 | numbers in the vector of a position |
# | $d_{ff}$ | 2048 | 256 | numbers inside the feed-forward network |
# | $h$ | 8 | 4 | heads of each attention |
# | $d_k$, $d_v$ | 64 | 16 | numbers of a query and key, and of a value, in one head |
# | $P_{drop}$ | 0.1 | off | rate of dropout, in training only |
# | $V$ | about 37,000 | 1,600 | subwords of the vocabulary (section 5.1) |
#
# How much memory does the base model take? And which is larger, all 18 attentions or
# the one table? Guess first, then take a pencil.
#
# **State.** An attention has four matrices (lesson 03), a feed-forward network two
# matrices and two biases, a layer norm a gain and a bias (lesson 04). An encoder layer
# has 1 attention, 1 feed-forward network and 2 norms. A decoder layer has 2 attentions,
# 1 feed-forward network and 3 norms. One table embeds the source, embeds the target,
# and makes the logits. Multiply:
#
# | piece | numbers in one | how many | together |
# |---|---|---|---|
# | attention | $4 \cdot 512^2$ | $6 + 2 \cdot 6 = 18$ | ? |
# | feed-forward network | $2 \cdot 512 \cdot 2048 + 2048 + 512$ | 12 | ? |
# | layer norm | $2 \cdot 512$ | $2 \cdot 6 + 3 \cdot 6 = 30$ | ? |
# | embedding table | $37{,}000 \cdot 512$ | 1 | ? |

# %%
attention_size = 4 * 512 * 512
feed_forward_size = 2 * 512 * 2048 + 2048 + 512
norm_size = 2 * 512
encoder_layer_size = attention_size + feed_forward_size + 2 * norm_size
decoder_layer_size = 2 * attention_size + feed_forward_size + 3 * norm_size
print(f"    an encoder layer {encoder_layer_size:10,}")
print(f"    a decoder layer  {decoder_layer_size:10,}")
in_one = {
    "attention": attention_size,
    "feed-forward network": feed_forward_size,
    "layer norm": norm_size,
    "embedding table": 37_000 * 512,
}
how_many = dict(zip(in_one, (18, 12, 30, 1), strict=True))
together = {}
millions = {}
print("    piece                 numbers in one   how many     together")
for name, size in in_one.items():
    together[name] = how_many[name] * size
    millions[f"{how_many[name]} \u00d7\n{name}"] = together[name] / 1e6
    print(f"    {name:20s} {size:15,} {how_many[name]:10} {together[name]:12,}", end="")
    print(f" ({together[name] / 1e6:.2f} million)")
on_paper = sum(together.values())
base = Transformer(Config.preset("base", 37_000))  # sizes by name, V = 37,000
in_library = sum(parameter.size for parameter in base.parameters())
print(f"    {'all':47s} {on_paper:12,}")
same("the base model counted = on paper", in_library, on_paper)
same("count_parameters = on paper", base.config.count_parameters(), on_paper)


# %%
def sizes_of(c):
    return [c.n_layers, c.d_model, c.d_ff, c.n_heads, c.d_k, c.d_v, c.vocabulary_size]


of_base = sizes_of(base.config)
as_in_table = of_base == [6, 512, 2048, 8, 64, 64, 37_000]
claim("the sizes of the base model", as_in_table, of_base)
claim("its rate of dropout", base.config.dropout == 0.1, base.config.dropout)
of_ours = sizes_of(trained.config)
claim("the sizes of ours", of_ours == [2, 64, 256, 4, 16, 16, 1600], of_ours)

# %%
draw(figures.parameters, "06_parameters.png", millions)

# %% [markdown]
# ![Bars of the base model's parameters in millions: 18 attentions 18.87, 12 feed-forward networks 25.20, 30 norms 0.03, embedding table 18.94](figures/06_parameters.png)
#
# *What to see: the largest bar is not attention. It is the feed-forward networks. Each
# is two matrices of $d_{model} \cdot 4 d_{model}$ numbers, together $8 d_{model}^2$; an
# attention has $4 d_{model}^2$. And $12 \cdot 8$ is more than $18 \cdot 4$.*
#
# The table is a hair larger than all attentions together. All four bars sum to 63.0
# million numbers, with 4 bytes each 252 MB. The paper says 65 million. The only number
# in the formulas that it does not give exactly is $V$, and with about 41,000 rows the
# table adds the missing two million.

# %%
megabytes = 4 * on_paper / 1e6
print(f"    37,000 subwords: {on_paper / 1e6:.1f} million numbers, {megabytes:.0f} MB")
larger = (on_paper + (41_000 - 37_000) * 512) / 1e6
claim("with 41,000 subwords there are 65 million", round(larger) == 65, f"{larger:.1f}")

# %% [markdown]
# ## What did we learn?
#
# - The encoder reads the source and leaves a memory, a vector for each token; every
#   decoder layer reads that memory.
# - The encoder's self-attention reads the source in both directions. The decoder's says
#   what is written, and the source attention where to look.
# - The model returns logits for all positions at once; the softmax is applied outside.
# - In training the decoder reads the target shifted right; one run gives what $T$ runs
#   would give, because no output depends on what comes after it.
# - Three masks: source padding twice, $(B, 1, 1, S)$, and the future once,
#   $(1, 1, T, T)$. Padding on the right of the target needs none.
# - A leak shows as a loss that is too good. Change a word of the text: the output that
#   must predict it must not move, to the last digit.
# - The base model has 63.0 million parameters with 37,000 subwords, and the paper's 65
#   million with about 41,000.

# %% [markdown]
# ## More on the Transformer
# Nothing below is needed for the next lesson. Of the questions, the two with a ★ are
# worth everybody's click.
#
# ### What does the library's decoder layer look like?
# It has the structure of ours. `self_residual(x, f)` is the add & norm,
# $\text{LayerNorm}(x + f(x))$, and $f$ is the attention with its mask. `caches` is for
# lesson 08.

# %%
show(DecoderLayer)

# %% [markdown]
# Compare part by part, from the inside to the outside. `None` in place of a mask hides
# nothing.

# %%
encoder = with_random_numbers(Encoder(config, rng))
decoder = with_random_numbers(Decoder(config, rng))
layer = with_random_numbers(DecoderLayer(config, rng))
x = rng.standard_normal((6, 8))  # 6 positions of the source
y = rng.standard_normal((5, 8))  # 5 positions of the target
past = causal_mask(5)
same("Encoder = by hand", encoder(x[None], None)[0], encoder_by_hand(x, encoder, 3))
by_layer = layer(y[None], x[None], past, None)[0]
same("DecoderLayer = by hand", by_layer, decoder_layer_by_hand(y, x, layer))
by_decoder = decoder(y[None], x[None], past, None)[0]
same("Decoder = by hand", by_decoder, decoder_by_hand(y, x, decoder, 3))

# %% [markdown]
# ### Which decoder layer reads the memory, and what do the parts share?
# All of them. The arrow in the figure is drawn once, because the box is drawn once; "N
# x" means that there are $N$ arrows. Each layer reads the same memory through its own
# $W^K$ and $W^V$. To see that, cut the source attention of one layer of the trained
# model by setting its last matrix to zero. Then ask for the probability of the German
# sentence, the product of the probabilities of its tokens:


# %%
def probability_of_sentence():
    given = F.softmax(trained(pair.source, pair.target_in)).numpy()[0]
    product = 1.0
    for t, token in enumerate(pair.target_out[0]):
        product *= float(given[t, token])
    return product


complete = probability_of_sentence()
cut_1 = without(to_memory[:1], probability_of_sentence)
cut_2 = without(to_memory[1:], probability_of_sentence)
claim("with all of the memory the sentence is probable", complete > 0.4, complete)
claim("without source attention in layer 1, less so", cut_1 < 0.9 * complete, cut_1)
claim("without source attention in layer 2, hopeless", cut_2 < 1e-6, cut_2)

# %% [markdown]
# Both cuts hurt, so both layers read the memory. In this model the last one does most
# of the work. No two layers share anything: they have one form, and each its own
# numbers. The one matrix that is used in several places is the embedding table, in
# three: it embeds the source, embeds the target, and turns the last vectors into logits
# (section 3.4). So its name appears once among the parameters, and its gradient is the
# sum of three (lesson 05).

# %%
names = [name for name in model.state() if "embedding" in name]
untied = Transformer(config.replace(tie=False))
names_untied = [name for name in untied.state() if "embedding" in name]
claim("the shared table has one name", names == ["embedding.weight"], names)
claim("with tie=False there are three tables", len(names_untied) == 3, names_untied)

# %% [markdown]
# ### What if the padding mask is missing, and what happens to the padding's own rows?
# There is no error message. The sentence reads its padding as if it were words, and how
# much padding it has depends on its neighbours in the batch. Its memory, whose numbers
# are about 1 in size, changes a lot:

# %%
short_ids = batch.source[1:]  # the padded sentence
with_mask, _ = trained.encode(short_ids)
entered = trained.source_positions(trained.embedding(short_ids) * 8.0)  # 8 = sqrt(64)
without_mask = trained.encoder(entered, None)
change = abs(with_mask.numpy() - without_mask.numpy())[0, :8].max()
claim("without the padding mask the memory changes by", change > 0.1, change)

# %% [markdown]
# In the picture of the masks, the rows of the padding are not masked. Nobody reads what
# comes out of them: the columns of the padding are hidden from all, and the loss leaves
# its rows out. With padding on the left, the target would need a mask for its padding,
# too.

# %% [markdown]
# ### ★ How do the leaks look as code, and which others are there?
# The first mistakes are those of the self-attention. "Mask in layer 1 only" is "no
# causal mask" in every decoder layer but the first.

# %%
show(experiment.LeakyAttention)

# %% [markdown]
# | mistake | what the program does | how the future gets in |
# |---|---|---|
# | mask transposed | `mask.transpose(0, 1, 3, 2)` | position $t$ sees all later ones |
# | mask in layer 1 only | the other layers get none | layer 2 looks ahead |
# | softmax over the queries | `softmax(scores, axis=2)` | its sum has later queries |
# | norm over time | mean and variance along $T$ | the mean is over all positions |
#
# The check of the lesson, which changes the *text*, finds all nine. A change of what
# the decoder *reads* cannot know when that is the wrong line: an unshifted target obeys
# the causal mask perfectly.

# %%
leaks = experiment.MISTAKES[1:]  # all but "none"
found_by_text = [mistake for mistake in leaks if most_that_moves(mistake) > 0]
claim("of nine leaks a changed text finds", len(found_by_text) == 9, len(found_by_text))

# %%
print_losses(experiment.MISTAKES)
of_all = [results[mistake]["training"][-1] for mistake in experiment.MISTAKES[1:]]
claim("the highest training loss of the nine", max(of_all) < guess / 3, max(of_all))

# %% [markdown]
# A mask after the softmax and a softmax over the wrong axis have a still cheaper check,
# from lesson 01: the weights of each query must sum to 1.

# %% [markdown]
# ### ★ Which vocabulary do the paper's sizes imply?
# The library knows the models of the paper by name, in PRESETS: a name, and the sizes
# in which that model differs from the base. Table 3 states the millions of parameters
# of eleven of them. One $V$ fits ten of them, so the formulas of this lesson are hardly
# to blame for the missing two million.

# %%
PAPER = {
    "base": 65, "B-dk16": 58, "B-dk32": 60, "C-N2": 36, "C-N4": 50, "C-N8": 80,
    "C-d256": 28, "C-d1024": 168, "C-ff1024": 53, "C-ff4096": 90, "big": 213,
}  # fmt: skip


def millions_of(name, V):
    return Config.preset(name, V).count_parameters() / 1e6


ten = [name for name in PAPER if name != "big"]  # see below for "big"


def rows_that_fit(V):
    """Return how many of the ten models round to the millions that Table 3 states."""
    fits = [round(millions_of(name, V)) == PAPER[name] for name in ten]
    return sum(fits)


of_row = PRESETS["C-N2"]
claim("PRESETS: C-N2 differs in one size", of_row == {"n_layers": 2}, of_row)

# %%
print("    millions of parameters    V = 37,000  V = 41,100  Table 3")
for name, stated in PAPER.items():
    with_37 = millions_of(name, 37_000)
    with_41 = millions_of(name, 41_100)
    print(f"    {name:22s} {with_37:13.1f} {with_41:11.1f} {stated:8}")
fits_37 = rows_that_fit(37_000)
fits_41 = rows_that_fit(41_100)
claim("V = 37,000 fits none of the first ten rows", fits_37 == 0, f"{fits_37} of 10")
claim("V = 41,100 fits all ten", fits_41 == 10, f"{fits_41} of 10")
big = millions_of("big", 37_000)
claim("big has the paper's 213 million only to 1%", 0.5 < big - 213 < 2.13, big)

# %% [markdown]
# So "about 37,000" of the text and the counts of the table do not belong together, and
# the paper does not explain it. "big" fits neither: even with 37,000 subwords it has a
# million too many.

# %%
finish("Two towers, one memory, and no output that depends on a later word.")

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 06` writes this part to `my_06_transformer.py`; fill in
# the bodies and run it. It imports `np` and `Tensor`. The last one is the hardest.


# %%
def predict_what_moves():
    """Predict, then run. A model reads 4 source tokens and 5 target tokens (positions
    0 to 4). Return a dict: for each change, the list of the logits' positions that
    move. The changes: "source 2" (the source token at position 2), "target 0",
    "target 3" (the token that the decoder reads there).

    Hint: who reads what is in "What happens to a sentence in a Transformer?".
    """
    ...


def check_predict_what_moves():
    checks.check_predict_what_moves(predict_what_moves)


# %%
def shift_right(target):
    """Find the mistake. This should make what the decoder reads and what it must
    predict, both (B, T + 1), from target ids (B, T) padded with 0 on the right (2 is
    the start mark, 3 the end mark):

        start = np.full((len(target), 1), 2)
        end = np.full((len(target), 1), 3)
        reads = np.concatenate([start, target], axis=1)
        predicts = np.concatenate([target, end], axis=1)
        return reads, predicts

    Return the right two arrays.

    Hint: print it for a short sentence in a batch with a long one, and compare with the
    batch in "Who may look at what, and does the padding matter?".
    """
    ...


def check_shift_right():
    checks.check_shift_right(shift_right)


# %%
def packed_mask(lengths):
    """Make the decoder's mask for several sentences in ONE row, one after another
    without padding: bool (1, 1, T, T), with T the sum of the lengths. A position sees
    its own sentence up to itself, and nothing of the others.

    Hint: number the sentences, and give each position the number of its own.
    "Who may look at what, and does the padding matter?" says which axis asks.
    """
    ...


def check_packed_mask():
    checks.check_packed_mask(packed_mask)


# %%
def find_leaks(run, x):
    """Find leaks by gradients: bool (T, T), True where output t of run depends on row s
    of the Tensor x.
    run: Tensor (T, D) -> Tensor (T, D). Send a gradient (T, D) back from run(x), which
    is 0 but for row t. It arrives in x.grad, an array (T, D): there it is 0, exactly,
    at unread rows. (The check sees the result, not the method.)

    Hint: "How can the future leak in?" finds leaks by changes, one word at a time.
    Gradients of several walks add up in x.grad (lesson 02): set it to None before each.
    """
    ...


def check_find_leaks():
    checks.check_find_leaks(find_leaks)


# %% [markdown]
# **Now yours: pieces 22 to 25** of `my_transformer.py`. Now the pieces become a model:
# `DecoderLayer`, `Transformer.encode`, `Transformer.decode` and `make_batch`. The
# weights with which `my_transformer.py` translates (not those of this lesson's model)
# are of a pre-norm model (lesson 04), whose stacks end with a norm more: in the file,
# `PreNormTransformer` adds these norms to what your two methods compute.
# (`python lessons/build.py` writes the file, if you have none.)

# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = ("transformer.Encoder", "transformer.DecoderLayer", "transformer.Decoder",
              "transformer.Transformer", "config.PRESETS")  # fmt: skip
