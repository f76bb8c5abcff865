"""Record batches as columns: scanned, compared, and encoded again."""
