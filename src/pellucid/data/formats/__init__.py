"""Readers of sentence pairs, one for each file format."""

Record = tuple[str, str, str]
"""What a reader yields: first side, second side, problem (or "")."""
