# %% [markdown]
"""# Lesson 06. The Transformer

The pieces of lessons 01 to 05 become the model of figure 1 (section 3.1,
section 3.2.3, table 3 of the paper).

You need lessons 01 to 05. You will have followed a sentence through figure 1, written
the model yourself, counted its parameters, and seen eight mistakes by which a model
sees the answer, each with the check that finds it.
"""

# %%
import math

import numpy as np

from minitf import functions as F
from minitf.check import claim, same, show
from minitf.config import PRESETS, Config
from minitf.course import figures
from minitf.course.architecture import figure_1
from minitf.course.experiments import leaks as experiment
from minitf.course.lesson import begin, draw, finish, kept, toy_model
from minitf.tensor import Tensor
from minitf.text import make_batch
from minitf.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    Transformer,
    causal_mask,
    padding_mask,
    sinusoid,
)

# Reads the options --figures and --backend, and starts to count the claims.
begin("06_transformer")
rng = np.random.default_rng(1)

# %% [markdown]
# ## What happens to a sentence in a Transformer?
#
# Lessons 01 to 05 built pieces: attention, heads, layers, embeddings, positions. None
# of them translates. This lesson puts them together, and the result does.
#
# Here is the goal. A small Transformer, trained beforehand on English and German
# (lesson 07 tells how), gets an English sentence, the *source*. It writes the German
# one, the *target*, token by token; a *token* is a word, a piece of one, or a mark.
# The program has three steps, and repeats them until the sentence ends:
#
# 1. Give the model the source and the tokens written so far. In the beginning that is
#    only the *start mark*, whose id is 2.
# 2. The model returns a number for each token of its vocabulary; the softmax turns them
#    into probabilities of the next token.
# 3. Append the most probable token. Stop if it is the *end mark*, id 3, or if the
#    sentence becomes too long.

# %%
toy = toy_model()
trained = toy.model.astype(np.float64)  # 64-bit numbers, for exact comparisons below


def words_of(ids):
    """Return ids as words; "-s" continues the word before it."""
    names = {"<s>": "(start)", "</s>": "(end)", "<pad>": "(pad)", ".": "."}
    words = []
    for piece in toy.subwords.pieces(ids):
        rest = piece.removeprefix("▁")  # a word begins with this sign, for a blank
        words.append(names.get(piece, rest if rest != piece else "-" + piece))
    return words


def write(source):
    """Write the target of one source, ids (1, S), token by token."""
    written = [2]
    print("    newest token, its probability, the text so far")
    while written[-1] != 3 and len(written) < 20:
        logits = trained(source, np.array([written]))
        chances = F.softmax(logits).numpy()[0, -1]  # after the last token
        best = int(chances.argmax())
        written.append(best)
        so_far = " ".join(words_of(written)[1:])
        print(f"    {words_of(written)[-1]:10s} {chances[best]:.3f}   {so_far}")
    return written


english = "The old teacher reads the new book in the garden."
german = "Der alte Lehrer liest das neue Buch im Garten."
english_ids = toy.subwords.encode([english])
german_ids = toy.subwords.encode([german])
# make_batch makes the arrays that a model reads, with the start mark and the end marks;
# the vocabulary's size tells it which ids there can be.
pair = make_batch(english_ids, german_ids, len(toy.subwords))
print("source:", *words_of(pair.source[0]))
written = write(pair.source)
text = toy.subwords.decode([written[1:-1]])[0]
claim("the small model writes the German sentence", text == german, text)

# %% [markdown]
# Everything that happens to the sentence is inside the one call
# `trained(source, written)`. Figure 1 of the paper is the map of that call.

# %%
draw(figure_1, "06_here.png", here=())

# %% [markdown]
# ![Figure 1 of the paper: on the left the encoder, a stack of N layers of self-attention and feed-forward; on the right the decoder, whose layers also attend to the encoder's output; above it the linear map and the softmax](figures/06_here.png)
#
# *What to see: two towers. The encoder reads the source, the decoder writes the target,
# and the one arrow between them is all that the decoder ever learns of the source. At
# the far right, two of the boxes opened (lessons 01 and 03).*
#
# Walk along the figure from the bottom left, with our sentence. The source has 13
# tokens ("reads" is cut into "read" and "-s"; the full stop and the end mark are tokens
# too). Take the last moment of the writing: the decoder reads 11 tokens, the start mark
# and the ten that are written. The toy model has smaller sizes; we walk in the paper's.
# The sizes are those of the paper's base model: each
# position holds a vector of 512 numbers, the vocabulary has 37,000 tokens.
#
# 1. **Embedding.** The 13 ids pick 13 rows of the embedding table, times $\sqrt{512}$
#    (lesson 05): an array (13, 512).
# 2. **Positional encoding.** The sinusoids are added: still (13, 512).
# 3. **Multi-head attention**, in the encoder: *self-attention*. In each of 8 heads
#    every position asks all 13 (lesson 03). A query has 64 numbers, so the queries are
#    (8, 13, 64) and the scores (8, 13, 13). Back come 13 vectors of 512, and *add &
#    norm* (lesson 04) adds them to its input and normalises.
# 4. **Feed-forward.** Each position by itself: 512 numbers become 2048, then 512 again.
#    Add & norm. That was one encoder layer.
# 5. **N x.** Five more layers of the same form, each with parameters of its own. The
#    array (13, 512) that leaves the last one is called the **memory**. The encoder
#    is done.
# 6. **Outputs (shifted right).** The decoder reads the target written so far,
#    beginning with the start mark: 11 ids, (11, 512), plus the sinusoids.
# 7. **Masked multi-head attention:** self-attention again, but each position asks
#    itself and those before it. The scores are (8, 11, 11); the mask forbids those
#    above the diagonal.
# 8. **Multi-head attention**, in the middle: the *source attention*. This is where the
#    arrow from the encoder arrives. The queries come from the decoder, (8, 11, 64); the
#    keys and values from the memory, (8, 13, 64). So the scores are (8, 11, 13): a row
#    for each target position, a column for each source token.
# 9. **Feed-forward**, and again N x: six such layers give (11, 512). An
#    add & norm follows each of 7, 8 and 9.
# 10. **Linear.** Times the embedding table, transposed: (11, 37,000), a number for each
#     token of the vocabulary at each position. These numbers are the *logits*.
# 11. **Softmax.** Each row becomes probabilities. A row is the model's opinion of the
#     token that follows its position.
#
# Then the chosen token is appended to the decoder's input, and steps 6 to 11 run again.
# The encoder need run only once a sentence. (Our `write` is lazy and runs it every
# time; lesson 08 does it right.) Do the shapes hold? Ask the library for a new
# base model; it knows no German yet, but its arrays have their sizes.

