"""For tests of clients, with pytest: do consecutive requests only extend each other?

    def test_my_agent(cache_engine):
        MyAgent(base_url=cache_engine.url).run("three turns")
        cache_engine.assert_cache_friendly()

pytest loads this file in every run of an environment that has cachedoctor: it imports nothing before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cachedoctor.doctor.linting.fake_engine import FakeEngine
    from cachedoctor.model import Lint

__all__ = ["CacheEngine", "assert_cache_friendly", "cache_engine"]


def assert_cache_friendly(
    bodies: Iterable[Mapping[str, Any]],
    *,
    tokenizer: str | None = None,
    template: str | None = None,
    server: str | None = None,
    build: int | None = None,
) -> Lint:
    """Fail the test where a request does not extend the one before it; arguments as for ``cachedoctor.lint``.

    Raises:
        AssertionError: with place, cost and fix of every error.
        CacheDoctorError: nothing can be said: no two requests are of one conversation, or an argument is not a good.
    """
    __tracebackhide__ = True
    import cachedoctor

    found = cachedoctor.lint(bodies, tokenizer=tokenizer, template=template, server=server, build=build)
    if not found.append_only:
        pytest.fail(_said(found), pytrace=False)
    return found


class CacheEngine:
    """A fake engine, and the question to what it was sent."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self.asked = False
        """The requests were judged."""

    @property
    def url(self) -> str:
        """Address for clients: ``http://127.0.0.1:PORT/v1``."""
        return self._engine.url

    @property
    def root(self) -> str:
        """The same without ``/v1``, for clients of the Anthropic API."""
        return self._engine.root

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What was posted, each with the path that it was posted to."""
        return self._engine.bodies

    @property
    def replies(self) -> list[str | Mapping[str, Any]]:
        """Replies to come: texts, or messages with ``tool_calls``."""
        return self._engine.replies

    def assert_cache_friendly(self, **options: Any) -> Lint:
        """Judge what was sent until now; see ``assert_cache_friendly``."""
        __tracebackhide__ = True
        self.asked = True
        return assert_cache_friendly(self.bodies, **options)


@pytest.fixture
def cache_engine() -> Iterator[CacheEngine]:
    """An engine on loopback that keeps what a client sends; it is judged at the end if it was not before."""
    from cachedoctor.doctor.linting.fake_engine import FakeEngine

    engine = FakeEngine()
    asked = CacheEngine(engine)
    try:
        yield asked
    finally:
        engine.close()
    if not asked.asked and asked.bodies:
        asked.assert_cache_friendly()


def _said(found: Lint) -> str:
    """The errors as text."""
    import io

    from cachedoctor.redaction import sanitize
    from cachedoctor.report.forms.lint_forms import render_text

    text = io.StringIO()
    render_text(sanitize.mask(found), text, 100)
    return f"requests are not cache-friendly\n{text.getvalue()}"
