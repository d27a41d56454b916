"""The lessons' own room: options, checks, exercises and figures."""
