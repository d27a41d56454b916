# %% [markdown]
"""# Lesson 08. Decoding

From a model to a translation, and from a translation to a mark (section 6.1
of the paper).

You need lessons 01 to 07. You will have built greedy decoding and its cache, beam
search with its penalty, and BLEU.
"""

# %%
import re
from collections import Counter
from itertools import product

import numpy as np

from minitf import forms
from minitf import functions as F
from minitf.check import claim, same, show
from minitf.course import figures
from minitf.course.lesson import begin, draw, finish, toy_model
from minitf.data import toy
from minitf.decode import Hypothesis, beam_search, greedy, length_penalty
from minitf.tensor import Tensor
from minitf.training.evaluation import bleu
from minitf.transformer import Transformer

# Reads the options --figures and --backend, and starts to count the claims.
begin("08_decoding")
rng = np.random.default_rng(4)  # a seed for which one sentence shows what a beam does

# %% [markdown]
# ## How does a model write a sentence?
#
# **State.** A model reads a source X and the beginning of a translation, and
# gives P of each word that may come next. A translation Y = y_1 ... y_n has
# P(Y|X) = prod_t P(y_t | y_1 ... y_t-1, X); its last word is the *end mark* `</s>`.
# *Decoding* is the search for a Y of large P among far too many. *Greedy decoding*
# takes the most probable word at each step, up to the end mark, or until the text has
# as many words as the source and 50 more (section 6.1).
#
# **Derive.** A loop for one sentence. The trained model beside the lessons knows its
# grammar by heart, and greedy makes no mistake in it. So we *spoil* it: each weight
# gets a random number added, of a third of its matrix's spread.

# %%
translator, spoilt = toy_model(), toy_model().model.astype("float64")
spoilt.load_state(
    {
        k: w + w.std() / 3 * rng.standard_normal(w.shape)
        for k, w in spoilt.state().items()
    }
)
model, subwords, c = translator.model, translator.subwords, translator.model.config
PAD, START, END = c.pad_id, c.bos_id, c.eos_id
# 100 sentences not trained on.
english, german = toy.splits(n_train=0, n_valid=0, n_test=100)["test_held_out"]
read = subwords.encode(english)  # pieces (lesson 05), but here mostly whole words
source = np.array(
    [[*ids, END] + [PAD] * (max(map(len, read)) - len(ids)) for ids in read]
)  # (100, S)


def next_word(model, ids, words):  # ln P of each: (V,)
    scores = F.log_softmax(model([[*ids, END]], [[START, *words]])).numpy()[0, -1]
    scores[[PAD, START]] = -np.inf  # never written
    return scores


def greedy_by_loop(ids, words=(), ln_p=0.0):
    while len(words) < len(ids) + 50 and END not in words:
        scores = next_word(spoilt, ids, words)
        words, ln_p = [*words, int(scores.argmax())], ln_p + scores.max()
    return Hypothesis([word for word in words if word != END], ln_p, ln_p)


def numbers(hypotheses):
    return np.concatenate([[*h.ids, h.log_probability, h.score] for h in hypotheses])


# Equate: the library writes many sentences at once; a Hypothesis holds ids without the
# end mark, ln P, and a score.
written = greedy(spoilt, source)
same(
    "each Hypothesis of greedy = loop",
    numbers(written[:10]),
    numbers(map(greedy_by_loop, read[:10])),
)

# %% [markdown]
# ## Must every word be read again at each step?
#
# **State.** To get word t, the loop sends t positions through the decoder: for n
# words 1 + 2 + ... + n = n (n + 1) / 2.
#
# **Derive.** No position sees what comes later (the causal mask of lesson 01). So what
# the decoder made of it stays, and the newest position asks the others for their keys
# and values only. A *cache* keeps these, layer by layer.


# %%
def cache(attention, x):  # adds the keys and values (1, H, 1, K) of the newest word
    kept.setdefault(attention, []).append(
        [tensor.numpy() for tensor in attention.keys_and_values(x)]
    )
    return [
        Tensor(np.concatenate(parts, axis=2))
        for parts in zip(*kept[attention], strict=True)
    ]


