"""What can differ between two prompts, one small recogniser per kind. Knows prompts; knows no tokens, file or log."""
