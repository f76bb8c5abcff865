"""Java and the jars that the embedded broker and Spark need."""