# %%
base = Transformer(Config.preset("base", 37_000))  # sizes by name, V = 37,000
encoder_layer = base.encoder.layers[0]
decoder_layer = base.decoder.layers[0]
attentions = [
    encoder_layer.self_attention,
    decoder_layer.self_attention,
    decoder_layer.source_attention,
]
for attention in attentions:
    attention.keep_weights = True  # keeps the softmax of the scores
memory, _ = base.encode(pair.source)
logits = base.logits(base.decode(pair.target_in, memory, None))
scores = [attention.weights.shape[1:] for attention in attentions]
as_in_the_walk = [(8, 13, 13), (8, 11, 11), (8, 11, 13)]
claim("scores have the shapes of steps 3, 7 and 8", scores == as_in_the_walk, scores)
ends = [memory.shape[1:], logits.shape[1:]]
claim(
    "memory and logits have those of 5 and 10", ends == [(13, 512), (11, 37_000)], ends
)

# %% [markdown]
# ## How large is the model of the paper?
#
# Table 3 has the sizes of the *base* model:
#
# | name | size | meaning |
# |---|---|---|
# | N | 6 | layers of the encoder, and layers of the decoder |
# | d_model | 512 | numbers in the vector of a position |
# | d_ff | 2048 | numbers inside the feed-forward network |
# | h | 8 | heads of each attention |
# | d_k, d_v | 64 | numbers of a query and key, and of a value, in one head |
# | P_drop | 0.1 | rate of dropout |
# | V | about 37,000 | tokens of the vocabulary (section 5.1) |
#
# How many learned numbers is that? Take a pencil.
#
# **State.** An attention has four matrices (lesson 03), a feed-forward network two
# matrices and two biases, a layer norm a gain and a bias (lesson 04):
#
#     an attention             4 * 512 * 512                = 1,048,576
#     a feed-forward network   2 * 512 * 2048 + 2048 + 512  = 2,099,712
#     a norm                   2 * 512                      =     1,024
#
# **Derive.** An encoder layer has 1 attention, 1 feed-forward network and 2 norms; a
# decoder layer has 2 attentions, 1 feed-forward network and 3 norms. The table has
# 37,000 rows of 512 numbers, and no other matrix is needed to embed the source, embed
# the target, and make the logits (lesson 05).

# %%
attention_size = 4 * 512 * 512
feed_forward_size = 2 * 512 * 2048 + 2048 + 512
norm_size = 2 * 512
encoder_layer_size = attention_size + feed_forward_size + 2 * norm_size
decoder_layer_size = 2 * attention_size + feed_forward_size + 3 * norm_size
table_size = 37_000 * 512
total_size = 6 * encoder_layer_size + 6 * decoder_layer_size + table_size
print(f"    an attention              {attention_size:12,}")
print(f"    a feed-forward network    {feed_forward_size:12,}")
print(f"    a norm                    {norm_size:12,}")
print(f"    an encoder layer          {encoder_layer_size:12,}")
print(f"    a decoder layer           {decoder_layer_size:12,}")
print(f"    the embedding table       {table_size:12,}")
print(f"    the base model            {total_size:12,}")


# Equate: count the numbers in the library's base model.
def size_of(module):
    return sum(parameter.size for parameter in module.parameters())


same("an encoder layer counted = on paper", size_of(encoder_layer), encoder_layer_size)
same("a decoder layer counted = on paper", size_of(decoder_layer), decoder_layer_size)
same("the base model counted = on paper", size_of(base), total_size)

# %%
millions = {
    "embedding table": table_size / 1e6,
    "18 attentions": 18 * attention_size / 1e6,
    "12 feed-forward": 12 * feed_forward_size / 1e6,
    "30 norms": 30 * norm_size / 1e6,
}
same("the four bars add up to the model", sum(millions.values()), total_size / 1e6)
same("count_parameters = on paper", base.config.count_parameters(), total_size)
for name, size in millions.items():
    print(f"    {name:16s} {size:5.2f} million")
draw(figures.bars, "06_parameters.png", millions, y="millions of parameters", digits=2)

# %% [markdown]
# ![Bars of the base model's parameters in millions: embedding table 18.94, 18 attentions 18.87, 12 feed-forward networks 25.20, 30 norms 0.03](figures/06_parameters.png)
#
# *What to see: the largest bar is not attention. It is the feed-forward networks.*
#
# So we count 63.0 million, and the paper says 65. The formulas are not to blame: the
# only number in them that the paper does not give exactly is V. With about 41,000 rows
# the table adds what is missing. The detour at the end of this lesson shows that all
# rows of Table 3 that state a count agree on that, but one; until then we keep 37,000.

# %%
larger = (total_size + (41_000 - 37_000) * 512) / 1e6
claim("with 41,000 tokens there are 65 million", round(larger) == 65, f"{larger:.1f}")
c = base.config
sizes = [c.n_layers, c.n_decoder_layers, c.d_model, c.d_ff, c.n_heads, c.d_k, c.d_v]
same("the sizes of the table above", sizes, [6, 6, 512, 2048, 8, 64, 64])
claim("the rate of dropout of the table above", c.dropout == 0.1, c.dropout)

# %% [markdown]
# ## How do the pieces make a Transformer?
#
# Now build it. First by hand, in NumPy, for one sentence; then with the library.
#
# **State.** E is the embedding table, PE the sinusoids. Around every *sub-layer* (an
# attention or a feed-forward network) there is an add & norm,
# $x \leftarrow \text{LayerNorm}(x + \text{Sublayer}(x))$:
#
#     encoder:  x = E[source] sqrt(d_model) + PE
#               N times:  self-attention, feed-forward
#               the last x is the memory
#
#     decoder:  y = E[target] sqrt(d_model) + PE
#               N times:  masked self-attention, source attention, feed-forward
#               logits = y E^T
#
# **Derive.** The program below has no masks. Each position is handed the rows that it
# may read, and no others: that is what a mask means. It borrows the numbers of the
# library's layers (`part.query.weight` is a matrix), but not their code.
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


