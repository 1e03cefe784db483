"""ik_llama.cpp, a fork of llama.cpp: what its server writes in words of its own."""
