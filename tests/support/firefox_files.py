"""Models as Firefox has them: a .bin, int8, an SSRU in the decoder, one vocabulary or two."""

import functools
import gzip
import io
import struct

import numpy as np
import sentencepiece

from minitf.config import Config
from minitf.data import toy
from minitf.public.names import names_of_layers

SIZES = {"n_layers": 2, "n_decoder_layers": 1, "d_model": 16, "d_ff": 24, "n_heads": 4}
SETTINGS = {
    "dec-cell": "ssru",
    "dec-depth": 1,
    "dim-emb": 16,
    "enc-depth": 2,
    "tied-embeddings": "false",
    "tied-embeddings-all": "true",
    "tied-embeddings-src": "false",
    "transformer-decoder-autoreg": "rnn",
    "transformer-dim-ffn": 24,
    "transformer-ffn-activation": "relu",
    "transformer-heads": 4,
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-preprocess": '""',
    "type": "transformer",
}


@functools.cache
def vocabulary(size, *sides):
    """Return a SentencePiece model with Marian's special ids: </s> 0, <unk> 1, no others."""
    model, text = io.BytesIO(), toy.pairs(400, seed=5)
    lines = [line for side in sides for line in text[side]]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        pad_id=-1,
        minloglevel=2,
    )
    return model.getvalue()


def shortlist(n_source, n_target, first=12):
    """Return the bytes of a shortlist: random candidates for each subword of the source."""
    rng = np.random.default_rng(4)
    starts = np.cumsum([0, *rng.integers(0, 4, n_source)])
    candidates = rng.integers(first, n_target, starts[-1])
    head = struct.pack("<6Q", 0xF11A48D5013417F5, 7, first, 3, len(starts), len(candidates))
    return head + starts.astype("<u8").tobytes() + candidates.astype("<u4").tobytes()


def pieces_of(model):
    found = sentencepiece.SentencePieceProcessor(model_proto=model)
    return found.id_to_piece(list(range(found.get_piece_size())))


def quantised(name, array):
    """Return an array as int8, its scale, and the bytes that the file has for it."""
    scale = np.float32(127 / np.abs(array).max())
    whole = np.rint(array * scale).astype(np.int8)
    rest = np.random.default_rng(len(name)).bytes(252)
    lying = whole if "Wemb" in name else whole.T
    return whole, scale, lying.tobytes() + scale.tobytes() + rest


def write_bin(path, arrays, kinds):
    """Write {name: bytes} with {name: (type, shape)} as Marian does, aligned to 256 bytes."""
    heads, names, shapes = b"", b"", b""
    for name, content in arrays.items():
        kind, shape = kinds[name]
        heads += struct.pack("<4Q", len(name) + 1, kind, len(shape), len(content))
        names += name.encode() + b"\0"
        shapes += struct.pack(f"<{len(shape)}i", *shape)
    start = struct.pack("<2Q", 1, len(arrays)) + heads + names + shapes
    gap = 256 - (len(start) + 8) % 256
    content = start + struct.pack("<Q", gap) + bytes(gap) + b"".join(arrays.values())
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return content


def firefox(folder, two=False, packed=False, settings=(), **more):
    """Write a random model; return its Config and its state in minitf, number by number.

    two: with two vocabularies. packed: as .gz. settings: those that are changed. more: further
    arrays of float32.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng, ending = np.random.default_rng(2), ".gz" * packed
    models = [vocabulary(70, 0), vocabulary(75, 1)] if two else [vocabulary(90, 0, 1)]
    pieces = [pieces_of(model) for model in models]
    for side, model in zip(("srcvocab", "trgvocab") if two else ("vocab",), models, strict=True):
        path = folder / f"{side}.ende.spm{ending}"
        path.write_bytes(gzip.compress(model) if packed else model)
    state, arrays, kinds = {}, {}, {}

    def add(name, array, ours=None):
        array, is_matrix = array.astype(np.float32), min(array.shape) > 1
        kinds[name] = (0x4101 if is_matrix else 0x404, array.shape)
        if is_matrix:
            whole, scale, arrays[name] = quantised(name, array)
            array = whole / scale
            arrays[f"{name}_QuantMultA"] = scale.tobytes() + bytes(252)
            kinds[f"{name}_QuantMultA"] = (0x4101 if "Wemb" in name else 0x404, (1, 1))
        else:
            arrays[name] = array.tobytes()
        if ours:
            state[ours] = array if is_matrix else array[0]
        return array

    tables = ("encoder_Wemb", "decoder_Wemb") if two else ("Wemb",)
    tables = [
        add(name, rng.normal(0, 0.5, (len(each), 16)))
        for name, each in zip(tables, pieces, strict=True)
    ]
    bias = add("decoder_ff_logit_out_b", rng.normal(size=(1, len(pieces[-1]))))[0]
    for names in names_of_layers(Config(90, **SIZES, decoder="ssru")):
        shape = names.shape if len(names.shape) == 2 else (1, *names.shape)
        add(names.marian, rng.normal(0.2, 0.4, shape), names.minitf)
    for name, array in more.items():
        add(name, array)
    changed = {"tied-embeddings": "true", "tied-embeddings-all": "false"} if two else {}
    lines = "".join(f"{k}: {v}\n" for k, v in (SETTINGS | changed | dict(settings)).items())
    arrays["special:model.yml"] = lines.encode() + b"\0"
    kinds["special:model.yml"] = (0x101, (len(lines) + 1,))
    write_bin(folder / f"model.ende.intgemm.alphas.bin{ending}", arrays, kinds)
    lists = shortlist(len(pieces[0]), len(pieces[-1]))
    (folder / "lex.50.50.ende.s2t.bin").write_bytes(lists)
    return with_ids(state, tables, bias, pieces)


def with_ids(state, tables, bias, pieces):
    """Return the Config and the state with rows in the order of minitf's ids."""
    target = [x for x in pieces[-1] if x not in ("</s>", "<unk>")]
    only = [x for x in pieces[0] if x not in pieces[-1]]
    names = ["<pad>", "<unk>", "<s>", "</s>", *target, *only]

    def ordered(table, of):
        rows = np.zeros((len(names), *table.shape[1:]), np.float32)
        for i, name in enumerate(names):
            if name in of:
                rows[i] = table[of.index(name)]
        return rows

    state["embedding.weight"] = ordered(tables[0], pieces[0])
    if len(pieces) == 2:
        state["target_embedding.weight"] = ordered(tables[1], pieces[1])
        state["output_embedding.weight"] = state["target_embedding.weight"]
    state["output_bias"] = ordered(bias, pieces[-1])
    switches = {"attention_bias": True, "output_bias": True, "decoder": "ssru"}
    config = Config(
        len(names),
        **SIZES | switches,
        sinusoid_layout="halves",
        sinusoid_base="t2t",
        tie=len(pieces) == 1,
        suppressed_ids=(0, 1, 2, *range(4 + len(target), len(names))),
    )
    return config, state
