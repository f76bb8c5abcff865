"""The stored state of mode insert-id: what is logged, restored and kept per backend."""
