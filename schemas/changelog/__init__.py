"""Byte layouts of all that is stored: position, watermark, ids, Bloom filters, clock."""
