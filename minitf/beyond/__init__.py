"""Beyond the paper: functions of later variations, the SSRU, and sampling in place of a search."""
