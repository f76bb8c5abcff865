"""Shows people what a pipeline holds and has done; it only reads."""
