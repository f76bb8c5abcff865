"""Topics: which ones a config needs, and how they are made and looked at."""
