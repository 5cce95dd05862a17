"""Checkpoints: crash-safe, hash-checked, sharded."""
