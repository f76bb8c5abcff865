"""A stopped pipeline set to another place in its source, together with its state: `seqmark reset`."""
