"""Properties of what speaks to brokers."""
