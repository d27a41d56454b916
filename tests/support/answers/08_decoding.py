"""Answers to the exercises of lesson 08: right ones, and wrong ones beyond those of the checks.

The docstring of a wrong answer is a piece of the message that refuses it.
"""

import dataclasses

import numpy as np

from minitf.decode import Hypothesis

# predictions --------------------------------------------------------------------------------------


def predictions():
    return ["Tee bitte", "Kaffee bitte", "Wasser bitte"]


def right_predictions_2():
    return "Tee bitte ", " Kaffee  bitte", "Wasser bitte\n"


def right_predictions_3():
    return np.array(["tee bitte", "kaffee bitte", "wasser bitte"])


def right_predictions_4():
    return [["Tee", "bitte"], ["Kaffee", "bitte"], ["Wasser", "bitte"]]


def wrong_predictions():
    """a beam of 2 does not find 'Wasser bitte': its first word is not among the 2 best"""
    return ["Tee bitte", "Wasser bitte", "Wasser bitte"]


def wrong_predictions_2():
    """found 0 parts, expected 3"""
    return []


def wrong_predictions_5():
    """a beam of 2 does not find 'Tee bitte': of the words that it keeps, one leads to a likelier"""
    return ["Tee bitte", "Tee bitte", "Tee bitte"]


def wrong_predictions_7():
    """expected a text of two words of the table"""
    return ["Tee", "Kaffee", "Wasser"]


def wrong_predictions_8():
    """found 'Tee bitte', expected (of a beam of 1, of a beam of 2, of a beam of 3)"""
    return "Tee bitte"


def wrong_predictions_10():
    """of a beam of 1: found 0.15, expected a text"""
    return [0.15, 0.18, 0.2]


# fools_the_count ----------------------------------------------------------------------------------


def fools_the_count():
    return ["die"] * 4, ["die", "alte", "Frau", "liest"]


def right_fools_the_count_2():
    return [["die"] * 5, list(dict.fromkeys(["die", "Katze", "sieht", "den", "Hund"]))]


def right_fools_the_count_3():
    return ("a", "b") * 8, ("a", "b", "c", "d")


def right_fools_the_count_4():
    return np.array(["ja"] * 6), np.array(["ja", "das", "ist", "gut", "."])


def wrong_fools_the_count():
    """p_1 of BLEU is 0.50, expected 1/4 at most"""
    return ["die", "die", "die", "alte"], ["die", "alte", "Frau", "liest"]


def wrong_fools_the_count_2():
    """expected a list of words"""
    return "aaaa", "abcd"


def wrong_fools_the_count_3():
    """are translation and reference exchanged?"""
    return ["die", "alte", "Frau", "liest"], ["die"] * 4


def wrong_fools_the_count_4():
    """found a text of 3 words, expected at least four"""
    return ["die"] * 3, ["die", "alte", "Frau", "liest"]


def wrong_fools_the_count_5():
    """the wrong share is 0.50, expected 1: 'Hund' is not in the reference"""
    return ["die", "die", "Hund", "Hund"], ["die", "alte", "Frau", "liest"]


def wrong_fools_the_count_7():
    """found 1 parts, expected 2: (translation, reference)"""
    return [["die"] * 4]


def wrong_fools_the_count_9():
    """'Die' is not in the reference: a capital makes another word"""
    return ["Die"] * 4, ["die", "alte", "Frau", "liest"]


def wrong_fools_the_count_10():
    """found 'die die die die' as one word, expected a list of words"""
    return ["die die die die"], ["die alte Frau liest"]


# rank ---------------------------------------------------------------------------------------------


def _score(hypothesis, alpha):
    return hypothesis.log_probability / (len(hypothesis.ids) + 1) ** alpha


def _ranked(hypotheses, score):
    scored = [Hypothesis(h.ids, h.log_probability, score(h)) for h in hypotheses]
    return sorted(scored, key=lambda h: -h.score)


def rank(hypotheses, alpha):
    return _ranked(hypotheses, lambda h: _score(h, alpha))


def right_rank_2(texts, a):
    for i, h in enumerate(texts):
        score = float(h.log_probability * np.power(1.0 + len(h.ids), -a))
        texts[i] = dataclasses.replace(h, score=score)
    texts.sort(key=lambda h: h.score, reverse=True)
    return tuple(texts)


def right_rank_3(hypotheses, alpha):
    scores = np.array([h.log_probability for h in hypotheses])
    scores /= np.array([len(h.ids) + 1 for h in hypotheses]) ** alpha
    return [
        Hypothesis(hypotheses[i].ids, hypotheses[i].log_probability, scores[i])
        for i in np.argsort(-scores)
    ]


def right_rank_4(hypotheses, alpha):
    ranked = []
    for h in hypotheses:
        new = Hypothesis(tuple(h.ids), h.log_probability, np.float32(_score(h, alpha)))
        place = sum(other.score >= new.score for other in ranked)
        ranked.insert(place, new)
    return ranked


def wrong_rank_3(hypotheses, alpha):
    """the ids, which stay: found the shape (0,)"""
    scores = sorted([_score(h, alpha) for h in hypotheses], reverse=True)
    return [Hypothesis([], score, score) for score in scores]


def wrong_rank_4(hypotheses, alpha):
    """the ln P, which stay: found"""
    scored = [Hypothesis(h.ids, _score(h, alpha), _score(h, alpha)) for h in hypotheses]
    return sorted(scored, key=lambda h: -h.score)


def wrong_rank_7(hypotheses, alpha):
    """alpha = 2, the numbers of ids, best text first: found"""  # worst first
    return rank(hypotheses, alpha)[::-1]


