"""``cachedoctor`` and ``python -m cachedoctor``."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it silently wherever it strikes, while modules are imported as well."""
    # Modules and requests hold no cycles: looking for some at every turn costs a tenth of the time.
    gc.set_threshold(100_000, 20, 20)
    try:
        if sys.argv[1:] == ["--version"]:  # typer takes ten times as long as the rest
            from cachedoctor import __version__

            print(f"cachedoctor {__version__}")
            return
        from cachedoctor.cli import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        gc.freeze()  # else the interpreter looks for cycles in all of it three times before it ends


if __name__ == "__main__":
    main()
