"""The first advice of a report, followed to the letter on a real server."""
