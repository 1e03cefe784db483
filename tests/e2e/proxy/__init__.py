"""The fixes of the proxy before real servers: what a dry run promises, and what they then bring."""
