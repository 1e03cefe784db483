"""``cachedoctor exporter``: counters for Prometheus over all logs of a host."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cachedoctor.broken_pipes import pipes_may_break
from cachedoctor.cli import settings, terminal
from cachedoctor.cli.common_options import AllowHost, Gate, Quiet, allowed_hosts, option
from cachedoctor.cli.ending import INTERRUPTED, Interrupts

if TYPE_CHECKING:
    from cachedoctor.live.exporter.followed_log import SavedState
    from cachedoctor.live.exporter.many_logs import ManyLogs
    from cachedoctor.live.named_hosts import NamedHosts
    from cachedoctor.model import AnalysisOptions

PORT = 19931
"""Above 9100 to 9999, which the list of exporters assigns, and below the system's ephemeral ports."""
_POLL = 0.25
"""Seconds between two checks of silent logs."""
_SHOW = 1.0
"""Seconds between two updates of what is shown."""
_SAVE = 15.0
"""Seconds between two writings of the state."""


def exporter(
    ctx: typer.Context,
    logs: Annotated[
        list[str] | None,
        typer.Argument(metavar="LOG", help="Server logs, or folders of logs; rotated logs are followed automatically."),
    ] = None,
    follow: Annotated[
        list[str] | None, option("--follow", "Folder of logs, or /var/log/pods; new logs are added; repeatable.", "DIR")
    ] = None,
    listen: Annotated[str, option("--listen", "Address to serve /metrics at.", "HOST:PORT")] = f"127.0.0.1:{PORT}",
    allow_host: AllowHost = None,
    state: Annotated[
        str | None,
        option(
            "--state",
            "State file that keeps the counters across restarts.  [default: "
            "~/.local/state/cachedoctor/exporter-PORT.json]",
            "FILE",
        ),
    ] = None,
    label_values: Annotated[
        int, option("--label-values", "Maximum number of values per label; further values become 'other'.", "N", min=1)
    ] = 100,
    *,
    gate: Gate,
    quiet: Quiet = False,
) -> None:
    """Serve Prometheus counters: prompt tokens by outcome, cause and client, until Ctrl-C or SIGTERM.

    The command needs the pip extra exporter (prometheus-client). An unreadable log is reported once and retried; the
    other logs continue.

    Exit status: 0 stopped; 2 wrong usage, an unusable address, or a state file that is invalid or belongs to
    another exporter; 130 interrupted again during shutdown (the saved state may be up to 15 seconds old).
    """
    chosen = settings.resolve(ctx, gate)
    if not quiet:
        chosen.announce()
    if not logs and not follow:
        ctx.fail("give logs, or --follow DIR")
    if "-" in (logs or []):
        ctx.fail("the exporter reads files: let the server write to one (systemd: StandardOutput=append:FILE)")
    _require_library()
    from cachedoctor.live.named_hosts import NamedHosts

    host, port = _address(listen)
    hosts = NamedHosts(host, allowed_hosts(allow_host))
    target = state or _default_state(port)
    # those who read the page may go away while it is written
    with Interrupts() as interrupts, pipes_may_break(), _held(target, is_ours=state is None):
        many = _many(logs or [], follow or [], label_values, chosen.options, _read_state(target))
        try:
            end = _served(many, (host, port), hosts, quiet)
            try:
                with interrupts.deferred() as stop:
                    _run(many, _Saver(many, target, is_ours=state is None), stop)
            finally:
                end()
        except KeyboardInterrupt:  # the second one
            raise typer.Exit(INTERRUPTED) from None


