"""Answers to the exercises of lesson 08: right ones, and wrong ones that must not pass.

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
    """found 0 texts, expected three"""
    return []


def wrong_predictions_3():
    """found 1 texts, expected three"""
    return ["Tee bitte"]


def wrong_predictions_4():
    """found 4 texts, expected three"""
    return ["Tee bitte", "Kaffee bitte", "Wasser bitte", "Wasser bitte"]


def wrong_predictions_5():
    """a beam of 2 does not find 'Tee bitte': of the words that it keeps, one leads to a likelier"""
    return ["Tee bitte", "Tee bitte", "Tee bitte"]


def wrong_predictions_6():
    """a beam of 3 does not find 'Kaffee bitte': of the words that it keeps, one leads to a"""
    return ["Tee bitte", "Kaffee bitte", "Kaffee bitte"]


def wrong_predictions_7():
    """expected a text of two words of the table"""
    return ["Tee", "Kaffee", "Wasser"]


def wrong_predictions_8():
    """found 'Tee bitte', expected a list of three texts"""
    return "Tee bitte"


def wrong_predictions_9():
    """a beam of 1 does not find 'Tee gern'"""
    return ["Tee gern", "Kaffee bitte", "Wasser bitte"]


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


def wrong_fools_the_count_6():
    """p_1 of BLEU is 1.00"""
    return ["die"] * 4, ["die"] * 4


def wrong_fools_the_count_7():
    """found 1 parts, expected 2: (translation, reference)"""
    return [["die"] * 4]


def wrong_fools_the_count_8():
    """of 4 words it counts 'die' 1 time, 'alte' 1 time"""
    return ["die", "die", "alte", "alte"], ["die", "alte", "Frau", "liest"]


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


def right_rank_5(hypotheses, alpha):
    scores = [h.log_probability * (len(h.ids) + 1.0) ** -alpha for h in hypotheses]
    order = np.argsort(scores)[::-1]
    return [Hypothesis(hypotheses[i].ids, hypotheses[i].log_probability, scores[i]) for i in order]


def wrong_rank(hypotheses, alpha):
    """a length without the end mark"""
    return _ranked(hypotheses, lambda h: h.log_probability / len(h.ids) ** alpha)


def wrong_rank_2(hypotheses, alpha):
    """scores that were sorted without their hypotheses"""
    scores = sorted([_score(h, alpha) for h in hypotheses], reverse=True)
    return [
        Hypothesis(h.ids, h.log_probability, score)
        for h, score in zip(hypotheses, scores, strict=True)
    ]


def wrong_rank_3(hypotheses, alpha):
    """found the ids [], expected those of a hypothesis"""
    scores = sorted([_score(h, alpha) for h in hypotheses], reverse=True)
    return [Hypothesis([], score, score) for score in scores]


def wrong_rank_4(hypotheses, alpha):
    """it stays as it was; the new score is `score`"""
    scored = [Hypothesis(h.ids, _score(h, alpha), _score(h, alpha)) for h in hypotheses]
    return sorted(scored, key=lambda h: -h.score)


def wrong_rank_5(hypotheses, alpha):
    """1 + alpha times the length: alpha is an exponent"""
    return _ranked(hypotheses, lambda h: h.log_probability / (1 + alpha * len(h.ids)))


def wrong_rank_6(hypotheses, alpha):
    """the length penalty with the 5 and the 6"""
    return _ranked(hypotheses, lambda h: h.log_probability / ((6 + len(h.ids)) / 6) ** alpha)


def wrong_rank_7(hypotheses, alpha):
    """worst first"""
    return rank(hypotheses, alpha)[::-1]


def wrong_rank_8(hypotheses, alpha):
    """a division by the length, whatever alpha is"""
    return _ranked(hypotheses, lambda h: _score(h, 1))


def wrong_rank_9(hypotheses, alpha):
    """the order in which they came"""
    return [Hypothesis(h.ids, h.log_probability, _score(h, alpha)) for h in hypotheses]


def wrong_rank_10(hypotheses, alpha):
    """expected a Hypothesis(ids, log_probability, score)"""
    return sorted([_score(h, alpha) for h in hypotheses], reverse=True)


def wrong_rank_11(hypotheses, alpha):
    """found 1 parts"""
    return rank(hypotheses, alpha)[:1]


def wrong_rank_12(hypotheses, alpha):
    """the old score: give it to a new Hypothesis"""
    return sorted(hypotheses, key=lambda h: -_score(h, alpha))


def wrong_rank_13(hypotheses, alpha):
    """the old score in place of ln P"""
    return _ranked(hypotheses, lambda h: h.score / (len(h.ids) + 1) ** alpha)


def wrong_rank_14(hypotheses, alpha):
    """a length with a token too many"""
    return _ranked(hypotheses, lambda h: h.log_probability / (len(h.ids) + 2) ** alpha)


def wrong_rank_15(hypotheses, alpha):
    """the end mark counts, but it is no part of ids"""
    longer = [Hypothesis([*h.ids, 3], h.log_probability, 0.0) for h in hypotheses]
    return _ranked(longer, lambda h: h.log_probability / len(h.ids) ** alpha)


def wrong_rank_16(hypotheses, alpha):
    """1 - alpha in place of alpha"""
    return _ranked(hypotheses, lambda h: h.log_probability / (len(h.ids) + 1) ** (1 - alpha))


def wrong_rank_17(hypotheses, alpha):
    """a reward for each token"""
    return _ranked(hypotheses, lambda h: h.log_probability + alpha * (len(h.ids) + 1))


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


def right_step_5(totals, scores, beam):
    sums = totals[:, None] + scores
    return np.unravel_index(np.argsort(sums.ravel())[::-1][:beam], sums.shape)


def _best(values, beam):
    best = np.argsort(-values, axis=None)[:beam]
    return best // values.shape[1], best % values.shape[1]


def wrong_step(totals, scores, beam):
    """the scores of the next words alone"""
    return _best(scores, beam)


def wrong_step_2(totals, scores, beam):
    """beginnings and words exchanged"""
    return step(totals, scores, beam)[::-1]


def wrong_step_3(totals, scores, beam):
    """the worst first"""
    return _best(-totals[:, None] - scores, beam)


def wrong_step_4(totals, scores, beam):
    """the best, but worst first"""
    return [part[::-1] for part in step(totals, scores, beam)]


def wrong_step_5(totals, scores, beam):
    """found 4 pairs, expected two arrays"""
    return list(zip(*step(totals, scores, beam), strict=True))


def wrong_step_6(totals, scores, beam):
    """expected two: the beginnings, and the words: places in the flat array"""
    return np.argsort(-(totals[:, None] + scores), axis=None)[:beam]


def wrong_step_7(totals, scores, beam):
    """rows of W places: a row has V"""
    best = np.argsort(-(totals[:, None] + scores), axis=None)[:beam]
    return best // len(totals), best % len(totals)


def wrong_step_8(totals, scores, beam):
    """found the shape (2, 3), expected (2, 4): that looks like one word for each beginning"""
    return np.arange(len(totals)), (totals[:, None] + scores).argmax(axis=1)


def wrong_step_9(totals, scores, beam):
    """logarithms are negative, and are added"""
    return _best(totals[:, None] * scores, beam)


def wrong_step_10(totals, scores, beam):
    """np.argpartition does not sort"""
    best = np.argpartition(-(totals[:, None] + scores), beam, axis=None)[:beam]
    return best // scores.shape[1], best % scores.shape[1]


def wrong_step_11(totals, scores, beam):
    """(3,) lacks an axis, [..., None] or keepdims=True makes it (3, 1)"""
    return _best(totals + scores, beam)


def wrong_step_12(totals, scores, beam):
    """a sort of each row; axis=None sorts all candidates"""
    best = np.argsort(-(totals[:, None] + scores))[:, :beam]
    return best // scores.shape[1], best % scores.shape[1]


def wrong_step_13(totals, scores, beam):
    """only the best stay"""
    return _best(totals[:, None] + scores, scores.size)


def wrong_step_14(totals, scores, beam):
    """numbers that are all too large, by 1"""
    return [part + 1 for part in step(totals, scores, beam)]


def wrong_step_15(totals, scores, beam):
    """a division with a rest: // gives the row"""
    best = np.argsort(-(totals[:, None] + scores), axis=None)[:beam]
    return best / scores.shape[1], best % scores.shape[1]


