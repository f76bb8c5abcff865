"""One query per sink: from the clean topic to the aggregate, with its checkpoint."""
