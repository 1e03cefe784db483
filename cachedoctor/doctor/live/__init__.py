"""What happens while a log is read: a stream of events, a view."""
