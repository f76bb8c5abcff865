"""How fast is it? `make bench`; results are in `benchmarks/results/`."""
