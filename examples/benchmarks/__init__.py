"""Measurements of speed.

    benchmark.py    minitf compared with PyTorch and CTranslate2, or an earlier commit, on a CPU
    table.py        reports of benchmark.py as tables of README.md
    gpu_check.py    everything on a GPU: tests, lessons, kernels, training and decoding
                    compared with PyTorch
    results/        the measurements, as JSON

A contender is a program that is timed. A rival is a contender other than minitf itself.

These programs use the other files. `rows.py` has the rows of the table, `work.py` the sentences
and weights that all contenders share, `compare.py` checks that they compute the same results,
`protocol.py` starts them, `report.py` has medians and intervals, and prints them, `picture.py`
draws the plot.
Each contender runs in its own process (`python -m benchmarks.ours` and so on): `ours.py`;
`composed.py` (compositions of primitive operations, as the lessons derive them); `products.py` (the
matrix products alone); `command.py` (a program from its start to its exit); `pytorch.py`,
`pytorch_decode.py`; `with_ctranslate2.py`; on a GPU, `gpu.py` starts `gpu_step.py` for each
contender. `machine.py`, which measures the processor itself, also runs in its own process.
"""
