"""Text as tokens: tokenizers of files and of a running server."""
