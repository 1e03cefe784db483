"""Reports and logs as rows of tables, and sums over them."""
