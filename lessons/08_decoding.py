# %% [markdown]
"""# Lesson 08. Decoding

Take the most probable word, then the most probable word after it, and so on. Is that
the most probable sentence? It is not, as a tree of eight words will show. *Decoding* is
the way from the probabilities of the next token to a whole translation (section 6.1 of
the paper), and it can go wrong although the model is right.

You need lessons 01 to 07. By the end you will have built greedy decoding, beam search
with its length penalty, the cache that saves most of the work, and BLEU, which says
whether the effort was worth it.
"""

# %% [markdown]
# ## Is the most probable next word the right one?
# Somebody says "Sleep well!", and a model is asked for the German. Suppose that it
# knows eight words, and gives these probabilities to the next one:
#
#                  Gute   0.5 ----- Nacht      0.4      Gute Nacht       0.20
#               /            \----- Reise      0.3      Gute Reise       0.15
#              /              \---- Besserung  0.3      Gute Besserung   0.15
#     (start) ---- Schlaf 0.4 ----- gut        0.6      Schlaf gut       0.24
#              \             \----- (end)      0.4      Schlaf           0.16
#               \- Träum  0.1 ----- schön      1.0      Träum schön      0.10
#
# The number at the right is the probability of the complete text: the product along its
# branch.
#
# Whoever takes the most probable word each time writes "Gute" (0.5 against 0.4), then
# "Nacht": 0.5 times 0.4 is 0.20. But "Schlaf gut" has 0.4 times 0.6, which is 0.24.
#
# "Gute" looked best because three texts begin with it, and they have to share its 0.5.
# So a good first step can lead to a worse text. It does here: "Schlaf gut" means "sleep
# well", and "Gute Nacht" "good night". (start) and (end) are marks. The other texts
# mean "have a good trip", "get well soon", "sleep" and "dream sweetly".
#
# Multiply the numbers out. After two words every text ends.

# %%
import math
import re
from itertools import product
from typing import NamedTuple

import numpy as np

from minitf import forms
from minitf import functions as F
from minitf.check import claim, same
from minitf.course.architecture import figure_1
from minitf.course.checks import decoding as checks
from minitf.course.figures import decoding as figures
from minitf.course.lesson import begin, draw, finish, kept, show, toy_model
from minitf.data import toy
from minitf.decode import Decoding, Hypothesis, beam_search, greedy, length_penalty
from minitf.tensor import Tensor
from minitf.training.evaluation import bleu
from minitf.transformer import Transformer

# Reads the options --figures and --backend, and starts to count the claims.
begin("08_decoding")
rng = np.random.default_rng(0)  # random numbers, the same in each run

# %%
SLEEP = {
    "<s>": {"Gute": 0.5, "Schlaf": 0.4, "Träum": 0.1},
    "Gute": {"Nacht": 0.4, "Reise": 0.3, "Besserung": 0.3},
    "Schlaf": {"gut": 0.6, "</s>": 0.4},
    "Träum": {"schön": 1.0},
}


def texts_and_p(table):
    """Return {text: P} of all texts of one or two words."""
    found = {}
    for first, p in table["<s>"].items():
        for second, q in table[first].items():
            found[f"{first} {second}".removesuffix(" </s>")] = round(p * q, 3)
    return found


table_texts = texts_and_p(SLEEP)
for text, p in table_texts.items():
    print(f"    {text:15s} {p:.2f}")
same("the P of all texts of the table sum to 1", sum(table_texts.values()), 1)
claim(
    "the most probable text does not begin with the most probable word",
    max(table_texts, key=table_texts.get) == "Schlaf gut",
    f"Schlaf gut, P {table_texts['Schlaf gut']}",
)

# %% [markdown]
# We have added one arrow to the paper's figure 1: the dashed loop at the right is
# decoding. The softmax gives the probabilities of the next token, a rule chooses one,
# and it is fed back as the last of the "outputs (shifted right)".

# %%
draw(figure_1, "08_here.svg", here=["output"])

# %% [markdown]
# ![Figure 1 of the paper. On the way from the output probabilities back into the decoder a box is marked: choose a token](figures/08_here.svg)
#
# *What to see: this lesson is about the marked box, the rule that chooses. Nothing
# changes inside the model. It is called again and again, one token longer each time.*

# %% [markdown]
# ## How does a model write a sentence?
# We let a beginner write: the model of the earlier lessons, whose training was stopped
# after 400 of 1,500 updates. The finished one makes hardly any mistakes, and a better
# search would have nothing to correct. A *checkpoint* is a copy of a model, saved
# during its training: "Was the model chosen fairly, and is one checkpoint enough?"
# tells how the moment was chosen, without cheating.

# %%
early = toy_model("toy-model-early")
subwords = early.subwords
config = early.model.config
PAD = config.pad_id
START = config.bos_id  # beginning of sentence
END = config.eos_id  # end of sentence
print(f"    its vocabulary: {config.vocabulary_size:,} tokens")
parts = toy.splits(n_train=0)
english = parts["test"][0]  # 1,000 sentences that the training has not seen
german = parts["test"][1]

# %% [markdown]
# **State.** A model reads a source $X$ and the beginning of a translation, and gives
# $P$ of each token that may come next. A translation $Y$ has the tokens
# $y_1 \ldots y_n$, and the last of them is the *end mark* `</s>`. Its probability is
#
# $$P(Y|X) = \prod_{t=1}^{n} P(y_t \,|\, y_1 \ldots y_{t-1}, X)$$
#
# Products of many small numbers become too small for a float, so programs add up
# logarithms: $\ln P$ is a sum, negative, and nearer to 0 for a more probable text.
#
# You know the loop from lesson 06. *Greedy decoding* takes the most probable token at
# each step, and ends with the end mark. Three things are new. It adds up $\ln P$. It
# has a limit, because some models would never stop: 50 tokens more than the source
# (section 6.1). And two tokens are never written, whatever their probability: padding,
# and the start mark `<s>`.
#
# **Derive.** For one sentence. The result is a `Hypothesis`: the ids without the end
# mark, $\ln P$, and a score, which is $\ln P$ until the length penalty comes in.
#
# `exact` is a copy of the model in float64, so that equal programs agree to 15 digits.
# The encoder runs anew at each step here, which is a waste that a later section ends.


# %%
exact = toy_model("toy-model-early").model.astype("float64")
read = [list(ids) for ids in subwords.encode(english)]


def next_ln_p(model, source_ids, written):
    """Return ln P of each token that may come next (V,)."""
    logits = model([source_ids + [END]], [[START] + written])  # (1, t, V)
    ln_p = F.log_softmax(logits).numpy()[0, -1]
    ln_p[[PAD, START]] = -np.inf
    return ln_p


def greedy_by_loop(model, ids):
    words = []
    total = 0.0
    for _ in range(len(ids) + 50):
        ln_p = next_ln_p(model, ids, words)
        word = int(ln_p.argmax())
        total += ln_p[word]
        if word == END:
            break
        words.append(word)
    return Hypothesis(ids=words, log_probability=total, score=total)


first = greedy_by_loop(exact, read[4])
print("   ", english[4])
so_far = []
for word in first.ids + [END]:
    p = np.exp(next_ln_p(exact, read[4], so_far))
    second = int(p.argsort()[-2])
    name, name_of_second = [
        piece.strip("▁") for piece in subwords.pieces([word, second])
    ]
    needed = (np.cumsum(np.sort(p)[::-1]) < 0.9).sum() + 1
    print(f"    {name:9s} P {p[word]:.3f}   then {name_of_second:11s}", end=" ")
    print(f"P {p[second]:.3f}   90% of P on {needed} tokens")
    so_far.append(word)
old = np.exp(next_ln_p(exact, read[4], first.ids[:8]))[first.ids[4]]
print(f"    after Garten, alte has P {old:.4f}")

# %% [markdown]
# One line for each token, the last of them the end mark, and beside it the second best.
# The model is most in doubt at "zeichnen" (to draw): it has $P = 0.399$, the best of
# the others 0.049, and 90% of $P$ is spread over 137 tokens. And of the source, "On
# Monday the old doctor can draw old dogs in the garden.", the "old dogs" are lost: no
# token says "alte Hunde". After "Garten" the model gives "alte" a $P$ of only 0.0006.
# Can a better search bring the dogs back? We shall see.
#
# **Equate.** The library's `greedy` writes many sentences side by side, so their ids
# are rows of one array, filled up with padding.


