"""The checks of the exercises, one file a lesson: they accept no wrong answer and name it."""
