"""One script per study that is no case: each prints its figures, or returns them to the benchmark."""
