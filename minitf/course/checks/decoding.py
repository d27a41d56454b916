"""The checks of lesson 08, decoding."""

from collections import Counter
from statistics import mean

import numpy as np

from minitf.course.checks.compare import as_array, check, parts_of, short, texts_of
from minitf.decode import Hypothesis

TABLE = {  # the probabilities of the exercise
    "Tee": 0.5,
    "Kaffee": 0.3,
    "Wasser": 0.2,
    "Tee bitte": 0.3,
    "Tee gern": 0.25,
    "Tee danke": 0.25,
    "Tee nein": 0.2,
    "Kaffee bitte": 0.6,
    "Kaffee danke": 0.4,
    "Wasser bitte": 1.0,
}


def check_predictions(predictions):
    """Check the texts that beams of 1, 2 and 3 find."""
    known = {text.casefold(): TABLE[text] * TABLE[text.split()[0]] for text in TABLE if " " in text}
    first = ["tee", "kaffee", "wasser"]  # the best first words
    answer = parts_of("the texts", predictions(), [f"of a beam of {width}" for width in (1, 2, 3)])
    for width, given in enumerate(answer, start=1):
        if not isinstance(given, str | list | tuple):
            raise AssertionError(f"of a beam of {width}: found {short(given)}, expected a text")
        text = given if isinstance(given, str) else " ".join(map(str, given))
        text = " ".join(text.split()).casefold()  # spaces at its ends, and capitals, do not matter
        kept = {each: p for each, p in known.items() if each.split()[0] in first[:width]}
        if text == max(kept, key=kept.get):
            continue
        message = f"a beam of {width} does not find {given!r}"
        if text not in known:
            raise AssertionError(f"{message}: expected a text of two words of the table")
        if text not in kept:
            raise AssertionError(
                f"{message}: its first word is not among the {width} best, so it ends"
            )
        raise AssertionError(f"{message}: of the words that it keeps, one leads to a likelier text")


def check_fools_the_count(fools_the_count):
    """Check a translation whose words are all in the reference, though BLEU counts few."""
    answer = parts_of("the two texts", fools_the_count(), ["translation", "reference"])
    expected = 'a list of words: "die Frau".split() makes one'
    tokens, reference = (texts_of(text, expected) for text in answer)
    for word in [*tokens, *reference]:
        if len(word.split()) > 1:
            raise AssertionError(f"found {short(word)} as one word, expected a list of words")
    shorter = min(len(tokens), len(reference))
    if shorter < 4:
        raise AssertionError(f"found a text of {shorter} words, expected at least four in each")
    outside = [word for word in tokens if word not in reference]
    if outside:
        exchanged = all(word in tokens for word in reference)
        raise AssertionError(
            f"the wrong share is {1 - len(outside) / len(tokens):.2f}, expected 1: "
            f"{outside[0]!r} is not in the reference"
            + (": are translation and reference exchanged?" if exchanged else "")
            + (": a capital makes another word" if outside[0].casefold() in reference else "")
        )
    crossed_out = Counter(tokens) & Counter(reference)
    clipped = sum(crossed_out.values()) / len(tokens)
    if clipped > 1 / 4:
        raise AssertionError(
            f"p_1 of BLEU is {clipped:.2f}, expected 1/4 at most: it counts a word as often as the "
            "reference has it"
        )


def _ranked(score):
    """Return an answer that sorts by score(ln P, the number of ids, alpha)."""

    def rank(hypotheses, alpha):
        scored = [
            Hypothesis(h.ids, h.log_probability, score(h.log_probability, len(h.ids), alpha))
            for h in hypotheses
        ]
        return sorted(scored, key=lambda h: -h.score)

    return rank


_by_length = _ranked(lambda ln_p, n, alpha: ln_p / (n + 1) ** alpha)


def _unsorted(hypotheses, alpha):
    scores = {len(h.ids): h.score for h in _by_length(hypotheses, alpha)}
    return [Hypothesis(h.ids, h.log_probability, scores[len(h.ids)]) for h in hypotheses]