# %%
def padded(lists):
    """Return lists of ids as one array: padding fills the shorter ones."""
    longest = max(len(ids) for ids in lists)
    return np.array([list(ids) + [PAD] * (longest - len(ids)) for ids in lists])


def sources_of(sentences):
    """Return the ids (B, S) that the encoder reads: subwords and the end mark."""
    return padded([list(ids) + [END] for ids in subwords.encode(sentences)])


def texts_of(hypotheses):
    return subwords.decode([hypothesis.ids for hypothesis in hypotheses])


source = sources_of(english)


def numbers(hypotheses):
    """Return all ids, ln P and scores in one row, to be compared."""
    rows = [h.ids + [h.log_probability, h.score] for h in hypotheses]
    return np.concatenate(rows)


same(
    "each Hypothesis of greedy has the ids, ln P and score of the loop",
    numbers(greedy(exact, source[:10])),
    numbers([greedy_by_loop(exact, ids) for ids in read[:10]]),
)

# %% [markdown]
# ## What if the best first word leads nowhere?
# Trying all texts is out of the question: with a vocabulary of 1,600 there are $1600^4$
# texts of four tokens, more than a trillion.
#
# *Beam search* (section 6.1) is a compromise. At each step it keeps not one beginning
# but the best $k$ of them, the *beam*. The paper has $k = 4$. Beam search must say what
# to keep (rule 1), how to compare finished texts (rule 2), and when texts and the
# search end (rules 3 to 5). This section and the next two take them one by one.
#
# **Rule 1: keep the best $k$ beginnings, by $\ln P$.** For "Sleep well!" and $k = 2$:
#
#     step 1:  Gute 0.5   Schlaf 0.4   Träum 0.1            keep Gute and Schlaf
#     step 2:  Schlaf gut 0.24   Gute Nacht 0.20   ...      keep these two
#
# In code, a beginning is its words, and its probability so far:


# %%
def best_longer(table, beginnings, k):
    """Return the k most probable texts that are longer by one word."""
    longer = []
    for words, p in beginnings:
        for word, q in table[words[-1]].items():
            longer.append((words + [word], p * q))
    longer.sort(key=lambda text: -text[1])
    return longer[:k]


def two_steps(table, k):
    """Return the beginnings that are kept after two steps, and print each step."""
    beginnings = [(["<s>"], 1.0)]
    for step in (1, 2):
        beginnings = best_longer(table, beginnings, k)
        kept_texts = [f"{' '.join(words[1:])} {p:.2f}" for words, p in beginnings]
        print(f"    k = {k}, step {step}: keep {', '.join(kept_texts)}")
    return beginnings


by_greed = two_steps(SLEEP, k=1)
by_two = two_steps(SLEEP, k=2)
best_of_two = " ".join(by_two[0][0][1:])
claim("a beam of 2 finds the best text", best_of_two == "Schlaf gut", best_of_two)

# %% [markdown]
# With $k = 1$ it is greedy, and ends with "Gute Nacht". With $k = 2$ it has not
# forgotten "Schlaf" when "Gute" turns out to lead nowhere.
#
# The candidates of a step are all next words of all beginnings, in one list. So both
# places of the beam may go to texts with the same beginning.
#
# Now a real sentence. The early model cannot translate "He is calling us." by greedy
# decoding. German splits the verb "anrufen" (to call): "er ruft ... an", and the second
# part comes last. A beam of 2 finds it.
#
# A real text ends with the end mark: then it is *finished*, and leaves the beam. The
# two best candidates may both end, and then nothing would be left to go on with. So we
# look at the best four. Those kept or finished are:


# %%
def continuations(model, ids, living, count):
    """Return the best `count` texts that are longer by one token, the best first."""
    longer = []
    for words, total in living:
        for word, ln_p in enumerate(next_ln_p(model, ids, words)):
            longer.append((words + [word], total + ln_p))
    longer.sort(key=lambda text: -text[1])
    return longer[:count]


class Candidate(NamedTuple):
    words: list
    ln_p: float
    state: str


def grow(model, ids, k, steps):
    """Return all candidates of these steps, and what became of them."""
    living = [([], 0.0)]
    looked_at = []
    for _ in range(steps):
        candidates = continuations(model, ids, living, 2 * k)
        living = [text for text in candidates if text[0][-1] != END][:k]
        for words, ln_p in candidates:
            state = "kept" if (words, ln_p) in living else "dropped"
            if words[-1] == END:
                state = "finished"
            looked_at.append(Candidate(words, ln_p, state))
    return looked_at


call = "He is calling us."
call_ids = list(subwords.encode([call])[0])
call_tree = grow(exact, call_ids, k=2, steps=6)
ended = [found for found in call_tree if found.state == "finished"]
call_best = max(ended, key=lambda found: found.ln_p)
call_texts = subwords.decode(
    [greedy_by_loop(exact, call_ids).ids, call_best.words[:-1]]
)
claim(
    "greedy writes a wrong sentence, a beam of 2 the right one",
    call_texts[0] != call_texts[1] == german[english.index(call)],
    call_texts,
)
for found in call_tree:
    if found.state != "dropped":
        words = " ".join(subwords.pieces(found.words)).replace("▁", "")
        print(f"    {found.state:8s}  ln P {found.ln_p:5.2f}  {words}")
tokens = [subwords.pieces(found.words)[-1].strip("▁") for found in call_tree]
draw(figures.search, "08_tree.png", call, call_tree, tokens)

# %% [markdown]
# ![What a beam of 2 keeps, in six columns, each sorted by ln P, the best on top. The path of blue arrows, Er ruft uns an, is in the first row except at step 4: there an, -3.28, is second to a second uns, -3.04. At step 5 it is first again, -3.32 against -3.53.](figures/08_tree.png)
#
# *What to see: each column has what the beam keeps at a step, the most probable on top,
# with its $\ln P$; what it drops is not drawn. The blue path, "Er ruft uns an." (He is
# calling us), wins, and it was not always ahead. At step 4 the second "uns" ($\ln P$
# -3.04) is more probable than "an" (-3.28): greedy goes wrong here. The beam keeps
# both. One step later the full stop has reversed their order: -3.32 against -3.53.*
#
# A light box from which no line leads on, such as "Hat", was kept for one step; then no
# child of its own was good enough.
#
# [The same with a trained model: a sentence that the beam saves](toy-page.html#turning)
#
# *What to see: at the step that is shown, greedy decoding would write the first word of
# the list, and in the end "kalten" (cold) twice. The beam keeps the second one as well.
# Press "Step" four times: one word later it is ahead. Then type your own.*
#
# ## Why do short texts win?
# Somebody asks "Coffee?", and the model has this table:
#
#     (start)   Ja 0.6        Nein 0.4
#     Ja        (end) 0.52    gern 0.48
#     Nein      (end) 0.75    danke 0.25       after gern and danke the text ends
#
# "Ja" (yes) has $P = 0.6 · 0.52 = 0.312$, and "Ja gern" (yes please)
# $0.6 · 0.48 = 0.288$. Each further token multiplies $P$ by a number of at most 1. So
# by $\ln P$ alone short texts win, whether they say enough or not.
#
# **Rule 2: finished texts are compared by a score**, not by $\ln P$. Google's
# translator (Wu et al. 2016, eq. 14) divided $\ln P$ by a *length penalty*, and the
# paper took it over. Despite its name, it helps long texts:
#
# $$\text{score}(Y) = \ln P(Y|X) / lp(Y), \quad
# lp(Y) = \left(\frac{5 + |Y|}{6}\right)^\alpha$$
#
# $|Y|$ counts the tokens, *and the end mark*. $\ln P$ is negative, so a larger divisor
# brings a score nearer to 0: better. The 5 and the 6, found by trying, let it grow
# gently, from 1 for a single token ($\alpha = 1$):
#
# | tokens | 1 | 2 | 10 |
# |---|---|---|---|
# | $lp$ | 1 | 1.17 | 2.5 |
# | without the 5 and the 6 | 1 | 2 | 10 |
#
# With $\alpha = 0$ every text has $lp = 1$, and the score is $\ln P$. With $\alpha = 1$
# long texts are ranked nearly by the mean $\ln P$ of a token. The paper has
# $\alpha = 0.6$, chosen on the development set. For the coffee and $\alpha = 1$:
#
#     Ja        ln 0.312 = -1.1648     |Y| = 2     lp = 7/6     score -0.9984
#     Ja gern   ln 0.288 = -1.2448     |Y| = 3     lp = 8/6     score -0.9336
#
# "Ja" is more probable, "Ja gern" scores higher.

