"""The escape gauge: estimates by a sample of ids how many duplicates escape."""