# %% [markdown]
# Then the sub-layers. In `attend` position t of x asks the rows `readable[t]`, head by
# head. A head owns d_k neighbouring columns of each matrix (lesson 03).


# %%
def attend(x, readable, part):
    """Return the answers (T, D) to the positions of x."""
    d_k = part.query.weight.shape[1] // part.n_heads
    answers = []
    for t in range(len(x)):
        heads = []
        for head in range(part.n_heads):
            columns = slice(head * d_k, (head + 1) * d_k)
            query = x[t] @ part.query.weight.numpy()[:, columns]
            keys = readable[t] @ part.key.weight.numpy()[:, columns]
            values = readable[t] @ part.value.weight.numpy()[:, columns]
            exponentials = np.exp(keys @ query / math.sqrt(d_k))
            heads.append(exponentials / exponentials.sum() @ values)
        answers.append(np.concatenate(heads) @ part.output.weight.numpy())
    return np.array(answers)


def feed_forward(x, part):
    inner = x @ part.inner.weight.numpy() + part.inner.bias.numpy()
    return np.maximum(0, inner) @ part.outer.weight.numpy() + part.outer.bias.numpy()


def add_and_norm(x, answer, part):
    total = x + answer
    centred = total - total.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)
    return part.norm.gain.numpy() * centred / deviation + part.norm.bias.numpy()


# %% [markdown]
# Now the two towers. The encoder's positions may read all of x. In the decoder,
# position t reads the rows up to t of its own tower, `y[: t + 1]`, and, in the source
# attention, all of the memory. The same memory goes into every decoder layer.


# %%
def encoder_by_hand(x, encoder, n_layers):
    for i in range(n_layers):
        layer = encoder.layers[i]
        everything = [x for t in range(len(x))]
        answer = attend(x, everything, layer.self_attention)
        x = add_and_norm(x, answer, layer.attention_residual)
        answer = feed_forward(x, layer.feed_forward)
        x = add_and_norm(x, answer, layer.feed_forward_residual)
    return x  # the memory


def decoder_layer_by_hand(y, memory, layer):
    so_far = [y[: t + 1] for t in range(len(y))]
    answer = attend(y, so_far, layer.self_attention)
    y = add_and_norm(y, answer, layer.self_residual)
    everything = [memory for t in range(len(y))]
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
# That is the model of the paper. The library's version has the same structure; here is
# its decoder layer. (`caches` is for lesson 08. `Residual` is the add & norm: it calls
# the sub-layer that it is given.)

# %%
show(DecoderLayer)

# %% [markdown]
# **Equate.** Compare part by part, from the inside to the outside. All parameters are
# drawn at random: a bias of 0 or a gain of 1, with which training begins, would hide
# mistakes. The sizes are small, so that a loop in Python is fast enough.

# %%
config = Config(
    vocabulary_size=20, n_layers=3, d_model=8, d_ff=16, n_heads=2, dropout=0.0
)


def with_random_numbers(module):
    """Give all parameters of a module random values, in 64 bits."""
    module.astype(np.float64)
    values = {}
    for name, array in module.state().items():
        values[name] = rng.normal(0, 0.5, array.shape)
    module.load_state(values)
    return module


encoder = with_random_numbers(Encoder(config, rng))
decoder = with_random_numbers(Decoder(config, rng))
layer = with_random_numbers(DecoderLayer(config, rng))
x = rng.standard_normal((6, 8))  # 6 positions of the source
y = rng.standard_normal((5, 8))  # 5 positions of the target
past = causal_mask(5)
same("Encoder = by hand", encoder(x[None], None)[0], encoder_by_hand(x, encoder, 3))
same(
    "DecoderLayer = by hand",
    layer(y[None], x[None], past, None)[0],
    decoder_layer_by_hand(y, x, layer),
)
same(
    "Decoder = by hand",
    decoder(y[None], x[None], past, None)[0],
    decoder_by_hand(y, x, decoder, 3),
)

# %% [markdown]
# `[None]` makes a batch of one sentence, `[0]` takes it out again. The complete model,
# from ids to logits:

# %%
model = with_random_numbers(Transformer(config))
source = np.array([5, 9, 4, 7, 8, 3])
target = np.array([2, 6, 10, 9, 11])
same(
    "Transformer = figure 1 by hand",
    model(source[None], target[None])[0],
    by_hand(source, target, model),
)
same(
    "the trained model = figure 1 by hand",
    trained(pair.source, pair.target_in)[0],
    by_hand(pair.source[0], pair.target_in[0], trained),
)

# %% [markdown]
# The second line is worth a pause: some sixty lines of NumPy give every logit of the
# model that translated at the beginning.
#
# **Use.** The program by hand can only run forward. The library also gives the gradient
# of every parameter, by one `backward` (lesson 02). To check all of them at once, move
# each parameter a little, up or down by the toss of a coin, and see by hand how far a
# sum of the logits moves, each of them times a random factor. The gradients predict it:
#
# $$\text{change} \approx \sum_p \text{gradient}_p \cdot \text{move}_p$$

# %%
factors = rng.standard_normal((5, 20))
model(source[None], target[None]).backward(factors[None])
start = model.state()
moves = {}
for name, array in start.items():
    moves[name] = rng.choice([-1e-6, 1e-6], array.shape)


def sum_after(sign):
    """Return the logits times their factors, summed, with all parameters moved."""
    other = Transformer(config).astype(np.float64)
    other.load_state({name: start[name] + sign * moves[name] for name in start})
    return (by_hand(source, target, other) * factors).sum()


predicted = sum(
    (Tensor(parameter.grad).numpy() * moves[name]).sum()
    for name, parameter in model.named_parameters()
)
same(
    f"the gradients of all {size_of(model)} parameters predict the change by hand",
    predicted / 1e-6,
    (sum_after(1) - sum_after(-1)) / 2e-6,
    rtol=1e-6,
)

# %% [markdown]
# ## Where does the memory go, what is shared, and what comes out?
#
# Four questions that figure 1 leaves open.
#
# **What is in the memory?** One vector for each token of the source, and nothing else.
# It has no fixed size: a source of 13 tokens has a memory of 13 rows. The decoder has
# no further memory of its own, either; it reads the target so far from the start, every
# time.
#
# **Which decoder layer reads it?** All of them. The arrow in the figure is drawn once,
# because the box is drawn once; N x means that there are N arrows. Each layer reads the
# same memory through its own $W^K$ and $W^V$. To see that, cut the source attention of
# one layer of the trained model (2 layers) by setting its last matrix to zero, and ask
# for the probability of the German sentence, the product of those of its tokens:


# %%
def probability_of_sentence():
    chances = F.softmax(trained(pair.source, pair.target_in)).numpy()[0]
    product = 1.0
    for t, token in enumerate(pair.target_out[0]):
        product *= float(chances[t, token])
    return product


def without_source_attention(i):
    matrix = trained.decoder.layers[i].source_attention.output.weight
    kept_for_later = matrix.data
    matrix.data = 0 * kept_for_later
    probability = probability_of_sentence()
    matrix.data = kept_for_later
    return probability


complete = probability_of_sentence()
cut_1 = without_source_attention(0)  # layers are counted from 0
cut_2 = without_source_attention(1)
claim("with all of the memory the sentence is probable", complete > 0.4, complete)
claim("without source attention in layer 1, less so", cut_1 < 0.9 * complete, cut_1)
claim("without source attention in layer 2, hopeless", cut_2 < 1e-6, cut_2)

# %% [markdown]
# **What is shared?** No two layers share anything: they have one form, and six sets of
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
lists = [len(encoder.layers), len({id(layer) for layer in encoder.layers})]
claim("the 3 layers of a small encoder are 3 different ones", lists == [3, 3], lists)

# %% [markdown]
# **What comes out?** Logits, and not probabilities: the softmax at the top of figure 1
# is left to whoever calls the model. In training the caller is the loss, which computes
# the logarithm of the softmax in one go (lesson 07). In writing, the most probable
# token is the one with the largest logit, softmax or not. And a constant added to all
# logits of a row changes no probability.

# %%
raw = trained(pair.source, pair.target_in).numpy()[0]
claim("a row of logits does not sum to 1", abs(raw[0].sum() - 1) > 1, raw[0].sum())
same("7 more on each logit changes no probability", F.softmax(raw + 7), F.softmax(raw))

# %% [markdown]
# One number is worth remembering. A new model knows nothing: its logits have a mean
# near 0 and a variance near 1, and its loss, the mean of $-\ln p$ of the right token,
# is near $\ln V + 1/2$ (lesson 05). A first loss far from that is the first sign of a
# mistake.

# %%
_, minus_log = base.loss(pair.source, pair.target_in, pair.target_out)
first = float(minus_log)
expected = math.log(37_000) + 0.5
claim(
    "the first loss of the base model is ln V + 1/2, to 5%",
    abs(first / expected - 1) < 0.05,
    f"{first:.2f}, expected {expected:.2f}",
)

# %% [markdown]
# ## Why is one error 1e-16 and another exactly 0?
#
# The lines above end in errors such as 4.4e-16, though both programs compute the same
# formula. Others end in 0.0e+00. Lesson 01 has the reason: a computer rounds after each
# addition, to about 16 digits, so the *order* of additions shows in the last one. By
# hand we multiply one row at a time; the library multiplies all rows at once and adds
# in another order.
#
# Exactly 0 comes out in two cases: if both programs make the same additions in the same
# order, or if the terms that differ are exact zeros. A masked weight is an exact zero,
# and 0 times anything adds nothing. That makes a zero a strong proof: below, "does not
# depend on" will mean 0.0, to the last digit, and not 1e-16.

# %%
terms = rng.standard_normal(512)


def add_up(numbers):
    total = 0.0
    for number in numbers:
        total = total + number
    return total


off = abs(add_up(terms) - add_up(terms[::-1]))
claim("512 numbers added backwards: the last digit differs", 0 < off < 1e-12, off)
off_again = abs(add_up(terms) - add_up(terms))
claim("added in the same order: it does not", off_again == 0, off_again)
with_zeros = np.concatenate([terms, 0.0 * terms])
off_zeros = abs(add_up(terms) - add_up(with_zeros))
claim("nor with 512 exact zeros more", off_zeros == 0, off_zeros)

# %% [markdown]
# ## How can it learn all positions at once without seeing the answer?
#
# Writing is slow: one run of the decoder for each token. Learning would be hopeless at
# that speed. The paper's decoder learns all positions of a sentence in one run, and
# this section says why that is not cheating.
#
# **State.** A translation $y_1 \ldots y_T$ of the source x has the probability
#
# $$p(y_1 | x) \cdot p(y_2 | x, y_1) \cdots p(y_T | x, y_1 \ldots y_{T-1})$$
#
# Each token is predicted from those before it. So while it learns, the decoder reads
# the target *shifted right* by one (section 3.1): the start mark comes first, and every
# token moves one position to the right. Position t reads the tokens before token t, and
# must predict token t; the last one to predict is the end mark:
#
#     reads           (start)  Der   alte    Lehrer  ...  .
#     must predict    Der      alte  Lehrer  liest   ...  (end)
#
# It reads the *true* tokens, whatever it would have written itself. That is called
# *teacher forcing*: after a mistake, the teacher sets the pupil right, and the lesson
# goes on.
#
# **Derive.** T predictions are T runs: first the decoder reads one token, then two, and
# so on, and of each run the last position counts. But no position reads what comes
# after it. So the later tokens of a longer run change nothing of what the shorter runs
# gave, and the longest run holds them all.

# %%
shorter_runs = []
for t in range(len(target)):
    logits_of_run = by_hand(source, target[: t + 1], model)
    shorter_runs.append(logits_of_run[-1])  # the last position
# Equate:
same(
    "one run of Transformer = a run for each beginning of the target",
    model(source[None], target[None])[0],
    shorter_runs,
)

# %% [markdown]
# **Use.** So one run judges each token of a translation. Here is the trained model with
# the true German sentence:

# %%
reads = words_of(pair.target_in[0])
predicts = words_of(pair.target_out[0])
chances = F.softmax(trained(pair.source, pair.target_in)).numpy()[0]
for t in range(pair.n_tokens):
    right = pair.target_out[0, t]
    print(f"    reads {reads[t]:8s} must predict {predicts[t]:8s}", end="")
    print(f" and gives it the probability {chances[t, right]:.3f}")