# %%
COFFEE = {
    "<s>": {"Ja": 0.6, "Nein": 0.4},
    "Ja": {"</s>": 0.52, "gern": 0.48},
    "Nein": {"</s>": 0.75, "danke": 0.25},
}
print("   ", texts_and_p(COFFEE))
show(length_penalty)
print("    alpha 1:", [round(length_penalty(n, 1), 2) for n in (1, 2, 10)])
same(
    "the penalties of 1, 7 and 13 tokens",
    [length_penalty(n) for n in (1, 7, 13)],
    [1, 2**0.6, 3**0.6],
)
print(f"    -0.9984 times 56/6: {-0.9984 * 56 / 6:.1f}")
scores_by_hand = [math.log(0.312) / (7 / 6), math.log(0.288) / (8 / 6)]
same("the two scores on paper", np.round(scores_by_hand, 4), [-0.9984, -0.9336])

# %% [markdown]
# ## When does a text end, and when the search?
# **Rule 3: look at $2 k$ candidates.** With $k = 2$, step 2 of the coffee has
#
# | candidate | P | rank | what becomes of it |
# |---|---|---|---|
# | Ja (end) | 0.312 | 1 | finished |
# | Nein (end) | 0.3 | 2 | finished |
# | Ja gern | 0.288 | 3 | kept: the ends above it have left the beam |
# | Nein danke | 0.1 | 4 | kept |
#
# The best two both end. Had we looked at two candidates only, no beginning would be
# left. But each beginning can end in one way only, with the end mark. So of the best
# $2 k$ candidates at most $k$ end, and at least $k$ can go on.
#
# **Rule 4: an end mark counts only among the best $k$.** A beam of 1 should be greedy.
# But by rule 3 it looks at two candidates. Take this model:
#
#     (start)   Gute 0.6    (end) 0.4          Gute   Nacht 0.6    Reise 0.4
#
# Greedy decoding writes "Gute Nacht", with $P = 0.6 · 0.6 = 0.36$. The beam also sees
# the end with 0.4: an empty text. It does not count, as its rank is 2.
#
# **Rule 5: stop when $k$ texts are finished and none of the others can win.** At best,
# all further tokens of an unfinished text have $P = 1$, so its $\ln P$ stays as it is
# *now*, and it grows to the greatest length, so it is divided by the largest penalty.
# That quotient is a *bound*. If the bound is below the best finished score, stop.
#
# After step 2 of the coffee, with $\alpha = 1$, "Ja" and "Nein" are finished, "Ja" with
# the better score, -0.9984. "Ja gern" may still go on, with a $\ln P$ of -1.2448. The
# longest text has 51 tokens here, as the source has 1, and the penalty
# $(5 + 51)/6 = 56/6$:
#
#     -1.2448 / (56/6) = -0.1334         which is more than -0.9984: go on
#
# and the next step finds "Ja gern". The bound is generous: to stop here, the $\ln P$ of
# "Ja gern" would have to be below $-0.9984 \cdot 56/6 = -9.3$. So no winner is lost,
# but a search often goes on for a step or two after it has found its winner.
#
# **Derive.** All five rules in one program, for the one best text of a sentence. A text
# is a row of ids and its $\ln P$.


# %%
def beam_by_lists(model, ids, beam=4, alpha=0.6):
    limit = len(ids) + 50
    living = [([], 0.0)]
    finished = []
    for length in range(1, limit + 1):
        candidates = continuations(model, ids, living, 2 * beam)  # rule 3
        living = []
        for rank, candidate in enumerate(candidates, start=1):
            words, total = candidate
            if words[-1] == END and rank <= beam:  # rule 4
                score = total / length_penalty(length, alpha)  # rule 2
                finished.append(Hypothesis(words[:-1], total, score))
            if words[-1] != END and len(living) < beam:  # rule 1
                living.append((words, total))
        finished.sort(key=lambda hypothesis: -hypothesis.score)
        if len(finished) >= beam:  # rule 5
            bound = living[0][1] / length_penalty(limit, alpha)
            if bound <= finished[0].score:
                break
    # (If nothing has ended at the limit, the library returns the text that is cut off.)
    return finished[0]


# %% [markdown]
# **Equate.** The library searches for all sentences of a batch side by side. The same
# sentences come out, with the same $\ln P$ and scores.


# %%
def best_texts(model, source, **options):
    """Return the best Hypothesis of each sentence; beam_search lists the n best."""
    return [n_best[0] for n_best in beam_search(model, source, **options)]


same(
    "beam_search = the lists: ids, ln P and scores",
    numbers(best_texts(exact, source[:5])),
    numbers([beam_by_lists(exact, ids) for ids in read[:5]]),
)

# %% [markdown]
# ## How is a translation judged?
# The beam finds other texts than greedy. Are they better? We need a way to judge them.
# *BLEU* (Papineni et al. 2002) compares a translation with one written by a person, the
# *reference*, by counting common *n-grams*: $n$ neighbouring tokens, where a token is
# here a word or a punctuation mark. Let the reference be "die alte Frau liest die
# Zeitung" (the old woman reads the newspaper), six words, and the translation "die alte
# Frau liest die die":
#
#     n   the translation's n-grams                          in the reference    share
#     1   die alte Frau liest die die                        5 of 6 (see below)   5/6
#     2   die-alte alte-Frau Frau-liest liest-die die-die    4 of 5               4/5
#     3   die-alte-Frau alte-Frau-liest Frau-liest-die ...   3 of 4               3/4
#     4   die-alte-Frau-liest alte-Frau-liest-die ...        2 of 3               2/3
#
# "die" occurs three times in the translation, and twice in the reference. So it counts
# only twice: the count is *clipped*. Otherwise "die die die die" would have $p_1 = 1$:
# each of its words is in the reference. Single words ask whether the right words are
# there; pairs, threes and fours ask whether they are in the right order.
#
# Multiply the shares, for one kind must not replace another: the right words in a
# random order have $p_1 = 1$ and $p_4$ near 0. The mean of the four could still be a
# half; their product is near 0. Here it is 2/6; its fourth root, which brings a product
# of four back to the size of one, is 0.7598: a BLEU of 75.98, of 100.
#
# A second translation is "die alte Frau liest die". Each share is 1, yet a word is
# missing. Whoever wrote only the few words that are sure would always get that.
# Therefore BLEU has a *brevity penalty*. With $c = 5$ tokens in the translation and
# $r = 6$ in the reference it is
#
# $$e^{1 - 6/5} = e^{-0.2} = 0.8187$$
#
# and BLEU is 81.87. The penalty is 1 at $c = r$, a text that is 1% too short loses
# about 1%, and one of half the length keeps $e^{-1} = 0.37$ and not $c/r = 0.50$.
#
# **State.** One sentence may share no four words in a row with its reference. Then
# $p_4 = 0$, and BLEU is 0 as well. Therefore it is computed over a test set: the counts
# of all sentences are added up first.
#
# $$\text{BLEU} = 100 \cdot \min(1, e^{1 - r/c}) \cdot (p_1 p_2 p_3 p_4)^{1/4}$$
#
# $p_n$ is the share of the translations' n-grams that their references have too,
# clipped sentence by sentence; $c$ and $r$ are the tokens of all translations and of
# all references. Surplus n-grams of a text that is too long lower the shares.
#
# **Derive.** Count by hand: look for each n-gram in the reference, and cross out the
# one you found. Crossing out is the clipping.


# %%
def tokens_of(text):
    """Words and punctuation marks."""
    return re.findall(r"\w+|[.,?!]", text)


def ngrams(tokens, n):
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def matches(tokens, reference, n):
    """Return how many n-grams of the text are in the reference too, clipped."""
    remaining = ngrams(reference, n)
    found = 0
    for ngram in ngrams(tokens, n):
        if ngram in remaining:
            remaining.remove(ngram)
            found += 1
    return found


# The places of these numbers in a row of counts.
FOUND = slice(0, 4)
POSSIBLE = slice(4, 8)
C = 8  # tokens of the translation
R = 9  # tokens of the reference


def counts_of(text, reference):
    """Return what BLEU needs of one sentence: 4 found, 4 possible, c, r."""
    tokens = tokens_of(text)
    wanted = tokens_of(reference)
    found = [matches(tokens, wanted, n) for n in (1, 2, 3, 4)]
    possible = [len(ngrams(tokens, n)) for n in (1, 2, 3, 4)]
    return np.array(found + possible + [len(tokens), len(wanted)], dtype=float)


