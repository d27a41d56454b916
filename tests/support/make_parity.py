"""Write fixtures/parity-*.npz: what PyTorch computes from the inputs and weights stored there.

    pip install -e ".[ref]"
    python tests/support/make_parity.py
    pytest tests/engine/test_parity.py

All inputs and weights are multiples of 1/256, the same in float32 and float64.
"""

import platform
from pathlib import Path

import numpy as np
import parity_file
import torch
import torch.nn.functional as F
from parity_torch import (
    DECODER,
    ENCODER,
    EPS,
    Reference,
    new_layer,
    smoothed,
    torch_attention,
    torch_layer,
)
from sizes import B, D, H, K, S, T, V
from sizes import F as D_FF
from torch import nn
from torch.func import functional_call

FOLDER = Path(__file__).with_name("fixtures")
SMOOTHING = 0.1
BETAS, ADAM_EPS = (0.9, 0.98), 1e-9
LENGTHS = [7, 4]  # real tokens of the two sources; the rest is padding


# Drawing ------------------------------------------------------------------------------------------


def draw(rng, *shape, scale=1.0, mean=0.0):
    return np.round((mean + scale * rng.standard_normal(shape)) * 256) / 256


def draw_linear(rng, name, n_in, n_out, bias=True):
    weights = {f"{name}weight": draw(rng, n_in, n_out, scale=n_in**-0.5)}
    return weights | ({f"{name}bias": draw(rng, n_out, scale=0.2)} if bias else {})


def draw_norm(rng, name, d_model):
    return {
        f"{name}gain": draw(rng, d_model, scale=0.2, mean=1),
        f"{name}bias": draw(rng, d_model, scale=0.2),
    }


def draw_attention(rng, name, d_model, keys, values):
    weights = {}
    for part, size in (("query", keys), ("key", keys), ("value", values)):
        weights |= draw_linear(rng, f"{name}{part}.", d_model, size, bias=False)
    return weights | draw_linear(rng, f"{name}output.", values, d_model, bias=False)


def draw_layer(rng, name, d_model, d_ff, attentions):
    """The weights of an encoder or decoder layer: its attentions, then its feed-forward network."""
    weights = {}
    for attention, residual in attentions:
        weights |= draw_attention(rng, f"{name}{attention}.", d_model, d_model, d_model)
        weights |= draw_norm(rng, f"{name}{residual}.norm.", d_model)
    weights |= draw_linear(rng, f"{name}feed_forward.inner.", d_model, d_ff)
    weights |= draw_linear(rng, f"{name}feed_forward.outer.", d_ff, d_model)
    return weights | draw_norm(rng, f"{name}feed_forward_residual.norm.", d_model)


def draw_model(rng, c):
    """The weights of a Transformer under our names."""
    size = c["d_model"]
    tables = ["embedding"] if c["tie"] else ["embedding", "target_embedding", "output_embedding"]
    shapes = {f"{name}.weight": (c["vocabulary_size"], size) for name in tables}
    if c["positions"] == "learned":
        for side in ("source", "target"):
            shapes[f"{side}_positions.learned.weight"] = (c["max_length"], size)
    weights = {name: draw(rng, *shape, scale=size**-0.5) for name, shape in shapes.items()}
    for stack, attentions in (("encoder", ENCODER), ("decoder", DECODER)):
        for i in range(c["n_layers"]):
            weights |= draw_layer(rng, f"{stack}.layers.{i}.", size, c["d_ff"], attentions)
        if c["norm"] == "pre":
            weights |= draw_norm(rng, f"{stack}.norm.", size)
    return weights


# The layers ---------------------------------------------------------------------------------------


def masks():
    """(True where a source token is real (B, 1, 1, S), True where target position t may
    see s (T, T)).
    """
    padding = np.arange(S) < np.array(LENGTHS)[:, None, None, None]
    return padding, np.tri(T, dtype=bool)


def attention(a):
    return F.scaled_dot_product_attention(a["query"], a["key"], a["value"], attn_mask=a.get("mask"))


def multi_head(a):
    """nn.MultiheadAttention; its masks say True where attention is forbidden."""
    module = nn.MultiheadAttention(D, H, bias=False, batch_first=True)
    args = a["x"], a["memory"], a["memory"]
    options = {"key_padding_mask": ~a["mask"][:, 0, 0], "average_attn_weights": False}
    return functional_call(module, torch_attention(a), args, options)


