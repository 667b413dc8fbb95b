"""Finding and reading recipe files: a path, or the bare name of a recipe that comes with the program."""

import os
import stat
from pathlib import Path

from hetero_tf.base.errors import BadInput, did_you_mean

LARGEST_FILE = 256 * 1024
_HERE = Path(__file__).parents[1]
SHIPPED = (_HERE.parent / "recipes", _HERE / "recipes")


def shipped():
    """The recipes that come with the program: `{"mnist": file, "tiny/mnist": file, ...}`."""
    folder = next((folder for folder in SHIPPED if folder.is_dir()), None)
    files = sorted(folder.rglob("*.yaml")) if folder else []
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in files}


def read(path):
    """The text of a recipe and the file name to show for it.

    Args:
        path: A file, or a shipped recipe by name: `mnist`, `mnist.yaml` or `recipes/mnist.yaml`.

    Raises:
        BadInput: No such file, not a file, too large, or not UTF-8 text.
    """
    shown, file = str(path), Path(path)
    known = shipped()
    name = shown.removeprefix("recipes/").removesuffix(".yaml")
    if name in known and not file.is_file():
        shown, file = f"recipes/{name}.yaml", known[name]
    try:
        # Asked before opening: opening a pipe waits for a writer, and a device never ends.
        if not stat.S_ISREG(os.stat(file).st_mode):
            kind = "a folder" if file.is_dir() else "not an ordinary file"
            raise BadInput(f"{shown}: is {kind}; give a recipe file")
        with open(file, "rb") as opened:
            content = opened.read(LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{shown}: no such recipe{did_you_mean(name, known)}") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{shown[:200]!r}: cannot be read; {getattr(error, 'strerror', None) or error}") from None
    if len(content) > LARGEST_FILE:
        raise BadInput(f"{shown}: too large for a recipe; at most {LARGEST_FILE} bytes are allowed")
    return decode(content, shown), shown


def decode(content, shown):
    """Bytes as text; a UTF-8 byte order mark is dropped, other encodings are refused."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadInput(f"{shown}: is UTF-16 text; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{shown}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