def bleu_of(counts):
    """Return BLEU of the sums (..., 10) of such numbers."""
    # At least 1: a text of three words has no four in a row, and so none that is found.
    shares = counts[..., FOUND] / np.maximum(1, counts[..., POSSIBLE])
    brevity = np.minimum(1, np.exp(1 - counts[..., R] / counts[..., C]))
    return 100 * brevity * shares.prod(axis=-1) ** (1 / 4)


reference = "die alte Frau liest die Zeitung"
clipped = counts_of("die alte Frau liest die die", reference)
short = counts_of("die alte Frau liest die", reference)
print(f"    fourth root of 2/6: {(2 / 6) ** (1 / 4):.4f}")
print(f"    e^(1 - 6/5): {math.exp(1 - 6 / 5):.4f}")
print(f"    half the length: e^(1 - 2) = {math.exp(-1):.2f}, c/r = {1 / 2:.2f}")
same(
    "found and possible n-grams as on paper: 5/6, 4/5, 3/4, 2/3",
    [clipped[FOUND], clipped[POSSIBLE]],
    [[5, 4, 3, 2], [6, 5, 4, 3]],
)
same("the clipped translation has BLEU 75.98", round(bleu_of(clipped), 2), 75.98)
same("the short translation has BLEU 81.87", round(bleu_of(short), 2), 81.87)

# %% [markdown]
# **Equate.** Published scores come from a program that everybody shares, *sacreBLEU*,
# and our `bleu` calls it. It takes plain text and cuts it into tokens by a scheme of
# rules named "13a": punctuation apart, words as they are. Ours agrees on a test set of
# our two sentences.

# %%
two = ["die alte Frau liest die die", "die alte Frau liest die"]
judged = bleu(two, [reference, reference])
both = clipped + short
same("BLEU of two sentences = sacreBLEU", bleu_of(both), judged.score)
shares_of_both = 100 * both[FOUND] / both[POSSIBLE]
same("its shares p_1 to p_4, in per cent", judged.precisions, shares_of_both)
same("its brevity penalty", judged.brevity_penalty, np.exp(1 - both[R] / both[C]))

# %% [markdown]
# ## Does a beam give better translations?
# Let the beginner translate 1,000 sentences that its training has not seen. First
# greedily. Here are three of them, each with the reference below.

# %%
with forms.on():
    by_greedy = greedy(early.model, source)
greedy_texts = texts_of(by_greedy)
for i in (4, 9, 11):
    print(f"    {english[i]}\n        {greedy_texts[i]}\n        {german[i]}")


def counts_of_all(texts):
    """Return the ten numbers of each sentence (1000, 10)."""
    return np.array([counts_of(text, german[i]) for i, text in enumerate(texts)])


greedy_counts = counts_of_all(greedy_texts)
greedy_bleu = bleu_of(greedy_counts.sum(axis=0))
same("our BLEU of greedy = sacreBLEU", greedy_bleu, bleu(greedy_texts, german).score)
print(f"    BLEU of our beginner, on a small grammar: {greedy_bleu:.2f}")
print("    BLEU of the paper's big model, on news:   28.4")

# %% [markdown]
# In the first, "alte Hunde" (old dogs) are forgotten. The second is right. The third
# has "Sagen sie" (do they say) for "Wissen sie" (do they know), and "meine Bruder" in
# place of "mein Bruder".
#
# Is 74.35 good? **A BLEU tells something only in comparison**: the same test set, the
# same references. The paper has 28.4 on news, where a sentence has many right
# translations. In our small grammar there is nearly always one. A right translation in
# other words scores low: BLEU counts likeness, not truth.
#
# So compare: beams of 4, with different $\alpha$, against greedy.
#
# Which differences can we trust? Another 1,000 sentences would give other numbers. To
# see how different, we draw 1,000 sentences from ours at random, so that some occur
# several times and some not at all, and compute BLEU again. We do so 500 times (this is
# called a *bootstrap*), and report the range in which the middle 95% of the results
# are. Greedy and beam are judged on the same drawn sentences: a hard draw is hard for
# both.

# %%
alphas = [0.0, 0.6, 1.0]
by_beam = {}
with forms.on():
    for alpha in alphas:
        by_beam[alpha] = best_texts(early.model, source, beam=4, alpha=alpha)

greedy_length = 100 * greedy_counts[:, 8].sum() / greedy_counts[:, 9].sum()

# Row by row: how often each of the 1,000 sentences is drawn; it counts as often.
n = len(english)
draws = rng.multinomial(n, [1 / n] * n, size=500)  # (500, 1000)
greedy_again = bleu_of(draws @ greedy_counts)  # (500,)
bleus = []
lengths = []
drawn_bleus = {}
gains = {}
print(f"    greedy             BLEU {greedy_bleu:.2f}  length {greedy_length:.1f}%")
for alpha, hypotheses in by_beam.items():
    counts = counts_of_all(texts_of(hypotheses))
    sums = counts.sum(axis=0)
    drawn_bleus[alpha] = bleu_of(draws @ counts)
    bleus.append(bleu_of(sums))
    lengths.append(100 * sums[8] / sums[9])
    gains[alpha] = np.percentile(drawn_bleus[alpha] - greedy_again, [2.5, 97.5])
    print(
        f"    beam 4, alpha {alpha}  BLEU {bleus[-1]:.2f}  length {lengths[-1]:.1f}%",
        f" gain {bleus[-1] - greedy_bleu:+.2f}"
        f" ({gains[alpha][0]:+.2f} to {gains[alpha][1]:+.2f})",
    )
of_penalty = np.percentile(drawn_bleus[1.0] - drawn_bleus[0.0], [2.5, 97.5])

# %%
claim(
    "without the penalty the beam gains nothing that we can trust",
    gains[0.0][0] < 0 < gains[0.0][1],
    f"{gains[0.0][0]:+.2f} to {gains[0.0][1]:+.2f}",
)
claim(
    "the penalty gains: alpha 1 against alpha 0, the lower end of the range",
    of_penalty[0] > 0,
    f"{of_penalty[0]:+.2f}",
)
print(f"    alpha 1 against alpha 0: {bleus[2] - bleus[0]:+.2f}", end=" ")
print(f"({of_penalty[0]:+.2f} to {of_penalty[1]:+.2f})")
gains_of_beams = [bleu_of_beam - greedy_bleu for bleu_of_beam in bleus]
draw(figures.gains, "08_alpha.png", gains_of_beams, gains)

# %% [markdown]
# ![Three dots with intervals: the BLEU of a beam of 4, minus that of greedy. Without a length penalty, alpha 0, it is -0.04, from -0.82 to 0.91; with the paper's alpha of 0.6 it is 0.60, from -0.18 to 1.55; with alpha 1 it is 0.80, from 0.04 to 1.71.](figures/08_alpha.png)
#
# *What to see: without the penalty the dot is on the line, as good as greedy. With it
# the dots are right of the line, but only the interval of $\alpha$ 1 is clear of it, by
# a little.*
#
# The intervals overlap. Are $\alpha$ 0 and 1 equal, then? No: a draw of simple
# sentences raises both scores, so compare them *within* each draw: in 95% of the draws
# $\alpha$ 1 is ahead of $\alpha$ 0 by 0.44 to 1.30, and on the whole set by 0.85.
#
# The beam helps less than one hopes. Without the penalty it gains nothing: it finds
# more probable texts, and these are short: 96.6% of the references' length, where
# greedy's have 99.9%. BLEU punishes what is missing. With $\alpha = 1$ it is 97.9%.
#
# ## Why does a better search help so little?
# Because a better *score* is not a better *translation*. If a translation is wrong, who
# is to blame? Ask the model for the score of the reference, too:
#
# | the model scores higher | so | name |
# |---|---|---|
# | the reference | the search missed a text that it likes more | *search error* |
# | the wrong text | the model itself prefers the wrong text | *model error* |
#
# "Wrong" means here: not the reference, word for word, which in this small grammar is
# fair. For the score of the reference the model reads it as in training, all tokens at
# once, and we add up $\ln P$ of its tokens.


# %%
def score_in_search(hypothesis):
    """Return ln P divided by the penalty with alpha = 0.6; the end mark counts."""
    return hypothesis.log_probability / length_penalty(len(hypothesis.ids) + 1)


