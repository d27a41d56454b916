"""Forms with one mistake each: holding them to their equations has to notice every one."""

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import form_cases
import pytest
import test_forms as checks

import minitf
from minitf import decode, forms, loss, optim, transformer
from minitf import functions as F
from minitf.errors import UserError

SHARED = (
    "_like.__dict__.setdefault(str((q.shape, v.shape, q.dtype)), _like(q, "
    "(*q.shape[:-1], v.shape[-1])))"
)
# name: (the op whose rows and cases notice it, file in minitf/, correct text, text of the mutant).
MUTANTS = {
    "linear: no bias": (F.linear, "cpu/functions", "    if b is not None:\n        y += b\n", ""),
    "linear: a mean for the bias": (
        F.linear,
        "cpu/functions",
        "else column_sums(gy)",
        "else column_sums(gy) / max(2, n)",
    ),
    "norm: eps outside the root": (
        *(F.layer_norm, "cpu/functions", "1 / np.sqrt(row_dots(normal, normal) / size + eps)"),
        "1 / (np.sqrt(row_dots(normal, normal) / size) + eps)",
    ),
    "norm: the other variance": (
        F.layer_norm,
        "cpu/functions",
        "normal) / size + eps",
        "normal) / max(1, size - 1) + eps",
    ),
    "norm: a mean left out": (
        F.layer_norm,
        "cpu/functions",
        "        removed += (gy @ gain)[..., None] / size\n",
        "",
    ),
    "norm: its normal is overwritten": (
        F.layer_norm,
        "cpu/functions",
        "y = normal * g",
        "y = normal\n    y *= g",
    ),
    "norm: its argument is overwritten": (
        F.layer_norm,
        "cpu/functions",
        "_normalised(x_data - _means(x_data), g",
        "_normalised(np.subtract(x_data, _means(x_data), out=x_data), g",
    ),
    "attention: dot products of another pair": (
        F.attention,
        "cpu/sums",
        "np.vecdot(x, y)",
        "np.vecdot(x, x)",
    ),
    "norm: its gradient is overwritten": (
        *(F.layer_norm, "cpu/functions", "        products = gy * normal\n"),
        "        products = np.multiply(gy, normal, out=gy)\n",
    ),
    "add and norm: dropout forgotten in backward": (
        transformer.add_and_norm,
        "cpu/functions",
        "        g_added = gx * mask\n",
        "        g_added = gx * 1\n",
    ),
    "add and norm: no factor in backward": (
        transformer.add_and_norm,
        "cpu/functions",
        "        g_added *= factor\n",
        "",
    ),
    "residual: another dropout is skipped": (
        transformer.add_and_norm,
        "cpu/layers",
        "type(norm) is LayerNorm and type(dropout) is Dropout",
        "type(norm) is LayerNorm",
    ),
    "feed-forward network: ReLU for every activation": (
        transformer.feed_forward_network,
        "cpu/layers",
        " and activation is F.relu",
        "",
    ),
    "feed-forward: no ReLU": (
        transformer.feed_forward_network,
        "cpu/functions",
        "    np.maximum(hidden, 0, out=hidden)\n",
        "",
    ),
    "feed-forward: no slope of the ReLU": (
        transformer.feed_forward_network,
        "cpu/functions",
        "* (hidden > 0)",
        "* (hidden > -9)",
    ),
    "feed-forward: no factor in backward": (
        transformer.feed_forward_network,
        "cpu/functions",
        "            g_hidden *= factor\n",
        "            pass\n",
    ),
    "feed-forward network: a changed layer is skipped": (
        transformer.feed_forward_network,
        "cpu/layers",
        "type(inner) is type(outer) is Linear and",
        "type(outer) is Linear and",
    ),
    "feed-forward network: dropout after training": (
        transformer.feed_forward_network,
        "cpu/layers",
        "    return dropout.rate if dropout.training else 0.0",
        "    return dropout.rate",
    ),
    "heads: a changed layer is skipped": (
        transformer.multi_head_attention,
        "cpu/layers",
        "all(type(layer) is Linear for layer in layers)",
        "True",
    ),
    "heads: a changed method is skipped": (
        transformer.multi_head_attention,
        "cpu/layers",
        "type(attention) is not MultiHeadAttention or",
        "",
    ),
    "heads: the weights are not kept": (
        transformer.multi_head_attention,
        "cpu/layers",
        " or is_changed(attention)",
        "",
    ),
    "heads: dropout after training": (
        transformer.multi_head_attention,
        "cpu/multihead",
        " if attention.training else 0.0",
        "",
    ),
    "heads: no bias": (
        transformer.multi_head_attention,
        "cpu/multihead",
        "            if bias is not None:\n",
        "            if False:\n",
    ),
    "heads: gradients of other columns": (
        transformer.multi_head_attention,
        "cpu/multihead",
        "gradients += [g_weight[:, columns], g_bias]",
        "gradients += [g_weight[:, ::-1][:, columns], g_bias]",
    ),
    "heads: the bias of other columns": (
        transformer.multi_head_attention,
        "cpu/multihead",
        "column_sums(gy[:, columns])",
        "column_sums(gy[:, ::-1][:, columns])",
    ),
    "heads: merged without an exchange of axes": (
        transformer.multi_head_attention,
        "cpu/multihead",
        "y = y.transpose(0, 2, 1, 3)  # (B, T, H, U)",
        "y = y.reshape(batch, length, *y.shape[1::2])",
    ),
    "embedding: added twice": (
        F.embedding,
        "cpu/functions",
        "            return None, None\n",
        "            return table.grad, None\n",
    ),
    "embedding: neighbours are one run": (
        F.embedding,
        "cpu/sums",
        "ordered[1:] != ordered",
        "ordered[1:] > 1 + ordered",
    ),
    "embedding: rows in another order": (
        F.embedding,
        "cpu/sums",
        "reduceat(rows[order]",
        "reduceat(rows",
    ),
    "attention: not divided": (
        F.attention,
        "cpu/attention",
        "scores *= LOG_E / math.sqrt(query.shape[-1])",
        "scores *= LOG_E",
    ),
    "attention: not divided, in blocks": (
        F.attention,
        "cpu/attention",
        "self.q * (LOG_E / math.sqrt(self.q.shape[-1]))",
        "self.q * LOG_E",
    ),
    "attention: its gradient not divided": (
        F.attention,
        "cpu/attention",
        "            g_weights *= 1 / math.sqrt(q.shape[-1])\n",
        "",
    ),
    "attention: its gradient not divided, in blocks": (
        F.attention,
        "cpu/attention",
        "1 / math.sqrt(self.q.shape[-1]), out=g_query",
        "1.0, out=g_query",
    ),
    "attention: a factor too many in the keys' gradient": (
        F.attention,
        "cpu/attention",
        "np.divide(sums[1], LOG_E,",
        "np.divide(sums[1], 1.1,",
    ),
    "attention: no mask beyond the first tile": (
        F.attention,
        "cpu/attention",
        "None if limit is None else limit[tile])",
        "None if limit is None or tile != tiles[0][0] else limit[tile])",
    ),
    "attention: no mask in blocks": (
        F.attention,
        "cpu/attention",
        "part is None or part.all():",
        "part is None or part.any():",
    ),
    "attention: a block is hidden with its first key": (
        F.attention,
        "cpu/attention",
        "elif part.any():",
        "elif part.ravel()[0]:",
    ),
    "attention: dropout forgotten in backward": (
        F.attention,
        "cpu/attention",
        "g_weights = drop(g_weights, keep[tile], factor)",
        "g_weights = g_weights",
    ),
    "attention: its factor forgotten in backward": (
        F.attention,
        "cpu/attention",
        "g_weights = drop(g_weights, keep[tile], factor)",
        "g_weights = drop(g_weights, keep[tile], 1)",
    ),
    "attention: dropout forgotten in the values' gradient": (
        F.attention,
        "cpu/attention",
        "used = drop(weights, keep[tile], factor)\n            g_weights -=",
        "pass\n            g_weights -=",
    ),
    "attention: dropout forgotten in blocks": (
        F.attention,
        "cpu/attention",
        "self._drop(g[rows] @ self.v[columns].T, block)",
        "g[rows] @ self.v[columns].T",
    ),
    "attention: dropout of another block": (
        F.attention,
        "cpu/attention",
        "self.keep[block[:2]]",
        "self.keep[: x.shape[0], : x.shape[1]]",
    ),
    "attention: a score that is NaN under a mask": (
        F.attention,
        "cpu/attention",
        "        np.fmin(scores, limit, out=scores)  #",
        "        np.minimum(scores, limit, out=scores)  #",
    ),
    "attention: a score that is NaN under a mask, in blocks": (
        F.attention,
        "cpu/attention",
        "np.copyto(scores, -np.inf, where=~visible)",
        "scores += np.where(visible, 0, -np.inf)",
    ),
    "attention: keys get the last tile's gradient": (
        F.attention,
        "cpu/attention",
        "start == 0)",
        "start >= 0)",
    ),
    "attention: keys get the last block's gradient": (
        F.attention,
        "cpu/attention",
        "sum_key[columns] +=",
        "sum_key[columns] =",
    ),
    "attention: the first tile's weights": (
        F.attention,
        "cpu/attention",
        "zip(tiles, stored, strict=True)",
        "zip(tiles, stored[:1] * len(tiles), strict=True)",
    ),
    "attention: an empty row is not zero": (
        F.attention,
        "cpu/attention",
        "    sums[sums == 0] = 1\n",
        "",
    ),
    "attention: an empty row has no largest": (
        F.attention,
        "cpu/attention",
        "np.maximum(scores.max(axis=-1, keepdims=True), -1e30)",
        "scores.max(axis=-1, keepdims=True)",
    ),
    "attention: too little subtracted": (
        F.attention,
        "cpu/attention",
        "np.maximum(scores.max(axis=-1",
        "np.maximum(scores.min(axis=-1",
    ),
    "attention: large scores called small": (
        F.attention,
        "cpu/attention",
        "(highest < LARGE) & (lowest > -LARGE)",
        "(highest < 10**6) & (lowest > -(10**6))",
    ),
    "attention: large scores called small, in blocks": (
        F.attention,
        "cpu/attention",
        "if math.prod(longest) < LARGE",
        "if math.prod(longest) < 10**6",
    ),
    "attention: the largest score of another query": (
        F.attention,
        "cpu/attention",
        "scores -= self.largest[block[0]]",
        "scores -= self.largest[: len(scores)]",
    ),
    "attention: no dots in blocks": (
        F.attention,
        "cpu/attention",
        "np.concatenate((g, -dots), axis=1)",
        "np.concatenate((g, 0 * dots), axis=1)",
    ),
    "attention: two calls share a result": (
        F.attention,
        "cpu/attention",
        "    y = _like(q, (*q.shape[:-1], v.shape[-1]))\n    tiles",
        f"    y = {SHARED}\n    tiles",
    ),
    "attention: the last query is lost": (
        F.attention,
        "cpu/sums",
        "range(0, shape[axis], step)",
        "range(0, max(1, shape[axis] - 1), step)",
    ),
    "attention: the last keys are lost": (
        F.attention,
        "cpu/attention",
        "range(0, length, size)",
        "range(0, max(1, length - 1), size)",
    ),
    "loss: the gradient of other rows": (
        *(loss.projected_cross_entropy, "cpu/loss", "gx[rows] =", "gx[: len(rows)] ="),
    ),
    "loss: other hidden states": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "reshape(flat)[rows]",
        "reshape(flat)[: len(rows)]",
    ),
    "loss: 0 times infinity": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "    if wrong:",
        "    if True:",
    ),
    "loss: a true word that is impossible": (
        *(loss.projected_cross_entropy, "cpu/loss", "smoothing >= 0.5", "smoothing > 9"),
    ),
    "loss: a mass that does not add up": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "probability_of_others(smoothing, size)",
        "probability_of_others(smoothing, size + 1)",
    ),
    "loss: the true word keeps its share": (
        *(loss.projected_cross_entropy, "cpu/loss", "-= rest\n", "-= rest + wrong\n"),
    ),
    "loss: chunks with gaps": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "start + CHUNK_ROWS)",
        "start + CHUNK_ROWS - 1)",
    ),
    "loss: the first chunk's ids": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "ids[chunk]",
        "ids[: len(chunk_hidden)]",
    ),
    "loss: the last chunk's gradient": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "g_weight += np",
        "g_weight = np",
    ),
    "loss: the last chunk's likelihood": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "total_nll + nlls",
        "nlls",
    ),
    "loss: a gradient that is not scaled": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "        g_weight *= scale\n",
        "",
    ),
    "loss: no bias": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "            logits += b\n",
        "            pass\n",
    ),
    "loss: the last chunk's gradient of the bias": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "g_bias += column",
        "g_bias = column",
    ),
    "loss: q gives a suppressed id a probability": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "    p[:, list(suppressed_ids)] += wrong  # their q is 0\n",
        "",
    ),
    "loss: a suppressed id with a logit has no probability": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "p[:, list(suppressed_ids)] += wrong",
        "p[:, list(suppressed_ids)] = 0",
    ),
    "loss: q divided among suppressed ids too": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "logits.shape[1] - len(suppressed_ids)",
        "logits.shape[1]",
    ),
    "loss: the sum includes suppressed ids": (
        loss.projected_cross_entropy,
        "cpu/loss",
        "others = np.delete(logits, suppressed_ids, axis=1) if len(suppressed_ids) else logits",
        "others = logits",
    ),
    "Adam: eps not corrected": (
        optim.adam_update,
        "cpu/optim",
        "eps * root\n        np",
        "eps\n        np",
    ),
    "Adam: no correction of the mean": (optim.adam_update, "cpu/optim", " / (1 - beta_1**t)", ""),
    "Adam: a flag is true": (
        optim.adam_update,
        "cpu/optim",
        "if not finite:",
        "if finite is False:",
    ),
    "Adam: the gradient is overwritten": (
        *(optim.adam_update, "cpu/optim", "scratch = gradient * (1 - beta_1)"),
        "scratch = gradient\n        scratch *= 1 - beta_1",
    ),
    "Adam: the last block stays": (
        optim.adam_update,
        "cpu/optim",
        "blocks(x.shape))",
        "blocks(x.shape)[: 2])",
    ),
    "Adam: a thread leaves some out": (
        optim.adam_update,
        "cpu/threads",
        "items[i::count]",
        "items[i :: count + 1]",
    ),
    "panels: the filling in front": (
        decode.token_scorer,
        "cpu/packed",
        "[:given, :f]",
        "[:given, -f:]",
    ),
    "panels: the last rows are not multiplied": (
        decode.token_scorer,
        "cpu/packed",
        "range(0, n, few)",
        "range(0, n - few, few)",
    ),
    "panels: one row becomes two": (decode.token_scorer, "cpu/packed", "y[:given", "y[:"),
    "cache: beams in their old order": (
        decode.token_scorer,
        "cpu/decode",
        "self.capacity)[rows]",
        "self.capacity)[: len(rows)]",
    ),
    "cache: a mask that does not move with the tokens": (
        decode.token_scorer,
        "cpu/decode",
        "np.take_along_axis(self.own, kept[:, None], axis=2)",
        "self.own[:, :, : self.length]",
    ),
    "cache: a beam sees all beams": (
        decode.token_scorer,
        "cpu/decode",
        "] = self.newest",
        "] = True",
    ),
    "fused decoder: embeddings not multiplied": (
        decode.token_scorer,
        "cpu/decoder",
        "        rows *= math.sqrt(rows.shape[1])\n",
        "",
    ),
    "fused decoder: every token is the first": (
        decode.token_scorer,
        "cpu/decoder",
        "texts.shape[1] - 1)",
        "0)",
    ),
    "fused decoder: queries not divided": (
        decode.token_scorer,
        "cpu/decoder_steps",
        "queries /= math.sqrt(size)",
        "queries /= 1",
    ),
    "fused decoder: no bias": (
        decode.token_scorer,
        "cpu/decoder",
        "            y += self.bias\n",
        "            pass\n",
    ),
    "fused decoder: eps not times D": (
        decode.token_scorer,
        "cpu/decoder_steps",
        "len(gain) * norm.eps",
        "norm.eps",
    ),
    "fused decoder: no output bias": (
        decode.token_scorer,
        "cpu/decoder",
        "weight.data.T, model.logit_bias())",
        "weight.data.T, None)",
    ),
    "fused decoder: always ReLU": (
        decode.token_scorer,
        "cpu/decoder_steps",
        'if activation == "relu" else',
        "if True else",
    ),
    "fused decoder: always post-norm": (
        decode.token_scorer,
        "cpu/decoder",
        'self.post = steps, model.config.norm == "post"',
        "self.post = steps, True",
    ),
    "fused decoder: no last norm": (
        decode.token_scorer,
        "cpu/decoder",
        "        if self.weights.norm:\n",
        "        if False:\n",
    ),
    "fused decoder: a beam sees all beams": (
        decode.token_scorer,
        "cpu/decoder",
        "self.steps.mask(self.layout.mask(), x.dtype)",
        "None",
    ),
    "fused decoder: padding is read": (
        decode.token_scorer,
        "cpu/decoder",
        "self.steps.mask(mask[:, 0], memory.dtype)",
        "None",
    ),
    "fused decoder: the mask of other sentences": (
        decode.token_scorer,
        "cpu/decoder",
        "self.source_mask = self.source_mask[kept]",
        "self.source_mask = self.source_mask[: len(kept)]",
    ),
    "fused decoder: keys and values of other sentences": (
        decode.token_scorer,
        "cpu/decoder",
        "(*self.caches, *self.source_caches)",
        "self.caches",
    ),
    "fused decoder: the texts of other sentences": (
        decode.token_scorer,
        "cpu/decoder",
        "[array[kept] for array in cache]",
        "[array[: len(kept)] for array in cache]",
    ),
    "fused decoder: the newest at the end of the cache": (
        decode.token_scorer,
        "cpu/decoder",
        "self.layout.length - self.width",
        "self.layout.capacity - self.width",
    ),
    "fused decoder: the keys of the first layer for all": (
        decode.token_scorer,
        "cpu/decoder",
        "self.source_caches[i]",
        "self.source_caches[0]",
    ),
    "continuations: equals in any order": (
        decode.continuations,
        "cpu/decode",
        "np.lexsort((-values, sentence))",
        "np.lexsort((-candidates, -values, sentence))",
    ),
    "continuations: the tokens in no block": (
        decode.continuations,
        "cpu/decode",
        "scores >= xp.nextafter",
        "xp.where(xp.arange(size) < width * stride, scores, -xp.inf) >= xp.nextafter",
    ),
    "continuations: totals of another beam": (
        decode.continuations,
        "cpu/decode",
        "[candidates // size]",
        "[candidates // size // beams * beams]",
    ),
    "logsumexp: the greatest is not added": (
        decode.logsumexp,
        "cpu/decode",
        "ones)) + greatest[:, 0]",
        "ones))",
    ),
    "on a GPU, linear: no bias": (
        F.linear,
        "gpu/functions",
        "    if b is not None:\n        y += b\n",
        "",
    ),
    "on a GPU, add and norm: no broadcasting": (
        transformer.add_and_norm,
        "gpu/functions",
        "as_array(x).shape != added_data.shape",
        "False",
    ),
    "on a GPU, loss: a true word that is impossible": (
        *(loss.projected_cross_entropy, "gpu/loss", "smoothing >= 0.5", "smoothing > 9"),
    ),
    "on a GPU, loss: no bias": (
        loss.projected_cross_entropy,
        "gpu/loss",
        "            logits += b\n",
        "            pass\n",
    ),
    "on a GPU, loss: the last chunk's gradient of the bias": (
        loss.projected_cross_entropy,
        "gpu/loss",
        "g_bias += fused",
        "g_bias = fused",
    ),
    "on a GPU, loss: the first suppressed id only": (
        loss.projected_cross_entropy,
        "gpu/loss",
        "shape[1]), suppressed_ids)",
        "shape[1]), suppressed_ids[0])",
    ),
    "on a GPU, loss: chunks with gaps": (
        *(
            loss.projected_cross_entropy,
            "gpu/loss",
            "start + CHUNK_ROWS)",
            "start + CHUNK_ROWS - 1)",
        ),
    ),
    "on a GPU, loss: the first chunk's gradient": (
        *(
            loss.projected_cross_entropy,
            "gpu/loss",
            "add_product(gradient.T, chunk_hidden, g_weight)",
            "pass",
        ),
    ),
    "on a GPU, heads: the weights' gradients overwrite each other": (
        transformer.multi_head_attention,
        "gpu/multihead",
        "gradient_out(weight, inputs)",
        "gradient_out(weight, [])",
    ),
    "on a GPU, heads: dropout after training": (
        transformer.multi_head_attention,
        "gpu/multihead",
        " if attention.training else 0.0",
        "",
    ),
    "on a GPU, heads: the gradient of the weights before dropout": (
        transformer.multi_head_attention,
        "gpu/multihead",
        "matmul(used.swapaxes(2, 3), g_context, out=g_v)",
        "matmul(weights.swapaxes(0, 1).swapaxes(2, 3), g_context, out=g_v)",
    ),
    "on a GPU, heads: the keys of another layer": (
        transformer.multi_head_attention,
        "gpu/multihead",
        "array[i * n : (i + 1) * n]",
        "array[:n]",
    ),
    "on a GPU, heads: a changed output is skipped": (
        transformer.multi_head_attention,
        "gpu/multihead",
        " or type(attention.output) is not Linear",
        "",
    ),
    "on a GPU, heads: no bias of the output": (
        transformer.multi_head_attention,
        "gpu/multihead",
        "for layer in (*projected, attention.output))",
        "for layer in projected)",
    ),
    "on a GPU, a step: norms without what is added": (
        decode.token_scorer,
        "gpu/decoder_steps",
        "fused.add_norm(x, y, *self)",
        "fused.layer_norm(y, *self)",
    ),
    "on a GPU, a step: always ReLU": (
        decode.token_scorer,
        "gpu/decoder_steps",
        'activation == "relu" and inner',
        "inner",
    ),
    "fused decoder: values as keys": (
        decode.token_scorer,
        "cpu/decoder",
        "(source.key, source.value)",
        "(source.value, source.key)",
    ),
    "on a GPU, a step: the best of the first text for all": (
        decode.token_scorer,
        "gpu/decoder_steps",
        "best // size, found",
        "0 * best, found",
    ),
    "on a GPU, dropout: the row's beginning": (
        F.dropout,
        "gpu/dropout",
        "first_row * math.prod(shape[1:])",
        "0",
    ),
    "on a GPU, dropout: no place": (
        transformer.feed_forward_network,
        "gpu/functions",
        "len(inner_bias)), rate_of(dropout)",
        "len(inner_bias)), 0.0",
    ),
}


