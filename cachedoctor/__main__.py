"""``cachedoctor`` and ``python -m cachedoctor``. Knows the command line only."""

from __future__ import annotations


def main() -> None:
    """Run the command line; Ctrl-C ends it silently wherever it strikes, while modules are imported as well."""
    try:
        from cachedoctor.cli import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
