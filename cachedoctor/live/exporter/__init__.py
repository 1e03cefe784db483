"""Counters over many live logs, which go on where they stood after a restart."""