class Mutant(SourceFileLoader):
    """Loads a module of which one text is another."""

    def __init__(self, name, path, old, new):
        super().__init__(name, str(path))
        self.text = path.read_text(encoding="utf-8").replace(old, new)

    def get_code(self, fullname):
        return compile(self.text, self.path, "exec")


def folders_of(file):
    """Return the folders whose forms use a file: its own, or for `cpu/layers` both."""
    return [file.split("/")[0]] if file != "cpu/layers" else list(checks.LIBRARY)


def plant(monkeypatch, folder, file, old, new):
    """Import the forms of a folder again, and one of the modules that they use as a mutant."""
    name = f"minitf.{file.replace('/', '.')}"
    loader = Mutant(name, Path(minitf.__file__).parent / f"{file}.py", old, new)

    class Finder:
        @staticmethod
        def find_spec(wanted, path=None, target=None):
            return (
                importlib.util.spec_from_file_location(name, loader.path, loader=loader)
                if wanted == name
                else None
            )

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    monkeypatch.setattr(minitf, folder, getattr(minitf, folder))
    monkeypatch.setitem(forms._forms, folder, {})
    again = (
        "minitf.cpu.layers",
        "minitf.cpu.decoder",
        name,
    )  # whose forms or checks both folders use
    for module in list(sys.modules):
        if module in again or f"{module}.".startswith(f"minitf.{folder}."):
            monkeypatch.delitem(sys.modules, module)
    importlib.import_module(f"minitf.{folder}")
    monkeypatch.setattr(decode, "agrees", lambda *_: True)  # else the modules would decode


