"""Public translation models to and from minitf's format; `python -m minitf public` is the command.

Nothing is imported here, so that translate.py starts quickly.
"""
