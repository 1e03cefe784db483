"""ollama: what its own runners log of each request. Lines of the llama-server that it starts are read as such."""
