"""A Spark data source that reads clean topics by Seqmark's own kernels: ``format("seqmark")``."""