def scores_by_model(model, sentences, texts, alpha=0.6):
    """Return the score that a model gives to each of these translations."""
    ids = [list(row) for row in subwords.encode(texts)]
    reads = padded([[START] + row for row in ids])
    writes = padded([row + [END] for row in ids])
    ln_p = F.log_softmax(model(sources_of(sentences), reads)).numpy()  # (B, T, V)
    scores = []
    for i, row in enumerate(ids):
        length = len(row) + 1  # with the end mark
        total = sum(ln_p[i, t, writes[i, t]] for t in range(length))
        scores.append(total / length_penalty(length, alpha))
    return np.array(scores)


few = 300  # sentences are enough for this
by_width = {1: by_greedy[:few], 4: by_beam[0.6][:few]}  # greedy for a beam of 1
with forms.on():
    for beam in (2, 8):
        by_width[beam] = best_texts(early.model, source[:few], beam=beam)

reference_scores = scores_by_model(early.model, english[:few], german[:few])
search_errors = {}
model_errors = {}
wrong_at = {}
for beam in (1, 2, 4, 8):
    texts = texts_of(by_width[beam])
    # Not hypothesis.score: greedy's own is plain ln P.
    scores = np.array([score_in_search(hypothesis) for hypothesis in by_width[beam]])
    wrong = np.array([text != german[i] for i, text in enumerate(texts)])
    # In float32 the scores of equal texts may differ a little.
    missed = wrong & (reference_scores > scores + 1e-3)
    search_errors[beam] = int(missed.sum())
    wrong_at[beam] = wrong
    if beam == 1:
        missed_by_greedy = missed
    model_errors[beam] = int(wrong.sum() - missed.sum())
    print(
        f"    beam of {beam}: mean score {scores.mean():.3f},",
        f"{sum(len(h.ids) for h in by_width[beam]):,} tokens,",
        f"BLEU {bleu(texts, german[:few]).score:.2f},\n        ",
        f"errors {search_errors[beam]} (search) and {model_errors[beam]} (model)",
    )
still_wrong = int(wrong_at[8][missed_by_greedy].sum())
newly_wrong = int((wrong_at[8] & ~wrong_at[1]).sum())
print(f"    old dogs: the reference {reference_scores[4]:.2f}", end=", ")
print(f"a beam of 4 {score_in_search(by_width[4][4]):.2f}")
print(
    f"    wrong with greedy {wrong_at[1].sum()}, with a beam of 8 {wrong_at[8].sum()};",
    f"of greedy's {search_errors[1]} search errors\n",
    f"    {still_wrong} are still wrong, and {newly_wrong}",
    "that it had right are wrong now",
)
claim("a beam of 4: few search errors", search_errors[4] <= 4, search_errors[4])
claim(
    "wider beams remove the search errors of greedy",
    search_errors[8] < search_errors[1],
    f"{search_errors[1]} and {search_errors[8]}",
)
claim(
    "the model's errors remain",
    model_errors[8] >= model_errors[1],
    f"{model_errors[1]} and {model_errors[8]}",
)

# %% [markdown]
# | wrong translations | search errors | model errors |
# |---|---|---|
# | greedy: 194 | 14 | 180 |
# | a beam of 8: 192 | 0 | 192 |
#
# **The search is rarely to blame.** A beam of 8 removes all 14 errors of the search,
# and only 6 of these sentences become right. In the other 8 a better search found
# another wrong text, which the model likes even more. And 4 sentences that greedy had
# right, by looking no further, are wrong now. So no BLEU is gained on these 300; on all
# 1,000 it was 0.60. And the old dogs? The model scores the sentence with them -5.23,
# and the one without -1.31: no search brings them back.
#
# The wider the beam, the shorter the texts: 2,725 tokens with greedy, 2,646 with a beam
# of 4, 2,632 with a beam of 8. A short text has fewer factors below 1, and a wide beam
# keeps the beginnings from which one can end early. By rule 4 it also counts more ends:
# with $k = 8$ one of rank 7, with $k = 1$ only the best. A narrow beam is protected
# from short texts because it overlooks them.
#
# Of all 1,000 sentences a beam of 4 repairs 32 and breaks 15. Here are three that it
# breaks, with both scores. "ihn" for "ihm" is the wrong case of "him"; "Tom hat Paul"
# has lost "besucht" (visited); "hat" is "has", where "haben" (have) is right.

# %%
beam_texts = texts_of(by_beam[0.6])
fooled = []
repaired = []
for i, text in enumerate(beam_texts):
    if greedy_texts[i] != german[i] == text:
        repaired.append(text)
    if greedy_texts[i] == german[i] != text:
        fooled.append(score_in_search(by_beam[0.6][i]) - score_in_search(by_greedy[i]))
        if len(fooled) <= 3:
            print(f"    {score_in_search(by_greedy[i]):.2f}  {greedy_texts[i]}")
            print(f"    {score_in_search(by_beam[0.6][i]):.2f}  {text}")
claim(
    "where greedy is right and the beam is wrong, the wrong text scores better",
    min(fooled) > 0,
    f"{len(fooled)} of {len(english):,} sentences",
)
print(f"    of {len(english):,} sentences a beam of 4 repairs {len(repaired)}", end=" ")
print(f"and breaks {len(fooled)}")

# %% [markdown]
# A search can only find what the model prefers. If the model prefers a wrong text, no
# search will mend that: it takes a better model, and that takes training.
#
# Programs that chat do not search: a question has many good answers. They [draw each
# token](decoder_only.py) by its probability. A *temperature* $T$ divides the logits
# first: near $T = 0$ the best token wins, and a large $T$ makes all tokens alike.
#
# ## Must every token be read again at each step?
# Our loops call the model with the text so far: 1 token, then 2, then 3. At step $t$
# the decoder reads $t$ positions and uses only the last.
#
# But no position sees what comes later (the causal mask of lesson 01). So whatever the
# decoder computed at the earlier positions would come out the same. The newest position
# needs from them only their *keys and values*, in each layer. A *cache* keeps these:
#
# - of self-attention: keys and values of the text so far, one more at each step;
# - of the attention to the source: keys and values of the source, computed once.
#
# The queries need not be kept: those of earlier positions have asked already.
#
# **Derive.** One head, five positions. First all at once, with the causal mask; then a
# token at a time. The newest position may look at all that is in the cache, so it needs
# no mask.

# %%
queries, keys, values = rng.standard_normal((3, 5, 4))  # five positions, d_k = 4


def attend(queries, keys, values, mask):
    """Return the weights and the outputs of one head."""
    scores = np.where(mask, queries @ keys.T / np.sqrt(4), -np.inf)
    weights = F.softmax(scores).numpy()
    return weights, weights @ values


triangle, at_once = attend(queries, keys, values, np.tri(5, dtype=bool))
kept_keys = []
kept_values = []
new_rows = []
for t in range(5):
    kept_keys.append(keys[t])
    kept_values.append(values[t])
    cached = np.array(kept_keys), np.array(kept_values)
    _, new_row = attend(queries[t : t + 1], *cached, True)
    new_rows.append(new_row)
same("one query at each step, with a cache = all at once", np.vstack(new_rows), at_once)
draw(figures.triangle, "08_triangle.png", triangle)

# %% [markdown]
# ![Two causal triangles of weights, at step 4 and at step 5. The rows of step 4 stand unchanged in the triangle of step 5, which has one row more; that row is framed](figures/08_triangle.png)
#
# *What to see: a step adds one row to the triangle. The rows above it are what they
# were, because no row sees a later column. So only the framed row is computed.*
#
# **Equate.** In a model each attention layer of the decoder has such a cache. `greedy`
# and `beam_search` keep them, unless they are given the model as one
# `Decoding(model, cached=False)`. Both run the encoder only once a sentence, as lesson
# 06 promised.

# %%
same(
    "greedy with the cache = without",
    numbers(greedy(Decoding(exact), source[:20])),
    numbers(greedy(Decoding(exact, cached=False), source[:20])),
)
same(
    "beam search with the cache = without",
    numbers(best_texts(Decoding(exact), source[:10])),
    numbers(best_texts(Decoding(exact, cached=False), source[:10])),
)

