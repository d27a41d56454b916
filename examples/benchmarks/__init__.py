"""All of the measuring.

    benchmark.py    minitf beside PyTorch and CTranslate2, or beside an earlier commit, on a CPU
    gpu_check.py    all of it on a GPU: tests, lessons, kernels, training and decoding
                    beside PyTorch
    results/        what these two have measured, as JSON

The other files are their parts. `rows.py` has the rows of the table, `work.py` the sentences and
weights that all sides share, `compare.py` whether they compute the same, `protocol.py` how they are
started, `picture.py` the plot. Each side runs in a process of its own (`python -m benchmarks.ours`
and so on): `ours.py`, `composed.py` (the primitive operations put together, as the lessons
derive them), `products.py` (the matrix products alone), `pytorch.py`, `pytorch_decode.py`,
`with_ctranslate2.py`; on a GPU `gpu.py` starts `gpu_step.py` for each side.
"""
