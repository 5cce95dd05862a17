"""Checkpoints: crash-safe, verified by hash, whole or sharded."""