# %% [markdown]
# The product of the column is the probability of the sentence, 0.49 (above): multiply
# it on paper. Most tokens have about 0.95, and none has 1. That is on purpose:
# the model was trained with *label smoothing*, which leaves some doubt (lesson 07).
#
# Where does it look for the next word? In the source, through the source attention of
# its last layer. Here are the weights, the mean of the 4 heads.

# %%
look = trained.decoder.layers[-1].source_attention
look.keep_weights = True
trained(pair.source, pair.target_in)
to_source = look.weights[0].mean(axis=0)  # (11, 13)
asked = words_of(pair.source[0])
row = predicts.index("Lehrer")
column = asked.index("teacher")
looked = to_source[row, column]
claim("to predict Lehrer, it looks at teacher", looked > 0.8, looked)
draw(
    figures.matrices,
    "06_source_attention.png",
    {english: to_source},
    row_labels=predicts,
    column_labels=asked,
    rows="token to predict",
    columns="source",
    bar="attention to the memory",
    mark=[(row, column)],
)

# %% [markdown]
# ![Heat map, eleven German tokens to predict against thirteen English source tokens: the dark cells run along the diagonal, for Lehrer at teacher with 0.95; for im they are at in, for Garten at garden; das looks at the and at book](figures/06_source_attention.png)
#
# *What to see: the sentence is the one in the title. Each row is a query, the framed
# cell the claim above. Nobody told the model which English word belongs to which German
# one. And look at "das": it needs "the", but also "book", because the German article
# depends on the noun.*
#
# ## Who may look at what, and does the padding matter?
#
# A *batch* holds several sentences in one array, so short ones are filled up with
# padding, id 0. And in one run for all positions, no position may look ahead. The
# program by hand handed out rows; an array program computes all scores and then forbids
# some. The forbidding array is the *mask* (lesson 01): True means "may attend".
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
of_source = padding_mask(batch.source)
of_target = causal_mask(batch.target_in.shape[1])
print("    padding mask", of_source.shape, "  causal mask", of_target.shape)

# %% [markdown]
# Why do the masks have axes of size 1? The scores have four axes: (B, H, T, S), that is
# sentence, head, position that asks, position that answers. A mask has to fit.
#
# - Which tokens of the source are padding depends on the sentence and on who answers.
#   It does not depend on the head, nor on who asks: (B, 1, 1, S), here (2, 1, 1, 13).
# - Who is later than whom depends on who asks and who answers. It is the same in all
#   sentences and all heads: (1, 1, T, T), here (1, 1, 11, 11).
#
# NumPy repeats an axis of size 1 as often as needed (*broadcasting*), so neither mask
# is ever stored in full. Leave the two axes out, and a mask (B, S) is taken for one
# (T, S), its rows for positions instead of sentences.

# %%
titles = ("encoder, self", "decoder, self", "decoder, source")
in_source = words_of(batch.source[1])
in_target = words_of(batch.target_in[1])
masks = (
    np.broadcast_to(of_source[1, 0], (13, 13)),
    of_target[0, 0],
    np.broadcast_to(of_source[1, 0], (11, 13)),
)
draw(
    figures.matrices,
    "06_masks.png",
    dict(zip(titles, masks, strict=True)),
    rows="who asks",
    columns="who answers",
    row_labels=dict(zip(titles, (in_source, in_target, in_target), strict=True)),
    column_labels=dict(zip(titles, (in_source, in_target, in_source), strict=True)),
    limits=(0, 1.3),
)

# %% [markdown]
# ![Three masks for the padded sentence "The girl sleeps in the kitchen": in the encoder the 5 columns of the padding are white, in the decoder's self-attention all cells above the diagonal, in the source attention again the 5 columns of the source's padding](figures/06_masks.png)
#
# *What to see: dark means "may attend"; this is the second sentence of the batch, with
# 5 positions of padding. Padding hides columns (who answers), the future hides a
# triangle.*
#
# Two things in the middle picture look like mistakes. The rows of the padding are not
# masked: that costs a little time and harms nobody, as nobody reads what comes out. And
# the columns of the target's padding are not masked either. They need no mask, because
# padding is on the *right*: it is later than every token, and the causal mask hides it
# already. (With padding on the left, it would need one.)
#
# **Equate.** The program by hand knows no padding: it gets each sentence alone. A batch
# must give what its sentences give alone.

# %%
in_batch = trained(batch.source, batch.target_in).numpy()
n_source = (batch.source != 0).sum(axis=1)  # tokens of each source: 13 and 8
n_target = (batch.target_out != 0).sum(axis=1)  # 11 and 8
for i in (0, 1):
    source_alone = batch.source[i, : n_source[i]]
    target_alone = batch.target_in[i, : n_target[i]]
    same(
        f"sentence {i + 1} in a batch = alone",
        in_batch[i, : n_target[i]],
        by_hand(source_alone, target_alone, trained),
    )

# What the decoder reads at the padding does not matter: put a word there.
is_word = batch.target_out != 0
with_words = np.where(batch.target_in == 0, 9, batch.target_in)
apart = abs(trained(batch.source, with_words).numpy() - in_batch).max(axis=-1)
at_words = apart[is_word].max()
claim("a word in place of padding moves no output of a word", at_words == 0, at_words)
at_padding = apart[~is_word].min()
claim("it moves those at the padding, read by nobody", at_padding > 0, at_padding)

# %% [markdown]
# "Read by nobody" must also hold for the loss: it counts the tokens and leaves the
# padding out, both in the sum and in the number by which it divides.

# %%
minus_logs = -np.log(F.softmax(in_batch).numpy())
of_right_tokens = []
for i in (0, 1):
    for t in range(n_target[i]):
        of_right_tokens.append(minus_logs[i, t, batch.target_out[i, t]])
loss, _ = trained.loss(batch.source, batch.target_in, batch.target_out, smoothing=0.0)
claim("the batch has 11 + 8 tokens to predict", batch.n_tokens == 19, batch.n_tokens)
same("the loss = the mean over these tokens", loss, np.mean(of_right_tokens))

# %% [markdown]
# **Use.** What if a mask is missing, or has the wrong axes? Without the padding mask
# the sentence reads noise, and how much depends on its neighbours in the batch. And a
# mask (B, S) without the two axes of size 1 is an error where it does not fit; where it
# fits by chance, because T = B, a sentence reads its padding in silence:

