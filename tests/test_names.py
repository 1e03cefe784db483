"""A module is found by its name: no two of one name, and no two of the classes that people look for."""

import re
from collections import defaultdict
from pathlib import Path, PurePosixPath

from cachedoctor.cli import make_app

PACKAGE = Path(__file__).parent.parent / "cachedoctor"
MODULES = [PurePosixPath(path.relative_to(PACKAGE).as_posix()) for path in sorted(PACKAGE.rglob("*.py"))]

EVERYWHERE = {"__init__", "__main__", "base"}
"""``base`` is what all modules of a folder are on."""
ENGINE_ROLES = {"facts", "fields", "meanings", "messages", "reader", "tracker", "versions", "vocabulary"}
"""What a package of an engine consists of: the same role has the same name in each of them."""
CLASSES = {"Found", "Key", "Prompts", "Reading", "Span"}
"""Names that several classes had, each of something else."""


def places(modules: list[PurePosixPath]) -> dict[str, list[str]]:
    """Modules of one name, unless the name is a role in each of their places."""
    found = defaultdict(list)
    for module in modules:
        if module.stem in EVERYWHERE or _is_role(module) or _is_command(module):
            continue
        found[module.stem].append(str(module))
    return {name: where for name, where in found.items() if len(where) > 1}


def _is_role(module: PurePosixPath) -> bool:
    return module.stem in ENGINE_ROLES and len(module.parts) == 3 and module.parts[0] == "engines"


def _is_command(module: PurePosixPath) -> bool:
    """Files of the command line are called like the commands; what answers a command may be called so, too."""
    return module.parts[0] == "cli" and module.stem in COMMANDS


COMMANDS = {command.name for command in make_app().registered_commands}
"""Files of the command line are called like these."""


def test_no_two_modules_have_one_name():
    assert places(MODULES) == {}


def test_a_second_module_of_a_name_is_found():
    more = [
        PurePosixPath(name) for name in ("report/text/tally.py", "report/tracker.py", "cli/tally.py", "doctor/base.py")
    ]
    assert places([*MODULES, *more]) == {
        "tally": ["doctor/compare/tally.py", "report/text/tally.py", "cli/tally.py"],
    }
    assert places([PurePosixPath("report/tracker.py"), PurePosixPath("doctor/tracker.py")]) != {}


def test_a_command_gives_its_file_a_name_that_another_may_have():
    assert {"analyze", "compare", "explain", "redact"} <= COMMANDS
    assert places([PurePosixPath("cli/compare.py"), PurePosixPath("doctor/compare/compare.py")]) == {}


def test_classes_that_were_called_alike_have_names_of_their_own():
    found = defaultdict(list)
    for module in MODULES:
        for name in re.findall(r"^class (\w+)", (PACKAGE / module).read_text("utf-8"), re.M):
            if name in CLASSES:
                found[name].append(str(module))
    assert {name: where for name, where in found.items() if len(where) > 1} == {}
