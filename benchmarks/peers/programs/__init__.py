"""The programs that peers start; those in Java are compiled by `benchmarks.peers.java`."""