cache.positions = None  # only relative positions would need them
# None: the source's, anew.
kept, text, caches = {}, [START, *written[0].ids], [(cache, None)] * c.n_layers
memory, mask = spoilt.encode(source[:1])
steps = [
    spoilt.decode(np.array([[word]]), memory, mask, t, caches).numpy()
    for t, word in enumerate(text)
]
same(
    "word by word, kept = all at once",
    np.concatenate(steps, axis=1),
    spoilt.decode(np.array([text]), memory, mask),
)
# Equate
same(
    "greedy, cached = uncached",
    numbers(written),
    numbers(greedy(spoilt, source, cached=False)),
)
# Use: untrained, it writes one word up to the limit.
endless, sizes = Transformer(c.replace(vocabulary_size=40)), []
endless.decode = lambda target, *more: (
    sizes.append(target.shape[1]) or Transformer.decode(endless, target, *more)
)
endless.can_cache = True  # though its decode is not the library's own
lengths = [
    len(greedy(endless, np.array([[5, 6, 7, END]]), cached=cached)[0].ids)
    for cached in (False, True)
]
claim("greedy stops at source + 50 words", lengths == [3 + 50, 3 + 50], lengths)
same("at step t: t positions, and with the cache 1", sizes, [*range(1, 54), *[1] * 53])
work = {
    "without": (range(1, 54), np.cumsum(sizes[:53])),
    "with the cache": (range(1, 54), np.cumsum(sizes[53:])),
}
draw(
    figures.lines,
    "08_cache.png",
    work,
    x="words written",
    y="positions through the decoder",
    marks=False,
)

# %% [markdown]
# ## What if the best first word leads nowhere?
#
# **State.** *Beam search* keeps several beginnings, the *beam*: 4 in section 6.1.
# Each step takes, of all next words of all beginnings, the best 2 * 4 by ln P. (At
# most 4 of them end, one for each beginning.) One that ends and is among the first 4 is
# *finished*; the best 4 that do not end are the next beam. Finished texts are compared
# by their score
#
#     score(Y) = ln P(Y|X) / lp(Y)        lp(Y) = ((5 + |Y|) / 6)^alpha
#     alpha = 0.6
#
# (Wu et al. 2016, eq. 14). |Y| counts the words and the end mark. Every word more
# multiplies P by less than 1, so by ln P alone short texts win; the *length penalty*
# lp brings long ones nearer to 0. The search stops when 4 are finished and no beginning
# can win any more: its ln P can only fall, and no lp is larger than that of the
# longest text allowed.


# %%
def beam_by_lists(ids, beam=4, alpha=0.6):
    # Derive: one sentence; gives the best text and the tree of all looked at.
    living, finished, nodes, limit = (
        [(0.0, [], 0)],
        [],
        [(None, START, 0.0, "kept")],
        len(ids) + 50,
    )
    for length in range(1, limit + 1):
        longer = [
            (p + q, w, ws, node)
            for p, ws, node in living
            for w, q in enumerate(next_word(spoilt, ids, ws))
        ]
        living = []
        for rank, (ln_p, word, words, node) in enumerate(
            sorted(longer, key=lambda one: -one[0])[: 2 * beam]
        ):
            state, score = "dropped", ln_p
            if word == END and rank < beam:
                state, score = "finished", ln_p / ((5 + length) / 6) ** alpha
                finished.append(Hypothesis(words, ln_p, score))
            elif word != END and len(living) < beam:
                state = "kept"
                living.append((ln_p, [*words, word], len(nodes)))
            nodes.append((node, word, score, state))
        best = max(finished, key=lambda h: h.score, default=None)
        if length == limit or (
            len(finished) >= beam
            and living[0][0] / ((5 + limit) / 6) ** alpha <= best.score
        ):
            return best, nodes


# Equate: the library's penalty, and its search of all sentences side by side.
show(length_penalty)
same(
    "length_penalty at 1, 7 and 13 words",
    [length_penalty(k) for k in (1, 7, 13)],
    [1, 2**0.6, 3**0.6],
)
beams = [best for (best,) in beam_search(spoilt, source)]
same(
    "beam_search = lists: words, ln P, scores",
    numbers(beams[:8]),
    numbers(beam_by_lists(ids)[0] for ids in read[:8]),
)
# Use: any width. One as wide as the space ranks all the 1 + 3 + 9 + 27 texts of up
# to 3 words out of 3.
same(
    "a beam of 1, alpha 0 = greedy",
    numbers(h for (h,) in beam_search(spoilt, source, 1, 0.0)),
    numbers(written),
)
small, every = Transformer(c.replace(vocabulary_size=6)).astype("float64").eval(), []
for words in (text for k in range(4) for text in product([1, 4, 5], repeat=k)):
    ln_p = sum(
        next_word(small, [4, 5], words[:t])[word]
        for t, word in enumerate([*words, END])
    )
    every.append(Hypothesis(words, ln_p, ln_p / length_penalty(len(words) + 1)))
# 4 * 27
(found,) = beam_search(small, np.array([[4, 5, END]]), beam=108, max_extra=2, n_best=40)
same(
    "beam_search, wide = all 40 texts tried",
    numbers(found),
    numbers(sorted(every, key=lambda h: -h.score)),
)

