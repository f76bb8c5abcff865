"""Takes a history in before it is loaded: where the stream goes on, what is staged, topics as histories."""
