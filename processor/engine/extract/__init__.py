"""What a record is judged by: sequences, scopes and ids, read from header, key or value."""
