# Sourced by the scripts beside it: makes .venv (a script may set VENV to another folder behind it) and installs what they need. Knows pip; knows no test and no log.
# Caller sets ROOT. Variable PYTHON names the interpreter (default: the first of python3, python3.14 ... that is 3.11 or newer).

VENV="$ROOT/.venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1

fits() { # a command that is Python 3.11 or newer
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        fits "$PYTHON" && { echo "$PYTHON"; return; }
        echo "PYTHON=$PYTHON is not Python 3.11 or newer" >&2
        return 1
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
        fits "$candidate" && { echo "$candidate"; return; }
    done
    echo "no Python 3.11 or newer found: install one, or name it: PYTHON=/path/to/python3.11 sh $0" >&2
    return 1
}

make_venv() { # a folder that was moved, or whose Python is gone, is made again
    if [ -x "$VENV/bin/python" ] && "$VENV/bin/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        return 0
    fi
    python=$(find_python) || return 1
    echo "making ${VENV##*/} with $("$python" --version) ..." >&2
    "$python" -m venv --clear "$VENV" || {
        echo "could not make a virtual environment (on Debian and Ubuntu: apt install python3-venv)" >&2
        return 1
    }
}

stamp() { # what an installation depends on
    echo "$ROOT"
    "$VENV/bin/python" --version
    cksum <"$ROOT/pyproject.toml"
}

pip_install() { # what pip says is shown only when it fails
    said=$(cd "$ROOT" && "$VENV/bin/python" -m pip install -q "$@" 2>&1) || {
        echo "$said" >&2
        return 1
    }
}

# ensure [GROUP]: the package (editable: the code may change without a new installation) and a dependency group
ensure() {
    make_venv || return 1
    mark="$VENV/.ready-${1:-package}"
    [ -f "$mark" ] && [ "$(cat "$mark")" = "$(stamp)" ] && return 0
    echo "installing cachedoctor${1:+ and the $1 tools} into ${VENV##*/} ..." >&2
    if [ -n "${1:-}" ]; then
        "$VENV/bin/python" -c 'import pip, sys; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (25, 1))' ||
            pip_install --upgrade 'pip>=25.1' || return 1
        pip_install -e . --group "$1" || return 1
    else
        pip_install -e . || return 1
    fi
    stamp >"$mark"
}
