"""Spark reads the clean topics: the only place that imports pyspark."""
