"""Packs Seqmark for those who install it; nothing here is installed."""
