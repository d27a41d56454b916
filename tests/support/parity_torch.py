"""The Transformer from PyTorch's own modules, with weights under our names: the other side of
the parity tests.

Nothing here imports minitf: agreement would prove nothing otherwise. Only names and layouts are
ours. Weights are leaves under our names, a matrix as (in, out); they are turned into the parameters
of PyTorch's modules by differentiable views, so autograd returns gradients under our names and
in our layout.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

EPS = 1e-6  # of layer_norm
# The attentions of a layer, each with the name of the connection around it.
ENCODER = [("self_attention", "attention_residual")]
DECODER = [("self_attention", "self_residual"), ("source_attention", "source_residual")]


def part(weights, prefix):
    return {
        name[len(prefix) :]: value for name, value in weights.items() if name.startswith(prefix)
    }


def torch_attention(w):
    """The parameters of nn.MultiheadAttention(bias=False)."""
    packed = torch.cat([w["query.weight"].T, w["key.weight"].T, w["value.weight"].T])
    return {"in_proj_weight": packed, "out_proj.weight": w["output.weight"].T}


def torch_layer(w, attentions):
    """The parameters of nn.TransformerEncoderLayer or nn.TransformerDecoderLayer."""
    parameters = {}
    for i, (ours, residual) in enumerate(attentions):
        attention = torch_attention(part(w, f"{ours}."))
        theirs = ("self_attn", "multihead_attn")[i]
        parameters |= {f"{theirs}.{name}": value for name, value in attention.items()}
        parameters |= torch_norm(part(w, f"{residual}.norm."), f"norm{i + 1}.")
    for ours, theirs in (("inner", "linear1"), ("outer", "linear2")):
        parameters[f"{theirs}.weight"] = w[f"feed_forward.{ours}.weight"].T
        parameters[f"{theirs}.bias"] = w[f"feed_forward.{ours}.bias"]
    return parameters | torch_norm(
        part(w, "feed_forward_residual.norm."), f"norm{len(attentions) + 1}."
    )


def torch_norm(w, prefix):
    return {f"{prefix}weight": w["gain"], f"{prefix}bias": w["bias"]}


def new_layer(kind, d_model, d_ff, heads, norm):
    """One of PyTorch's layers, its attentions without biases as in the paper's equations."""
    layer = kind(d_model, heads, d_ff, 0.0, "relu", EPS, batch_first=True, norm_first=norm == "pre")
    for name in ("self_attn", "multihead_attn"):
        if hasattr(layer, name):
            setattr(
                layer, name, nn.MultiheadAttention(d_model, heads, bias=False, batch_first=True)
            )
    return layer


def smoothed(logits, target, smoothing):
    """Cross-entropy that ignores id 0.

    PyTorch gives eps'/V to every id and the rest to the true one, we eps/(V-1) to every wrong id:
    the two are one for eps' = eps V/(V-1).
    """
    size = logits.shape[-1]
    theirs = smoothing * size / (size - 1)
    flat = logits.reshape(-1, size), target.reshape(-1)
    return F.cross_entropy(*flat, ignore_index=0, label_smoothing=theirs)


class Reference(nn.Module):
    """The Transformer from PyTorch's stacks of layers.

    `weights` are the leaves, under our names.
    """

    def __init__(self, c):
        super().__init__()
        self.c = c
        sizes = c["d_model"], c["d_ff"], c["n_heads"], c["norm"]
        norm = (
            (lambda: nn.LayerNorm(c["d_model"], eps=EPS)) if c["norm"] == "pre" else (lambda: None)
        )
        encoder = new_layer(nn.TransformerEncoderLayer, *sizes)
        decoder = new_layer(nn.TransformerDecoderLayer, *sizes)
        self.encoder = nn.TransformerEncoder(
            encoder, c["n_layers"], norm(), enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(decoder, c["n_layers"], norm())

    def stack(self, name, weights):
        parameters, w = {}, part(weights, f"{name}.")
        for i in range(self.c["n_layers"]):
            layer = torch_layer(part(w, f"layers.{i}."), ENCODER if name == "encoder" else DECODER)
            parameters |= {f"layers.{i}.{key}": value for key, value in layer.items()}
        return parameters | (
            torch_norm(part(w, "norm."), "norm.") if self.c["norm"] == "pre" else {}
        )

    def embed(self, weights, side, ids):
        tied = self.c["tie"] or side == "source"
        table = weights["embedding.weight" if tied else "target_embedding.weight"]
        x = F.embedding(ids, table) * table.shape[1] ** 0.5
        learned = weights.get(f"{side}_positions.learned.weight")
        if learned is not None:
            return x + learned[: ids.shape[1]] * table.shape[1] ** 0.5
        return x + sinusoids(*x.shape[1:]).to(x.dtype)

    def forward(self, weights, source, target):
        """Target positions that are padding are hidden here as well, so what stands at them
        means nothing.
        """
        forbidden = nn.Transformer.generate_square_subsequent_mask(target.shape[1]).isinf()
        x = self.embed(weights, "source", source)
        memory = functional_call(
            self.encoder,
            self.stack("encoder", weights),
            (x,),
            {"src_key_padding_mask": source == 0},
        )
        options = {
            "tgt_mask": forbidden,
            "tgt_key_padding_mask": target == 0,
            "memory_key_padding_mask": source == 0,
        }
        x = self.embed(weights, "target", target)
        hidden = functional_call(self.decoder, self.stack("decoder", weights), (x, memory), options)
        return F.linear(
            hidden, weights["embedding.weight" if self.c["tie"] else "output_embedding.weight"]
        )


def sinusoids(length, d_model):
    """Section 3.5, as the real and imaginary parts of turning pointers:
    e^(i angle) = cos + i sin.
    """
    frequencies = torch.logspace(0, -4, d_model // 2 + 1, dtype=torch.float64)[:-1]
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    pointers = torch.polar(torch.ones_like(angles), angles)
    return torch.stack([pointers.imag, pointers.real], dim=-1).flatten(1)
