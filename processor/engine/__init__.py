"""Pure judging: numpy and numba only. No I/O, no clock, no Kafka."""