def wrong_rank_10(hypotheses, alpha):
    """object has no attribute 'ids'"""
    return sorted([_score(h, alpha) for h in hypotheses], reverse=True)


def wrong_rank_11(hypotheses, alpha):
    """found 1 parts"""
    return rank(hypotheses, alpha)[:1]


def wrong_rank_15(hypotheses, alpha):
    """the ids, which stay: found the shape"""
    longer = [Hypothesis([*h.ids, 3], h.log_probability, 0.0) for h in hypotheses]
    return _ranked(longer, lambda h: h.log_probability / len(h.ids) ** alpha)


# step ---------------------------------------------------------------------------------------------


def step(totals, scores, beam):
    best = np.argsort(-(totals[:, None] + scores), axis=None)[:beam]
    return best // scores.shape[1], best % scores.shape[1]


def right_step_2(totals, scores, beam):
    scores += totals.reshape(-1, 1)
    order = scores.ravel().argsort()[::-1][:beam]
    return np.unravel_index(order, scores.shape)


def right_step_3(totals, scores, width):
    every = [
        (totals[w] + scores[w][v], w, v) for w in range(len(totals)) for v in range(len(scores[w]))
    ]
    best = sorted(every, reverse=True)[:width]
    return [w for _, w, _ in best], [v for _, _, v in best]


def right_step_4(totals, scores, beam):
    places = np.argsort((totals[:, np.newaxis] + scores).flatten(), kind="stable")[-beam:][::-1]
    return np.array(np.divmod(places, scores.shape[-1])).astype(float)


def _best(values, beam):
    best = np.argsort(-values, axis=None)[:beam]
    return best // values.shape[1], best % values.shape[1]


def wrong_step_5(totals, scores, beam):
    """found 4 parts, expected two arrays"""
    return list(zip(*step(totals, scores, beam), strict=True))


def wrong_step_6(totals, scores, beam):
    """found one array of 4, expected two: the beginnings, and the words"""
    return np.argsort(-(totals[:, None] + scores), axis=None)[:beam]


def wrong_step_11(totals, scores, beam):
    """(3,) lacks an axis, [..., None] or keepdims=True makes it (3, 1)"""
    return _best(totals + scores, beam)


def wrong_step_14(totals, scores, beam):
    """numbers that are all too large, by 1"""
    return [part + 1 for part in step(totals, scores, beam)]


def wrong_step_15(totals, scores, beam):
    """W 3, V 7, beam 4, beginnings and words: found"""  # a division with a rest: // gives the row
    best = np.argsort(-(totals[:, None] + scores), axis=None)[:beam]
    return best / scores.shape[1], best % scores.shape[1]


# consensus ----------------------------------------------------------------------------------------


def similarity(text, other):
    left = list(other)
    for word in text:
        if word in left:
            left.remove(word)
    return 2 * (len(other) - len(left)) / (len(text) + len(other))


def _consensus(texts, similarity, of_all=np.mean):
    means = []
    for i, text in enumerate(texts):
        others = texts[:i] + texts[i + 1 :]
        means.append(of_all([similarity(text, other) for other in others]))
    return int(np.argmax(means))


def consensus(texts):
    return _consensus(texts, similarity)


def right_consensus_2(texts):
    sums = [sum(similarity(a, b) for b in texts) for a in texts]  # each with itself: 1 for all
    return sums.index(max(sums))


def right_consensus_3(texts):
    matrix = np.zeros((len(texts), len(texts)), dtype=np.float32)
    for i, text in enumerate(texts):
        for j, other in enumerate(texts):
            if i != j:
                common = sum(min(text.count(word), other.count(word)) for word in set(text))
                matrix[i, j] = common / (len(text) + len(other))
    return matrix.mean(axis=-1).argmax()


def right_consensus_4(texts):
    best, chosen = -1.0, 0
    for i in range(len(texts)):
        total = 0.0
        for j in range(len(texts)):
            if j == i:
                continue
            total += similarity(texts[j], texts[i])
        if total / (len(texts) - 1) > best:
            best, chosen = total / (len(texts) - 1), i
    return float(chosen)


def wrong_consensus_6(texts):
    """found ['er', 'ruft', 'uns', 'an'], expected numbers of one shape"""
    return texts[consensus(texts)]


def wrong_consensus_9(texts):
    """of the texts die und|und die die|die die: found"""
    # common words only where they stand at one place

    def at_one_place(a, b):
        return sum(v == w for v, w in zip(a, b, strict=False)) / (len(a) + len(b))

    return _consensus(texts, at_one_place)


def wrong_consensus_10(texts):
    """of the texts die und|und die die|die die: found"""  # texts as sets of words
    return _consensus(texts, lambda a, b: len(set(a) & set(b)) / (len(set(a)) + len(set(b))))


def wrong_consensus_12(texts):
    """of the texts ja gern|der Hund|der Hund: found 0, expected 1"""  # equal texts are left out
    sums = [sum(similarity(a, b) for b in texts if b != a) for a in texts]
    return sums.index(max(sums))


def wrong_consensus_13(texts):
    """of the texts ja gern|der Hund|der Hund: found 2, expected 1"""
    # the last of several that are equally similar: the first is asked for
    return len(texts) - 1 - consensus(texts[::-1])


def wrong_consensus_14(texts):
    """of the texts die und|und die die|die die: found"""  # sets of words: the common ones over all
    return _consensus(texts, lambda a, b: len(set(a) & set(b)) / len(set(a) | set(b)))
