"""Evaluation metrics: BLEU, chrF, TER, COMET."""