# %%
short_ids = batch.source[1:]  # the padded sentence
as_it_should, _ = trained.encode(short_ids)
entered = trained.source_positions(trained.embedding(short_ids) * 8.0)  # 8 = sqrt(64)
without_mask = trained.encoder(entered, None)
moved = abs(as_it_should.numpy() - without_mask.numpy())[0, :8].max()
claim("without the padding mask the memory changes", moved > 0.1, moved)
keys = rng.standard_normal((2, 5, 8))  # B = 2 sentences, S = 5 tokens
queries = keys[:, :2]  # T = 2
flat = np.array([[True] * 5, [True, True, True, False, False]])  # (B, S)
weights = F.attention_weights(queries, keys, flat).numpy()
to_padding = weights[1, 0, 3:].sum()
claim("a mask (B, S) with T = B: padding is read", to_padding > 0.01, to_padding)

# %% [markdown]
# ## How can the future leak in?
#
# A model that sees the word that it must predict learns one thing: to copy it. Its loss
# is wonderful. Then it is asked to translate, the word is not there yet, and it writes
# nonsense. Such a *leak* is the most expensive mistake of all, because everything looks
# better than it is. So keep two checks at hand.
#
# **State.** Call output t the one that must predict token t of the target. It must not
# depend on token t, nor on a later one.
#
# - **Check A, of the model:** change one token that the decoder *reads*; outputs before
#   it must not move.
# - **Check B, of everything:** change word s of the German *text*, make the batch
#   again, run the model; the outputs up to the one that must *predict* word s must not
#   move.
#
# "Not move" means 0.0, exactly. Check A is the one that comes to mind first.
#
# **Derive.** Here are eight ways to see the future. Each looks right at first sight:
#
# | mistake | what the program does | how the future gets in |
# |---|---|---|
# | no causal mask | it passes no mask on | every position reads all |
# | mask shifted by one | `np.tri(T, k=1)` | position t reads t + 1 |
# | mask transposed | `mask.transpose(0, 1, 3, 2)` | position t reads t and all later |
# | mask in layer 1 only | the other layers get none | layer 2 reads ahead |
# | mask after the softmax | `softmax(scores) * mask` | its sum is over all keys |
# | norm over time | mean and variance along T | the mean is over all positions |
# | target not shifted | it reads token t to predict token t | directly |
# | target in the source | a file has a column too many | through the memory |
#
# The models below are small and new. The text is random: sentences of 6 words, each one
# of 16 words, drawn without regard to any other. So an honest model cannot do better
# than guess, and its loss is $\ln 16 = 2.77$. First the mistakes of the self-attention,
# as code:

# %%
print(f"    ln 16 = {math.log(16):.2f}, and a sixth of it {math.log(16) / 6:.2f}")
show(experiment.LeakyAttention)

# %% [markdown]
# And the two checks. `pair_of` makes from sources and targets what the two towers read:
# the sources, and the start mark with all targets but the last, unless the mistake says
# otherwise.


# %%
def next_of_the_16(ids):
    """Return other words in place of these."""
    return 4 + (ids - 3) % 16


def apply_check_a(leaky, mistake):
    """Change one token that the decoder reads: how far do outputs before it move?"""
    source, target_in = experiment.pair_of(sources, targets, mistake)
    before = leaky(source, target_in).numpy()
    moves = []
    for s in range(1, 6):
        changed = target_in.copy()
        changed[:, s] = next_of_the_16(changed[:, s])
        after = leaky(source, changed).numpy()
        moves.append(abs(after - before)[:, :s].max())
    return max(moves)


def apply_check_b(leaky, mistake):
    """Change one word of the text: how far do the outputs up to its own move?"""
    source, target_in = experiment.pair_of(sources, targets, mistake)
    before = leaky(source, target_in).numpy()
    moves = []
    for s in range(6):
        changed = targets.copy()
        changed[:, s] = next_of_the_16(changed[:, s])
        source, target_in = experiment.pair_of(sources, changed, mistake)
        after = leaky(source, target_in).numpy()
        moves.append(abs(after - before)[:, : s + 1].max())
    return max(moves)


sources, targets = experiment.random_text(np.random.default_rng(3), 4)
found_by_a = {}
found_by_b = {}
for mistake in experiment.MISTAKES:
    leaky = experiment.leaky_model(mistake).astype(np.float64)
    found_by_a[mistake] = apply_check_a(leaky, mistake)
    found_by_b[mistake] = apply_check_b(leaky, mistake)

# %% [markdown]
# How good does each loss look? Train each model on random text, and then ask it as in
# translation, where the words from t on do not exist yet. This takes half a minute, so
# it was done once, by the command `python -m minitf.course.experiments.leaks`.

# %%
results = kept("leaks")
print("    mistake                 check A  check B  loss, training  translating")
for mistake in experiment.MISTAKES:
    checks = f"{found_by_a[mistake]:8.2g} {found_by_b[mistake]:8.2g}"
    last_loss = results[mistake]["training"][-1]
    in_translation = results[mistake]["translating"]
    print(f"    {mistake:22s} {checks} {last_loss:15.2f} {in_translation:12.2f}")

# %% [markdown]
# | mistake | check A | check B | loss, training | loss, translating | found by |
# |---|---|---|---|---|---|
# | none | 0 | 0 | 2.78 | 2.78 | |
# | no causal mask | 0.33 | 0.33 | 0.48 | 5.46 | A, B |
# | mask shifted by one | 0.79 | 0.79 | 0.47 | 5.42 | A, B |
# | mask transposed | 0.67 | 0.67 | 0.49 | 6.91 | A, B |
# | mask in layer 1 only | 0.18 | 0.18 | 0.47 | 5.35 | A, B |
# | mask after the softmax | 0.34 | 0.34 | 0.64 | 6.10 | A, B |
# | norm over time | 1.7 | 1.7 | 0.53 | 3.59 | A, B |
# | target not shifted | 0 | 1.5 | 0.00 | 10.18 | B only |
# | target in the source | 0 | 0.31 | 0.01 | 6.22 | B only |
#
# What the table says:
#
# - **Check B finds all eight, check A six.** Check A changes what the decoder *reads*
#   and cannot know that it reads the wrong thing. The unshifted target obeys the causal
#   mask perfectly: position t reads token t, and must predict token t.
# - **Every leak makes the loss look wonderful,** and every one ruins the translation:
#   its loss is far above the 2.77 of a guess. That is what "good loss, nonsense text"
#   looks like.
# - Most leaks end near $\ln 16 / 6 = 0.46$ and not at 0: the shifted target leaves out
#   the last word, so nobody reads it, and it must be guessed, one word of 6. (The mask
#   after the softmax is still falling.) The unshifted target and the target in the
#   source do reach 0, because they hand over *every* word, the last, too.
# - **A loss near 0 is the third check.** On text that it has not seen before, no honest
#   model gets there; a model that copies its input does.
#
# Not in the table, because it is not a leak: positions that are counted from 1 in
# training and from 0 in translation, or a cache (lesson 08) that is one step late. Such
# a model sees nothing that it should not; it meets other numbers in translation than in
# training. What finds it is the comparison above, of one run with a run for each
# beginning.

