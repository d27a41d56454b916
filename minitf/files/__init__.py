"""Models and arrays on disk: each file is written completely or not at all."""
