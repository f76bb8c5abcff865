"""Tries out what an application needs of its brokers and its machine, and says what is missing."""
