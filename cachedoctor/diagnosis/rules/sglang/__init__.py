"""CD6xx: why SGLang's radix cache reused little."""
