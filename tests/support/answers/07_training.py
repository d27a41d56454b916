"""Model answers to the exercises of lesson 07, and for each a typical wrong one that
must be rejected.
"""

from minitf.loss import label_smoothed_cross_entropy


def momentum_step(data, gradient, velocity, rate):
    velocity *= 0.9
    velocity += gradient
    data -= rate * velocity


def wrong_momentum_step(data, gradient, velocity, rate):
    velocity = 0.9 * velocity + gradient  # a new array: the one that was given stays 0
    data -= rate * velocity


def pytorch_loss(logits, target, eps):
    size = logits.shape[-1]
    return label_smoothed_cross_entropy(logits, target, eps * (size - 1) / size)


def wrong_pytorch_loss(logits, target, eps):
    size = logits.shape[-1]
    return label_smoothed_cross_entropy(logits, target, eps * size / (size - 1))
