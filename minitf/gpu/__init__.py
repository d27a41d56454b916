"""The ops of the engine once more, faster, for CuPy on a GPU."""
