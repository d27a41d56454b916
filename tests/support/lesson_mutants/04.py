"""Mistakes in the library that lesson 04 must notice: {name: (correct text, wrong text)}."""

MUTANTS = {
    "a layer norm without its mean term": (
        "(u - mean_u - normal * mean_un)",
        "(u - normal * mean_un)",
    ),
    "a layer norm whose gradient forgets the gain": (
        "u = gy * g  # the gradient of `normal`",
        "u = gy",
    ),
    "a layer norm with eps outside the root": (
        "xp.sqrt(x_data.var(axis=-1, keepdims=True) + float(eps))",
        "xp.sqrt(x_data.var(axis=-1, keepdims=True)) + float(eps)",
    ),
    "a layer norm over positions": (
        "mean = x_data.mean(axis=-1, keepdims=True)  # (..., 1)",
        "mean = x_data.mean(axis=-2 if x_data.ndim > 1 else -1, keepdims=True)",
    ),
    "a layer norm without bias": (
        "return record(normal * g + b, (x, gain, bias), backward)",
        "return record(normal * g, (x, gain, bias), backward)",
    ),
    "gradients of gain and bias exchanged": (
        "return gx, sum_rows(gy * normal), sum_rows(gy)",
        "return gx, sum_rows(gy), sum_rows(gy * normal)",
    ),
    "a sub-layer without its residual": (
        "return norm(x + dropout(added))",
        "return norm(dropout(added))",
    ),
    "a pre-norm that does not normalise": (
        "x + self.dropout(sublayer(self.norm(x)))",
        "x + self.dropout(sublayer(x))",
    ),
    "a feed-forward network without ReLU": (
        "dropout(activation(inner(x)))",
        "dropout(inner(x))",
    ),
    "a dropout that does not keep the mean": (
        "x * mask * factor",
        "x * mask",
    ),
    "a ReLU whose gradient passes everywhere": (
        "return record(y, (x,), lambda gy: gy * (y > 0))",
        "return record(y, (x,), lambda gy: gy)",
    ),
    "a swish whose gradient forgets the slope of the sigmoid": (
        "gy * (s + y * (1 - s))",
        "gy * s",
    ),
    "a dropout that stays on in a trained model": (
        "return F.dropout(x, self.rate) if self.training else x",
        "return F.dropout(x, self.rate)",
    ),
    "a dropout whose gradient ignores the mask": (
        "(x,), lambda gy: drop(gy, mask, factor))",
        "(x,), lambda gy: gy)",
    ),
    "the same coins in every dropout of an update": (
        "_state.place += 1",
        "_state.place = 1",
    ),
    "coins that ignore the update": (
        "key = seed, 65536 * step + place",
        "key = seed, place",
    ),
    "the opposite coin": (
        "to_device((bits >= threshold_of(rate)).reshape(shape))",
        "to_device((bits < threshold_of(rate)).reshape(shape))",
    ),
    "attention whose weights are not dropped": (
        "used = drop(weights, keep, factor)",
        "used = drop(weights, None, factor)",
    ),
    "an encoder layer that begins with the network": (
        "x = self.attention_residual(x, lambda y: self.self_attention(y, y, mask))\n"
        "        return self.feed_forward_residual(x, self.feed_forward)",
        "x = self.feed_forward_residual(x, self.feed_forward)\n"
        "        return self.attention_residual(x, lambda y: self.self_attention(y, y, mask))",
    ),
    "a switch for swish that is ignored": (
        "activation = getattr(F, self.activation)",
        "activation = F.relu",
    ),
}
