"""Mistakes in gradients and in the walk back, which lesson 02 must notice."""

MUTANTS = {
    # The walk
    "nodes visited as found": (
        "            seen.add(node)\n            stack.append((node, True))",
        "            seen.add(node)\n            order.insert(0, node)",
    ),
    "the walk from the wrong end": ("nodes.pop().walk_back()", "nodes.pop(0).walk_back()"),
    "a node keeps the last gradient only": (
        "its place: see gradient_out\n            self.grad += gradient",
        "its place: see gradient_out\n            self.grad = gradient",
    ),
    "a parameter keeps the last gradient only": (
        "its place\n            self.grad += gradient",
        "its place\n            self.grad = gradient",
    ),
    "two nodes share one gradient array": (
        "self.grad, self._shares_grad = gradient, True",
        "self.grad, self._shares_grad = gradient, False",
    ),
    "the first gradient is not 1": (
        "xp.ones_like(self.data) if gradient is None",
        "2 * xp.ones_like(self.data) if gradient is None",
    ),
    "a freed graph can be walked again": (
        "self.grad, self.backward, self.parents = None, _freed, ()",
        "self.grad = None",
    ),
    # no_grad
    "no_grad records": ("_recording.off += 1", "_recording.off += 0"),
    "no_grad never ends": (
        "_recording.off = max(0, _recording.off - 1)",
        "_recording.off = max(0, _recording.off)",
    ),
    # The rules
    "plus hands the second input twice gy": ("lambda gy: (gy, gy))", "lambda gy: (gy, 2 * gy))"),
    "minus hands both gy": ("lambda gy: (gy, -gy))", "lambda gy: (gy, gy))"),
    "a minus sign hands back gy": ("(self,), lambda gy: -gy)", "(self,), lambda gy: gy)"),
    "a product hands back its own factors": ("(gy * y, gy * x))", "(gy * x, gy * y))"),
    "divided by without its minus": ("(gy / y, -gy * ratio / y))", "(gy / y, gy * ratio / y))"),
    "a power keeps its exponent": ("gy * (c * x ** (c - 1))", "gy * (c * x**c)"),
    "exp's slope is 1": ("(x,), lambda gy: gy * y)", "(x,), lambda gy: gy * 1)"),
    "ln's slope is x": ("lambda gy: gy / x_data)", "lambda gy: gy * x_data)"),
    "where hands the value's gradient to x": (
        "return None, xp.where(mask, gy, 0), xp.where(mask, 0, gy)",
        "return None, xp.where(mask, 0, gy), xp.where(mask, gy, 0)",
    ),
    "a row taken twice gets one gradient": ("xp.add.at(gx, index, gy)", "gx[index] = gy"),
    "a broadcast row gets a mean": (
        "gradient = gradient.sum(axis=tuple(range(extra)))",
        "gradient = gradient.mean(axis=tuple(range(extra)))",
    ),
    "a transpose comes back by the same turn": (
        "lambda gy: gy.transpose(inverse))",
        "lambda gy: gy.transpose(axes).reshape(self.shape))",
    ),
    "a reshape comes back column by column": (
        "lambda gy: gy.reshape(before))",
        'lambda gy: gy.reshape(before, order="F"))',
    ),
    "a mean divided by the wrong count": (
        "count = math.prod(self.shape[i] for i in axes)",
        "count = self.size",
    ),
    "a sum hands back a mean": (
        "            return xp.broadcast_to(gy, shape)",
        "            return xp.broadcast_to(gy, shape) / shape[0]",
    ),
    "a product of matrices exchanged": (
        "return gy @ w.swapaxes(-1, -2), x.swapaxes(-1, -2) @ gy",
        "return gy @ w.reshape(w.shape[::-1]), x.swapaxes(-1, -2) @ gy",
    ),
    # Attention
    "a zeroed softmax gradient": (
        "return y * (gy - (gy * y).sum(axis=axis, keepdims=True))",
        "return 0 * gy",
    ),
    "attention's gradient without the scale": (
        "g_products = g_scores * scale",
        "g_products = g_scores",
    ),
    "the values get too much": (
        "g_used, g_value = gy @ swap(v), swap(used) @ gy",
        "g_used, g_value = gy @ swap(v), swap(used > 0) @ gy",
    ),
    # The check
    "a check by the sum of the outputs": (
        "weights = _random_signs(rng, out.shape)",
        "weights = np.ones(out.shape)",
    ),
    "a check that forgives one percent": ("rtol: float = 1e-6,", "rtol: float = 1e-2,"),
    "a check that divides by h": (
        "(above - below).sum() / (2 * h * length)",
        "(above - below).sum() / (h * length)",
    ),
    "a check that takes mistakes for rounding": (
        "4 * np.finfo(np.float64).eps",
        "4e7 * np.finfo(np.float64).eps",
    ),
}
