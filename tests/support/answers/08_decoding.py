"""Model answers to the exercises of lesson 08, and a typical wrong one for each."""

import numpy as np

from minitf.decode import Hypothesis


def predictions():
    return ["Tee bitte", "Kaffee bitte", "Wasser bitte"]


def wrong_predictions():  # takes the best of all texts for each beam
    return ["Tee bitte", "Wasser bitte", "Wasser bitte"]


def wrong_predictions_2():
    return []


def wrong_predictions_3():
    return ["Tee bitte"]


def wrong_predictions_4():
    return ["Tee bitte", "Kaffee bitte", "Wasser bitte", "Wasser bitte"]


def fools_the_count():
    return ["die"] * 4, ["die", "alte", "Frau", "liest"]


def wrong_fools_the_count():  # clipped, two of the four words are right
    return ["die", "die", "die", "alte"], ["die", "alte", "Frau", "liest"]


def wrong_fools_the_count_2():  # of letters
    return "aaaa", "abcd"


def _score(hypothesis, alpha):
    return hypothesis.log_probability / (len(hypothesis.ids) + 1) ** alpha


def rank(hypotheses, alpha):
    scored = [Hypothesis(h.ids, h.log_probability, _score(h, alpha)) for h in hypotheses]
    return sorted(scored, key=lambda h: -h.score)


def wrong_rank(hypotheses, alpha):  # forgets the end mark
    scored = []
    for h in hypotheses:
        score = h.log_probability / len(h.ids) ** alpha
        scored.append(Hypothesis(h.ids, h.log_probability, score))
    return sorted(scored, key=lambda h: -h.score)


def wrong_rank_2(hypotheses, alpha):  # sorts the scores, and not the hypotheses
    scores = sorted([_score(h, alpha) for h in hypotheses], reverse=True)
    return [
        Hypothesis(h.ids, h.log_probability, score)
        for h, score in zip(hypotheses, scores, strict=True)
    ]


def wrong_rank_3(hypotheses, alpha):  # forgets the ids
    scores = sorted([_score(h, alpha) for h in hypotheses], reverse=True)
    return [Hypothesis([], score, score) for score in scores]


def wrong_rank_4(hypotheses, alpha):  # forgets ln P
    scored = [Hypothesis(h.ids, _score(h, alpha), _score(h, alpha)) for h in hypotheses]
    return sorted(scored, key=lambda h: -h.score)


def step(totals, scores, beam):
    best = np.argsort(-(totals[:, None] + scores), axis=None)[:beam]
    return best // scores.shape[1], best % scores.shape[1]


def wrong_step(totals, scores, beam):  # compares the next words alone
    best = np.argsort(-scores, axis=None)[:beam]
    return best // scores.shape[1], best % scores.shape[1]


def similarity(text, other):
    left = list(other)
    for word in text:
        if word in left:
            left.remove(word)
    return 2 * (len(other) - len(left)) / (len(text) + len(other))


def consensus(texts):
    means = []
    for i, text in enumerate(texts):
        others = texts[:i] + texts[i + 1 :]
        means.append(np.mean([similarity(text, other) for other in others]))
    return int(np.argmax(means))


def wrong_consensus(texts):  # counts the common words, so that the longest text wins
    means = []
    for i, text in enumerate(texts):
        others = texts[:i] + texts[i + 1 :]
        means.append(np.mean([similarity(text, o) * (len(text) + len(o)) for o in others]))
    return int(np.argmax(means))


def wrong_consensus_2(texts):  # counts a word once, however often both texts have it
    means = []
    for i, text in enumerate(texts):
        others = texts[:i] + texts[i + 1 :]
        common = [2 * len(set(text) & set(o)) / (len(text) + len(o)) for o in others]
        means.append(np.mean(common))
    return int(np.argmax(means))
