"""Mistakes in the library that lesson 06 must notice: {mistake: (correct text, wrong text)}.

Each correct text occurs once in the package.
"""

MUTANTS = {
    # The masks.
    "a decoder that sees one token ahead": (
        "np.tri(length, dtype=bool)",
        "np.tri(length, k=1, dtype=bool)",
    ),
    "a causal mask over the wrong axis": (
        "np.tri(length, dtype=bool)[None, None]",
        "np.tri(length, dtype=bool).T[None, None]",
    ),
    "a decoder without a causal mask": (
        "target_mask = causal_mask(target.shape[1])",
        "target_mask = None",
    ),
    "a padding mask that hides the words": (
        '(_ids(ids, "ids", "(B, S)") != pad_id)[',
        '(_ids(ids, "ids", "(B, S)") == pad_id)[',
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
    "no padding mask in the source attention of the loss": (
        "hidden = self.decode(target_in, memory, mask)",
        "hidden = self.decode(target_in, memory, None)",
    ),
    "no mask in the decoder's self-attention": (
        "self.self_attention(y, y, target_mask, own_cache)",
        "self.self_attention(y, y, None, own_cache)",
    ),
    "no mask in the encoder's self-attention": (
        "lambda y: self.self_attention(y, y, mask))",
        "lambda y: self.self_attention(y, y, None))",
    ),
    # The batch.
    "a target that is not shifted": (
        "_padded(*targets, vocabulary_size, first=BOS),",
        "_padded(*targets, vocabulary_size, last=EOS),",
    ),
    "nothing to predict but what was read": (
        "_padded(*targets, vocabulary_size, last=EOS),",
        "_padded(*targets, vocabulary_size, first=BOS),",
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
    "an encoder from the last layer to the first": (
        "for layer in self.layers:\n            x = layer(x, mask)",
        "for layer in self.layers[::-1]:\n            x = layer(x, mask)",
    ),
    "a decoder from the last layer to the first": (
        "for layer, layer_caches in zip(self.layers, caches, strict=True):",
        "for layer, layer_caches in zip(self.layers[::-1], caches, strict=True):",
    ),
    "an encoder that returns its input": (
        "for layer in self.layers:\n            x = layer(x, mask)",
        "for layer in self.layers:\n            layer(x, mask)",
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
    "a decoder layer that reads the memory first": (
        "x = self.self_residual(x, lambda y: self.self_attention(y, y, target_mask, own_cache))\n"
        "        x = self.source_residual(\n"
        "            x, lambda y: self.source_attention(y, memory, source_mask, source_cache)\n"
        "        )",
        "x = self.source_residual(\n"
        "            x, lambda y: self.source_attention(y, memory, source_mask, source_cache)\n"
        "        )\n"
        "        x = self.self_residual(\n"
        "            x, lambda y: self.self_attention(y, y, target_mask, own_cache)\n"
        "        )",
    ),
    # Around each sub-layer.
    "a figure 1 without residual connections": (
        "return norm(x + dropout(added))",
        "return norm(dropout(added))",
    ),
    "no add & norm around the decoder's self-attention": (
        "x = self.self_residual(x, lambda y: self.self_attention(y, y, target_mask, own_cache))",
        "x = self.self_attention(x, x, target_mask, own)",
    ),
    "no add & norm around the source attention": (
        "x = self.source_residual(\n"
        "            x, lambda y: self.source_attention(y, memory, source_mask, source_cache)\n"
        "        )",
        "x = self.source_attention(x, memory, source_mask, source_cache)",
    ),
    "the norm of the self-attention after the source attention": (
        "x = self.source_residual(",
        "x = self.self_residual(",
    ),
    "the matrices of the self-attention in the source attention": (
        "self.source_attention(y, memory, source_mask, source_cache)",
        "self.self_attention(y, memory, source_mask, source_cache)",
    ),
    # What enters, and what comes out.
    "an encoder without sqrt(d_model)": (
        "self.embedding(source) * self.config.d_model**0.5",
        "self.embedding(source)",
    ),
    "a decoder without sqrt(d_model)": (
        "self.target_embedding(target) * self.config.d_model**0.5",
        "self.target_embedding(target)",
    ),
    "no positions in the encoder": (
        "self.encoder(self.source_positions(x), to_device(mask))",
        "self.encoder(x, to_device(mask))",
    ),
    "no positions in the decoder": (
        "x = self.target_positions(x, start)",
        "x = x * 1.0",
    ),
    "a decoder that counts positions from 1": (
        "x = self.target_positions(x, start)",
        "x = self.target_positions(x, start + 1)",
    ),
    "tied although untied": (
        "self.output_embedding = self.embedding if config.tie",
        "self.output_embedding = self.embedding if True",
    ),
    "probabilities in place of logits": (
        "return F.linear(hidden, self.output_embedding.weight.transpose(), self._logit_bias())",
        "return F.softmax(F.linear(hidden, self.output_embedding.weight.transpose()))",
    ),
    "scaled logits": (
        "return F.linear(hidden, self.output_embedding.weight.transpose(), self._logit_bias())",
        "return F.linear(hidden, self.output_embedding.weight.transpose()) * 0.5",
    ),
    # The sizes.
    "a base model with 4 heads": ("n_heads: int = 8", "n_heads: int = 4"),
    "a base model without dropout": ("dropout: float = 0.1", "dropout: float = 0.0"),
    "a base model with 5 layers": ("n_layers: int = 6", "n_layers: int = 5"),
    "a base model with a smaller d_ff": ("d_ff: int = 2048", "d_ff: int = 1024"),
    "another row in Table 3": ('"C-N2": {"n_layers": 2}', '"C-N2": {"n_layers": 3}'),
    "a big model with a small d_model": ('"big": {"d_model": 1024', '"big": {"d_model": 512'),
    "a count that forgets a norm": (
        "2 * attention + feed_forward + 3 * norm",
        "2 * attention + feed_forward + 2 * norm",
    ),
}
