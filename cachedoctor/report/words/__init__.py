"""Words, numbers and tables that several formats share."""