# %%
leaking = experiment.MISTAKES[1:]
missed_by_a = [mistake for mistake in leaking if found_by_a[mistake] == 0]
missed_by_b = [mistake for mistake in leaking if found_by_b[mistake] == 0]
two = ["target not shifted", "target in the source"]
of_honest = [float(found_by_a["none"]), float(found_by_b["none"])]
claim("the honest model passes both checks", of_honest == [0, 0], of_honest)
claim("check A misses two leaks of eight", missed_by_a == two, missed_by_a)
claim("check B misses none", missed_by_b == [], missed_by_b)

# %%
guess = math.log(16)
honest = results["none"]["training"][-1]
claim("honest, the loss stays at a guess", abs(honest - guess) < 0.05, honest)
worst = max(results[mistake]["training"][-1] for mistake in leaking)
claim("with each leak it falls below a third of that", worst < guess / 3, worst)
best = min(results[mistake]["translating"] for mistake in leaking)
claim("each leak translates worse than a guess", best > guess + 0.5, best)

# %%
updates = np.arange(10, 401, 10)  # 10 to 400
chosen = ("none", "mask after the softmax", "no causal mask", "target not shifted")
curves = {name: (updates, results[name]["training"]) for name in chosen}
draw(
    figures.lines,
    "06_leaks.png",
    curves,
    x="updates",
    y="training loss",
    title="Four models learn random text; the legend tells their mistake",
    marks=False,
    levels={"a fair guess, ln 16": guess},
)

# %% [markdown]
# ![Training loss of four models on random text over 400 updates: the honest one stays at ln 16, 2.77; the target that is not shifted falls to 0 at once; without causal mask and with the mask after the softmax the loss falls towards 0.46](figures/06_leaks.png)
#
# *What to see: the only honest curve is the one that stays at the dashed line. The text
# is random, so there is nothing to learn, and every fall below it is a leak.*
#
# The numbers were kept; here are the first updates of one row again, run now:

# %%
_, first_losses = experiment.train("target not shifted", updates=30)
same(
    "30 updates, repeated: the kept losses of an unshifted target",
    np.reshape(first_losses, (3, 10)).mean(axis=1),
    results["target not shifted"]["training"][:3],
    rtol=0.02,
)

# %% [markdown]
# **Why is a mask after the softmax a leak?** It sets the forbidden weights to 0, so no
# forbidden *value* comes through. But the softmax has divided by a sum over all keys,
# the later ones too: how much is left for the permitted weights tells what the later
# keys are. Divide again by what is left, and the formula is honest, equal to a mask
# before the softmax. It is still the worse program: where a forbidden score is much
# larger, nothing is left to divide by.

# %%
one = keys[:1]  # one sentence of 5 positions
past_of_5 = causal_mask(5)[0]
before_softmax = F.attention_weights(one, one, past_of_5).numpy()
after_softmax = F.attention_weights(one, one).numpy() * past_of_5
divided_again = after_softmax / after_softmax.sum(axis=-1, keepdims=True)
first_weight = after_softmax[0, 0, 0]
claim("masked after it, the first weight is not 1", first_weight < 0.9, first_weight)
same("divided again, it is the mask before the softmax", divided_again, before_softmax)
first_row = F.softmax([0.0, 1000.0]).numpy() * [1, 0]  # the second key is later
with np.errstate(invalid="ignore"):
    lost = first_row / first_row.sum()
claim("with a large forbidden score it is 0 / 0", np.isnan(lost).all(), lost)

# %% [markdown]
# **Can a model really learn to copy the next word?** One head is enough. PE(t + 1) is a
# linear map of PE(t) (lesson 05), so a query can ask for "the position after mine" and
# fetch the word there. Below it is built by hand, for a text of 60 words; with the mask
# it finds nothing, because it is not allowed to look there.

# %%
words = rng.integers(4, 1000, 60)
table = rng.standard_normal((1000, 64))  # a vector for each word
PE = sinusoid(60, 64, dtype=np.float64)
# The matrix `ahead` with PE[t] @ ahead = PE[t + 1], found by least squares.
ahead = np.linalg.lstsq(PE[:-1], PE[1:], rcond=None)[0]
sharp = 100 * PE @ ahead  # large queries: the softmax chooses one key


def share_of_next_words(mask):
    """Return how many of the next words the head copies."""
    fetched = F.attention(sharp, PE, table[words], mask).numpy()
    likely = (fetched @ table.T).argmax(axis=-1)
    return np.mean(likely[:-1] == words[1:])


copied = share_of_next_words(None)
claim("without a mask the head copies all next words", copied == 1, copied)
copied_past = share_of_next_words(causal_mask(60)[0, 0])
claim("with the mask it copies hardly any", copied_past < 0.1, copied_past)

# %% [markdown]
# ## Detour: which vocabulary do the paper's sizes imply?
#
# *For the curious; nothing later needs it.* The library knows the models of the paper
# by name, in PRESETS: the rows of Table 3 (A: heads, B: d_k, C: sizes, D: dropout and
# smoothing, E: learned positions), "base" and "big", and two small ones. Table 3 gives
# their millions of parameters. The formula from the beginning counts them all, with the
# sizes of each row in place of 512 and 2048:


# %%
def count(c):
    """Return the parameters of a model with the Config c."""
    attention = 2 * c.d_model * c.n_heads * (c.d_k + c.d_v)
    feed_forward = 2 * c.d_model * c.d_ff + c.d_ff + c.d_model
    norm = 2 * c.d_model
    layers = c.n_layers * (3 * attention + 2 * feed_forward + 5 * norm)
    table = c.vocabulary_size * c.d_model
    learned = 2 * c.max_length * c.d_model if c.positions == "learned" else 0
    return table + learned + layers


