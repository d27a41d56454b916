"""Beyond the paper: later variations, the SSRU, the shortlist, and sampling instead of a search."""
