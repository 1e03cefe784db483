"""Beside a running server: probe, proxy, exporter, recording of KV events."""
