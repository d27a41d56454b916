"""Mistakes in the library that lesson 06 must notice: {mistake: (correct text, wrong text)}.

Each correct text occurs once in the package.
"""

MUTANTS = {
    # The masks.
    "a decoder without a causal mask": (
        "target_mask = causal_mask(target.shape[1])",
        "target_mask = None",
    ),
    "a padding mask for another id": (
        "padding_mask(source, self.config.pad_id)",
        "padding_mask(source, self.config.unk_id)",
    ),
    "no padding mask in the encoder": (
        "self.encoder(self.source_positions(x), to_device(mask)), mask",
        "self.encoder(self.source_positions(x), None), mask",
    ),
    "no padding mask in the source attention": (
        "return self.logits(self.decode(target, memory, mask))",
        "return self.logits(self.decode(target, memory, None))",
    ),
    "no mask in the decoder's self-attention": (
        "self.self_attention(y, y, target_mask, own_cache)",
        "self.self_attention(y, y, None, own_cache)",
    ),
    # The batch.
    "a target that is not shifted": (
        "_pad(*targets, vocabulary_size, first=BOS),",
        "_pad(*targets, vocabulary_size, last=EOS),",
    ),
    "nothing to predict but what was read": (
        "_pad(*targets, vocabulary_size, last=EOS),",
        "_pad(*targets, vocabulary_size, first=BOS),",
    ),
    "padding on the left": (
        "column = np.arange(padded.shape[1]) - before",
        "column = np.arange(padded.shape[1]) - before - (lengths.max() - lengths)[:, None]",
    ),
    "padding counted as tokens": (
        "return int(np.count_nonzero(self.target_out != PAD))",
        "return self.target_out.size",
    ),
    # The stacks.
    "an encoder that skips its last layer": (
        "for layer in self.layers:\n            x = layer(x, mask)",
        "for layer in self.layers[:-1]:\n            x = layer(x, mask)",
    ),
    "a decoder that skips its last layer": (
        "for layer, layer_caches in zip(self.layers, caches, strict=True):",
        "for layer, layer_caches in zip(self.layers[:-1], caches[:-1], strict=True):",
    ),
    "a memory for the first decoder layer only": (
        "x = layer(x, memory, target_mask, source_mask, layer_caches)",
        "x = layer(x, memory if layer is self.layers[0] else memory * 0.0, "
        "target_mask, source_mask, layer_caches)",
    ),
    "a source attention that asks the target": (
        "self.source_attention(y, memory, source_mask, source_cache)",
        "self.source_attention(y, y, None, source_cache)",
    ),
    # Around each sub-layer.
    "the norm of the self-attention after the source attention": (
        "x = self.source_residual(",
        "x = self.self_residual(",
    ),
    # What enters, and what comes out.
    "an encoder without sqrt(d_model)": (
        "self.embedding(source) * self.config.d_model**0.5",
        "self.embedding(source)",
    ),
    "tied although untied": (
        "self.output_embedding = self.embedding if config.tie",
        "self.output_embedding = self.embedding if True",
    ),
    "probabilities in place of logits": (
        "return F.linear(hidden, self.output_embedding.weight.transpose(), self.logit_bias())",
        "return F.softmax(F.linear(hidden, self.output_embedding.weight.transpose()))",
    ),
    # The sizes.
    "a base model with 4 heads": (
        "n_heads: int = field(default=8",
        "n_heads: int = field(default=4",
    ),
    "another row in Table 3": ('"C-N2": {"n_layers": 2}', '"C-N2": {"n_layers": 3}'),
    "a count that forgets a norm": (
        "own + attention + feed_forward + 3 * norm",
        "own + attention + feed_forward + 2 * norm",
    ),
}
