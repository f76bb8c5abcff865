"""Commands that move records: worker, broker, reset, generator and demo."""
