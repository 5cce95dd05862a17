"""Readers of sentence pairs, one for each file format."""
