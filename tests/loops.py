"""One test that asks about many: what costs less than a test of its own for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def each(names: str | tuple[str, ...], items: Iterable[Any], ids: Any = None) -> Callable[..., Callable[[], None]]:
    """Make one test of a check about every item, as ``pytest.mark.parametrize`` makes many; all that fail are named.

    Args:
        names: of the check's arguments; more than one: an item is a tuple of their values.
        items: what to ask about.
        ids: a function that names a value in a message; without one its repr does.
    """
    asked = list(items)
    assert asked, "nothing to ask about"

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            failed = []
            for item in asked:
                values = item if isinstance(names, tuple) else (item,)
                try:
                    check(**dict(zip(names if isinstance(names, tuple) else (names,), values, strict=True)))
                except Exception as error:
                    name = "-".join(map(ids or repr, values))
                    failed.append(f"{name[:300]}: {type(error).__name__} {error}")
            assert not failed, f"{len(failed)} of {len(asked)} fail:\n" + "\n".join(failed)

        test.__doc__, test.__module__ = check.__doc__, check.__module__
        return test

    return decorate
