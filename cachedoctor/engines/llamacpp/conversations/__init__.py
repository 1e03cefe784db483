"""Which requests belong to one conversation: inferred from lengths, common prefixes, slots and RAM-cache restores."""
