"""Comparisons and sums in all their formats."""
