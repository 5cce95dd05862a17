"""Text to token ids and back: SentencePiece, Marian's tokenizers, subword regularization."""
