"""Beyond the paper: functions of later variations, and sampling in place of a search."""
