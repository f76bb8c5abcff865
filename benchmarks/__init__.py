"""Measures throughput, latency and cost: `make bench`; results are in `benchmarks/results/`."""
