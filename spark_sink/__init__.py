"""The Spark side: reads the clean topics, and is the only importer of pyspark."""
