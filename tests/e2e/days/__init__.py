"""Mixed days on real llama-servers: several clients at once, and for every prompt token who lost it. README.md"""
