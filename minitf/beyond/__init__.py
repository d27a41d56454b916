"""Beyond the paper: functions of later variations, the SSRU, the shortlist, and sampling in place of a search."""
