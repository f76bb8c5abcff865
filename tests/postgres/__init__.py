"""Does the output to PostgreSQL hold what a batch brings, once?"""
