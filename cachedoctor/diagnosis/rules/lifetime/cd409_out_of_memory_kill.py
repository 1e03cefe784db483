"""CD409: the system killed the server because memory ran out."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the line of the kernel, systemd or docker."""
    said = kit.stated(session, "killed")
    if said is None:
        return []
    by_code = b"code 137" in said.mark.text
    again = f" ({kit.n(said.count)} log lines)" if said.count > 1 else ""
    why = "Slots, checkpoints and the RAM prompt cache are lost when the process ends: the first prompt of every conversation is computed in full."
    if by_code:
        why += " Code 137 means that a signal ended the process at once. Usually memory ran out, or a container did not stop in time."
    why = _held(session) + why
    claim = "the server was killed (exit code 137), most likely because memory ran out"
    return [
        kit.finding(
            f"{claim if by_code else 'the system killed the server because memory ran out'}{again}",
            why,
            _remedies(session),
            evidence=[(said.mark, "the server is killed")],
            severity="error",
            confidence="medium" if by_code else "high",
            ruled_out=[]
            if by_code
            else [kit.RuledOut("server-restarted", "no user stopped it: the system killed it because memory ran out")],
        )
    ]


def _held(session: kit.Session) -> str:
    """What the RAM prompt cache is known to have held, and what was being copied to it; empty where no line shows it."""
    sizes, limit = session.sizes, session.setting("cache_ram_mib")
    within = f" (limit {kit.n(limit)} MiB)" if isinstance(limit, int) and limit > 0 else ""
    if sizes.saving is not None:
        held = sizes.ram or 0.0
        return (
            f"The process ended while a state of {advice.memory_size(sizes.saving)} was being copied to the RAM prompt cache, which held "
            f"{advice.memory_size(held)}{within}. Cache and copy together needed at least {advice.memory_size(held + sizes.saving)}. "
        )
    if not sizes.ram_most:
        return ""
    most = max(sizes.saving_most, sizes.ram_most)
    return f"The RAM prompt cache held {advice.memory_size(sizes.ram or 0.0)} at the last count{within} and peaked at {advice.memory_size(most)} or more. No line shows the memory of the whole process. "


def _remedies(session: kit.Session) -> list[kit.Remedy]:
    limit = session.setting("cache_ram_mib")
    name = (
        "LLAMA_ARG_CACHE_RAM in ollama's environment, which is passed on to its runners"
        if session.engine == "ollama"
        else "--cache-ram"
    )
    has = f" The limit is {kit.n(limit)} MiB now." if isinstance(limit, int) and limit > 0 else ""
    own = session.engine in ("llama.cpp", "ollama")
    ram = f"Lower the limit of the RAM prompt cache ({name}; 8,192 MiB by default): saving a prompt needs memory for a second copy.{has}"
    return [
        *([kit.Remedy(ram)] if own else []),
        kit.Remedy("Use a smaller model or quantisation, a smaller context, or fewer slots; or close other programs."),
        kit.Remedy(
            "If the container or systemd unit has its own limit (mem_limit, MemoryMax), check whether it was reached."
        ),
    ]


RULE = kit.session_rule(
    __name__, "The system killed the server because memory ran out", inspect, severity="error", on=("killed",)
)
