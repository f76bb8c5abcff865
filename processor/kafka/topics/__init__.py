"""Topics: which ones a config needs, created and looked at."""
