"""The config: loaded from file and environment, checked as a whole."""
