"""PyTorch eager as a good practitioner writes it: fused projections, attention and Adam.

Beam search has a cache, and does all bookkeeping in whole batches; only a beam that ends is looked
at alone. Only the names of the weights are those of minitf; nothing is imported from minitf.
"""

import os
import re

from benchmarks.protocol import ON_GPU, refuse, serve

try:
    import torch
except ImportError:
    refuse("PyTorch is not installed (--python names an interpreter that has it)")

import numpy as np
import torch.nn.functional as F
from torch import nn

from benchmarks import work


class Attention(nn.Module):
    """Multi-head attention; the projections that share an input are one product."""

    def __init__(self, d_model, n_heads, memory):
        super().__init__()
        self.n_heads = n_heads
        if memory:
            self.query = nn.Linear(d_model, d_model, bias=False)
            self.key_value = nn.Linear(d_model, 2 * d_model, bias=False)
        else:
            self.query_key_value = nn.Linear(d_model, 3 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def split(self, x, parts):
        """(B, T, parts * D) -> parts times (B, H, T, K), views."""
        x = x.view(*x.shape[:2], parts, self.n_heads, -1)
        return x.permute(2, 0, 3, 1, 4).unbind(0)

    def joined(self, heads):
        return self.output(heads.transpose(1, 2).flatten(2))

    def forward(self, x, memory=None, mask=None, causal=False):
        if memory is None:
            query, key, value = self.split(self.query_key_value(x), 3)
        else:
            (query,) = self.split(self.query(x), 1)
            key, value = self.split(self.key_value(memory), 2)
        return self.joined(
            F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        )


class Layer(nn.Module):
    """An encoder layer, or a decoder layer with `decoder`; norms after the residual connections."""

    def __init__(self, c, decoder):
        super().__init__()
        d, heads = c["d_model"], c["n_heads"]
        self.self_attention = Attention(d, heads, memory=False)
        self.self_norm = nn.LayerNorm(d, eps=work.NORM_EPS)
        if decoder:
            self.source_attention = Attention(d, heads, memory=True)
            self.source_norm = nn.LayerNorm(d, eps=work.NORM_EPS)
        self.inner, self.outer = nn.Linear(d, c["d_ff"]), nn.Linear(c["d_ff"], d)
        self.feed_forward_norm = nn.LayerNorm(d, eps=work.NORM_EPS)
        self.dropout = nn.Dropout(c["dropout"])

    def feed_forward(self, x):
        return self.feed_forward_norm(x + self.dropout(self.outer(F.relu(self.inner(x)))))

    def forward(self, x, mask, memory=None):
        decoder = memory is not None
        change = self.self_attention(x, mask=None if decoder else mask, causal=decoder)
        x = self.self_norm(x + self.dropout(change))
        if decoder:
            x = self.source_norm(x + self.dropout(self.source_attention(x, memory, mask)))
        return self.feed_forward(x)


class Transformer(nn.Module):
    """The model of the paper, one matrix for both embeddings and the output."""

    def __init__(self, c):
        super().__init__()
        self.c, self.d_model = c, c["d_model"]
        self.embedding = nn.Embedding(c["vocabulary_size"], c["d_model"])
        self.encoder = nn.ModuleList(Layer(c, decoder=False) for _ in range(c["n_layers"]))
        self.decoder = nn.ModuleList(Layer(c, decoder=True) for _ in range(c["n_layers"]))
        self.dropout = nn.Dropout(c["dropout"])
        self.register_buffer("positions", torch.from_numpy(work.sinusoid(4096, c["d_model"])))

    def embed(self, ids, start=0):
        x = self.embedding(ids) * self.d_model**0.5
        return self.dropout(x + self.positions[start : start + ids.shape[1]])

    def encode(self, source, mask):
        x = self.embed(source)
        for layer in self.encoder:
            x = layer(x, mask)
        return x

    def logits(self, x):
        return F.linear(x, self.embedding.weight)

    def forward(self, source, target, mask):
        memory, x = self.encode(source, mask), self.embed(target)
        for layer in self.decoder:
            x = layer(x, mask, memory)
        return self.logits(x)


def loss_of(model, source, target_in, target_out, mask):
    """Return the loss of a batch.

    PyTorch spreads eps' over all V ids, minitf eps over the V - 1 wrong ones: equal for
    eps' = eps V/(V-1).
    """
    size = model.c["vocabulary_size"]
    logits = model(source, target_in, mask).view(-1, size)
    smoothing = work.SMOOTHING * size / (size - 1)
    return F.cross_entropy(
        logits, target_out.view(-1), ignore_index=work.PAD, label_smoothing=smoothing
    )


# The weights under minitf's names -----------------------------------------------------------------

# What is replaced in a name of PyTorch's to get minitf's.
NAMES = {
    r"^(encoder|decoder)": r"\1.layers",
    r"^(encoder.*)self_norm": r"\1attention_norm",
    r"(\w+)_norm\.": r"\1_residual.norm.",
    r"norm\.weight": "norm.gain",
    r"(inner|outer)": r"feed_forward.\1",
}


def named(model, array=lambda p: p):
    """Return {name in minitf: a view of that part of array(parameter)}.

    In layers, matrices are transposed, and several can be one parameter, such as query_key_value.
    """
    found = {}
    for name, p in model.named_parameters():
        for old, new in NAMES.items():
            name = re.sub(old, new, name)
        *module, parts, end = name.split(".")
        parts = parts.split("_")
        for part, rows in zip(parts, array(p).chunk(len(parts)), strict=True):
            found[".".join([*module, part, end])] = rows.T if module and rows.ndim == 2 else rows
    return found


def model_of(task):
    """Return a model with the weights that all contenders start from."""
    model = Transformer(task["model"])
    with np.load(task["weights"]) as arrays, torch.no_grad():
        parts = named(model)
        if odd := sorted(set(parts) ^ set(arrays.files)):
            raise ValueError(f"minitf and this model differ in {odd[0]} ({len(odd)} such)")
        for name, part in parts.items():
            part.copy_(torch.from_numpy(arrays[name]))
    if task.get("dtype") == "float64":
        model.double().positions = torch.from_numpy(work.sinusoid(4096, model.d_model, "float64"))
    torch.backends.cuda.matmul.allow_tf32 = task.get("precision") == "tf32"
    return model.to(device(task))


def device(task):
    """Return where a task runs; a GPU has a precision, and a stand-in for one is the CPU."""
    return "cuda" if "precision" in task and torch.cuda.is_available() else "cpu"


# Decoding -----------------------------------------------------------------------------------------


class Cache:
    """The keys and values of the source, and of the words written so far.

    All are allocated once. Keys and values of the source are projected once, and the beams of a
    sentence share them as several queries.
    """

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
            written = growing[:, :, :, : position + 1].unbind(0)
            heads = F.scaled_dot_product_attention(query, *written)
            x = layer.self_norm(x + attention.joined(heads))
            attention = layer.source_attention
            # The R rows as W queries of each of B sentences: (R, 1, D) -> (B, W, D) -> (B, H, W, K)
            rows = attention.query(x).view(-1, self.width, self.model.d_model)
            (query,) = attention.split(rows, 1)
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


def beam_search(model, source, task):
    """Return (ids, ln P) of the best hypothesis of each sentence."""
    length, width, count = task["length"], task["beam"], len(source)
    cache = Cache(model, source, width, length)
    rows = torch.arange(count)[:, None] * width  # of the first beam of each sentence
    words = torch.full((count * width,), work.BOS)
    written = torch.empty(count * width, 0, dtype=torch.long)
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
                score, penalty = values[i, j].item(), ((5 + t + 1) / 6) ** task["alpha"]
                finished[i].append((score / penalty, score, ids))
            values, order = values.masked_fill(ended, -torch.inf).sort(
                dim=-1, descending=True, stable=True
            )
            origins, words = origins.gather(1, order), words.gather(1, order)
            if all(len(found) >= width for found in finished):
                break
        totals, chosen = values[:, :width], origins[:, :width].flatten()
        words = words[:, :width].flatten()
        written = torch.cat([written[chosen], words[:, None]], dim=1)
        cache.select(chosen, t + 1)
    for i, found in enumerate(finished):
        if not found:
            found.append((0, totals[i, 0].item(), written[i * width].tolist()))
    return [max(found)[:0:-1] for found in finished]


# The jobs -----------------------------------------------------------------------------------------


class Training:
    """A model, its optimizer, and a batch."""

    def __init__(self, task):
        torch.manual_seed(0)
        self.model = model_of(task)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=work.RATE, betas=work.BETAS, eps=work.ADAM_EPS, fused=True
        )
        self.half = torch.autocast(
            device(task), torch.bfloat16, enabled=task.get("precision") == "bfloat16"
        )
        source, target_in, target_out = (
            torch.from_numpy(ids).long().to(device(task)) for ids in work.batch(task)
        )
        # Without padding there is nothing to hide, and the fused attention is faster
        # without a mask.
        real = source != work.PAD
        self.batch = source, target_in, target_out, None if real.all() else real[:, None, None, :]

    def gradients(self):
        """Run forward and backward; returns the loss."""
        self.optimizer.zero_grad()
        with self.half:
            loss = loss_of(self.model, *self.batch)
        loss.backward()
        return loss.detach()

    def step(self):
        """Make one update; returns the loss."""
        loss = self.gradients()
        self.optimizer.step()
        return loss


def check_training(task):
    """Return the losses of three steps; the gradients of the first go into a file."""
    training = Training(task)
    training.gradients()
    parts = named(training.model, lambda p: p.grad.cpu())
    np.savez(task["out"], **{name: part.numpy() for name, part in parts.items()})
    return [float(training.step()) for _ in range(3)]


def decoder(task):
    """Return a function that decodes the sentences of the task, giving (ids, ln P) of each."""
    model = model_of(task).eval()
    source = torch.from_numpy(work.sentences(task)).long().to(device(task))

    def decode():
        with torch.inference_mode(), torch.device(device(task)):
            return beam_search(model, source, task)

    return decode


JOBS = {
    "about": lambda task: {"PyTorch": torch.__version__, "threads": torch.get_num_threads()},
    "train": lambda task: Training(task).step,
    "check train": check_training,
    "decode": decoder,
    "check decode": lambda task: decoder(task)(),
}

if __name__ == "__main__":
    gpu = {}
    if ON_GPU in os.environ and torch.cuda.is_available():
        gpu = {"wait": torch.cuda.synchronize, "memory": torch.cuda.max_memory_allocated}
    serve(JOBS, **gpu)
