"""Greedy search, sampling and beam search as streams of steps."""
