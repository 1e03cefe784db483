"""Replays what a server of a build with its settings would have reused. Pure: no file, no clock, no log line."""
