"""The checks of lesson 08, decoding."""

from collections import Counter
from itertools import pairwise
from statistics import mean, median

import numpy as np

from minitf.cli import counted
from minitf.course.checks.compare import equal, parts_of, short
from minitf.decode import Hypothesis

__all__ = [
    "check_consensus",
    "check_fools_the_count",
    "check_predictions",
    "check_rank",
    "check_step",
]

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
    answer = predictions()
    if isinstance(answer, str | dict) or not hasattr(answer, "__len__"):
        raise AssertionError(f"found {short(answer)}, expected a list of three texts")
    if len(answer) != 3:
        raise AssertionError(f"found {len(answer)} texts, expected three: give three texts")
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
    for text in answer:
        if isinstance(text, str) or not hasattr(text, "__len__"):
            raise AssertionError(
                f'found {short(text)}, expected a list of words: "die Frau".split() makes one'
            )
    tokens, reference = (list(text) for text in answer)
    for word in [*tokens, *reference]:
        if not isinstance(word, str):
            raise AssertionError(f"found {short(word)} in a text, expected words")
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
        words = [f"{word!r} {counted(n, 'time')}" for word, n in crossed_out.items()]
        raise AssertionError(
            f"p_1 of BLEU is {clipped:.2f}, expected 1/4 at most: of {len(tokens)} words it counts "
            f"{', '.join(words[:3])}{', ...' if len(words) > 3 else ''}, as often as the reference "
            "has them"
        )


SCORES = {
    "the old score in place of ln P": lambda ln_p, n, alpha: -n * ln_p / (n + 1) ** alpha,
    "the old score: give it to a new Hypothesis": lambda ln_p, n, alpha: -n * ln_p,
    "a length without the end mark": lambda ln_p, n, alpha: ln_p / n**alpha,
    "the length penalty with the 5 and the 6": lambda ln_p, n, alpha: ln_p / ((6 + n) / 6) ** alpha,
    "alpha times the length: it is an exponent": lambda ln_p, n, alpha: (
        ln_p / (1 + alpha * (n + 1))
    ),
    "1 + alpha times the length: alpha is an exponent": lambda ln_p, n, alpha: (
        ln_p / (1 + alpha * n)
    ),
    "a length multiplied by alpha": lambda ln_p, n, alpha: (
        ln_p / (alpha * (n + 1)) if alpha else -np.inf
    ),
    "a product in place of a division": lambda ln_p, n, alpha: ln_p * (n + 1) ** alpha,
    "ln P itself": lambda ln_p, n, alpha: ln_p,
    "a division by the length, whatever alpha is": lambda ln_p, n, alpha: ln_p / (n + 1),
    "P in place of ln P": lambda ln_p, n, alpha: np.exp(ln_p) / (n + 1) ** alpha,
    "the logarithm of the length": lambda ln_p, n, alpha: ln_p - alpha * np.log(n + 1),
    "a length with a token too many": lambda ln_p, n, alpha: ln_p / (n + 2) ** alpha,
    "1 - alpha in place of alpha": lambda ln_p, n, alpha: ln_p / (n + 1) ** (1 - alpha),
    "the power of the quotient: alpha belongs to the length": lambda ln_p, n, alpha: (
        abs(ln_p / (n + 1)) ** alpha * (np.nan if alpha % 1 else (-1) ** alpha)
    ),
    "alpha as a factor, not as an exponent": lambda ln_p, n, alpha: ln_p / (n + 1) * alpha,
    "a reward for each token: the length divides": lambda ln_p, n, alpha: ln_p + alpha * (n + 1),
    "a reward for each token, without the end mark": lambda ln_p, n, alpha: ln_p + alpha * n,
    "a power of e of the length": lambda ln_p, n, alpha: ln_p / np.exp(alpha * (n + 1)),
    "a score with the wrong sign": lambda ln_p, n, alpha: -ln_p / (n + 1) ** alpha,
}


