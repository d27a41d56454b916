"""The same training step from the engine's smallest operations, as the lessons derive it.

Attention is made of matrix products and a softmax, layer norm of means and roots; the loss keeps
all logits in memory, embedding rows are indexed, and Adam updates one parameter after the other.
The difference to ours.py is the gain of the larger operations of minitf.functions.
"""

import numpy as np

from benchmarks import work
from benchmarks.protocol import serve
from minitf import Config, Tensor
from minitf import functions as F
from minitf.transformer import causal_mask, padding_mask


class Composed:
    """A Transformer of small operations over named parameters, with a batch and an optimizer."""

    def __init__(self, task):
        self.config, self.dtype = Config(**task["model"]), task.get("dtype", "float32")
        with np.load(task["weights"]) as arrays:
            self.parameters = {
                name: Tensor(arrays[name].astype(self.dtype)) for name in arrays.files
            }
        self.moments = {name: [0 * p.data, 0 * p.data] for name, p in self.parameters.items()}
        self.source, self.target_in, self.target_out = work.batch(task)
        self.steps = 0

    # The model ------------------------------------------------------------------------------------

    def linear(self, x, name, bias=True):
        rows = x.reshape(-1, x.shape[-1]) @ self.parameters[f"{name}.weight"]
        if bias:
            rows = rows + self.parameters[f"{name}.bias"]
        return rows.reshape(*x.shape[:-1], rows.shape[-1])

    def layer_norm(self, x, name):
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = ((centred * centred).mean(axis=-1, keepdims=True) + work.NORM_EPS) ** 0.5
        return (
            centred / deviation * self.parameters[f"{name}.gain"] + self.parameters[f"{name}.bias"]
        )

    def attention(self, x, memory, mask, name):
        def split(tensor):
            return tensor.reshape(*tensor.shape[:2], self.config.n_heads, -1).transpose(0, 2, 1, 3)

        query = split(self.linear(x, f"{name}.query", bias=False))
        key, value = (
            split(self.linear(memory, f"{name}.{part}", bias=False)) for part in ("key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / self.config.d_k**0.5
        heads = F.softmax(F.where(mask, scores, -1e9)) @ value
        return self.linear(
            heads.transpose(0, 2, 1, 3).reshape(*x.shape), f"{name}.output", bias=False
        )

    def feed_forward(self, x, name):
        return self.linear(F.relu(self.linear(x, f"{name}.inner")), f"{name}.outer")

    def residual(self, x, change, name):
        return self.layer_norm(x + F.dropout(change, self.config.dropout), f"{name}.norm")

    def embed(self, ids):
        rows = self.parameters["embedding.weight"][ids] * self.config.d_model**0.5
        return F.dropout(rows + work.sinusoid(*rows.shape[1:], self.dtype), self.config.dropout)

    def logits(self):
        """Run the whole model: logits (B, T, V)."""
        x, mask = self.embed(self.source), padding_mask(self.source)
        for i in range(self.config.n_layers):
            name = f"encoder.layers.{i}."
            x = self.residual(
                x, self.attention(x, x, mask, f"{name}self_attention"), f"{name}attention_residual"
            )
            x = self.residual(
                x, self.feed_forward(x, f"{name}feed_forward"), f"{name}feed_forward_residual"
            )
        memory, x, future = x, self.embed(self.target_in), causal_mask(self.target_in.shape[1])
        for i in range(self.config.n_layers):
            name = f"decoder.layers.{i}."
            x = self.residual(
                x, self.attention(x, x, future, f"{name}self_attention"), f"{name}self_residual"
            )
            seen = self.attention(x, memory, mask, f"{name}source_attention")
            x = self.residual(x, seen, f"{name}source_residual")
            x = self.residual(
                x, self.feed_forward(x, f"{name}feed_forward"), f"{name}feed_forward_residual"
            )
        rows = x.reshape(-1, x.shape[-1]) @ self.parameters["embedding.weight"].transpose()
        return rows.reshape(*x.shape[:-1], -1)

    # The step -------------------------------------------------------------------------------------

    def gradients(self):
        """Run forward and backward; returns the loss."""
        for p in self.parameters.values():
            p.grad = None
        with F.dropout_state(1, self.steps):
            log_p = F.log_softmax(self.logits())
        real = self.target_out != work.PAD
        each = work.SMOOTHING / (log_p.shape[-1] - 1)
        true = log_p[(*np.indices(self.target_out.shape), self.target_out)]
        losses = true * (1 - work.SMOOTHING - each) + log_p.sum(axis=-1) * each
        loss = -(losses * real.astype(self.dtype)).sum() / int(real.sum())
        loss.backward()
        return float(loss)

    def step(self):
        """Make one update; returns the loss."""
        loss = self.gradients()
        self.steps += 1
        (beta_1, beta_2), t = work.BETAS, self.steps
        for name, p in self.parameters.items():
            m, v = self.moments[name]
            m = beta_1 * m + (1 - beta_1) * p.grad
            v = beta_2 * v + (1 - beta_2) * p.grad**2
            self.moments[name] = [m, v]
            mean, square = m / (1 - beta_1**t), v / (1 - beta_2**t)
            p.data = p.data - work.RATE * mean / (np.sqrt(square) + work.ADAM_EPS)
        return loss


def check_training(task):
    model = Composed(task)
    model.gradients()
    np.savez(task["out"], **{name: p.grad for name, p in model.parameters.items()})
    return [model.step() for _ in range(3)]


JOBS = {"train": lambda task: Composed(task).step, "check train": check_training}

if __name__ == "__main__":
    serve(JOBS)
