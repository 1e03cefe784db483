"""What can differ between two prompts, one small recogniser per kind."""
