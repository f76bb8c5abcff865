"""Key-value stores for local state: RocksDB, and memory for tests and certificates."""
