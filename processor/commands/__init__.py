"""Commands of `seqmark`, one module each, in folders by what they are for; imported only when called."""
