"""The sides of examples/benchmark.py. Each runs in a process of its own: `python -m benchmarks.ours` and so on."""
