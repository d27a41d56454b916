"""The sides of examples/benchmarks/benchmark.py. Each runs in a process of its own: `python -m benchmarks.ours` and so on."""
