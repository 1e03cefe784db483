"""``fleet`` on real clusters of Ray and Dask and on an object store: workers are killed, tables compared."""
