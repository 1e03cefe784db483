"""Runs llama.cpp's own server, out of the wheel ``xllamacpp``, with llama-server's own command line.

``python launch.py LOG OPTION...``: all that the C++ code prints goes to LOG. The options are read by llama.cpp's own
parser, so one that this build does not know ends the start as it would with llama-server. Ends when its standard input
ends: a parent that dies takes the server with it. Runs alone, needs only the wheel.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

log, options = sys.argv[1], sys.argv[2:]
out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
void = os.open(os.devnull, os.O_WRONLY)
os.dup2(void, 1)
os.dup2(void, 2)

import xllamacpp  # noqa: E402  # it prints while it is imported

HEADER = 16  # bytes of a Python object before its content: in this wheel's CommonParams that is the C++ struct itself
PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
library = ctypes.CDLL(str(next(Path(xllamacpp.__file__).parent.glob("*.so"))))
parse = getattr(library, PARSE)
parse.restype = ctypes.c_bool
parse.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]


def parsed(example: int, arguments: list[str]) -> xllamacpp.CommonParams | None:
    """Let llama.cpp read ``arguments`` for its program number ``example``; None when it refuses them."""
    params = xllamacpp.CommonParams()
    argv = (ctypes.c_char_p * (len(arguments) + 2))(b"llama-server", *[a.encode() for a in arguments], None)
    read = parse(len(arguments) + 1, ctypes.cast(argv, ctypes.c_void_p), id(params) + HEADER, example, None)
    return params if read else None


# The number that means llama-server differs between builds; only the server knows this option.
server = next(number for number in range(40) if parsed(number, ["--slot-save-path", "."]) is not None)
os.dup2(out, 1)
os.dup2(out, 2)
params = parsed(server, options)
if params is None:
    sys.exit(1)
running = xllamacpp.Server(params)
sys.stdin.read()
del running
main = library._Z15common_log_mainv
main.restype = ctypes.c_void_p
library._Z16common_log_flushP10common_log(ctypes.c_void_p(main()))
os._exit(0)  # the wheel's destructors at exit are not the subject