def wrong_step_16(totals, scores, beam):
    """rows and columns exchanged before the sort"""
    best = np.argsort(-(totals[:, None] + scores).T, axis=None)[:beam]
    return best // scores.shape[1], best % scores.shape[1]


def wrong_step_17(totals, scores, beam):
    """probabilities added: logarithms are"""
    return _best(np.exp(totals)[:, None] + np.exp(scores), beam)


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


def right_consensus_5(texts):
    table = np.array([[similarity(text, other) for other in texts] for text in texts])
    np.fill_diagonal(table, 0)
    return np.argmax(table.sum(axis=1).round(12))


def wrong_consensus(texts):
    """the number of common words, not divided by the lengths"""
    return _consensus(texts, lambda a, b: similarity(a, b) * (len(a) + len(b)))


def wrong_consensus_2(texts):
    """a word that counts once, however often both texts have it"""
    return _consensus(texts, lambda a, b: len(set(a) & set(b)) / (len(a) + len(b)))


def wrong_consensus_3(texts):
    """the count is not clipped"""
    return _consensus(texts, lambda a, b: sum(word in b for word in a) / (len(a) + len(b)))


def wrong_consensus_4(texts):
    """a division by the text's own length"""
    return _consensus(texts, lambda a, b: similarity(a, b) * (len(a) + len(b)) / len(a))


