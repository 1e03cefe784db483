"""What is given beside the logs: prompts, dumps of metrics, responses."""
