"""Write tests/support/fixtures/public: a tiny random MarianMT model, and transformers' logits.

    pip install transformers torch
    python tests/support/make_public.py

The text of the subwords is the built-in corpus. Everything is random and not 0 or 1: a bias or a
norm that is forgotten on the way changes the logits.
"""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from paths import FIXTURES
from transformers import MarianConfig, MarianMTModel

from minitf.data.toy import pairs

FOLDER = FIXTURES / "public"


def trained(lines, size):
    """Return a SentencePiece model as OPUS-MT has them, but for its table of normalisation."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        character_coverage=1.0,
        normalization_rule_name="identity",
    )
    return model.getvalue()


def write_vocabulary():
    """Write both SentencePiece models and vocab.json; return the subwords."""
    text = pairs(400, seed=5)
    names = ["</s>", "<unk>"]
    for side, lines, size in zip(("source", "target"), text, (70, 75), strict=True):
        model = trained(lines, size)
        (FOLDER / f"{side}.spm").write_bytes(model)
        found = sentencepiece.SentencePieceProcessor(model_proto=model)
        names += [found.id_to_piece(i) for i in range(3, found.get_piece_size())]
    names = [*dict.fromkeys([*names, ">>deu<<", ">>fra<<"]), "<pad>"]
    (FOLDER / "vocab.json").write_text(
        json.dumps({name: i for i, name in enumerate(names)}, ensure_ascii=False, indent=0) + "\n",
        encoding="utf-8",
    )
    return names


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    names = write_vocabulary()
    torch.manual_seed(1)
    pad = len(names) - 1
    config = MarianConfig(
        vocab_size=len(names),
        d_model=16,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        activation_function="swish",
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        scale_embedding=True,
        max_position_embeddings=64,
    )
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.normal_(1 if name.endswith("norm.weight") else 0, 0.3)
        model.final_logits_bias.normal_(0, 0.5)
        model.model.shared.weight[pad] = 0  # as in all of these models: it begins the target
        model.final_logits_bias[0, pad] = 0
        model.save_pretrained(FOLDER)
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        torch.save(state, FOLDER / "new.bin")
        torch.save(state, FOLDER / "legacy.bin", _use_new_zipfile_serialization=False)
        rng = np.random.default_rng(0)
        source = rng.integers(2, pad, (2, 9))
        source[0, 8] = source[1, 5] = config.eos_token_id
        source[1, 6:] = pad
        target = np.concatenate([np.full((2, 1), pad), rng.integers(2, pad, (2, 6))], axis=1)
        logits = {}
        for activation in ("swish", "relu"):
            model.config.activation_function = activation
            other = MarianMTModel(model.config).eval()
            other.load_state_dict(model.state_dict())
            logits[activation] = other(
                input_ids=torch.tensor(source),
                attention_mask=torch.tensor(source != pad).long(),
                decoder_input_ids=torch.tensor(target),
            ).logits.numpy()
    np.savez(FOLDER / "logits.npz", source=source, target=target, **logits)
    for path in sorted(Path(FOLDER).iterdir()):
        print(f"{path.stat().st_size:8,} {path.name}")


if __name__ == "__main__":
    main()
