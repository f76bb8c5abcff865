"""The unit of work of a slot: takes chunks in, and commits what they became in six numbered steps."""