# %% [markdown]
# **Use.** What does the cache save? Count the multiplications of one decoder layer of
# the paper's base model ($d = d_{model} = 512$), for a long sentence of news: a source
# of 37 tokens and a text of 64. The linear maps of a position take $14 d^2$:
#
# - 4 of self-attention: query, key, value and output are a $d$ by $d$ matrix each;
# - 2 of source attention: query and output, as keys and values come from the source;
# - 8 of the network: its two matrices are $d$ by $4 d$ and $4 d$ by $d$ (lesson 06).
#
# Attention adds $2 d (t + S)$: $d$ multiplications for a key's score, and $d$ for its
# value's part of the average, with $t$ keys in the text and $S$ in the source.
#
# Without a cache, all $t$ positions are computed at step $t$. With it, one is.


# %%
d = 512
S = 37


def per_step(t, cache):
    """Return the multiplications of step t in one decoder layer."""
    positions = 1 if cache else t  # that are computed at this step
    linear = positions * 14 * d**2
    if t == 1 or not cache:
        linear += 2 * S * d**2  # keys and values of the source
    attention = positions * 2 * d * (t + S)
    return linear + attention


steps_counted = np.arange(1, 65)
without = np.array([per_step(t, cache=False) for t in steps_counted])
with_cache = np.array([per_step(t, cache=True) for t in steps_counted])
saved = without.sum() / with_cache.sum()
print(f"    step 1: {without[0] / 1e6:.0f} million")
print(f"    step 64 without a cache: {without[-1] / 1e6:.0f} million")
print(f"    and with the cache: {with_cache[-1] / 1e6:.0f} million")
print(f"    a text of 64 tokens: the cache saves a factor of {saved:.0f}")
draw(figures.cost, "08_cache.png", without, with_cache)

# %% [markdown]
# ![Multiplications of one decoder layer at each token of a text of 64. Without a cache, where all is computed again, they climb in a straight line from 23 to 261 million; with the cache they stay near 4 million after the first token, which brings the keys and values of the source.](figures/08_cache.png)
#
# *What to see: one decoder layer of the base model. Without a cache each token costs
# more than the one before. With it, each costs nearly the same. Together, the 64 tokens
# cost 35 times less.*
#
# "Nearly": the newest position still looks at all the others, so the cost of its
# attention grows with $t$.

# %% [markdown]
# ## What did we learn?
# - The most probable next token need not begin the most probable text.
# - A beam keeps the $k$ best beginnings, looks at $2 k$ candidates, and lets an end
#   mark count only among the best $k$.
# - $\ln P$ prefers short texts. The length penalty, which counts the end mark, brings
#   longer ones back.
# - BLEU multiplies four clipped shares and punishes short texts. It belongs to a test
#   set, and its uncertainty is often as large as the gain.
# - A better search finds texts that the model prefers. It mends search errors; most
#   errors are the model's own.
# - The cache keeps keys and values of the text and of the source. Then the linear maps
#   cost one position a step; self-attention still costs $t$.

# %% [markdown]
# ## More on decoding
# Nothing below is needed for the next lesson. Of the questions, the two with a ★ are
# worth everybody's click.
#
# ### What if a model misbehaves, and does the library keep the five rules?
# The first model below has learned nothing and repeats itself for ever: the limit ends
# it. The second one would rather write padding and the start mark than anything else.
# The library writes neither, and still counts their share of the probability, as the
# loop does.

# %%
small = config.replace(vocabulary_size=40, output_bias=True)
untrained = Transformer(small).astype("float64").eval()
three_words = [5, 6, 7]
endless = greedy(untrained, [three_words + [END]])[0]
n_written = len(endless.ids)
claim("greedy ends at the source's 3 tokens and 50 more", n_written == 53, n_written)

untrained.output_bias.data[PAD] = 9.0
untrained.output_bias.data[START] = 9.0
misled = greedy(untrained, [three_words + [END]])
never = {PAD, START}.isdisjoint(misled[0].ids)
claim("padding and the start mark are never written", never, misled[0].ids[:5])
by_hand = [greedy_by_loop(untrained, three_words)]
same("but they keep their share of P", numbers(misled), numbers(by_hand))

# %% [markdown]
# To run the small models of the rules in the library, put their tables into a
# Transformer, in place of its decoder: the next word depends on the last one only. A
# word without a row ends the text.

# %%
SPECIAL = "<pad> <unk> <s> </s> "
GERMAN = "Gute Nacht Reise Besserung Schlaf gut Träum schön Ja Nein gern danke sehr"
WORDS = (SPECIAL + GERMAN).split()


class TableModel(Transformer):
    """A model that reads the next word's probabilities from a table."""

    def decode(self, target, memory, source_mask):
        return Tensor(self.ln_p[target])  # (B, T, V)

    def logits(self, hidden):
        return hidden


def table_model(table):
    model = TableModel(config.replace(vocabulary_size=len(WORDS)))
    model.ln_p = np.full((len(WORDS), len(WORDS)), -np.inf)
    for last, word in enumerate(WORDS):
        for following, p in table.get(word, {"</s>": 1.0}).items():
            model.ln_p[last, WORDS.index(following)] = np.log(p)
    return model


ONE_TOKEN = [[WORDS.index("Gute"), END]]  # any source of one token


def search(table, beam, alpha=0.0, n_best=1, max_extra=50):
    """Return {text: P} of the library's search, the best first."""
    model = table_model(table)
    found = beam_search(model, ONE_TOKEN, beam, alpha, max_extra, n_best)[0]
    return {as_text(h.ids): round(math.exp(h.log_probability), 3) for h in found}


def as_text(ids):
    return " ".join(WORDS[i] for i in ids)


def finds(name, expected, found):
    """Claim that a search finds these texts, with these P, in this order."""
    claim(name, list(found.items()) == list(expected.items()), found)


finds("a beam of 1 takes the best word", {"Gute Nacht": 0.2}, search(SLEEP, 1))
finds("a beam of 2 finds the better text", {"Schlaf gut": 0.24}, search(SLEEP, 2))
finds(
    "a beam of 2 knows its two best texts",
    {"Schlaf gut": 0.24, "Gute Nacht": 0.2},
    search(SLEEP, 2, n_best=2),
)

# %%
SILENCE = {"<s>": {"Gute": 0.6, "</s>": 0.4}, "Gute": {"Nacht": 0.6, "Reise": 0.4}}
finds(
    "the best two candidates may both be ends",
    {"Ja": 0.312, "Nein": 0.3},
    search(COFFEE, 2, n_best=2),
)
finds(
    "an end mark of rank 2 is dropped by a beam of 1",
    {"Gute Nacht": 0.36},
    search(SILENCE, 1),
)
finds("an end mark of rank 2 counts in a beam of 2", {"": 0.4}, search(SILENCE, 2))
finds("by score the longer text wins", {"Ja gern": 0.288}, search(COFFEE, 2, alpha=1.0))

# %% [markdown]
# ### When may a search for several texts stop, and does a wide search find everything?
# Rule 5 waits for $k$ finished texts. That never changes which is the best. It is for
# those who want more than one. Two rules more:
#
# **Rule 6: the $n$ best.** Whoever asks for the best $n$ texts must go on until no
# other can come among these $n$: the bound is compared with the $n$-th best score.
# Another model, with $\alpha = 0$ and $k = n = 2$:
#
#     step 1:  Ja 0.7   (end) 0.25   Nein 0.05             finish the empty text
#     step 2:  Ja (end) 0.385   Ja gern 0.315   ...         finish Ja; two are finished
#
# "Ja gern" cannot beat "Ja", but it can beat the empty text: go on.
#
# **Rule 7: the limit.** A text that is cut off at the limit has no end, so it comes
# after all finished ones, whatever its score.

# %%
same("the bound on paper, of 51 tokens", round(math.log(0.288) / (56 / 6), 4), -0.1334)
YES = {
    "<s>": {"Ja": 0.7, "</s>": 0.25, "Nein": 0.05},
    "Ja": {"</s>": 0.55, "gern": 0.45},
}
finds(
    "for two texts it goes on, and finds the second best",
    {"Ja": 0.385, "Ja gern": 0.315},
    search(YES, 2, n_best=2),
)
VERY = {"<s>": {"sehr": 0.9, "</s>": 0.1}, "sehr": {"sehr": 0.9, "</s>": 0.1}}
finds(
    "with a limit of 2 tokens, the text that was cut off comes last",
    {"": 0.1, "sehr": 0.09, "sehr sehr": 0.81},
    search(VERY, 3, n_best=3, max_extra=1),
)

