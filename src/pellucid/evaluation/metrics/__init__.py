"""Metrics of translation quality: BLEU, chrF and TER, all of them sacreBLEU's, and COMET."""
