"""Values of events: read, and checked against their model."""
