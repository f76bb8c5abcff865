"""Plain produce and consume by record, for demo, generator and report."""
