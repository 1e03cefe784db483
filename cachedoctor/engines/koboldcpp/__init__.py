"""KoboldCpp: one line behind each reply, with the size of the context and how much of it was computed."""
