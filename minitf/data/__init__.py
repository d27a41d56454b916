"""Corpora: found or fetched, read, cleaned and cut into batches; and a toy corpus drawn
from a grammar.
"""