def _require_library() -> None:
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        from cachedoctor.knowledge.libraries import install
        from cachedoctor.model import CacheDoctorError

        raise CacheDoctorError("exporter needs prometheus-client", install("exporter")) from None


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise typer.BadParameter(f"{listen!r} is not an address; give HOST:PORT, e.g. 127.0.0.1:{PORT}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _default_state(port: int) -> str:
    """Where the state is kept: systemd says so, or the user's folder for such files."""
    folder = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if not folder:
        home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        folder = os.path.join(home, "cachedoctor")
    return os.path.join(folder, f"exporter-{port}.json")


@contextlib.contextmanager
def _held(path: str, *, is_ours: bool) -> Iterator[None]:
    """Keep other exporters from a state file: each would write its own counters over those of the other.

    Where nothing can be written there is nothing to be kept; that is said when the state is saved.
    """
    from cachedoctor.doctor import scratch
    from cachedoctor.model import CacheDoctorError

    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):  # a pipe would be waited for, a device replaced
        raise CacheDoctorError(f"{path}: is not a file", "give another --state FILE")
    _read_state(path)  # nothing is put beside a file of another kind
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(OSError):
            if is_ours:
                os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            # Not the state file itself: every save puts another file in its place.
            lock = os.open(f"{target}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            closing.callback(os.close, lock)
            if scratch.HAS_LOCKS and not scratch.lock(lock):
                raise CacheDoctorError(
                    f"{path}: another exporter keeps its counters in this file",
                    "stop that exporter, or give another --state FILE",
                )
        yield


def _read_state(path: str) -> SavedState:
    """Return what the last run left, if there was one; raises ``CacheDoctorError`` where the file is another's."""
    from cachedoctor.live.exporter.followed_log import SavedState, decoded
    from cachedoctor.model import CacheDoctorError

    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return SavedState()
    except OSError as fault:
        raise CacheDoctorError(
            f"{path}: cannot be read ({fault.strerror})", "give another file with --state"
        ) from fault
    return decoded(path, content) if content else SavedState()


def _many(logs: list[str], folders: list[str], most: int, options: AnalysisOptions, saved: SavedState) -> ManyLogs:
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.live.exporter.log_places import Places
    from cachedoctor.live.exporter.many_logs import ManyLogs
    from cachedoctor.live.exporter.request_counts import LabelValues

    places = Places(logs, folders, terminal.complain)
    values = LabelValues(most, saved.labels)
    return ManyLogs(
        places, lambda listener: Analyzer(listener=listener, options=options), values, saved, terminal.complain
    )


def _served(many: ManyLogs, address: tuple[str, int], hosts: NamedHosts, quiet: bool) -> Callable[[], None]:
    from cachedoctor.live.exporter.scrape_server import MetricsPage, serve
    from cachedoctor.model import CacheDoctorError

    host, port = address
    try:
        port, end = serve(host, port, MetricsPage(lambda: many.shown), hosts)
    except OSError as fault:
        what = f"--listen {host}:{port}: cannot be used ({fault.strerror or fault})"
        raise CacheDoctorError(what, "give another address or port") from fault
    if not quiet:
        shown = f"[{host}]" if ":" in host else host
        terminal.complain(f"serving http://{shown}:{port}/metrics", kind="note")
    return end


def _run(many: ManyLogs, saver: _Saver, stop: Callable[[], bool]) -> None:
    shown = time.monotonic()
    while not stop():
        came = many.round()
        now = time.monotonic()
        if many.shown is None or now - shown >= _SHOW:
            many.show()
            shown = now
            saver.due(now)
        if not came:
            time.sleep(_POLL)
    saver.save()


class _Saver:
    """Writes the state, as a whole or not at all."""

    def __init__(self, many: ManyLogs, path: str, *, is_ours: bool) -> None:
        """``is_ours``: nobody named the file, so that its folder is made."""
        self._many = many
        self._path = os.path.realpath(path)
        self._is_ours = is_ours
        self._last = time.monotonic()
        self._content = b""
        self._failed = False

    def due(self, now: float) -> None:
        """Save from time to time."""
        if now - self._last >= _SAVE:
            self._last = now
            self.save()

    def save(self) -> None:
        """Write what changed; where that fails it is said once, and tried again."""
        from cachedoctor.live.exporter.followed_log import encoded

        content = encoded(self._many.state())
        if content == self._content:
            return
        try:
            self._write(content)
        except OSError as fault:
            if not self._failed:
                hint = "counters restart from 0 after a restart; choose another file with --state FILE"
                terminal.complain(f"{self._path}: cannot be written ({fault.strerror or fault})", hint, "warning")
            self._failed = True
        else:
            self._content, self._failed = content, False

    def _write(self, content: bytes) -> None:
        from cachedoctor.cli.new_file import NewFile

        if self._is_ours:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        new = NewFile(self._path, 0o600)  # it names models and addresses
        try:
            new.stream.write(content)
            new.stream.flush()
            os.fsync(new.stream.fileno())
            new.publish()
        finally:
            new.close()
