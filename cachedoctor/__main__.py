"""``python -m cachedoctor``. Knows the command line only."""

from cachedoctor.cli import main

if __name__ == "__main__":
    main()
