"""Known public corpora and how each is prepared."""
