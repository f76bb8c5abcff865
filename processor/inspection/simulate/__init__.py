"""What ``seqmark simulate`` predicts of a topic: duplicates by window, memory, disk, and what to choose."""
