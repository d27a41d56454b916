"""CTranslate2, the C++ inference engine, in float32 with minitf's weights, for decoding.

    python -m benchmarks.with_ctranslate2 FOLDER OUTPUT

translates a file, as `translate.py --input INPUT --output OUTPUT` does. FOLDER has that file, and
what the job `bundled` of ours.py writes: the weights, the sizes and the subwords of a model.
"""

import sys

from benchmarks.protocol import cores, refuse, serve

try:
    # CTranslate2 imports PyTorch, which takes seconds, if it is installed: only to convert models.
    sys.modules["torch"] = None
    import ctranslate2
except ImportError:
    refuse("CTranslate2 is not installed (--python names an interpreter that has it)")

import functools
import json
import time
from pathlib import Path

import numpy as np
from ctranslate2.specs import TransformerSpec

from benchmarks import work

Translator = functools.partial(ctranslate2.Translator, compute_type="float32")


def converted(task):
    """Return the folder of the weights as a model of CTranslate2, which is written once.

    Matrices are (out, in); projections that share an input are fused.
    """
    folder = Path(task["weights"]).with_suffix(".ctranslate2")
    if folder.exists():
        return str(folder)
    c = task["model"]
    layers = c["n_layers"], c.get("n_decoder_layers") or c["n_layers"]
    pre_norm = c.get("norm") == "pre"
    spec = TransformerSpec.from_config(layers, c["n_heads"], pre_norm=pre_norm)
    with np.load(task["weights"]) as arrays:
        w = dict(arrays)
    encodings = work.sinusoid(1024, c["d_model"])
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = w["embedding.weight"]
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = encodings
    spec.decoder.projection.weight = w["embedding.weight"]
    for side, first in (("encoder", "attention_residual"), ("decoder", "self_residual")):
        for i, layer in enumerate(getattr(spec, side).layer):
            part = {name.removeprefix(f"{side}.layers.{i}."): array for name, array in w.items()}
            groups = [("query", "key", "value")]
            _attention(layer.self_attention, part, "self_attention", first, groups)
            if side == "decoder":
                groups = [("query",), ("key", "value")]
                _attention(layer.attention, part, "source_attention", "source_residual", groups)
            for linear, name in ((layer.ffn.linear_0, "inner"), (layer.ffn.linear_1, "outer")):
                linear.weight = np.ascontiguousarray(part[f"feed_forward.{name}.weight"].T)
                linear.bias = part[f"feed_forward.{name}.bias"]
            _norm(layer.ffn.layer_norm, part, "feed_forward_residual")
        if pre_norm:
            _norm(getattr(spec, side).layer_norm, w, side)
    for register in (spec.register_source_vocabulary, spec.register_target_vocabulary):
        register(work.words(c["vocabulary_size"]))
    spec.config.layer_norm_epsilon = work.NORM_EPS
    spec.validate()
    spec.optimize(quantization="float32")
    folder.mkdir()
    spec.save(str(folder))
    return str(folder)


def _attention(spec, part, name, residual, groups):
    for linear, group in zip(spec.linear, [*groups, ("output",)], strict=True):
        linear.weight = np.concatenate([part[f"{name}.{key}.weight"].T for key in group])
    _norm(spec.layer_norm, part, residual)


def _norm(spec, part, residual):
    spec.gamma, spec.beta = part[f"{residual}.norm.gain"], part[f"{residual}.norm.bias"]


def decoder(task):
    """Return a function that decodes the sentences of the task, giving (ids, ln P) of each.

    Cores can share the products of the batch, or each take a slice of it: the faster way is used.
    """
    model, source = converted(task), [[*map(str, row)] for row in work.sentences(task).tolist()]
    count = task["threads"] or cores()
    options = {"beam_size": task["beam"], "max_decoding_length": task["length"]}
    # Scores are ln P then: hypotheses are of one length, and the end mark is as possible as any
    # word from the start.
    options |= {"return_scores": True, "length_penalty": 0, "min_decoding_length": 0}

    def build(at_once, threads):
        translator = Translator(model, inter_threads=at_once, intra_threads=threads)
        part = -(-len(source) // at_once)

        def decode():
            results = translator.translate_batch(
                source, max_batch_size=part if at_once > 1 else 0, **options
            )
            return [([int(word) for word in r.hypotheses[0]], r.scores[0]) for r in results]

        return decode

    choices = [build(1, count)] + ([build(count, 1)] if len(source) > 1 < count else [])
    return min(choices, key=_seconds)


def translate_file(folder, write, beam=4, alpha=0.6, batch=64):
    """Translate a file, a sentence a line; each core takes some of the batches."""
    from sentencepiece import SentencePieceProcessor

    folder = Path(folder)
    task = {"model": json.loads((folder / "config.json").read_text(encoding="utf-8"))}
    model = converted(task | {"weights": str(folder / "weights.npz")})
    pieces = SentencePieceProcessor(model_file=str(folder / "subwords.model"))
    translator = Translator(model, inter_threads=cores(), intra_threads=1)
    lines = (folder / work.INPUT).read_text(encoding="utf-8").splitlines()
    source = [[*map(str, ids), work.SPECIAL[-1]] for ids in pieces.encode(lines)]
    found = translator.translate_batch(
        source, max_batch_size=batch, beam_size=beam, length_penalty=alpha, disable_unk=True
    )
    texts = pieces.decode([[int(token) for token in result.hypotheses[0]] for result in found])
    Path(write).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def _seconds(decode):
    if decode():  # once before it counts
        start = time.perf_counter()
        decode()
    return time.perf_counter() - start


JOBS = {
    "about": lambda task: {"CTranslate2": ctranslate2.__version__},
    "decode": decoder,
    "check decode": lambda task: decoder(task)(),
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        translate_file(*sys.argv[1:])
    else:
        serve(JOBS)
