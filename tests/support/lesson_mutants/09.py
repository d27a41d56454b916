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
    "rarer characters without a subword": ("coverage=0.99999", "coverage=0.99"),
    "a ligature that becomes another one": (
        '("ff", "fi", "fl", "ffi"',
        '("ff", "fl", "fi", "ffi"',
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
    "a budget that forgets the target": (
        "np.maximum(source_lengths, target_lengths)[order]",
        "source_lengths[order]",
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
    "gradients divided by the tokens of their rank": (
        "(n_tokens,) = self.ranks.sum_numbers(sum(count(batch.target_out) for _, batch in mine))",
        "n_tokens = sum(count(batch.target_out) for _, batch in mine)",
    ),
    "slices that all draw the masks of the first rows": (
        "self.target_out[rows], self.first_row + start",
        "self.target_out[rows], self.first_row",
    ),
    "replicas that draw the masks of the first rows": (
        "F.dropout_state(self.seed, step, part.first_row)",
        "F.dropout_state(self.seed, step)",
    ),
    "replicas of which only the first counts": ("mine[own] += theirs[own]", "pass"),
    "batches of an update with the same masks": ("n_tokens, first + i)", "n_tokens, first)"),
    "an update that forgets all but its last batch": (
        "        for i, batch in mine:\n",
        "        for i, batch in mine[-1:]:\n",
    ),
    "an update in which each batch starts from zero": (
        "        for i, batch in mine:\n",
        "        for i, batch in mine:\n            self.optimizer.zero_grad()\n",
    ),
    "ranks that all take the first rows": (
        "edges = share * len(sizes), (share + 1) * len(sizes)",
        "edges = 0, len(sizes)",
    ),
    # The average
    "an average that forgets all but the last checkpoint": (
        "sums[name] += array",
        "sums[name] = array.astype(np.float64)",
    ),
    "an average that is a sum": ("total / count, dtypes[name]", "total, dtypes[name]"),
    "an average added in 32 bits": (
        "            if count == 1:\n                sums[name] = array.astype(np.float64)",
        "            if count == 1:\n                sums[name] = array.copy()",
    ),
    "an average that stays in 64 bits": (
        "_cast(total / count, dtypes[name])",
        "total / count",
    ),
    # Scores
    "hyphens that stay where they are": (r"##AT##-##AT## \2", r"##AT##-##AT##\2"),
    "dashes that are taken for hyphens": (
        r'_COMPOUND = re.compile(r"(\S)-(\S)")',
        r'_COMPOUND = re.compile(r"(\s|\S)-(\s|\S)")',
    ),
    "a score that always minds the case": (
        "BLEU(lowercase=lowercase, tokenize=tokenize, force=True)",
        "BLEU(tokenize=tokenize, force=True)",
    ),
    "a score that cuts by other rules": ('tokenize: str = "13a"', 'tokenize: str = "intl"'),
    "text that is cut though it is cut already": (
        "BLEU(lowercase=lowercase, tokenize=tokenize, force=True)",
        "BLEU(lowercase=lowercase, force=True)",
    ),
    # The command
    "half the paper's updates": ('"steps": 100_000', '"steps": 50_000'),
    "twice the paper's warm-up": ('"warmup_steps": 4000, "st', '"warmup_steps": 8000, "st'),
}
