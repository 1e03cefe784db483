"""llama-server, build by build: slots, RAM cache, checkpoints, windows."""
