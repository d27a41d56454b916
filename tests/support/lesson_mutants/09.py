"""Mistakes in the code that lesson 09 teaches: {mistake: (correct text, wrong text)}.

Each correct text occurs once in the package. The lesson must notice each mistake.
"""

MUTANTS = {
    # Subwords
    "pieces that are no byte-pair encoding": ('model_type="bpe"', 'model_type="unigram"'),
    "subwords learned from every second line": (
        "islice(lines, 0, None, stride)",
        "islice(lines, 0, None, stride + 1)",
    ),
    "characters that are replaced by others that look like them": (
        'normalization_rule_name="identity"',
        'normalization_rule_name="nmt_nfkc"',
    ),
    # Batches
    "batches of one pair too many": (
        'batch_tokens, side="right")), 1)',
        'batch_tokens, side="right")) + 1, 1)',
    ),
    "a budget that forgets the source": (
        "np.maximum(source_lengths, target_lengths)[order]",
        "target_lengths[order]",
    ),
    "a budget that does not count padding": (
        "np.arange(1, len(ahead) + 1) * np.maximum.accumulate(ahead)",
        "np.cumsum(ahead)",
    ),
    "sources that always rise": (
        "np.where(target % 2, source, kind.type(size - 1) - source)",
        "source",
    ),
    "pairs that are not sorted": (
        'ties[np.argsort(key[ties], kind="stable")]',
        "ties",
    ),
    # One update on many GPUs
    "gradients divided by the tokens of their slice": (
        "part.source, part.target_in, part.target_out, n_tokens",
        "part.source, part.target_in, part.target_out",
    ),
    "slices that all draw the masks of the first rows": (
        "slice(start, stop), self.first_row + start",
        "slice(start, stop), self.first_row",
    ),
    "replicas of which only the first counts": (
        "mine.grad.reshape(-1)[own] += theirs.reshape(-1)[own]",
        "pass",
    ),
    "batches of an update with the same masks": ("step * len(sizes) + i)", "step * len(sizes))"),
    "ranks that all take the first rows": (
        "edges = number * len(sizes), (number + 1) * len(sizes)",
        "edges = 0, len(sizes)",
    ),
    # The average
    "an average that forgets all but the last checkpoint": (
        "sums[name] += arrays[name]",
        "sums[name] = arrays[name].astype(np.float64) * count",
    ),
    "an average that is a sum": ("(total / count).astype", "total.astype"),
    # Scores
    "hyphens that stay where they are": (r"##AT##-##AT## \2", r"##AT##-##AT##\2"),
    "a score that always minds the case": (
        "BLEU(lowercase=lowercase, tokenize=tokenize, force=True)",
        "BLEU(tokenize=tokenize, force=True)",
    ),
    # The command
    "half the paper's updates": ('"steps": 100_000', '"steps": 50_000'),
}
