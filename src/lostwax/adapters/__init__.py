"""Foreign models, read into our nouns."""
