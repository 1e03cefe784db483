"""The only room that knows all the stages: bytes to lines to events to requests to findings to a report."""
