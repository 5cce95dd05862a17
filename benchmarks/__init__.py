"""Measurements against peers and the machine's own limits; see __main__."""
