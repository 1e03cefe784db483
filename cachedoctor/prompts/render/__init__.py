"""Request bodies as the text that a chat template makes of them."""
