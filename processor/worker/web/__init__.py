"""What a worker answers over HTTP."""