def multi_head_sizes(a):
    """Heads one after the other, for d_k and d_v that are not d_model / n_heads."""
    q, k, v = (a[f"{name}.weight"].chunk(H, dim=1) for name in ("query", "key", "value"))
    x, memory = a["x"], a["memory"]
    heads = [
        F.scaled_dot_product_attention(x @ q[h], memory @ k[h], memory @ v[h], is_causal=True)
        for h in range(H)
    ]
    return F.linear(torch.cat(heads, dim=-1), a["output.weight"].T)


def feed_forward(a):
    module = nn.Sequential(nn.Linear(D, D_FF), nn.ReLU(), nn.Linear(D_FF, D))
    parameters = {"0.weight": a["inner.weight"].T, "0.bias": a["inner.bias"]}
    parameters |= {"2.weight": a["outer.weight"].T, "2.bias": a["outer.bias"]}
    return functional_call(module, parameters, (a["x"],))


def encoder_layer(norm):
    layer = new_layer(nn.TransformerEncoderLayer, D, D_FF, H, norm)
    return lambda a: functional_call(
        layer, torch_layer(a, ENCODER), (a["x"],), {"src_key_padding_mask": ~a["mask"][:, 0, 0]}
    )


def decoder_layer(norm):
    layer = new_layer(nn.TransformerDecoderLayer, D, D_FF, H, norm)

    def call(a):
        options = {"tgt_mask": ~a["causal"], "memory_key_padding_mask": ~a["mask"][:, 0, 0]}
        return functional_call(layer, torch_layer(a, DECODER), (a["x"], a["memory"]), options)

    return call


def function_cases(rng):
    """Yield (name, function of the inputs, inputs) for the functions without attention."""
    x, target = draw(rng, B, T, D), np.array([[1, 10, 3, 2, 0], [4, 3, 0, 0, 0]])
    linear = {"x": x, **draw_linear(rng, "", D, D_FF)}
    norm = {"x": draw(rng, B, T, D, scale=3, mean=1), **draw_norm(rng, "", D)}
    table = {"table": draw(rng, V, D), "ids": np.array([[1, 10, 3, 3, 0], [10, 2, 10, 1, 3]])}
    bare = {name: linear[name] for name in ("x", "weight")}
    yield "linear", lambda a: F.linear(a["x"], a["weight"].T, a["bias"]), linear
    yield "linear_no_bias", lambda a: F.linear(a["x"], a["weight"].T), bare
    yield "relu", lambda a: F.relu(a["x"]), {"x": x}
    yield "softmax", lambda a: F.softmax(a["x"], dim=-1), {"x": x * 4}
    yield "log_softmax", lambda a: F.log_softmax(a["x"], dim=-1), {"x": x * 4}
    yield "layer_norm", lambda a: F.layer_norm(a["x"], (D,), a["gain"], a["bias"], EPS), norm
    yield "embedding", lambda a: F.embedding(a["ids"], a["table"]), table
    logits = {"logits": draw(rng, B, T, V, scale=2), "target": target}
    projected = {"x": x, "weight": draw(rng, V, D, scale=0.5), "target": target}
    yield "loss", lambda a: smoothed(a["logits"], a["target"], SMOOTHING), logits
    yield "loss_unsmoothed", lambda a: smoothed(a["logits"], a["target"], 0), logits
    yield (
        "projected_loss",
        lambda a: smoothed(F.linear(a["x"], a["weight"]), a["target"], SMOOTHING),
        projected,
    )


def attention_cases(rng):
    """The same for attention by itself, with d_v other than d_k, and each kind of mask."""
    q, k, v = draw(rng, B, H, T, K), draw(rng, B, H, S, K), draw(rng, B, H, S, K + 2)
    padding, causal = masks()
    empty = np.broadcast_to(padding, (B, 1, T, S)).copy()
    empty[0, 0, 2] = False  # a query that may attend to nothing
    for name, mask in (
        ("none", None),
        ("causal", causal),
        ("padding", padding),
        ("empty_row", empty),
    ):
        length = T if name == "causal" else S
        inputs = {"query": q, "key": k[:, :, :length], "value": v[:, :, :length]}
        yield f"attention_{name}", attention, inputs | ({} if mask is None else {"mask": mask})


