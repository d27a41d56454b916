"""Beyond the paper: later variations, the SSRU, the shortlist, and sampling in place of a search."""
