"""The sizes of the axes in the tests: pairwise different, so that two axes that are
swapped cannot fit.
"""

B, T, S, H, K, D, F, V = 2, 5, 7, 3, 4, 12, 16, 11