def module_cases(rng):
    """The same for everything with weights inside."""
    x, memory = draw(rng, B, T, D), draw(rng, B, S, D)
    padding, causal = masks()
    across = {"x": x, "memory": memory, "mask": padding}
    heads = across | draw_attention(rng, "", D, D, D)
    sizes = {"x": x, "memory": draw(rng, B, T, D)} | draw_attention(
        rng, "", D, H * (K + 1), H * (K + 2)
    )
    yield "multi_head", lambda a: multi_head(a)[0], heads
    yield "multi_head_weights", lambda a: multi_head(a)[1], heads
    yield "multi_head_sizes", multi_head_sizes, sizes
    inner, outer = draw_linear(rng, "inner.", D, D_FF), draw_linear(rng, "outer.", D_FF, D)
    yield "feed_forward", feed_forward, {"x": x} | inner | outer
    encoder, decoder = draw_layer(rng, "", D, D_FF, ENCODER), draw_layer(rng, "", D, D_FF, DECODER)
    for norm in ("post", "pre"):
        yield f"encoder_layer_{norm}", encoder_layer(norm), {"x": memory, "mask": padding} | encoder
        yield f"decoder_layer_{norm}", decoder_layer(norm), across | {"causal": causal} | decoder


def make_layers():
    """Run every case forward, and backward from a random cotangent."""
    rng, arrays = np.random.default_rng(1), {}
    for case, function, inputs in (*function_cases(rng), *attention_cases(rng), *module_cases(rng)):
        leaves = {name: torch.tensor(value) for name, value in inputs.items()}
        floats = {
            name: leaf.requires_grad_() for name, leaf in leaves.items() if leaf.is_floating_point()
        }
        out = function(leaves)
        cotangent = draw(rng, *out.shape)
        out.backward(torch.tensor(cotangent))
        arrays |= {f"{case}/input/{name}": value for name, value in inputs.items()}
        arrays |= {f"{case}/output": out.detach().numpy(), f"{case}/cotangent": cotangent}
        # The weights of an attention do not depend on the values: no gradient.
        for name, leaf in floats.items():
            gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            arrays[f"{case}/gradient/{name}"] = gradient.numpy()
    return arrays, {"eps": EPS, "smoothing": SMOOTHING}


# Adam ---------------------------------------------------------------------------------------------


def adam_with_warmup(leaves, d_model, warmup_steps, factor):
    """torch.optim.Adam, and a scheduler that sets the rate of equation 3; its first
    step is number 1.
    """
    optimizer = torch.optim.Adam(leaves, lr=factor * d_model**-0.5, betas=BETAS, eps=ADAM_EPS)

    def rate(updates_done):
        step = updates_done + 1
        return step / warmup_steps**1.5 if step < warmup_steps else 1 / step**0.5

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, rate)


def make_adam():
    """Five steps with given gradients: large, tiny and zero ones, and a row that is
    used only twice.
    """
    rng = np.random.default_rng(2)
    settings = {"d_model": 16, "warmup_steps": 3, "factor": 0.5}
    start = {"matrix": draw(rng, 4, 3), "vector": draw(rng, 5), "number": draw(rng)}
    leaves = {name: nn.Parameter(torch.tensor(value)) for name, value in start.items()}
    optimizer, schedule = adam_with_warmup(leaves.values(), **settings)
    scales = {"matrix": 1.0, "vector": np.array([1e3, 1.0, 1e-6, 1e-9, 0.0]), "number": 1e-3}
    arrays, rates = {f"0/{name}": value for name, value in start.items()}, []
    for step in range(1, 6):
        for name, leaf in leaves.items():
            gradient = draw(rng, *leaf.shape) * scales[name]
            if name == "matrix" and step not in (2, 4):
                gradient[1] = 0
            leaf.grad = torch.tensor(gradient)
            arrays[f"{step}/gradient/{name}"] = gradient
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
        for name, leaf in leaves.items():
            state = optimizer.state[leaf]
            arrays[f"{step}/{name}"] = leaf.detach().numpy().copy()
            arrays[f"{step}/m/{name}"] = state["exp_avg"].numpy().copy()
            arrays[f"{step}/v/{name}"] = state["exp_avg_sq"].numpy().copy()
    return arrays | {"rates": np.array(rates)}, settings


