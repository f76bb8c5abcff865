"""Does the same job each in another way; `benchmarks.rest.protocol` says how."""
