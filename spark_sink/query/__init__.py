"""One query per aggregate: from the clean topic to the aggregate, with its checkpoint."""
