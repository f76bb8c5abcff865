"""Makes tables, one picture and the blocks of the pages from the results."""
