"""Greedy decoding and beam search in PyTorch with a key/value cache, written by hand.

The caches are allocated once. Keys and values of the source are projected once, and the beams of a
sentence share them as several queries. All bookkeeping is done in whole batches; only a beam that
ends is looked at alone.
"""

import torch
import torch.nn.functional as F

from benchmarks import work


class Cache:
    """The keys and values of the source, and of the words written so far."""

    def __init__(self, model, source, width, length):
        real = source != work.PAD
        self.model, self.width = model, width
        self.mask = None if real.all() else real[:, None, None, :]
        memory = model.encode(source, self.mask)
        self.fixed = [
            layer.source_attention.split(layer.source_attention.key_value(memory), 2)
            for layer in model.decoder
        ]
        n_heads = model.c["n_heads"]
        shape = 2, len(source) * width, n_heads, length, model.d_model // n_heads
        self.growing = [torch.empty(shape) for _ in model.decoder]

    def scores(self, words, position):
        """Return ln P (R, V) of the words after the newest words (R,), at this position."""
        x = self.model.embed(words[:, None], position)
        for layer, growing, fixed in zip(self.model.decoder, self.growing, self.fixed, strict=True):
            attention = layer.self_attention
            query, key, value = attention.split(attention.query_key_value(x), 3)
            growing[0, :, :, position], growing[1, :, :, position] = key[:, :, 0], value[:, :, 0]
            heads = F.scaled_dot_product_attention(
                query, *growing[:, :, :, : position + 1].unbind(0)
            )
            x = layer.self_norm(x + attention.joined(heads))
            attention = layer.source_attention
            # The R rows as W queries of each of B sentences: (R, 1, D) -> (B, W, D) -> (B, H, W, K)
            (query,) = attention.split(
                attention.query(x).view(-1, self.width, self.model.d_model), 1
            )
            heads = F.scaled_dot_product_attention(query, *fixed, attn_mask=self.mask)
            x = layer.source_norm(x + attention.joined(heads).view_as(x))
            x = layer.feed_forward(x)
        scores = F.log_softmax(self.model.logits(x[:, 0]), dim=-1)
        scores[:, work.BANNED] = -torch.inf
        return scores

    def select(self, rows, length):
        """Keep only these rows, of which so many words are written."""
        for growing in self.growing:
            growing[:, :, :, :length] = growing[:, :, :, :length].index_select(1, rows)


def greedy(model, source, task):
    """Write the most probable word until every sentence has ended; returns (ids, ln P) of each."""
    length = task["length"]
    cache = Cache(model, source, 1, length)
    words = torch.full((len(source),), work.BOS)
    written, totals = torch.full((len(source), length), work.EOS), torch.zeros(len(source))
    ended = torch.zeros(len(source), dtype=torch.bool)
    for t in range(length):
        best, words = cache.scores(words, t).max(dim=-1)
        totals += best.masked_fill(ended, 0)
        words = words.masked_fill(ended, work.EOS)
        written[:, t] = words
        ended |= words == work.EOS
        if ended.all():
            break
    return [
        (_cut(ids), total) for ids, total in zip(written.tolist(), totals.tolist(), strict=True)
    ]


def beam_search(model, source, task):
    """Return (ids, ln P) of the best hypothesis of each sentence."""
    length, width, count = task["length"], task["beam"], len(source)
    cache = Cache(model, source, width, length)
    rows = torch.arange(count)[:, None] * width  # of the first beam of each sentence
    words, written = (
        torch.full((count * width,), work.BOS),
        torch.empty(count * width, 0, dtype=torch.long),
    )
    totals = torch.full((count, width), -torch.inf)
    totals[:, 0] = 0
    finished = [[] for _ in range(count)]
    for t in range(length):
        scores = cache.scores(words, t)
        size = scores.shape[-1]
        sums = (scores.view(count, width, size) + totals[:, :, None]).view(count, -1)
        values, flat = sums.topk(2 * width, dim=-1)
        origins, words = rows + flat // size, flat % size
        ended = words == work.EOS
        if ended.any():
            for i, j in ended[:, :width].nonzero().tolist():
                ids = written[origins[i, j]].tolist()
                finished[i].append(
                    (values[i, j].item() / penalty(t + 1, task["alpha"]), values[i, j].item(), ids)
                )
            values, order = values.masked_fill(ended, -torch.inf).sort(
                dim=-1, descending=True, stable=True
            )
            origins, words = origins.gather(1, order), words.gather(1, order)
            if all(len(found) >= width for found in finished):
                break
        totals, chosen, words = (
            values[:, :width],
            origins[:, :width].flatten(),
            words[:, :width].flatten(),
        )
        written = torch.cat([written[chosen], words[:, None]], dim=1)
        cache.select(chosen, t + 1)
    for i, found in enumerate(finished):
        if not found:
            found.append((0, totals[i, 0].item(), written[i * width].tolist()))
    return [max(found)[:0:-1] for found in finished]


def penalty(length, alpha):
    """Return the divisor of ln P that makes hypotheses of different lengths comparable."""
    return ((5 + length) / 6) ** alpha


def _cut(ids):
    return ids[: ids.index(work.EOS)] if work.EOS in ids else ids
