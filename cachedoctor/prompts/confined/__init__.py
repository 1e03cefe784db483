"""A child process with limits, for what a stranger wrote: chat templates and tokenizers."""
