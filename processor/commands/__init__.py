"""Commands of `seqmark`, one module each; imported only when called."""
