"""Text to token ids and back: SentencePiece, Marian's two models, subword regularization."""
