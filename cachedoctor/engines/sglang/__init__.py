"""SGLang: its log has batches of several requests, and requests only where --log-requests is on."""
