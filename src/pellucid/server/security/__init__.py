"""API keys, rate limits and the middleware that enforces them."""
