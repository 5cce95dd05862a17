"""Evaluation reports on the terminal and as HTML."""
