"""The PyTorch engine, the reference for all others."""
