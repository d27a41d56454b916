"""What the lessons alone use: options, checks, exercises and figures."""
