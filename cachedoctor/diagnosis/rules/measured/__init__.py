"""What the rules share about servers whose logs have rates, batches or numbers of requests, and what is given beside."""
