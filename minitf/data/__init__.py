"""Corpora, built-in or fetched: read, cleaned, cut into subwords and grouped into batches."""
