"""Tables: parquet, csv and ndjson files, and sums over them. The only room that imports polars, which is optional."""
