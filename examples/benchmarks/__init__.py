"""Measurements of speed.

    benchmark.py    minitf compared with its rivals, or with an earlier commit, on a CPU
    report.py       reports of benchmark.py as tables of README.md
    gpu_check.py    everything on a GPU: tests, lessons, and the rows `gpu` of benchmark.py
    results/        the measurements, as JSON

A contender is a program that is timed; a rival is one other than minitf itself. `rows.py` has the
rows of the table, `work.py` the sentences and weights that all contenders share. `protocol.py`
starts each in its own process: `ours.py`, `pytorch.py`, `with_ctranslate2.py`, `with_marian.py`.
"""