def check_rank(rank):
    """Check hypotheses in the order of ln P / |Y|^alpha."""
    four = ((1, -1.0), (3, -3.0), (2, -1.6), (7, -4.4))
    five = ((5, -2.5), (1, -0.9), (9, -3.1), (4, -2.6), (2, -2.9))
    # First an alpha at which no two of the mistakes give the same.
    for texts, alpha in ((five, 2.0), (five, 0.5), (four, 0.0), (four, 1.0)):
        name = f"alpha = {alpha:g}"
        given = [Hypothesis(list(range(4, 4 + n)), ln_p, -n * ln_p) for n, ln_p in texts]
        ranked = rank([Hypothesis(list(h.ids), h.log_probability, h.score) for h in given], alpha)
        ranked = parts_of(name, ranked, [f"{len(h.ids)} ids" for h in given])
        for h in ranked:
            assert all(hasattr(h, each) for each in ("ids", "log_probability", "score")), (
                f"{name}: found {short(h)}, expected a Hypothesis(ids, log_probability, score)"
            )
        known = {tuple(h.ids): h.log_probability for h in given}
        for h in ranked:
            assert all(each == int(each) for each in h.ids), (
                f"{name}: found the ids {short(h.ids)}, expected those of a hypothesis"
            )
            ids = tuple(int(each) for each in h.ids)
            longer = ": the end mark counts, but it is no part of ids" if ids[:-1] in known else ""
            assert ids in known, (
                f"{name}: found the ids {list(ids)}, expected those of a hypothesis{longer}"
            )
            assert known[ids] == h.log_probability, (
                f"{name}: found log_probability {h.log_probability:.4g} for {len(ids)} ids, "
                f"expected {known[ids]}: it stays as it was; the new score is `score`"
            )
        assert len({tuple(h.ids) for h in ranked}) == len(given), f"{name}: found one text twice"
        scores = [float(h.score) for h in ranked]
        right = [h.log_probability / (len(h.ids) + 1) ** alpha for h in ranked]
        mistakes = {
            text: [rule(h.log_probability, len(h.ids), alpha) for h in ranked]
            for text, rule in SCORES.items()
        }
        if sorted(np.round(scores, 9)) == sorted(np.round(right, 9)):
            mistakes["scores that were sorted without their hypotheses"] = scores
        lengths = [len(h.ids) for h in ranked]
        equal(f"{name}, the scores of texts of {lengths} ids", scores, right, mistakes)
        if scores != sorted(scores, reverse=True):
            how = "worst first" if scores == sorted(scores) else "another order"
            how = (
                "the order of ln P"
                if scores != sorted(scores)
                and [h.log_probability for h in ranked]
                == sorted((h.log_probability for h in ranked), reverse=True)
                else how
            )
            how = "the order in which they came" if lengths == [n for n, _ in texts] else how
            raise AssertionError(
                f"{name}: found the scores {short([float(f'{s:.3g}') for s in scores])}, expected "
                f"the best first: that looks like {how}"
            )


