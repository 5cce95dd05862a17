"""Sentence pairs for training: formats, cleaning, the token store, buckets, batches."""
