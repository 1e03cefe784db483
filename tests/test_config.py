"""Files of settings: where they are searched for, what they may say, and the one line about what is wrong with them."""

from __future__ import annotations

import os

import msgspec
import pytest

from cachedoctor.cli import settings
from cachedoctor.model import THRESHOLDS, AnalysisOptions, CacheDoctorError


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def values(path):
    return {name: value.value for name, value in settings.read_file(path).items()}


def fault(path):
    with pytest.raises(CacheDoctorError) as caught:
        settings.read_file(path)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message + caught.value.hint
    return caught.value


def test_every_key_can_be_set(tmp_path):
    text = (
        'select = ["CD1", "log-too-terse"]\nignore = ["CD105"]\nformat = "json"\nfail-on = "note"\n'
        'color = "never"\nhide = ["Falcon", "EMP-####"]\nwarn-tokens = 5_000\nmin-prompt-tokens = 0\n'
    )
    said = {
        "select": ["CD1", "log-too-terse"], "ignore": ["CD105"], "format": "json", "fail-on": "note",
        "color": "never", "hide": ["Falcon", "EMP-####"], "warn-tokens": 5000, "min-prompt-tokens": 0,
    }  # fmt: skip
    assert values(write(tmp_path / "cachedoctor.toml", text)) == said
    assert values(write(tmp_path / "pyproject.toml", f"[tool.cachedoctor]\n{text}")) == said
    assert list(said) == list(settings.KEYS)


def test_every_default_would_be_taken_from_a_file():
    for key in settings.KEYS.values():
        assert msgspec.convert(key.default, key.type) == key.default
        assert key.reason
        assert key.wanted


def test_thresholds_are_the_options_of_the_rules():
    options = AnalysisOptions()
    for threshold in THRESHOLDS:
        assert getattr(options, threshold.name.replace("-", "_")) == threshold.default
        assert settings.KEYS[threshold.name].unit == threshold.unit == "tokens"


def test_the_place_of_a_value_is_its_line(tmp_path):
    path = write(
        tmp_path / "pyproject.toml",
        '[project]\nname = "x"\nselect = 1\n\n[tool.ruff]\nselect = ["E"]\n\n'
        '[tool.cachedoctor]\n# mine\nselect = ["CD1"]\n',
    )
    assert settings.read_file(path)["select"] == (["CD1"], "file", f"{path}:10")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("\nwarn-token = 1", ":2: warn-token: unknown key", "did you mean warn-tokens?"),
        ("fail_on = 'note'", ":1: fail_on: unknown key", "did you mean fail-on?"),
        ("zzz = 1", ":1: zzz: unknown key", "cachedoctor explain settings lists all keys"),
        ("warn-tokens = '5'", ":1: warn-tokens: Expected int, got str", "give a whole number of tokens, 0 or more"),
        ("warn-tokens = -1", ":1: warn-tokens: Expected int >= 0", "give a whole number of tokens, 0 or more"),
        ("warn-tokens = 1.5", ":1: warn-tokens: Expected int, got float", "give a whole number"),
        ("warn-tokens = true", ":1: warn-tokens: Expected int, got bool", "give a whole number"),
        ("ignore = 'CD1'", ":1: ignore: Expected array, got str", "give a list of codes"),
        ("ignore = ['CD1', 5]", ":1: ignore: Expected str, got int - at $[1]", "give a list of codes"),
        ("fail-on = 'bad'", ":1: fail-on: Invalid enum value 'bad'", "give one of never, note, warning, error"),
        ("[ignore]\nx = 1", ":1: ignore: Expected array, got object", "give a list of codes"),
        ("format = ", ": is not valid TOML: Invalid value", "--no-config"),
        ("x = " + "[" * 9999, ": is not valid TOML: ", "--no-config"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path, text, message, hint):
    path = write(tmp_path / "cachedoctor.toml", text)
    error = fault(path)
    assert error.message.startswith(f"{path}{message}")
    assert hint in error.hint