# %% [markdown]
# A search that is wide enough must find everything. A model with six tokens, three of
# which may be written, can say 1 + 3 + 9 + 27 = 40 texts of up to three tokens. We
# compute the score of each, without any search, and compare the whole ranking. If a
# rule lost a single text, the ranks would differ. The beam of 108 has a place for each
# of the 27 texts of three tokens with each of its 4 next tokens.

# %%
tiny = Transformer(config.replace(vocabulary_size=6)).astype("float64").eval()
tiny_source = [4, 5]  # two tokens, and 2 more allowed: three words and the end


def scored(text):
    """Return a text as a Hypothesis, with its ln P added up token by token."""
    ln_p = 0.0
    for t, word in enumerate(text + [END]):
        ln_p += next_ln_p(tiny, tiny_source, text[:t])[word]
    return Hypothesis(text, ln_p, ln_p / length_penalty(len(text) + 1))


every = []
for length in range(4):
    # The three that may be written, beside the end: <unk> and two words.
    for words in product([1, 4, 5], repeat=length):
        every.append(scored(list(words)))
every.sort(key=lambda hypothesis: -hypothesis.score)
wide = beam_search(tiny, [tiny_source + [END]], beam=108, max_extra=2, n_best=40)[0]
same("a beam of 108 ranks all 40 texts correctly", numbers(wide), numbers(every))

# %% [markdown]
# ### ★ Was the model chosen fairly, and is one checkpoint enough?
# Our model is a beginner, a training stopped early. To choose the moment at which beam
# search looks best would be cheating. So this rule was written down before the training
# began:
#
# > Keep the weights of every 50th of 1,500 updates. The *early model* is the first of
# > these checkpoints whose greedy translations of the 500 validation sentences reach a
# > BLEU of 60. Its translations are then judged on test sentences, which neither the
# > training nor the choice has seen.
#
# Validation sentences are kept out of training, to choose by.
#
# `python -m minitf.course.experiments.early_model` did this, and kept the scores of all
# checkpoints. From one checkpoint to the next, BLEU jumped past 60, to 73.22.

# %%
run = kept("early_model")
rows = run["checkpoints"]
enough = [row["updates"] for row in rows if row["greedy"]["BLEU"] >= 60]
claim(
    "the rule chooses the first checkpoint of at least 60",
    enough[0] == run["chosen"],
    f"after {enough[0]} of {rows[-1]['updates']:,} updates",
)
# One point of the kept run again: the chosen model, and the validation sentences.
with forms.on():
    again = greedy(early.model, sources_of(parts["valid"][0]))
again_bleu = bleu(texts_of(again), parts["valid"][1]).score
chosen_row = rows[[row["updates"] for row in rows].index(run["chosen"])]
claim(
    "the kept greedy BLEU of the chosen model comes out again",
    abs(again_bleu - chosen_row["greedy"]["BLEU"]) < 0.5,
    f"{again_bleu:.2f}, kept {chosen_row['greedy']['BLEU']:.2f}",
)

# %% [markdown]
# One checkpoint is one throw of the dice. The kept run has 30, each with the gain of
# the beam on the 500 validation sentences. We draw those from 200 to 1,000 updates:
# before, the model translates nothing, and later it makes few mistakes.

# %%
with_mistakes = [row for row in rows if 200 <= row["updates"] <= 1000]
updates = [row["updates"] for row in with_mistakes]


def gain_of(search, checkpoints):
    """Return the gain in BLEU over greedy of each checkpoint."""
    return [row[search]["BLEU"] - row["greedy"]["BLEU"] for row in checkpoints]


curves = {}
for name in ("alpha 0", "alpha 0.6", "alpha 1"):
    gain = np.array(gain_of(f"beam 4, {name}", with_mistakes))
    curves[name] = (updates, gain)
    print(f"    {name:9s} wins at {sum(gain > 0)} of {len(gain)} checkpoints,", end=" ")
    print(f"mean gain {gain.mean():+.2f}:")
    print(
        f"        from {gain.min():+.2f} (at {updates[gain.argmin()]})",
        f"to {gain.max():+.2f} (at {updates[gain.argmax()]})",
    )
late = [row for row in rows if row["updates"] > 1000]
mean_gain = np.mean(gain_of("beam 4, alpha 0.6", late))
print(f"    after 1,000: mean gain of alpha 0.6 {mean_gain:+.2f}")
chosen_gain = gain_of("beam 4, alpha 0.6", [chosen_row])[0]
print(f"    our checkpoint on the validation sentences, alpha 0.6: {chosen_gain:+.2f}")
won_without = sum(curves["alpha 0"][1] > 0)
won_with = sum(curves["alpha 1"][1] > 0)
claim(
    "a beam wins more often with a penalty than without one",
    won_with > won_without,
    f"{won_with} and {won_without} of {len(updates)}",
)
draw(
    figures.checkpoints,
    "08_checkpoints.png",
    updates,
    gain_of("beam 4, alpha 0", with_mistakes),
    gain_of("beam 4, alpha 1", with_mistakes),
)

# %% [markdown]
# ![The gain of a beam of 4 over greedy at 17 checkpoints. With alpha 1 it is above 0 at all of them, with alpha 0 it falls to -3.39 at 300 updates; the largest gain is near 6, at 450 updates.](figures/08_checkpoints.png)
#
# *What to see: the line of $\alpha$ 0, without the penalty, is below greedy's line at
# four checkpoints. With $\alpha$ = 1 the beam was worse at none of the 17 checkpoints,
# though better by less than the noise at several.*
#
# Is beam search better than greedy, then? With the penalty: mostly, by about one BLEU
# if the model makes mistakes, and by little if it makes hardly any. Our checkpoint
# gains +0.60 on the test sentences. Had we picked the peak after looking, this lesson
# would tell a better story, and a wrong one.
#
# ### Why do texts grow with alpha, and do wider beams raise BLEU?
# What $\alpha$ does to the lengths can be derived. A longer text $Y$ beats a shorter
# $Z$ if
#
# $$\frac{\ln P(Y)}{\ln P(Z)} < \frac{lp(Y)}{lp(Z)}$$
#
# (both $\ln P$ are negative). The right side is a number above 1 to the power of
# $\alpha$, so it grows with $\alpha$. Where the longer one wins, it also wins for every
# larger $\alpha$. So the lengths can only grow with $\alpha$, as long as the search
# looks at the same texts.

# %%
claim(
    "the lengths grow with alpha, in % of the references'",
    np.diff(lengths).min() > 0,
    np.round(lengths, 1),
)

# %% [markdown]
# A wider beam raises the score, not BLEU: on the 300 sentences above BLEU is 73.03 with
# a beam of 4, 73.14 with greedy, and the gain on all 1,000 was within the noise. With
# nearly all of the real models that Koehn and Knowles measured in 2017 ("Six Challenges
# for Neural Machine Translation"), BLEU even fell from some width on.
#
# ### ★ How does a model use its caches, and what do they cost?
# The decoder's attention layers ask a cache, if they are given one, for keys and
# values, and give it the newest position (or the source). Beam search has to do one
# thing more. If both best texts continue the first beginning, the second row of every
# cache must become a copy of the first: the cache is reordered as the beam is.


# %%
class Cache:
    """Keeps the keys and values of one attention layer."""

    positions = None  # only relative positions would need them

    def __init__(self, grows):
        self.grows = grows  # with the text, or not, as the source
        self.arrays = []

    def __call__(self, attention, x):
        if self.grows or not self.arrays:
            new = [tensor.numpy() for tensor in attention.keys_and_values(x)]
            if self.arrays:
                new = [np.concatenate([self.arrays[i], new[i]], axis=2) for i in (0, 1)]
            self.arrays = new  # keys and values (B, heads, tokens, d_k)
        return [Tensor(array) for array in self.arrays]

    def size(self):
        return sum(array.size for array in self.arrays)


def empty_caches(model):
    return [(Cache(grows=True), Cache(grows=False)) for _ in model.decoder.layers]


memory, mask = exact.encode([read[4] + [END]])
whole_text = [START] + first.ids
caches = empty_caches(exact)
steps = []
for t, word in enumerate(whole_text):
    # t is the token's position: its sinusoids are those of position t, not of 0.
    steps.append(exact.decode(np.array([[word]]), memory, mask, t, caches).numpy())
all_at_once = exact.decode(np.array([whole_text]), memory, mask)
same("a token at a time, with the cache = all at once", np.hstack(steps), all_at_once)

# %% [markdown]
# What does the cache cost? Memory: a key and a value of $d_{model}$ numbers for each
# position in each of the $N$ layers: $2 N d_{model}$ numbers per position, of the text
# and of the source.

