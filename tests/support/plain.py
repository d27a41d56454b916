"""The paper once more, in plain NumPy: slow, one sentence at a time, and nothing shared
with the engine.
"""

import math

import numpy as np

PAD, UNK, BOS, EOS = range(4)


def position(pos, c):
    """Give the sinusoids of one position, number by number."""
    pe = np.zeros(c.d_model)
    for i in range(c.d_model // 2):
        exponent = 2 * i / c.d_model if c.sinusoid_base == "paper" else i / (c.d_model / 2 - 1)
        sine, cosine = (
            (2 * i, 2 * i + 1) if c.sinusoid_layout == "interleaved" else (i, c.d_model // 2 + i)
        )
        pe[sine], pe[cosine] = math.sin(pos / 10000**exponent), math.cos(pos / 10000**exponent)
    return pe


class Plain:
    """The model on one sentence without padding, written from the paper with the
    weights of `state`.
    """

    def __init__(self, config, state):
        self.c, self.w = config, state

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt(x.var(-1, keepdims=True) + self.c.eps)
        return x * self.w[f"{name}.gain"] + self.w[f"{name}.bias"]

    def attention(self, x, memory, name, causal=False):
        c, heads = self.c, []
        for h in range(c.n_heads):
            keys, values = slice(h * c.d_k, (h + 1) * c.d_k), slice(h * c.d_v, (h + 1) * c.d_v)
            query = self.projected(x, f"{name}.query")[:, keys]
            key = self.projected(memory, f"{name}.key")[:, keys]
            value = self.projected(memory, f"{name}.value")[:, values]
            rows = []
            for t, q in enumerate(query):
                seen = t + 1 if causal else len(key)
                weights = np.exp(key[:seen] @ q / math.sqrt(c.d_k))
                rows.append(weights / weights.sum() @ value[:seen])
            heads.append(np.array(rows))
        return self.projected(np.concatenate(heads, axis=-1), f"{name}.output")

    def ssru(self, x, name):
        """Give the outputs of an SSRU, one token after another."""
        state, outputs = np.zeros(self.c.d_model), []
        for token in x:
            f = token @ self.w[f"{name}.forget.weight"] + self.w[f"{name}.forget.bias"]
            f = 1 / (1 + np.exp(-f))
            state = f * state + (1 - f) * (token @ self.w[f"{name}.value.weight"])
            outputs.append(np.maximum(0, state))
        return np.array(outputs)

    def projected(self, x, name):
        y = x @ self.w[f"{name}.weight"]
        return y + self.w[f"{name}.bias"] if self.c.attention_bias else y

    def feed_forward(self, x, name):
        inner = x @ self.w[f"{name}.inner.weight"] + self.w[f"{name}.inner.bias"]
        inner = (
            np.maximum(0, inner) if self.c.activation == "relu" else inner / (1 + np.exp(-inner))
        )
        return inner @ self.w[f"{name}.outer.weight"] + self.w[f"{name}.outer.bias"]

    def residual(self, x, sublayer, name):
        if self.c.norm == "post":
            return self.norm(x + sublayer(x), f"{name}.norm")
        return x + sublayer(self.norm(x, f"{name}.norm"))

    def embed(self, ids, side):
        table = "embedding.weight" if side == "source" or self.c.tie else "target_embedding.weight"
        x = self.w[table][ids] * math.sqrt(self.c.d_model)
        if self.c.positions == "learned":
            return x + self.w[f"{side}_positions.learned.weight"][: len(ids)] * math.sqrt(
                self.c.d_model
            )
        return x + np.array([position(pos, self.c) for pos in range(len(ids))])

    def encoder_layer(self, x, name):
        def attend(x):
            return self.attention(x, x, f"{name}.self_attention")

        x = self.residual(x, attend, f"{name}.attention_residual")
        return self.residual(
            x,
            lambda x: self.feed_forward(x, f"{name}.feed_forward"),
            f"{name}.feed_forward_residual",
        )

    def decoder_layer(self, x, memory, name):
        def attend(x):
            if self.c.decoder == "ssru":
                return self.ssru(x, f"{name}.self_attention")
            return self.attention(x, x, f"{name}.self_attention", causal=True)

        def attend_to_source(x):
            return self.attention(x, memory, f"{name}.source_attention")

        x = self.residual(x, attend, f"{name}.self_residual")
        x = self.residual(x, attend_to_source, f"{name}.source_residual")
        return self.residual(
            x,
            lambda x: self.feed_forward(x, f"{name}.feed_forward"),
            f"{name}.feed_forward_residual",
        )

    def __call__(self, source, target):
        """Give the logits (T, V) for the ids of one sentence and of what is written so far."""
        x, y = self.embed(source, "source"), self.embed(target, "target")
        for i in range(self.c.n_layers):
            x = self.encoder_layer(x, f"encoder.layers.{i}")
        memory = self.norm(x, "encoder.norm") if self.c.norm == "pre" else x
        for i in range(self.c.n_decoder_layers):
            y = self.decoder_layer(y, memory, f"decoder.layers.{i}")
        y = self.norm(y, "decoder.norm") if self.c.norm == "pre" else y
        z = y @ self.w["embedding.weight" if self.c.tie else "output_embedding.weight"].T
        if self.c.output_bias:
            z += self.w["output_bias"]
        for never in self.c.suppressed_ids:
            z[:, never] = -np.inf
        return z


def log_softmax(z):
    z = np.asarray(z, np.float64)
    return (
        z
        - z.max(-1, keepdims=True)
        - np.log(np.exp(z - z.max(-1, keepdims=True)).sum(-1, keepdims=True))
    )


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def plain_beam_search(ln_p, size, limit, beam, alpha, n_best, like="paper"):
    """Return the n_best (ids, ln P, score). ln_p(ids): ln of the probabilities of the next word."""
    alive, finished, is_marian = [((), 0.0)], [], like == "marian"
    divisor = (lambda n: n**alpha) if is_marian else lambda n: penalty(n, alpha)
    for length in range(1, limit + 1):
        candidates = []
        for ids, total in alive:
            scores = ln_p(ids)
            candidates += [
                (total + scores[w], (*ids, w)) for w in range(size) if w not in (PAD, BOS)
            ]
        most = beam - len(finished) if is_marian else 2 * beam
        candidates = sorted(candidates, key=lambda candidate: -candidate[0])[:most]
        for total, ids in candidates[:beam]:
            if ids[-1] == EOS:
                finished.append((list(ids[:-1]), total, total / divisor(length)))
        alive = [(ids, total) for total, ids in candidates if ids[-1] != EOS][:beam]
        finished.sort(key=lambda hypothesis: -hypothesis[2])
        if not alive:
            break
        can_reach = alive[0][1] / divisor(limit)
        if len(finished) >= beam and can_reach <= finished[n_best - 1][2]:
            break
    # Best first: of one length.
    cut = [(list(ids), total, total / divisor(length)) for ids, total in alive]
    return (finished + (cut if length == limit else []))[:n_best]
