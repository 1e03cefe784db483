"""LM Studio's MLX engine. Lines of its llama.cpp engine are those of llama-server and are read as such."""