# %%
width = config.d_model  # of the early model
target_positions = caches[0][0].size() / (2 * width)
source_positions = caches[0][1].size() / (2 * width)
claim(
    "positions of the text in a cache",
    target_positions == len(whole_text),
    len(whole_text),
)
claim("and of its source", source_positions == len(read[4]) + 1, len(read[4]) + 1)
numbers_each = 2 * 6 * d
megabytes = numbers_each * 4 * (37 + 37) / 1e6
print(f"    base, d = {d}: {numbers_each:,} numbers a position")
print(f"    as float32 these are {numbers_each * 4:,} bytes")
print(f"    37 + 37 positions: {megabytes:.1f} MB, four texts {4 * megabytes:.1f} MB")
print(f"    self-attention costs as much as the linear maps at t = {7 * d:,}")
print(f"    logits of a token: {d} times {37_000:,}, {d * 37_000 / 1e6:.1f} million")
print(f"    all linear maps of one token: {6 * 14 * d**2 / 1e6:.1f} million")

# %% [markdown]
# For the base model ($N = 6$) a position costs 6,144 numbers, or 24,576 bytes as
# float32. A source of 37 tokens and a translation as long need 1.8 MB, and a beam of 4
# has four such caches, 7.3 MB (the source's half is the same in all four, and could be
# shared). And $2 d t$ reaches the $14 d^2$ of the linear maps only at $t = 7 d$, at
# token 3,584. In long texts, the part that the cache cannot save is the larger one. Nor
# can it save the logits: each token needs 512 times 37,000 products, 18.9 million,
# nearly as many as all its linear maps, 22.0 million.
#
# ### Where does the model look when it writes?
# The decoder's second attention (section 3.2.3) asks the source. In "dass er das Buch
# gelesen hat" the verb "gelesen" comes near the end, and in English before the book:
# "that he read the book". To write "gelesen", the model has to find "read".
#
# Which row of the weights should show it? Row $t$ of the decoder reads token $t - 1$
# (row 1 reads the start mark) and *writes* token $t$: that is the shift of the
# decoder's input in lesson 06. So the row to look at is the one that writes "gelesen".
# The next row reads "gelesen", and is busy with the word after it.
#
# We take the fully trained model, 18 sentences, and the mean over the heads of the last
# layer.

# %%
translator = toy_model()
VERBS = {
    "visited the doctor": "besucht",
    "bought the coat": "gekauft",
    "wrote the letter": "geschrieben",
    "saw the dog": "gesehen",
    "ate the cake": "gegessen",
    "read the book": "gelesen",
}


def looks_at_verb(row, weights, column):
    """Return whether a row of weights has its largest weight in this column."""
    return weights[row].argmax() == column


when_writing = []
when_reading = []
for day, did in product(("on Monday", "on Sunday", "yesterday"), VERBS):
    line = f"My mother says that the old man {did} {day}."
    of_heads, written_pieces, read_pieces = translator.attention(line)
    weights = of_heads.mean(axis=0)  # (words written, words read)
    writes = [piece.strip("▁") for piece in written_pieces]
    reads = [piece.strip("▁") for piece in read_pieces]
    row = writes.index(VERBS[did])
    column = reads.index(did.split()[0])
    when_writing.append(looks_at_verb(row, weights, column))
    when_reading.append(looks_at_verb(row + 1, weights, column))
claim(
    "the row that writes the German verb looks at the English one",
    np.mean(when_writing) > 0.8,
    f"{np.mean(when_writing):.0%} of {len(when_writing)}",
)
claim(
    "the row that reads it has its largest weight elsewhere",
    np.mean(when_reading) < 0.2,
    f"{np.mean(when_reading):.0%} look at the verb",
)

# %% [markdown]
# And a check that row $t$ writes token $t$: the largest logit of each row of the
# trained model is the next token of the sentence (`line`, the last one of the loop).

# %%
last_german = "Meine Mutter sagt, dass der alte Mann gestern das Buch gelesen hat."
last_english, last_ids = subwords.encode([line, last_german])
logits = translator.model([list(last_english) + [END]], [[START] + list(last_ids)])
same(
    "row t writes token t",
    logits.numpy()[0].argmax(axis=-1),
    list(last_ids) + [END],
)
place = (row, column)
draw(figures.alignment, "08_alignment.png", weights, writes, reads, place)
finish(
    "A search finds the text that the model prefers; whether that is a good "
    "translation, references say."
)

# %% [markdown]
# ![A map of attention: rows are the German words that are written, columns the English words. The dark cells follow the diagonal up to Mann, then jump: gestern to yesterday, das Buch to the book. The framed cell is in the row gelesen and the column read.](figures/08_alignment.png)
#
# *What to see: "Meine Mutter sagt, dass der alte Mann" goes down the diagonal (the
# comma and "dass" share "that"). "hat" has no English partner, so its row is spread.
# Then the German order differs: "gestern" looks at the last word, "yesterday", and the
# framed cell is "gelesen", which looks back at "read". Nobody taught the model which
# word belongs to which.*

# %% [markdown]
# ## Your turn
# `python lessons/exercise.py 08` writes this part to `my_08_decoding.py`; fill in the
# bodies and run it. It imports `np` and `Hypothesis`.


# %%
def predictions():
    """Predict, then run: the texts found by greedy, a beam of 2 and a beam of 3.

    The probabilities of a next word (after the second word every text ends):

        (start)  Tee 0.5   Kaffee 0.3   Wasser 0.2
        Tee      bitte 0.3   gern 0.25   danke 0.25   nein 0.2
        Kaffee   bitte 0.6   danke 0.4
        Wasser   bitte 1.0

    Return a list of three texts, such as ["Tee gern", "Tee gern", "Tee gern"]. There is
    no length penalty (alpha = 0).

    Hint: rule 1 in "What if the best first word leads nowhere?": after the first step a
    beam of 2 keeps two words. Multiply out the texts that they can become.
    """
    ...


def fools_the_count():
    """Find the mistake: this share of words is not the p_1 of BLEU.

        wanted = ngrams(reference, 1)
        share = sum(ngram in wanted for ngram in ngrams(tokens, 1)) / len(tokens)

    Return a translation and its reference (two lists of at least four words) for which
    this share is 1, although p_1 is 1/4 at most.

    Hint: in "How is a translation judged?" a word is crossed out once it is found.
    """
    ...


def rank(hypotheses, alpha):
    """Sort Hypotheses (ids, log_probability, score), best first, by ln P / |Y|^alpha.

    Return new ones that hold this score, whatever their old ones are. (It is the
    length penalty without the 5 and the 6.)

    Hint: |Y| of "Why do short texts win?" counts the end mark, which is not among the
    ids.
    """
    ...


def step(totals, scores, beam):
    """One step of a beam as arrays: the `beam` best of totals (W,) + scores (W, V).

    W beginnings, V tokens. Return two arrays, best first: the beginnings (0 to W - 1)
    and their next words.

    Hint: `continuations` in "What if the best first word leads nowhere?" sorts one list
    of all candidates. np.argsort(..., axis=None) does so for an array: it gives the
    places in the flat array; place p is in row p // V and column p % V.
    """
    ...


def consensus(texts):
    """Choose without a score: return the index of the text most similar to the others.

    (It is called minimum Bayes risk decoding.)

    texts: lists of words. The similarity of two texts is the number of words that they
    have in common (clipped), times 2, divided by the sum of their lengths. Take the
    text with the largest mean over all the others, equal ones too (the first, if
    several have it).

    Hint: "Why does a better search help so little?" shows why to distrust the score.
    The common words are counted as in "How is a translation judged?", with n = 1.
    """
    ...


def check_predictions():
    checks.check_predictions(predictions)


def check_fools_the_count():
    checks.check_fools_the_count(fools_the_count)


def check_rank():
    checks.check_rank(rank)


def check_step():
    checks.check_step(step)


def check_consensus():
    checks.check_consensus(consensus)


# %% [markdown]
# **Now yours: pieces 29 to 32** of `my_transformer.py`. With these four it can write:
# `next_ln_p`, `greedy`, `length_penalty` and `beam_search`. (`python lessons/build.py`
# writes the file, if you have none.)

# %%
# For the tests: the parts of the library that this lesson introduces.
INTRODUCES = (
    "decode.Decoding",
    "decode.Hypothesis",
    "decode.greedy",
    "decode.beam_search",
    "decode.length_penalty",
)
