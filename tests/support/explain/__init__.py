"""What is true of a stream that holds everything, for the tests of `seqmark explain`."""