# The whole model ----------------------------------------------------------------------------------


def make_batches(size):
    """Three padded batches of ids by formula: 2 is the start, 3 the end, 4 and more are words."""

    def words(batch, row, length):
        return [
            4 + (11 * batch + 7 * row + 3 * length + 5 * i * i) % (size - 4) for i in range(length)
        ]

    batches = []
    for b, lengths in enumerate([((6, 7), (9, 4), (3, 1)), ((2, 3), (5, 8)), ((4, 4),)]):
        sources = [words(b, row, source) + [3] for row, (source, _) in enumerate(lengths)]
        targets = [words(b, row + 1, target) for row, (_, target) in enumerate(lengths)]
        target_in, target_out = [[2] + ids for ids in targets], [ids + [3] for ids in targets]
        batches.append(
            {"source": pad(sources), "target_in": pad(target_in), "target_out": pad(target_out)}
        )
    return batches


def pad(rows):
    longest = max(map(len, rows))
    return np.array([row + [0] * (longest - len(row)) for row in rows])


def train(model, start, batches, settings, dtype):
    """Ten Adam steps; returns (losses, what the first step computed)."""
    weights = {
        name: nn.Parameter(torch.tensor(value, dtype=dtype)) for name, value in start.items()
    }
    schedule = {key: settings[key] for key in ("warmup_steps", "factor")}
    optimizer, rates = adam_with_warmup(weights.values(), settings["config"]["d_model"], **schedule)
    losses, first = [], {}
    for step in range(10):
        source, target_in, target_out = (
            torch.tensor(ids) for ids in batches[step % len(batches)].values()
        )
        logits = model(weights, source, target_in)
        loss = smoothed(logits, target_out, settings["config"]["label_smoothing"])
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            nll = smoothed(logits, target_out, 0)
            first = {"logits": logits.detach()[target_out != 0].numpy(), "nll": nll.item()}
            first |= {f"gradient/{name}": w.grad.numpy().copy() for name, w in weights.items()}
        optimizer.step()
        rates.step()
    return np.array(losses), first


def make_model(**changes):
    """A model in float64, and its losses in float32; prints how far PyTorch's own two
    precisions lie apart.
    """
    config = {"vocabulary_size": 50, "d_model": 12, "d_ff": 20, "n_heads": 2, "dropout": 0.0}
    config |= {
        "label_smoothing": SMOOTHING,
        "eps": EPS,
        "positions": "sinusoid",
        "max_length": 10,
    } | changes
    settings = {"config": config, "warmup_steps": 6, "factor": 0.05}
    start = draw_model(np.random.default_rng(3), config)
    batches, model = make_batches(config["vocabulary_size"]), Reference(config)
    losses, first = train(model, start, batches, settings, torch.float64)
    single, rough = train(model, start, batches, settings, torch.float32)
    apart = [
        abs(rough[key] - value).max() / abs(value).max()
        for key, value in first.items()
        if "gradient" in key
    ]
    print(
        f"  {sum(map(np.size, start.values())):,} parameters, loss {losses[0]:.3f} "
        f"to {losses[-1]:.3f}"
    )
    print(
        f"  PyTorch in float32: losses off by {abs(single - losses).max():.1e}, gradients "
        f"by {max(apart):.1e}"
    )
    arrays = {f"weight/{name}": value for name, value in start.items()} | first
    for b, batch in enumerate(batches):
        arrays |= {f"batch/{b}/{name}": ids for name, ids in batch.items()}
    return arrays | {"losses": losses, "losses_float32": single}, settings


def main():
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    versions = {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    makers = {
        "layers": make_layers,
        "adam": make_adam,
        "model-post": lambda: make_model(norm="post", tie=True, n_layers=2),
        "model-pre": lambda: make_model(norm="pre", tie=False, n_layers=1, positions="learned"),
    }
    for name, make in makers.items():
        arrays, settings = make()
        path = FOLDER / f"parity-{name}.npz"
        parity_file.write(path, arrays, versions=versions, settings=settings)
        print(f"{path.name}: {len(arrays)} arrays, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