def check_step(step):
    """Check the best continuations of a beam."""
    # Of few numbers, np.argpartition happens to return the best in their order.
    for (W, V), beam in (((3, 7), 4), ((4, 3), 5), ((2, 5), 3), ((2, 1000), 300)):
        rng = np.random.default_rng(W + V)
        totals, scores = np.array([-1, -1.2, -9, -2.0])[:W], rng.normal(-3, 1, (W, V))
        flat = np.argsort(-(totals[:, None] + scores), axis=None)[:beam]
        right = np.array([flat // V, flat % V])
        name = f"W {W}, V {V}, beam {beam}"
        found = step(totals.copy(), scores.copy(), beam)
        try:
            array = np.asarray(found)
        except ValueError:  # of two lengths
            array = np.asarray(None)
        _assert_two_arrays(name, array, scores.shape, beam, flat)
        if array.dtype != object:
            mistakes = _steps(totals, scores, beam)
            if array.shape == right.shape and _same_pairs(array, right):
                mistakes["the best in any order: np.argpartition does not sort"] = array
            equal(f"{name}, beginnings and words", array, right, mistakes)
            continue
        found = parts_of(name, found, ["beginnings", "words"])
        for i, part in enumerate(("the beginnings", "the next words")):
            equal(f"{name}, {part}", found[i], right[i])


def _assert_two_arrays(name, array, shape, beam, flat):
    """Assert that a step has not returned something else of the same numbers."""
    W, V = shape
    if array.ndim == 2 and array.shape == (beam, 2) and beam != 2:
        raise AssertionError(
            f"{name}: found {beam} pairs, expected two arrays: all beginnings, and all words"
        )
    if array.ndim == 3 and array.shape[:2] == (2, W):
        raise AssertionError(
            f"{name}: found the shape {array.shape}, expected {(2, beam)}: a sort of each row; "
            "axis=None sorts all candidates"
        )
    if array.shape == (2, W * V):
        raise AssertionError(f"{name}: found {W * V} of each, expected {beam}: only the best stay")
    if array.shape == (beam,):
        raise AssertionError(
            f"{name}: found one array of {beam}, expected two: the beginnings, and the words"
            + (": places in the flat array" if np.array_equal(array, flat) else "")
        )


def _steps(totals, scores, beam):
    """Return {mistake: what it gives} of the best continuations of a beam."""
    (W, V), sums = scores.shape, totals[:, None] + scores

    def best(values, columns=V):
        places = np.argsort(-values, axis=None)[:beam]
        return np.array([places // columns, places % columns])

    right, flat = best(sums), np.argsort(-sums, axis=None)[:beam]
    reverse, best_words = np.argsort(sums, axis=None)[-beam:], np.argsort(-scores[0])[:beam]
    by_words = np.array([sums.max(axis=0).argsort()[::-1][:beam]] * 2)
    by_words[0] = sums.argmax(axis=0)[by_words[1]] if len(by_words[1]) == beam else 0
    return {
        "beginnings and words exchanged": right[::-1],
        "the worst first: logarithms are negative, and are added": best(-sums),
        "the best, but worst first": [reverse // V, reverse % V],
        "the scores of the next words alone: their beginnings count as well": best(scores),
        "one word for each beginning": np.array([np.arange(W), sums.argmax(axis=1)])[:, :beam],
        "one beginning for each word": by_words,
        "the first beginning alone": [0 * best_words, best_words],
        "rows of W places: a row has V": best(sums, W),
        "a division with a rest: // gives the row": [flat / V, flat % V],
        "the scores in place of the words": [flat // V, sums.ravel()[flat]],
        "rows and columns exchanged before the sort": best(sums.T),
        "rows and columns exchanged, with rows of W places": best(sums.T, W),
        "probabilities added: logarithms are": best(np.exp(totals)[:, None] + np.exp(scores)),
        "the best in the order of the beginnings": right[:, np.lexsort(right[::-1])],
    }


def _same_pairs(found, right):
    return sorted(zip(*found, strict=True)) == sorted(zip(*right, strict=True))


def _common(text, other):
    return sum((Counter(text) & Counter(other)).values())


def _dice(text, other):
    return 2 * _common(text, other) / (len(text) + len(other))


SIMILARITIES = {
    "equal texts are left out: each is another text": lambda text, other: (
        0.0 if text == other else _dice(text, other)
    ),
    "the number of common words, not divided by the lengths": _common,
    "a word that counts once, however often both texts have it": lambda text, other: (
        2 * len(set(text) & set(other)) / (len(text) + len(other))
    ),
    "texts as sets of words": lambda text, other: (
        2 * len(set(text) & set(other)) / (len(set(text)) + len(set(other)))
    ),
    "words that are not crossed out: the count is not clipped": lambda text, other: (
        2 * sum(word in other for word in text) / (len(text) + len(other))
    ),
    "a division by the text's own length": lambda text, other: _common(text, other) / len(text),
    "a division by the other text's length": lambda text, other: _common(text, other) / len(other),
    "a share of the text's words, not clipped": lambda text, other: (
        sum(word in other for word in text) / len(text)
    ),
    "a division by all words, the common ones once": lambda text, other: (
        _common(text, other) / (len(text) + len(other) - _common(text, other))
    ),
    "common words only where they stand at one place": lambda text, other: (
        2 * sum(map(str.__eq__, text, other)) / (len(text) + len(other))
    ),
    "a division by the longer text": lambda text, other: (
        _common(text, other) / max(len(text), len(other))
    ),
    "a division by the shorter text": lambda text, other: (
        _common(text, other) / min(len(text), len(other))
    ),
    "a division by the product of the lengths": lambda text, other: (
        _common(text, other) / (len(text) * len(other))
    ),
    "a division by the root of the product of the lengths": lambda text, other: (
        _common(text, other) / (len(text) * len(other)) ** 0.5
    ),
    "sets of words: the common ones over all": lambda text, other: (
        len(set(text) & set(other)) / len(set(text) | set(other))
    ),
    "pairs of words: n is 1": lambda text, other: (
        2 * _common([*pairwise(text)], [*pairwise(other)]) / max(1, len(text) + len(other) - 2)
    ),
    "characters in place of words": lambda text, other: _dice(" ".join(text), " ".join(other)),
    "characters in place of words, without the spaces": lambda text, other: _dice(
        "".join(text), "".join(other)
    ),
    "the longest text": lambda text, other: len(text),
    "the shortest text": lambda text, other: -len(text),
}


def check_consensus(consensus):
    """Check the index of the text most similar to the others."""
    lines = [
        "er ruft uns an|er ruft uns uns|er ruft an",
        "ja gern danke sehr gute Nacht Tom|ja gern danke|ja gern sehr|danke",
        "der Hund|die die die die Katze|die Katze schläft|eine Katze schläft",
        "die und|und die die|die die",
        "der schläft|Katze schläft|schläft der schläft schläft der schläft|schläft Katze schläft",
        "Katze|der Katze|der|Katze|der Hund",
        "ja gern|der Hund|der Hund",
        "Katze die Tom Tom|die schläft|schläft|Tom|Tom|die",
        "Tom|Tom|Tom Tom sieht|die sieht Tom Tom|Hund die Tom Hund sieht sieht|Tom die Hund",
    ]
    cases = [[text.split() for text in line.split("|")] for line in lines]
    rights = [_most_similar(texts, _dice) for texts in cases]
    found = []
    for line, texts in zip(lines, cases, strict=True):
        answer = consensus([list(text) for text in texts])
        index = np.asarray(answer)
        if index.ndim or index.dtype.kind not in "iuf":
            raise AssertionError(
                f"of the texts {line}: found {short(answer)}, expected the index of a text"
            )
        found.append(answer)
    for line, answer, right in zip(lines, found, rights, strict=True):
        if answer == right:
            continue
        choices = [_choices(texts) for texts in cases]
        known = {text: [each[text] for each in choices] for text in choices[0]}
        looks_like = next((f": that looks like {k}" for k, v in known.items() if v == found), "")
        if not float(answer).is_integer():
            looks_like = ": a similarity is no index"
        raise AssertionError(
            f"of the texts {line}: found {answer}, expected {right} (from 0){looks_like}"
        )


def _choices(texts):
    """Return {mistake: the index that it gives}."""
    right = _most_similar(texts, _dice)
    later = [mean([_dice(a, b) for b in texts[i + 1 :]] or [0.0]) for i, a in enumerate(texts)]
    to_first = [_dice(texts[0], text) for text in texts[1:]]
    return {text: _most_similar(texts, rule) for text, rule in SIMILARITIES.items()} | {
        "the text that is most like one other: the mean over all counts": _most_similar(
            texts, _dice, max
        ),
        "the text that is least unlike any other: the mean over all counts": _most_similar(
            texts, _dice, min
        ),
        "the median: the mean counts": _most_similar(texts, _dice, median),
        "the text that is least similar": _most_similar(texts, lambda *pair: -_dice(*pair)),
        "an index that counts from 1": right + 1,
        "the last of several that are equally similar: the first is asked for": len(texts)
        - 1
        - _most_similar(texts[::-1], _dice),
        "the text that comes most often": texts.index(max(texts, key=texts.count)),
        "the text most similar to the first": 1 + to_first.index(max(to_first)),
        "a mean over the later texts: all the others count": later.index(max(later)),
        "always the first text": 0,
    }


def _most_similar(texts, similarity, average=mean):
    """Return the index of the text with the largest mean, or another summary, over the others."""
    values = [
        average([similarity(text, other) for other in texts[:i] + texts[i + 1 :]])
        for i, text in enumerate(texts)
    ]
    return values.index(max(values))
