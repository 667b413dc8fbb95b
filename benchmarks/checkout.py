"""Finds the checkout, and runs a script of this folder in the Python environment of `bin/hetero_tf`."""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("tensorflow", "keras", "numpy", "yaml", "absl")
# Sets $python like the commands in bin/, which create `.venv` if it is missing.
FIND = 'root=$1; shift; also=; . "$root/bin/environment.sh"; exec "$python" "$@"'


def enter() -> None:
    """Starts the program again in the installation's Python if this one lacks a library; puts the checkout first."""
    if not all(importlib.util.find_spec(name) for name in NEEDED) and "HETERO_TF_ENTERED" not in os.environ:
        os.environ["HETERO_TF_ENTERED"] = "1"
        os.execv("/bin/sh", ["/bin/sh", "-c", FIND, "sh", str(ROOT), *sys.orig_argv[1:]])
    os.environ.pop("HETERO_TF_ENTERED", None)
    sys.path.insert(0, str(ROOT))


enter()
