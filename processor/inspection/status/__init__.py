"""Shows what an application is doing, by what the brokers say of it: with workers or without."""
