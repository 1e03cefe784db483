"""For tests of clients with pytest: check that each request only extends the previous one.

    def test_my_agent(cache_engine):
        MyAgent(base_url=cache_engine.url).run("three turns")
        cache_engine.assert_cache_friendly()

pytest loads this file in every environment with cachedoctor, so other modules are imported on first use.
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
    """Fail the test if a request does not extend the previous one; arguments as for ``cachedoctor.lint``.

    Raises:
        AssertionError: with place, cost and fix of every error.
        CacheDoctorError: no two requests belong to one conversation, or an argument cannot be used.
    """
    __tracebackhide__ = True
    import cachedoctor

    found = cachedoctor.lint(bodies, tokenizer=tokenizer, template=template, server=server, build=build)
    if not found.append_only:
        pytest.fail(_said(found), pytrace=False)
    return found


class CacheEngine:
    """A fake engine, and the check of the requests that it received."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self.asked = False
        """True if the requests were checked."""

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
        """The request bodies, each with the path of its request."""
        return self._engine.bodies

    @property
    def replies(self) -> list[str | Mapping[str, Any]]:
        """Next replies: texts, or messages with ``tool_calls``."""
        return self._engine.replies

    def assert_cache_friendly(self, **options: Any) -> Lint:
        """Check the requests received until now; see ``assert_cache_friendly``."""
        __tracebackhide__ = True
        self.asked = True
        return assert_cache_friendly(self.bodies, **options)


@pytest.fixture
def cache_engine() -> Iterator[CacheEngine]:
    """An engine on loopback that keeps all requests; at the end of the test they are checked, if not checked before."""
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
