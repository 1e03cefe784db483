"""Answers ``cachedoctor lint``: whether request bodies only grow, and whether a chat template lets them."""
