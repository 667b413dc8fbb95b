"""Finding and reading recipe files: a path, or the bare name of a recipe that comes with the program."""

import os
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.files import decode, read_bytes

LARGEST_FILE = 256 * 1024
_HERE = Path(__file__).parents[1]
# The folder of sweeps among the recipes.
SWEEPS = "sweeps"
SHIPPED = (_HERE.parent / "recipes", _HERE / "recipes")


@dataclass(frozen=True)
class Source:
    """The text of a recipe file, the name to show for it, and where it lies."""

    text: str
    name: str
    path: Path


def shipped() -> dict[str, Path]:
    """Returns the recipes that come with the program: `{"mnist": file, "tiny/mnist": file, ...}`."""
    return {name: file for name, file in _files().items() if not name.startswith(f"{SWEEPS}/")}


def sweeps() -> dict[str, Path]:
    """Returns the sweeps that come with the program: `{"heterofl_table7": file, ...}`."""
    return {name.partition("/")[2]: file for name, file in _files().items() if name.startswith(f"{SWEEPS}/")}


def _files():
    folder = next((folder for folder in SHIPPED if folder.is_dir()), SHIPPED[0])
    files = sorted(folder.rglob("*.yaml"))
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in files}


def read(path: str | Path) -> Source:
    """Reads a recipe that a person names.

    Args:
        path: A file, or a shipped recipe by name: `mnist`, `mnist.yaml` or `recipes/mnist.yaml`.

    Raises:
        InputError: No such file, not a file, too large, or not UTF-8 text.
    """
    shown, file = str(path)[:200], Path(path)
    known = shipped()
    name = shown.removeprefix("recipes/").removesuffix(".yaml")
    if name in known and not file.is_file():
        shown, file = f"recipes/{name}.yaml", known[name]
    return read_file(file, shown)


def read_file(file: Path, shown: str) -> Source:
    """Reads a recipe file; `shown` stands for it in refusals. See `read`."""
    if not os.path.exists(file):
        name = shown.removeprefix("recipes/").removesuffix(".yaml")
        raise InputError(f"{shown}: no such recipe{did_you_mean(name, shipped())}")
    return Source(decode(read_bytes(file, LARGEST_FILE, follow=True), shown), shown, file)
