"""Measurements of speed.

    benchmark.py    minitf compared with PyTorch and CTranslate2, or an earlier commit, on a CPU
    gpu_check.py    everything on a GPU: tests, lessons, kernels, training and decoding
                    compared with PyTorch
    results/        the measurements of these two, as JSON

They use the other files. `rows.py` has the rows of the table, `work.py` the sentences and weights
that all programs share, `compare.py` checks that they compute the same results, `protocol.py`
starts them, `picture.py` draws the plot. Each program runs in its own process
(`python -m benchmarks.ours` and so on): `ours.py`; `composed.py` (compositions of primitive
operations, as the lessons derive them); `products.py` (the matrix products alone); `pytorch.py`,
`pytorch_decode.py`; `with_ctranslate2.py`; on a GPU, `gpu.py` starts `gpu_step.py` for each
program.
"""
