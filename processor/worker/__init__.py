"""The worker process: its slots, how each opens its partitions, and the Faust application around them."""