def wrong_consensus_5(texts):
    """the text that is most like one other"""
    return _consensus(texts, similarity, max)


def wrong_consensus_6(texts):
    """expected the index of a text"""
    return texts[consensus(texts)]


def wrong_consensus_7(texts):
    """an index that counts from 1"""
    return consensus(texts) + 1


def wrong_consensus_8(texts):
    """the text that is least similar"""
    return _consensus(texts, lambda a, b: -similarity(a, b))


def wrong_consensus_9(texts):
    """common words only where they stand at one place"""

    def at_one_place(a, b):
        return sum(v == w for v, w in zip(a, b, strict=False)) / (len(a) + len(b))

    return _consensus(texts, at_one_place)


def wrong_consensus_10(texts):
    """texts as sets of words"""
    return _consensus(texts, lambda a, b: len(set(a) & set(b)) / (len(set(a)) + len(set(b))))


def wrong_consensus_11(texts):
    """a division by the product of the lengths"""
    return _consensus(texts, lambda a, b: similarity(a, b) * (1 / len(a) + 1 / len(b)))


def wrong_consensus_12(texts):
    """equal texts are left out"""
    sums = [sum(similarity(a, b) for b in texts if b != a) for a in texts]
    return sums.index(max(sums))


def wrong_consensus_13(texts):
    """the last of several that are equally similar: the first is asked for"""
    return len(texts) - 1 - consensus(texts[::-1])


def wrong_consensus_14(texts):
    """sets of words: the common ones over all"""
    return _consensus(texts, lambda a, b: len(set(a) & set(b)) / len(set(a) | set(b)))


def wrong_consensus_15(texts):
    """characters in place of words"""
    return consensus([" ".join(text) for text in texts])


def wrong_consensus_16(texts):
    """the text that comes most often"""
    return max(range(len(texts)), key=lambda i: texts.count(texts[i]))


def wrong_consensus_17(texts):
    """a similarity is no index"""
    return max(similarity(texts[0], text) for text in texts[1:]) / 2
