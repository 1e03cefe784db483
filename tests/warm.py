"""A warm process that forks a child for every command it is sent. Run by tests/forks.py; knows no test and no command.

The child is what ``python -m cachedoctor`` is after its imports: streams, environment, folder, arguments, signals and
the end are those of a process of its own, but that most children give no memory back.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any

HEADER = struct.Struct("!I")
"""Bytes of a request, which is JSON."""
TOLD = struct.Struct("!i")
"""The process id of a child; later its status, as ``subprocess`` gives it."""


LATER = ("jinja2", "tomllib")
"""What commands import while they run. Polars starts threads when it is imported:
that stays with the commands that need it."""


READ = ("cases/separate-prompts-b11549/server.log", "measured/sglang-busy.log", "vllm/vllm032_dense_short.log")
"""Logs that are read before any command: what finds their lines is compiled then, and not in every child."""


def warm() -> None:
    """Import all modules (none starts a thread, which a fork would lose) and compile what most logs need."""
    sys.path.insert(0, os.getcwd())  # as -m does; -P kept the folder of this file away, whose modules have any name
    import cachedoctor

    for name in LATER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for module in pkgutil.walk_packages(cachedoctor.__path__, "cachedoctor."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    from cachedoctor.engines.llamacpp.tracker import catalogue
    from cachedoctor.redaction import secrets

    for row in catalogue().rows:
        row.prepare()
    for context in secrets.CONTEXTS:
        secrets.place(context)
    for credential in secrets.CREDENTIALS:
        secrets.shape(credential)
    from cachedoctor.report.base import Appearance, write

    for log in READ:
        report = cachedoctor.analyze(f"fixtures/{log}")
        write("text", report, io.BytesIO(), Appearance())
    write("html", report, io.BytesIO(), Appearance())
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page


def next_request(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next request and its files: three streams and the socket that hears of the child."""
    head, files, _, _ = socket.recv_fds(requests, HEADER.size, 4)
    if not head:
        return None
    size, body = HEADER.unpack(head)[0], b""
    while len(body) < size:
        body += requests.recv(size - len(body))
    return json.loads(body), files


def stream(fd: int) -> io.TextIOWrapper:
    """A standard stream as the interpreter makes it."""
    was = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[fd]
    buffer = open(fd, "wb" if fd else "rb", closefd=False)  # noqa: SIM115  # open as long as the process
    buffer.raw.name = was.name
    lines = fd == 2 or os.isatty(fd)
    made = io.TextIOWrapper(buffer, was.encoding, was.errors, newline="\n", line_buffering=lines)
    made.mode = was.mode
    return made


def become(request: dict[str, Any], files: list[int]) -> None:
    """Take on what a process of its own is given."""
    for fd, file in enumerate(files[:3]):
        os.dup2(file, fd)
    for file in files:
        os.close(file)
    os.chdir(request["folder"])
    sys.path[0] = os.getcwd()
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = stream(0), stream(1), stream(2)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.argv = ["cachedoctor", *request["args"]]  # runpy puts the path of the module first


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for every request: returns in each child, with its request; and at the end, with none."""
    running: dict[int, int] = {}

    def reap(*_: object) -> None:
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                told = running.pop(pid)
                tell(told, os.waitstatus_to_exitcode(status))
                os.close(told)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends pytest, and its end is ours
    signal.signal(signal.SIGCHLD, reap)
    while (found := next_request(requests)) is not None:
        request, files = found
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if not pid:
            requests.close()
            for told in running.values():
                os.close(told)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, before)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            become(request, files)
            return request
        for file in files[:3]:
            os.close(file)
        running[pid] = files[3]
        tell(files[3], pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    return None


def tell(to: int, number: int) -> None:
    """Say a number to who asked for the child, if that is still there."""
    with contextlib.suppress(OSError):
        os.write(to, TOLD.pack(number))


def run(whole: bool) -> None:
    """Run the command; ``whole``: its end takes down every module, too.

    That is three quarters of what a short command costs: each page of the memory that it shares is copied for it.
    """
    try:
        runpy.run_module("cachedoctor", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if whole or not isinstance(end.code, int):
            raise
        threading._shutdown()
        atexit._run_exitfuncs()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            raise end from None  # what the interpreter says to that is part of the end
        os._exit(end.code & 0xFF)


if __name__ == "__main__":
    warm()
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        run(request["whole"])
