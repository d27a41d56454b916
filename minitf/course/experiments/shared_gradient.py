"""Why does a high initial learning rate make all positions alike?

    python -m minitf.course.experiments.shared_gradient

The training is that of the experiment `warmup`, in float64. The wish of a position is minus the
gradient of the loss with respect to its vector in the memory: the way that the vector should move.
The mean of all wishes is the common wish. The command trains without a warm-up for 600 updates,
with the peak rate 0.008; it takes about 40 seconds of CPU time on an AMD EPYC (Zen 4).
"""

import numpy as np

from minitf import forms
from minitf.backend import to_device
from minitf.course.experiments import warmup, write
from minitf.loss import label_smoothed_cross_entropy
from minitf.nn import Parameter
from minitf.optim import Adam
from minitf.tensor import Tensor


def training(schedule, peak, updates, seed=1, without=()):
    """Train; return {name: one number for each update}, and for "apart" one row.

    without: the updates that are made without the common wish. The names: "loss" before the update;
    "wishes", the sum of their lengths; "common", the length of their sum; "gradient", the length of
    the encoder's gradient; "moves", the root mean square of how far a number moves, divided by the
    rate; "typical", the median of that; "apart", after the update, how far apart the positions are
    at the encoder's input and after each layer.
    """
    model = warmup.new_model(seed, dtype=np.float64)
    optimizer = Adam(model.named_parameters())
    rng = np.random.default_rng(seed)
    notes = {name: [] for name in ("loss", "wishes", "common", "gradient", "moves", "typical")}
    notes["apart"] = []
    for update in range(1, updates + 1):
        optimizer.zero_grad()
        loss, wishes = walk_back(model, warmup.reversal(rng, 64), update in without)
        before = optimizer.data.copy()
        rate = peak * warmup.share_of_peak(schedule, update)
        optimizer.step(rate)
        moves = abs(Tensor(optimizer.data - before).numpy()) / rate
        squares = [float((p.grad**2).sum()) for p in model.encoder.parameters()]
        notes["loss"].append(loss)
        notes["wishes"].append(float(np.linalg.norm(wishes, axis=1).sum()))
        notes["common"].append(float(np.linalg.norm(wishes.sum(axis=0))))
        notes["gradient"].append(sum(squares) ** 0.5)
        notes["moves"].append(float((moves**2).mean() ** 0.5))
        notes["typical"].append(float(np.median(moves)))
        notes["apart"].append(distances_apart(model))
    return {name: np.array(numbers) for name, numbers in notes.items()}


def walk_back(model, batch, without_common=False):
    """Compute all gradients; return the loss, and the wishes at the memory without the padding.

    without_common: subtract the common wish at the memory, below each layer, and at the input.
    """
    real = batch.source != 0
    inputs, outputs = [], []
    for layer in _layers(model, batch.source):
        outputs.append(layer(*inputs[-1:]))
        inputs.append(Parameter(outputs[-1].numpy()))  # a walk back ends here, and goes on below
    _, mask = model.encode(batch.source)
    logits = model.logits(model.decode(batch.target_in, inputs[-1], mask))
    loss = label_smoothed_cross_entropy(logits, batch.target_out, 0.1, pad_id=0)
    loss.backward()
    for x, y in zip(reversed(inputs), reversed(outputs), strict=True):
        gradient = Tensor(x.grad).numpy().copy()
        if without_common:
            gradient[real] -= gradient[real].mean(axis=0)
        y.backward(gradient)
    return float(loss), -Tensor(inputs[-1].grad).numpy()[real]


def distances_apart(model):
    """Return how far apart the positions of a probe are at the input and after each layer.

    That is their distance from their mean, as a share of their length.
    """
    probe = warmup.reversal(np.random.default_rng(9), 64)
    distances, x = [], ()
    for layer in _layers(model, probe.source):
        x = (layer(*x),)
        vectors = x[0].numpy()[probe.source != 0]
        from_mean = vectors - vectors.mean(axis=0)
        distances.append(float(np.sqrt((from_mean**2).sum() / (vectors**2).sum())))
    return distances


def _layers(model, source):
    """Return functions: the first computes the encoder's input, each other is one layer."""
    _, mask = model.encode(source)
    hidden = to_device(mask)

    def embed():
        return model.source_positions(model.embedding(source) * model.config.d_model**0.5)

    return [embed, *(lambda x, layer=layer: layer(x, hidden) for layer in model.encoder.layers)]


def main():
    """Train for 600 updates at once; write what was noted after each fifty."""
    with forms.on():
        notes = training("at once", 0.008, updates=600)
    print("loss", notes["loss"][49::50].round(2), "apart", notes["apart"][49::50, -1].round(2))
    found = {name: notes[name][49::50].tolist() for name in ("loss", "wishes", "typical", "apart")}
    write("shared_gradient", found)


if __name__ == "__main__":
    main()
