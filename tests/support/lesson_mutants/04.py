"""Mistakes in the library that lesson 04 must notice: {name: (correct text, wrong text)}."""

MUTANTS = {
    "a layer norm without its mean term": (
        "(u - mean_u - normal * mean_un)",
        "(u - normal * mean_un)",
    ),
    "a layer norm without its stretch term": (
        "(u - mean_u - normal * mean_un)",
        "(u - mean_u)",
    ),
    "a layer norm whose gradient is not divided by s": (
        "gx = (u - mean_u - normal * mean_un) / deviation",
        "gx = u - mean_u - normal * mean_un",
    ),
    "a layer norm whose gradient forgets the gain": (
        "u = gy * g  # the gradient of `normal`",
        "u = gy",
    ),
    "a layer norm with eps outside the root": (
        "xp.sqrt(x_data.var(axis=-1, keepdims=True) + float(eps))",
        "xp.sqrt(x_data.var(axis=-1, keepdims=True)) + float(eps)",
    ),
    "a layer norm that divides by D - 1": (
        "x_data.var(axis=-1, keepdims=True) + float(eps)",
        "x_data.var(axis=-1, keepdims=True, ddof=1) + float(eps)",
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
    "a residual that adds before it drops": (
        "return norm(x + dropout(added))",
        "return norm(dropout(x + added))",
    ),
    "a pre-norm that does not normalise": (
        "x + self.dropout(sublayer(self.norm(x)))",
        "x + self.dropout(sublayer(x))",
    ),
    "an add-and-norm without its sum": (
        "layer_norm(x + dropout(added",
        "layer_norm(dropout(added",
    ),
    "a feed-forward network without ReLU": (
        "dropout(activation(inner(x)))",
        "dropout(inner(x))",
    ),
    "a feed-forward op without ReLU": (
        "dropout(relu(linear(x, w_1, b_1))",
        "dropout((linear(x, w_1, b_1))",
    ),
    "a feed-forward op with dropout before the ReLU's map": (
        "hidden = dropout(relu(linear(x, w_1, b_1)), rate, seed)",
        "hidden = relu(linear(dropout(x, rate, seed), w_1, b_1))",
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
    "a swish with half the sigmoid's slope": (
        "s = xp.where(x_data < 0, e, 1) / (1 + e)",
        "s = xp.where(x_data < 0, e**0.5, 1) / (1 + e**0.5)",
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
    "coins of a slice that begin at the first row": (
        "start = first_row * math.prod(shape[1:])  # the index of the slice's first element",
        "start = 0",
    ),
    "the opposite coin": (
        "to_device((bits >= threshold_of(rate)).reshape(shape))",
        "to_device((bits < threshold_of(rate)).reshape(shape))",
    ),
    "attention whose weights are not dropped": (
        "used = drop(weights, keep, factor)",
        "used = drop(weights, None, factor)",
    ),
    "attention dropout that the gradient of the values ignores": (
        "g_used, g_value = gy @ swap(v), swap(used) @ gy",
        "g_used, g_value = gy @ swap(v), swap(weights) @ gy",
    ),
    "attention dropout that the gradient of the weights ignores": (
        "g_weights = drop(g_used, keep, factor)",
        "g_weights = g_used",
    ),
    "an encoder layer that begins with the network": (
        "x = self.attention_residual(x, lambda y: self.self_attention(y, y, mask))\n"
        "        return self.feed_forward_residual(x, self.feed_forward)",
        "x = self.feed_forward_residual(x, self.feed_forward)\n"
        "        return self.attention_residual(x, lambda y: self.self_attention(y, y, mask))",
    ),
    "an encoder layer without its mask": (
        "x = self.attention_residual(x, lambda y: self.self_attention(y, y, mask))\n"
        "        return self.feed",
        "x = self.attention_residual(x, lambda y: self.self_attention(y, y, None))\n"
        "        return self.feed",
    ),
    "a switch for swish that is ignored": (
        "activation = getattr(F, self.activation)",
        "activation = F.relu",
    ),
}
