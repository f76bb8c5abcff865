"""Loads the ids of a history into the state of a pipeline that has not begun."""