PAPER = {
    "base": 65, "B-dk16": 58, "B-dk32": 60, "C-N2": 36, "C-N4": 50, "C-N8": 80,
    "C-d256": 28, "C-d1024": 168, "C-ff1024": 53, "C-ff4096": 90, "big": 213,
}  # fmt: skip
by_formula = {}
by_library = {}
print("    millions of parameters    V = 37,000  V = 41,000  Table 3")
for name in PRESETS:
    preset = Config.preset(name, 37_000)
    by_formula[name] = count(preset)
    # initialise=False draws no numbers, so that counting is quick.
    by_library[name] = size_of(Transformer(preset, initialise=False))
    here = by_formula[name] / 1e6
    there = count(preset.replace(vocabulary_size=41_000)) / 1e6
    print(f"    {name:22s} {here:13.1f} {there:11.1f} {PAPER.get(name, ''):8}")
formula_counts = list(by_formula.values())
library_counts = list(by_library.values())
same("the formula counts every row of PRESETS", formula_counts, library_counts)

# %% [markdown]
# Ten rows, "base" and those of B and C, can be tried with every second V from 34,000 to
# 44,000: how many of the ten round to the millions that the paper prints?

# %%
ten = [name for name in PAPER if name != "big"]


def fitting_rows(V):
    fits = 0
    for name in ten:
        of_table = (V - 37_000) * Config.preset(name).d_model
        if round((by_formula[name] + of_table) / 1e6) == PAPER[name]:
            fits += 1
    return fits


vocabularies = range(34_000, 44_001, 2)
print(f"    tried: V = {vocabularies[0]:,} to {vocabularies[-1]:,}")
fitting = [fitting_rows(V) for V in vocabularies]
all_ten = [V for V, fits in zip(vocabularies, fitting, strict=True) if fits == 10]
claim("V = 37,000 fits none of the ten rows", fitting_rows(37_000) == 0, "0 of 10")
span = f"{min(all_ten):,} to {max(all_ten):,}" if all_ten else "none"
claim("some V fit all ten", len(all_ten) > 0, span)
big = by_formula["big"] / 1e6
claim("big has the paper's 213 million only to 1%", 0.5 < big - 213 < 2.13, big)

# %% [markdown]
# So "about 37,000" of the text and the counts of the table do not belong together; the
# paper does not explain it. And "big" fits neither: at 37,000 it has a million too
# many.

# %%
finish("Two towers, one memory, and no output that depends on a later word.")

# %% [markdown]
# ## What did we learn?
#
# - The encoder reads the source and leaves a memory, a vector for each token;
#   every decoder layer reads that memory.
# - The model returns logits for all positions at once; the softmax is applied outside.
# - The base model has 63.0 million parameters with 37,000 tokens, and the paper's 65
#   million with about 41,000.
# - In training the decoder reads the target shifted right; one run gives what T runs
#   would give, because no output depends on what comes after it.
# - Three masks: source padding twice, (B, 1, 1, S), and the future once, (1, 1, T, T).
#   Padding on the right of the target needs none.
# - A leak shows as a loss that is too good. Change a word of the text, and see whether
#   the output that must predict it moves: it must not, to the last digit.

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 06` writes this part to `my_06_transformer.py`; fill in
# the bodies and run it. The last one is the hardest.


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
    model = Transformer(
        Config(20, n_layers=2, d_model=8, d_ff=16, n_heads=2, dropout=0.0)
    ).astype(np.float64)
    source = np.array([[5, 6, 7, 8]])
    target = np.array([[2, 9, 10, 11, 12]])
    before = model(source, target).numpy()
    predicted = predict_what_moves()
    for side, position in (("source", 2), ("target", 0), ("target", 3)):
        changed = {"source": source.copy(), "target": target.copy()}
        changed[side][0, position] = 15
        after = model(changed["source"], changed["target"]).numpy()
        moved = np.flatnonzero((after != before).any(axis=(0, 2))).tolist()
        change = f"{side} {position}"
        answer = sorted(predicted.get(change, []))
        claim(f"{change} moves {moved}", answer == moved, f"you say {answer}")


# %%
def shift_right(target):
    """Find the mistake. This should make what the decoder reads and what it must
    predict, both (B, T + 1), from target ids (B, T) padded with 0 on the right:

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
    target = np.array([[6, 9, 7, 5], [8, 4, 0, 0]])
    reads, predicts = shift_right(target.copy())
    same("the decoder reads", reads, np.array([[2, 6, 9, 7, 5], [2, 8, 4, 0, 0]]))
    same("it must predict", predicts, np.array([[6, 9, 7, 5, 3], [8, 4, 3, 0, 0]]))


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
    expected = {
        (4,): "1000 1100 1110 1111",
        (2, 3): "10000 11000 00100 00110 00111",
        (1, 2, 2): "10000 01000 01100 00010 00011",
    }
    for lengths, text in expected.items():
        rows = []
        for row in text.split():
            rows.append([digit == "1" for digit in row])
        name = f"sentences of {lengths}"
        same(name, packed_mask(list(lengths)), np.array([[rows]]))


# %%
def leaks(run, x):
    """Find leaks by gradients: bool (T, T), True where output t of run depends on row s
    of the Tensor x.
    run: Tensor (T, D) -> Tensor (T, D). Send a gradient back from output t alone: it
    is 0, exactly, at unread rows.

    Hint: "How can the future leak in?" finds leaks by changes, one word at a time.
    Gradients of several walks add up in x.grad (lesson 02): set it to None before each.
    """
    ...


def check_leaks():
    x = Tensor(np.random.default_rng(5).standard_normal((6, 4)))
    causal = causal_mask(6)[0, 0]
    leaking = causal.copy()
    leaking[1, 4] = True
    for name, mask in (("causal", causal), ("with one leak", leaking)):
        found = leaks(lambda x, mask=mask: F.attention(x, x, x, mask), x)
        same(f"attention, {name}", found, mask)


# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = ("transformer.Encoder", "transformer.DecoderLayer", "transformer.Decoder",
              "transformer.Transformer", "config.PRESETS")  # fmt: skip
