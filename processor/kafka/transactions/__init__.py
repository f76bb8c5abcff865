"""Transactions: producer, coordinator, and the markers that brokers left out."""
