"""``fleet`` on a real cluster of Ray and on an object store: workers are killed, tables compared."""