# %% [markdown]
# ## How is a translation marked?
#
# **State.** *BLEU* (Papineni et al. 2002) compares the translations of a whole test set
# with one reference each:
#
#     BLEU = 100 * min(1, e^(1 - r/h)) * (p_1 p_2 p_3 p_4)^(1/4)
#
# An *n-gram* is n neighbouring *tokens*, words or punctuation marks. p_n is the share
# of the translations' n-grams that their references have too, each counted at most
# as often as the reference has it (*clipped*). h and r count the tokens of all
# translations and of all references; the factor with them, the *brevity penalty*, is
# against short texts.

# %%
output = {
    "trained": greedy(model, source),
    "spoilt": written,
    "spoilt, beam of 4": beams,
}
for name, hypotheses in output.items():  # Derive: count
    texts = output[name] = subwords.decode([h.ids for h in hypotheses])
    sides, has, shares = (
        [[re.findall(r"\w+|[.,?]", text) for text in side] for side in (texts, german)],
        0,
        0,
    )
    for n, pair in product(range(4), zip(*sides, strict=True)):
        here, wanted = (
            Counter(tuple(side[i : i + n + 1]) for i in range(len(side) - n))
            for side in pair
        )
        has += here.total() * np.eye(4)[n]
        # & takes the smaller of two counts
        shares += (here & wanted).total() * np.eye(4)[n]
    h, r = (sum(map(len, side)) for side in sides)
    mark, counted = (
        100 * min(1, np.exp(1 - r / h)) * np.prod(shares / has) ** 0.25,
        bleu(texts, german),
    )
    same(
        f"{name}: BLEU, p_1 to p_4 = sacreBLEU",
        [mark, *(100 * shares / has)],
        [counted.score, *counted.precisions],
    )
    print(
        f"    BLEU {mark:.2f}, p_n",
        np.round(100 * shares / has, 1),
        f"brevity {counted.brevity_penalty:.3f}",
    )
# Use: what counts as a token decides. Between blanks, "Buch." is one; and characters
# look much alike.
cut = {
    scheme: round(bleu(texts, german, tokenize=scheme).score, 1)
    for scheme in ("none", "13a", "char")
}
claim(
    "one output, three tokenisations, three scores", np.ptp(list(cut.values())) > 2, cut
)

# %% [markdown]
# ## Is a better score a better translation?
#
# **State.** A *search error*: the search misses a text of better score. A *model
# error*: the text of better score is the worse translation: above the beam of 4, too
# short, has BLEU 66.38, greedy 72.96. The length penalty helps a bit.
#
# **Derive.** A longer text Y beats Z if ln P(Y) / ln P(Z) < lp(Y) / lp(Z). The right
# side grows with alpha. So where the longer one wins, it wins for each larger alpha
# too: of the same texts, longer and longer ones are chosen.

# %%
alphas = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
with forms.on():  # six searches of 100 sentences each: seconds less, as in a training
    searched = [beam_search(spoilt, source, alpha=a) for a in alphas]
found = [
    bleu(subwords.decode([h.ids for (h,) in hypotheses]), german)
    for hypotheses in searched
]
marks, length = (
    [b.score for b in found],
    [100 * b.hypothesis_length / b.reference_length for b in found],
)
claim(
    "lengths grow with alpha",
    np.diff(length).min() > -0.5 and length[-1] > length[0] + 1,
    np.round(length, 1),
)
claim(
    "without penalty short texts win, and BLEU pays",
    length[0] < 99 and marks[-1] > marks[0] + 1,
    np.round(marks, 1),
)
curves = {"length, % of the references'": (alphas, length), "BLEU": (alphas, marks)}
draw(
    figures.lines,
    "08_alpha.png",
    curves,
    x="alpha",
    y="length and BLEU",
    title="spoilt model, beam of 4",
)
# Equate: as the beam's.
scores = np.array([h.log_probability / length_penalty(len(h.ids) + 1) for h in written])
gains = np.array([h.score for h in beams]) - scores
claim(
    "beams score higher on average",
    gains.mean() > 0.05,
    f"{gains.mean():.2f}; {sum(gains < -1e-6)} score less",
)
fooled = [i for i in range(100) if gains[i] > 1e-6 and output["spoilt"][i] == german[i]]
claim(
    "greedy is right, the better score wrong (model error)",
    len(fooled) > 0,
    f"{len(fooled)} of 100, such as",
)
print(
    *(
        f"    {german[i]} {scores[i]:.2f}, but {texts[i]} {beams[i].score:.2f}"
        for i in fooled[:1]
    )
)
text, (ids,) = "The horses are big.", subwords.encode(["The horses are big."])
# Use: draw the beam as a tree, with ln P, and scores at the end marks.
best, nodes = beam_by_lists(ids, beam=2)
first, second = subwords.decode([greedy_by_loop(ids).ids, best.ids])
claim(
    "this time a beam of 2 is right, and greedy not",
    second == "Die Pferde sind groß." != first,
    f"{first} {second}",
)
nodes = [
    (parent, subwords.pieces([word])[0].strip("▁"), *more)
    for parent, word, *more in nodes
]
draw(figures.tree, "08_tree.png", nodes, title=f"{text}  (greedy: {first})")

