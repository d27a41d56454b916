"""Hugging Face's transformers in float32 with minitf's weights: MarianMTModel, for decoding."""

from benchmarks.protocol import cores, refuse, serve

try:
    import torch
    import transformers
except ImportError:
    refuse("transformers or PyTorch is not installed (--python names an interpreter with both)")

import numpy as np

from benchmarks import work

transformers.logging.set_verbosity_error()
RESIDUALS = {
    "self_attn": {"encoder": "attention_residual", "decoder": "self_residual"},
    "encoder_attn": {"decoder": "source_residual"},
}
ATTENTIONS = {"self_attn": "self_attention", "encoder_attn": "source_attention"}
PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}


def about(task):
    """Return versions, for the head of the table."""
    return {"transformers": transformers.__version__, "PyTorch": torch.__version__}


def _model(task):
    """Return a MarianMTModel with the weights that all contenders start from."""
    c = task["model"]
    sides = {}
    for side in ("encoder", "decoder"):
        sides |= {
            f"{side}_layers": c["n_layers"],
            f"{side}_attention_heads": c["n_heads"],
            f"{side}_ffn_dim": c["d_ff"],
        }
    config = transformers.MarianConfig(
        vocab_size=c["vocabulary_size"],
        d_model=c["d_model"],
        activation_function=c["activation"],
        scale_embedding=True,
        max_position_embeddings=1024,
        pad_token_id=work.PAD,
        eos_token_id=work.EOS,
        bos_token_id=work.BOS,
        decoder_start_token_id=work.BOS,
        forced_eos_token_id=None,
        **sides,
    )
    model = transformers.MarianMTModel(config).eval()
    with np.load(task["weights"]) as arrays:
        w = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    state = {
        "final_logits_bias": w["output_bias"][None],
        "model.shared.weight": w["embedding.weight"],
    }
    for side in ("encoder", "decoder"):
        for i in range(c["n_layers"]):
            state |= _layer(w, side, i)
    tied = ("embed_tokens.weight", "lm_head.weight", "embed_positions.weight")
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys and all(k.endswith(tied) for k in missing.missing_keys)
    return model


def _layer(w, side, i):
    ours, theirs, state = f"{side}.layers.{i}.", f"model.{side}.layers.{i}.", {}

    def linear(mine, other):
        state[f"{theirs}{other}.weight"] = w[f"{ours}{mine}.weight"].T.contiguous()
        state[f"{theirs}{other}.bias"] = w[f"{ours}{mine}.bias"]

    def norm(mine, other):
        state[f"{theirs}{other}.weight"] = w[f"{ours}{mine}.norm.gain"]
        state[f"{theirs}{other}.bias"] = w[f"{ours}{mine}.norm.bias"]

    for attention, residuals in RESIDUALS.items():
        if side in residuals:
            for theirs_name, name in PROJECTIONS.items():
                linear(f"{ATTENTIONS[attention]}.{name}", f"{attention}.{theirs_name}")
            norm(residuals[side], f"{attention}_layer_norm")
    linear("feed_forward.inner", "fc1")
    linear("feed_forward.outer", "fc2")
    norm("feed_forward_residual", "final_layer_norm")
    return state


def decoder(task):
    """Return a function that decodes the sentences of the task, giving (ids, ln P) of each."""
    torch.set_num_threads(task["threads"] or cores())
    model, source = _model(task), torch.from_numpy(work.sentences(task)).long()
    options = {
        "num_beams": task["beam"],
        "do_sample": False,
        "max_new_tokens": task["length"],
        "bad_words_ids": [[i] for i in work.BANNED],
        "length_penalty": 0.0,  # all hypotheses have one length
        "return_dict_in_generate": True,
        "output_scores": True,
        "output_logits": True,
    }

    def decode():
        with torch.inference_mode():
            mask = torch.ones_like(source)
            found = model.generate(input_ids=source, attention_mask=mask, **options)
            steps = model.compute_transition_scores(
                found.sequences,
                # Greedy decoding has its scores after the banned ids are taken out.
                found.logits if task["beam"] == 1 else found.scores,
                getattr(found, "beam_indices", None),
                normalize_logits=task["beam"] == 1,
            )
        return list(zip(found.sequences[:, 1:].tolist(), steps.sum(dim=1).tolist(), strict=True))

    return decode


JOBS = {"about": about, "decode": decoder, "check decode": lambda task: decoder(task)()}

if __name__ == "__main__":
    serve(JOBS)
