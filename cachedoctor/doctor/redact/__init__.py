"""A log becomes one that can be shown."""
