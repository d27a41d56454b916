"""Model answers to the exercises of lesson 08, and a typical wrong one for each."""

import numpy as np

from minitf.decode import Hypothesis


def rank(hypotheses, alpha):
    scored = [
        Hypothesis(h.ids, h.log_probability, h.log_probability / (len(h.ids) + 1) ** alpha)
        for h in hypotheses
    ]
    return sorted(scored, key=lambda h: -h.score)


def wrong_rank(hypotheses, alpha):  # forgets the end mark
    scored = [
        Hypothesis(h.ids, h.log_probability, h.log_probability / len(h.ids) ** alpha)
        for h in hypotheses
    ]
    return sorted(scored, key=lambda h: -h.score)


def step(totals, scores, beam):
    best = np.argsort(-(totals[:, None] + scores), axis=None)[:beam]
    return best // scores.shape[1], best % scores.shape[1]


def wrong_step(totals, scores, beam):  # compares the next words alone
    best = np.argsort(-scores, axis=None)[:beam]
    return best // scores.shape[1], best % scores.shape[1]
