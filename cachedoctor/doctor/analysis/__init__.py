"""From bytes to a report: inputs, servers, sessions, requests, sums."""

from __future__ import annotations