def hold_all(op, folder):
    """Compare an op with its equation on every row and case, with tiles of all sizes."""
    rows = [row for row in checks.ROWS if row.function is op]
    cases = [case for case in checks.CASES if op in case.ops and folder in case.folders]
    for sizes in form_cases.TILES if folder == "cpu" else ["small tiles"]:
        with pytest.MonkeyPatch.context() as patch:
            form_cases.lower(patch, sizes)
            for row in rows:
                checks.hold(row, folder, "float32")
                if folder == "cpu":
                    checks.hold(row, folder, "float64")
                    checks.hold_apart(row, "cpu", "float64")
            for case in cases:
                checks.hold_case(case, folder, "float64" if folder == "cpu" else "float32")


def test_the_mistakes_follow_the_code():
    for _, file, right, _ in MUTANTS.values():
        text = (Path(minitf.__file__).parent / f"{file}.py").read_text(encoding="utf-8")
        assert text.count(right) == 1, f"{right!r} is {text.count(right)} times in {file}.py"


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name):
    op, file, right, wrong = MUTANTS[name]
    for folder in folders_of(file):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch, folder, file, right, wrong)
            # An array of another shape is noticed as well; and NaN, which decoding refuses: a
            # mutant that reads what it has not written may find it in that memory.
            with pytest.raises((AssertionError, ValueError, TypeError, UserError)):
                hold_all(op, folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "file"),
    {file: (op, file) for op, file, *_ in MUTANTS.values()}.values(),  # one op of each file
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_form_that_is_only_planted_again_is_not(op, file):
    for folder in folders_of(file):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch, folder, file, "import", "import")
            hold_all(op, folder)
