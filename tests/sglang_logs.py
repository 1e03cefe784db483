"""Lines as SGLang prints them, and what its tracker makes of a log."""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.doctor.analysis.servers import Servers
from cachedoctor.doctor.faults import Faults
from cachedoctor.model import BatchPeriod, PrefillBatch, Segment, Session
from cachedoctor.model.log_lines import LogFile

AT = "2026-07-04 04:31:24"


class Read(NamedTuple):
    """What came of a log."""

    sessions: list[Session]
    batches: list[PrefillBatch]

    @property
    def session(self) -> Session:
        """The only one."""
        (session,) = self.sessions
        return session

    @property
    def periods(self) -> list[BatchPeriod]:
        return [p for s in self.sessions for p in s.periods if isinstance(p, BatchPeriod)]

    @property
    def period(self) -> BatchPeriod:
        """The only one."""
        (period,) = self.periods
        return period


def fail(words: str) -> None:
    """Let a fault of our own end the test."""
    raise AssertionError(words)


def read(*lines: str, cut: int | None = None) -> Read:
    """Feed lines; ``cut``: in two pieces, the second from this line on (0-based)."""
    sessions: list[Session] = []
    batches: list[PrefillBatch] = []

    def new_session(path: str, origin: str | None) -> Session:
        sessions.append(Session(len(sessions), path, origin))
        return sessions[-1]

    servers = Servers(
        lambda *_: fail("no llama-server writes here"), new_session, lambda: 0, lambda _: None, batches.append,
        None, False, None, Faults(fail),
    )  # type: ignore[arg-type]  # SGLang has batches only  # fmt: skip
    servers.begin(LogFile("log", 0), False)
    for first, part in ((0, lines[:cut]), (cut or 0, lines[cut:] if cut else ())):
        if part:
            segment = Segment(None, "".join(line + "\n" for line in part).encode(), first + 1)
            servers.read([segment])
    return Read(sessions, batches)


def head(rank: str = "TP0") -> str:
    return f"[{AT} {rank}] " if rank else f"[{AT}] "


def prefill(new: int | str, cached: int | str = 0, seqs: int | str = 1, running: int | str = 0, queue: int | str = 0,
            rank: str = "TP0", usage: str = "token usage: 0.05", pending: int | None = None) -> str:  # fmt: skip
    """Up to 0.5.4, or from 0.5.11 on with ``pending``."""
    stop = "." if pending is None else ","
    tail = (
        ", " if pending is None else f", #pending-token: {pending}, cuda graph: False, input throughput (token/s): 9.00"
    )
    return (
        f"{head(rank)}Prefill batch{stop} #new-seq: {seqs}, #new-token: {new}, #cached-token: {cached}, {usage}, "
        f"#running-req: {running}, #queue-req: {queue}{tail}"
    )


def decode(usage: str = "#token: 9000, token usage: 0.05", rank: str = "TP0", stop: str = ".") -> str:
    """Up to 0.5.4, or newer with a comma for ``stop``."""
    return (
        f"{head(rank)}Decode batch{stop} #running-req: 1, {usage}, cuda graph: True, gen throughput (token/s): 9.00, "
        "#queue-req: 0, "
    )


def settings(**values: object) -> str:
    """``server_args=`` up to 0.5.18."""
    known: dict[str, object] = {"model_path": "Qwen/Qwen3-8B", "disable_radix_cache": False, "page_size": 1} | values
    return f"{head('')}server_args=ServerArgs({', '.join(f'{name}={value!r}' for name, value in known.items())})"


def capacity(tokens: int = 440215, chunk: int | None = 8192, rank: str = "TP0") -> str:
    return (
        f"{head(rank)}max_total_num_tokens={tokens}, chunked_prefill_size={chunk}, max_prefill_tokens=16384, "
        "max_running_requests=2048, context_len=40960, available_gpu_mem=7.32 GB"
    )


def ready() -> str:
    return f"{head('')}The server is fired up and ready to roll!"


def flushed(rank: str = "TP0") -> str:
    return f"{head(rank)}Cache flushed successfully!"


def tree(impl: str = "UnifiedRadixCache", ssm: bool = False, swa: bool = False, hicache: bool = False) -> str:
    return (
        f"{head()}Tree cache initialized: source=default impl={impl} hybrid_swa={swa} hybrid_ssm={ssm} "
        f"hicache_attached={hicache}"
    )


START = (settings(), capacity(), prefill(7), ready())
"""A start, with the request that warms the server up; lines 1 to 4."""
