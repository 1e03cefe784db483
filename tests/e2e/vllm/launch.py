"""Runs a command whose processes all end when standard input ends: a parent that dies takes the server with it.

``python launch.py LOG COMMAND...``: all that the command and its processes print goes to LOG. vLLM starts processes of
its own, which outlive it when it is killed; so it gets a group of its own, and the group is killed at the end.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress

LOOK_SECONDS, END_SECONDS = 0.2, 12

with open(sys.argv[1], "wb") as log:
    server = subprocess.Popen(
        sys.argv[2:], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
try:
    while server.poll() is None and not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
        pass
    server.terminate()
    with suppress(subprocess.TimeoutExpired):
        server.wait(END_SECONDS)
finally:
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
