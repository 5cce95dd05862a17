"""Training callbacks: terminal, metrics file, TensorBoard."""
