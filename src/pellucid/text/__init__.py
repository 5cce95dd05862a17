"""Text before and after the model: sentences, segmentation, casing, languages, documents."""
