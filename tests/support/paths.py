"""Where things are in the checkout."""

from pathlib import Path

SUPPORT = Path(__file__).parent
FIXTURES = SUPPORT / "fixtures"
ROOT = SUPPORT.parents[1]
PACKAGE = ROOT / "minitf"
EXAMPLES = ROOT / "examples"

# The engine's files: equations. `backend` and `forms`, the seam, and `errors` are beside them.
ENGINE = (
    *("tensor", "dropout", "inputs", "functions", "loss", "nn"),
    *("config", "transformer", "optim", "decode", "check"),
)
