"""Mistakes in the code that lesson 07 teaches: each must end the lesson.

{the mistake: (correct text, which occurs once in minitf, wrong text)}.
"""

MUTANTS = {
    # Adam
    "a mean of gradients with too large weights": (
        "beta_1 * m + (1 - beta_1) * g",
        "beta_1 * m + beta_1 * g",
    ),
    "Adam without memory of the gradients": ("m[...] = beta_1 * m + ", "m[...] = "),
    "Adam without the square of the gradient": (
        "(1 - beta_2) * g**2\n",
        "(1 - beta_2) * abs(g)\n",
    ),
    "squares that are never forgotten": ("v[...] = beta_2 * v", "v[...] = v"),
    "Adam without the root": (
        "(xp.sqrt(v / (1 - beta_2**t)) + eps)",
        "(v / (1 - beta_2**t) + eps)",
    ),
    "Adam without bias correction": ("xp.sqrt(v / (1 - beta_2**t))", "xp.sqrt(v)"),
    "Adam without its other bias correction": ("rate * (m / (1 - beta_1**t))", "rate * m"),
    "Adam uphill": ("x -= rate * (m", "x += rate * (m"),
    "another beta_1": (
        "rate: float,\n    beta_1: float = 0.9,",
        "rate: float,\n    beta_1: float = 0.8,",
    ),
    "another beta_2": (
        "    beta_2: float = 0.98,\n    eps: float = 1e-9,\n    finite",
        "    beta_2: float = 0.999,\n    eps: float = 1e-9,\n    finite",
    ),
    "an eps that matters": ("eps: float = 1e-9,\n    finite", "eps: float = 1e-3,\n    finite"),
    "another beta_1 in the class": (
        "        beta_1: float = 0.9,\n",
        "        beta_1: float = 0.8,\n",
    ),
    "another beta_2 in the class": (
        "        beta_2: float = 0.98,\n",
        "        beta_2: float = 0.999,\n",
    ),
    "an eps that matters in the class": (
        "        eps: float = 1e-9,\n    ):",
        "        eps: float = 1e-3,\n    ):",
    ),
    "exchanged betas": (
        "constants = self.beta_1, self.beta_2, self.eps",
        "constants = self.beta_2, self.beta_1, self.eps",
    ),
    "steps that are not counted": ("self.step_count += 1", "self.step_count = 1"),
    "gradients that are never forgotten": (
        "for _, parameter in self.named_parameters:\n            parameter.grad = None",
        "for _, parameter in self.named_parameters:\n            parameter.grad = parameter.grad",
    ),
    # The flat arrays
    "parameters that are no views of the flat array": (
        "p.data, p.grad, p._gradient_view = view,",
        "p.data, p.grad, p._gradient_view = view.copy(),",
    ),
    "gradients that do not arrive in the flat array": (
        "xp.copyto(self._gradient_view, gradient)",
        "xp.copyto(self._gradient_view, 0 * gradient)",
    ),
    # The schedule
    "a rate that grows with the model": (
        "factor * d_model**-0.5 * min(",
        "factor * d_model**0.5 * min(",
    ),
    "the larger of the two terms": ("min(step**-0.5, step * w", "max(step**-0.5, step * w"),
    "a rate that falls too fast": ("min(step**-0.5, step * w", "min(step**-1.0, step * w"),
    "a warm-up with another exponent": ("step * warmup_steps**-1.5)", "step * warmup_steps**-1.4)"),
    "a rate without its factor": ("return factor * d_model**-0.5", "return d_model**-0.5"),
    # The loss
    "a log_softmax without the logarithm": ("z - xp.log(xp.maximum(total, 1))", "z - total"),
    "a log_softmax whose gradient forgets the sum": (
        "return gy - xp.exp(y) * gy.sum(axis=axis, keepdims=True)",
        "return gy - xp.exp(y)",
    ),
    "a smoothing mass that does not add up": (
        "return smoothing / (size - 1) if",
        "return smoothing / size if",
    ),
    "a true word with all the probability": ("ids] = 1 - smoothing", "ids] = 1"),
    "padding that counts": ("else target != pad_id", "else target != -1"),
    "a loss that is not divided": (
        "xp.where(q > 0, log_p, 0)).sum() / n",
        "xp.where(q > 0, log_p, 0)).sum()",
    ),
    "a divisor that counts the padding": (
        "n_tokens = max(1, len(rows))",
        "n_tokens = max(1, target.size)",
    ),
    "parts that are divided by their own tokens": (
        "if n_tokens is None:\n        n_tokens = max",
        "if True:\n        n_tokens = max",
    ),
    "a gradient p instead of p - q": ("(xp.exp(log_p) - q) * (gy / n)", "xp.exp(log_p) * (gy / n)"),
    "a gradient that is not divided": (
        "(xp.exp(log_p) - q) * (gy / n)",
        "(xp.exp(log_p) - q) * gy",
    ),
    "a plain loss that is smoothed": (
        "nll = label_smoothed_cross_entropy(logits, target, 0.0, *counting)",
        "nll = label_smoothed_cross_entropy(logits, target, smoothing, *counting)",
    ),
    "a model that does not smooth": (
        "smoothing = c.label_smoothing if smoothing is None",
        "smoothing = 0.0 if smoothing is None",
    ),
    "a model whose loss counts the padding": (
        "smoothing,\n            c.pad_id,\n            n_tokens,",
        "smoothing,\n            None,\n            n_tokens,",
    ),
    # The length of the gradient
    "a length without the root": (
        "xp.sqrt(xp.dot(gradients, gradients))",
        "xp.dot(gradients, gradients)",
    ),
    "short gradients made longer": (
        "xp.minimum(largest / (norm + 1e-12), 1)",
        "largest / (norm + 1e-12)",
    ),
    "gradients that are not cut": (
        "gradients *= xp.minimum(largest / (norm + 1e-12), 1)",
        "gradients *= 1",
    ),
    # The trainer
    "the rate of the step before": ("self.rate(self.step + 1)", "self.rate(self.step or 1)"),
    "a trainer that ignores its learning rate": (
        "settings.warmup_steps, settings.learning_rate)",
        "settings.warmup_steps)",
    ),
    "a trainer that ignores its warm-up": (
        "d_model, settings.warmup_steps, s",
        "d_model, 4000, s",
    ),
    "an update of its last batch only": ("for i, batch in mine:", "for i, batch in mine[-1:]:"),
    "batches divided by their own tokens in the trainer": (
        "self.backward(batch, n_tokens, first",
        "self.backward(batch, batch.n_tokens, first",
    ),
    "an update divided by the tokens of its first batch": (
        "self.ranks.sum_numbers(sum(count(batch.target_out) for _, batch in mine))",
        "self.ranks.sum_numbers(count(mine[0][1].target_out))",
    ),
    "a trainer that never forgets a gradient": (
        "self.optimizer.zero_grad()\n        loss, nll = 0.0, 0.0",
        "loss, nll = 0.0, 0.0",
    ),
}