# %% [markdown]
# ## Where does the model look?
#
# **State.** The decoder's second attention (section 3.2.3) asks the source. In "dass
# er das Buch gelesen hat" the verb comes last, in English before the book: to write
# "gelesen", the model has to find "read".
#
# **Derive.** Row t of its weights reads word t - 1 (row 1 the start mark) and writes
# word t. So "gelesen" has the row that writes it, not the next one, which reads it.

# %%
verbs = {
    "visited the doctor": "besucht",
    "bought the coat": "gekauft",
    "wrote the letter": "geschrieben",
}
looks, verbs = (
    [],
    verbs
    | {
        "saw the dog": "gesehen",
        "ate the cake": "gegessen",
        "read the book": "gelesen",
    },
)
for day, (did, verb) in product(("on Monday", "on Sunday", "yesterday"), verbs.items()):
    line = f"My mother says that the old man {did} {day}."
    # The weights of the last layer (H, T, S), the words written, the words read.
    weights, rows, columns = translator.attention(line)
    rows, columns = ([token.strip("▁") for token in side] for side in (rows, columns))
    mean = weights.mean(axis=0)  # over the heads
    looks.append(
        mean.argmax(axis=-1)[rows.index(verb) + np.arange(2)]
        == columns.index(did.split()[0])
    )
ids, best = subwords.encode(
    [line, "Meine Mutter sagt, dass der alte Mann gestern das Buch gelesen hat."]
)
# Equate
same(
    "row t writes word t",
    model([[*ids, END]], [[START, *best]]).numpy()[0].argmax(axis=-1),
    [*best, END],
)
# Use: of all the sentences; and the last one as a figure.
writing, reading = np.mean(looks, axis=0)
claim(
    "writing the German verb, it looks at the English one",
    writing > 0.8,
    f"{writing:.0%} of {len(looks)}",
)
claim(
    "reading it, it looks elsewhere",
    reading < 0.2,
    f"{reading:.0%} look at the verb again",
)
draw(
    figures.matrices,
    "08_alignment.png",
    {"": mean},
    rows="writes",
    columns="looks at",
    row_labels=rows,
    column_labels=columns,
    bar="weight, mean of the heads",
)
finish(
    "A search finds what the model scores high; whether that is a good translation, "
    "references say."
)

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 08` writes this part to `my_08_decoding.py`; fill in the
# bodies and run it.


# %%
def rank(hypotheses, alpha):
    """Sort Hypotheses (ids, log_probability, score) by ln P / (len(ids) + 1)^alpha,
    best first; new ones hold it.

    Hint: |Y| of "What if the best first word leads nowhere?" counts the end mark, which
    is not among the ids.
    """
    ...


def step(totals, scores, beam):
    """Give the `beam` best of totals[:, None] (W, 1) + scores (W, V), best first, as
    two arrays: beginnings, words.

    Hint: beam_by_lists in "What if the best first word leads nowhere?" sorts one list
    of all continuations. For an array, np.argsort(..., axis=None) gives places p of the
    flat array: row p // V, column p % V.
    """
    ...


def check_rank():
    texts = [
        Hypothesis([5] * n, ln_p, ln_p)
        for n, ln_p in ((1, -1.0), (3, -3.0), (2, -1.6), (7, -4.4))
    ]
    for alpha, expected in (
        (0.0, [-1, -1.6, -3, -4.4]),
        (1.0, [-1 / 2, -1.6 / 3, -4.4 / 8, -3 / 4]),
    ):
        same(
            f"scores, best first, alpha = {alpha}",
            [h.score for h in rank(texts, alpha)],
            expected,
        )


def check_step():
    totals, scores = (
        np.array([-1, -1.2, -9]),
        np.random.default_rng(8).normal(-3, 1, (3, 7)),
    )
    every = sorted(
        product(range(3), range(7)), key=lambda at: -totals[at[0]] - scores[at]
    )
    same(
        "beginnings and words",
        np.array(step(totals, scores, 4)),
        np.transpose(every[:4]),
    )


# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = (
    "decode.Hypothesis",
    "decode.greedy",
    "decode.beam_search",
    "decode.length_penalty",
)
