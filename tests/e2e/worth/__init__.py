"""What each MiB is worth, and how many agents fit: the settings that ``cachedoctor tune`` names, on a real server."""
