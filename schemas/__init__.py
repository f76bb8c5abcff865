"""What the worker, Spark and their users agree on: config, events, byte layouts of the changelog."""
