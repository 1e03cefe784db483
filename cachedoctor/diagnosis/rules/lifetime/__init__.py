"""CD4xx: context and lifetime."""
