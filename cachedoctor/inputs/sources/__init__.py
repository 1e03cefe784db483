"""Where log bytes come from. Knows files, pipes and their encodings; knows nothing of what the lines say."""