@check(
    right=_by_length,
    wrong={
        "a length without the end mark": _ranked(lambda ln_p, n, alpha: ln_p / n**alpha),
        "the length penalty with the 5 and the 6": _ranked(
            lambda ln_p, n, alpha: ln_p / ((6 + n) / 6) ** alpha
        ),
        "1 + alpha times the length: alpha is an exponent": _ranked(
            lambda ln_p, n, alpha: ln_p / (1 + alpha * n)
        ),
        "the old score: give the new one to a new Hypothesis": lambda hypotheses, alpha: sorted(
            hypotheses, key=lambda h: -h.log_probability / (len(h.ids) + 1) ** alpha
        ),
        "the order in which they came": _unsorted,
    },
)
def check_rank(rank):
    """Check hypotheses in the order of ln P / |Y|^alpha."""
    four = ((1, -1.0), (3, -3.0), (2, -1.6), (7, -4.4))
    five = ((5, -2.5), (1, -0.9), (9, -3.1), (4, -2.6), (2, -2.9))
    for texts, alpha in ((five, 2.0), (five, 0.5), (four, 0.0), (four, 1.0)):
        name = f"alpha = {alpha:g}"
        given = [Hypothesis(list(range(4, 4 + n)), ln_p, -n * ln_p) for n, ln_p in texts]
        ranked = parts_of(name, rank(given, alpha), [f"{n} ids" for n, _ in texts])
        by_length = sorted(ranked, key=lambda h: len(h.ids))
        yield f"{name}, the ids, which stay", [each for h in by_length for each in h.ids]
        yield f"{name}, the ln P, which stay", [h.log_probability for h in by_length]
        lengths = sorted(n for n, _ in texts)
        yield f"{name}, the scores of texts of {lengths} ids", [h.score for h in by_length]
        yield f"{name}, the numbers of ids, best text first", [len(h.ids) for h in ranked]


def _best(values, beam, columns=None):
    places = np.argsort(-values, axis=None)[:beam]
    return places // (columns or values.shape[1]), places % (columns or values.shape[1])


def _argpartition(totals, scores, beam):
    places = np.argpartition(-(totals[:, None] + scores), beam, axis=None)[:beam]
    return places // scores.shape[1], places % scores.shape[1]


@check(
    right=lambda totals, scores, beam: _best(totals[:, None] + scores, beam),
    wrong={
        "the scores of the next words alone: their beginnings count as well": (
            lambda totals, scores, beam: _best(scores, beam)
        ),
        "beginnings and words exchanged": lambda totals, scores, beam: _best(
            totals[:, None] + scores, beam
        )[::-1],
        "the worst first: logarithms are negative, and are added": lambda totals, scores, beam: (
            _best(-totals[:, None] - scores, beam)
        ),
        "rows of W places: a row has V": lambda totals, scores, beam: _best(
            totals[:, None] + scores, beam, columns=len(totals)
        ),
        "the best in any order: np.argpartition does not sort": _argpartition,
    },
)
def check_step(step):
    """Check the best continuations of a beam."""
    # Of few numbers, np.argpartition happens to return the best in their order.
    for (W, V), beam in (((3, 7), 4), ((4, 3), 5), ((2, 5), 3), ((2, 1000), 300)):
        rng = np.random.default_rng(W + V)
        totals, scores = np.array([-1, -1.2, -9, -2.0])[:W], rng.normal(-3, 1, (W, V))
        name = f"W {W}, V {V}, beam {beam}"
        found = as_array(name, step(totals, scores, beam))
        assert found.shape != (beam,), (
            f"{name}: found one array of {beam}, expected two: the beginnings, and the words"
        )
        assert found.shape[:1] == (2,), (
            f"{name}: found {len(found)} parts, expected two arrays: all beginnings, and all words"
        )
        yield f"{name}, beginnings and words", found


def _common(text, other):
    return sum((Counter(text) & Counter(other)).values())


def _dice(text, other):
    return 2 * _common(text, other) / (len(text) + len(other))


def _most_similar(similarity, average=mean):
    """Return an answer that chooses the text with the largest mean over the others."""

    def consensus(texts):
        values = [
            average([similarity(text, other) for other in texts[:i] + texts[i + 1 :]])
            for i, text in enumerate(texts)
        ]
        return values.index(max(values))

    return consensus


@check(
    right=_most_similar(_dice),
    wrong={
        "the number of common words, not divided by the lengths": _most_similar(_common),
        "a word that counts once, however often both texts have it": _most_similar(
            lambda text, other: len(set(text) & set(other)) / (len(text) + len(other))
        ),
        "words that are not crossed out: the count is not clipped": _most_similar(
            lambda text, other: sum(word in other for word in text) / (len(text) + len(other))
        ),
        "a division by the text's own length": _most_similar(
            lambda text, other: _common(text, other) / len(text)
        ),
        "the text that is most like one other: the mean over all counts": _most_similar(_dice, max),
    },
)
def check_consensus(consensus):
    """Check the index of the text most similar to the others."""
    for line in (
        "er ruft uns an|er ruft uns uns|er ruft an",
        "ja gern danke sehr gute Nacht Tom|ja gern danke|ja gern sehr|danke",
        "der Hund|die die die die Katze|die Katze schläft|eine Katze schläft",
        "die und|und die die|die die",
        "der schläft|Katze schläft|schläft der schläft schläft der schläft|schläft Katze schläft",
        "Katze|der Katze|der|Katze|der Hund",
        "ja gern|der Hund|der Hund",
        "Katze die Tom Tom|die schläft|schläft|Tom|Tom|die",
        "Tom|Tom|Tom Tom sieht|die sieht Tom Tom|Hund die Tom Hund sieht sieht|Tom die Hund",
    ):
        name = f"of the texts {line}"
        yield name, consensus([text.split() for text in line.split("|")])
