"""Text on its way to tokens and back: corpora, cleaning, the tokenizer, batches, documents."""
