"""What became of all records with an id, a key, or a field: one pass over the retained topics."""
