"""Tables: parquet, csv and ndjson files, and sums over them. The only room that imports polars.

Knows columns and the structs of the model; knows no log and no rule.
"""
