"""What `seqmark check` looks at: folders, states, checkpoints, topics."""
