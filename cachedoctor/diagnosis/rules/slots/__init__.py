"""CD3xx: slots and the RAM prompt cache."""
