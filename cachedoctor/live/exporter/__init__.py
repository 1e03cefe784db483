"""Counters over many live logs, which continue where they stood after a restart."""
