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
    "Adam without its other bias correction": ("rate * (m / (1 - beta_1**t))", "rate * m"),
    "Adam uphill": ("x -= rate * (m", "x += rate * (m"),
    "another beta_1": (
        "rate: float,\n    beta_1: float = 0.9,",
        "rate: float,\n    beta_1: float = 0.8,",
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
    "gradients that do not arrive in the flat array": (
        "            out[...] = gradient",
        "            out[...] = 0 * gradient",
    ),
    # The schedule
    "a rate that grows with the model": (
        "factor * d_model**-0.5 * min(",
        "factor * d_model**0.5 * min(",
    ),
    "the larger of the two terms": ("min(step**-0.5, step * w", "max(step**-0.5, step * w"),
    "a warm-up with another exponent": ("step * warmup_steps**-1.5)", "step * warmup_steps**-1.4)"),
    # The loss
    "a log_softmax without the logarithm": ("z - xp.log(xp.maximum(total, 1))", "z - total"),
    "a log_softmax whose gradient forgets the sum": (
        "return gy - xp.exp(y) * gy.sum(axis=axis, keepdims=True)",
        "return gy - xp.exp(y)",
    ),
    "a smoothing mass that does not add up": (
        "float(smoothing) / (n_possible - 1 +",
        "float(smoothing) / (n_possible +",
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
    "a plain loss that is smoothed": (
        "nll = label_smoothed_cross_entropy(logits, target, 0.0, pad_id, n_tokens)",
        "nll = label_smoothed_cross_entropy(logits, target, smoothing, pad_id, n_tokens)",
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
    # The trainer
    "the rate of the step before": (
        "self.config.d_model, self.step + 1)",
        "self.config.d_model, self.step or 1)",
    ),
    "a trainer that ignores its learning rate": (
        "settings.warmup_steps, settings.learning_rate)",
        "settings.warmup_steps)",
    ),
    "an update of its last batch only": ("for i, batch in mine:", "for i, batch in mine[-1:]:"),
    "batches divided by their own tokens in the trainer": (
        "self.backward(batch, n_tokens, step",
        "self.backward(batch, batch.n_tokens, step",
    ),
    "a trainer that never forgets a gradient": (
        "self.optimizer.zero_grad()\n        loss, nll = 0.0, 0.0",
        "loss, nll = 0.0, 0.0",
    ),
}