def test_a_file_that_cannot_be_read(tmp_path):
    assert fault(tmp_path / "none.toml").message == f"{tmp_path}/none.toml: cannot be read: No such file or directory"
    assert fault(tmp_path).message == f"{tmp_path}: cannot be read: Is a directory"
    path = tmp_path / "cachedoctor.toml"
    path.write_bytes(b" " * (1 << 20) + b"\n")
    assert "is larger than 1 MiB" in fault(path).message
    path.write_bytes(b"format = '\xff'")
    assert "is not valid TOML" in fault(path).message


@pytest.mark.parametrize("text", ["tool = 3", "tool.cachedoctor = 3"])
def test_a_project_without_a_table(tmp_path, text):
    error = fault(write(tmp_path / "pyproject.toml", f"{text}\n# cachedoctor"))
    assert "table" in error.message


def test_the_nearest_file_counts(tmp_path):
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    top = write(tmp_path / "cachedoctor.toml", "")
    assert settings.find(folder) == top
    project = write(tmp_path / "a" / "pyproject.toml", "[tool.cachedoctor]")
    assert settings.find(folder) == project
    beside = write(tmp_path / "a" / "cachedoctor.toml", "")
    assert settings.find(folder) == beside
    write(folder / "pyproject.toml", "[tool.ruff]\n# not of cachedoctor")
    write(folder.parent / "pyproject.toml", "this is [no TOML and not ours")
    (folder / ".git").mkdir()  # a repository is no end of the search
    assert settings.find(folder) == beside


def test_a_folder_of_that_name_is_not_a_file(tmp_path):
    write(tmp_path / "cachedoctor.toml", "")
    (tmp_path / "a" / "cachedoctor.toml").mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").mkdir()
    assert settings.find(tmp_path / "a") == tmp_path / "cachedoctor.toml"


def test_variables_of_the_environment():
    found = settings.read_environment(
        {"CACHEDOCTOR_IGNORE": "CD1, log-cut,", "CACHEDOCTOR_WARN_TOKENS": "50", "CACHEDOCTOR_FORMAT": "",
         "CACHEDOCTOR_FAIL_ON": "error", "CACHEDOCTOR_DEBUG": "1"}
    )  # fmt: skip
    assert found == {
        "ignore": (["CD1", "log-cut"], "environment", "CACHEDOCTOR_IGNORE"),
        "warn-tokens": (50, "environment", "CACHEDOCTOR_WARN_TOKENS"),
        "fail-on": ("error", "environment", "CACHEDOCTOR_FAIL_ON"),
    }
    with pytest.raises(CacheDoctorError) as caught:
        settings.read_environment({"CACHEDOCTOR_WARN_TOKENS": "many"})
    assert caught.value.message == "CACHEDOCTOR_WARN_TOKENS: Expected int, got str"


def test_what_no_reader_of_toml_takes_is_one_line(tmp_path):
    """Numbers without end, keys that take their square to read, what is not a file."""
    (tmp_path / "digits.toml").write_text("warn-tokens = " + "9" * 5000)
    (tmp_path / "dots.toml").write_text("a." * 100_000 + "b = 1")
    os.mkfifo(tmp_path / "pipe")
    for name, said in (
        ("digits.toml", "is not valid TOML"),
        ("dots.toml", "more than 100 dots"),
        ("pipe", "it is not a file"),
    ):
        with pytest.raises(CacheDoctorError, match=said):
            settings.read_file(tmp_path / name)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["cachedoctor.toml", "pyproject.toml"])
def test_a_byte_order_mark_is_not_a_fault(tmp_path, name, encoding):
    """Editors on Windows write one, and > of PowerShell."""
    head = "[tool.cachedoctor]\n" if name == "pyproject.toml" else ""
    (tmp_path / name).write_bytes(f"{head}fail-on = 'error'\n".encode(encoding))
    found = settings.find(tmp_path)
    assert found == tmp_path / name
    assert settings.read_file(found)["fail-on"].value == "error"
