"""`upgrade`: rewrites recipes and sweeps with keys or values in an old spelling."""

import codecs
import os
import stat

from absl.flags import FlagValues

from hetero_tf.base import files
from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError, UserError
from hetero_tf.recipe.old_spellings import in_new_spelling
from hetero_tf.recipe.recipe_files import LARGEST_FILE

USAGE, SUMMARY = "upgrade FILE...", "replaces old spellings of keys and values in recipes and sweeps"
FLAGS, WORDS, SOURCE = ("rewrite",), "rewrite", None
_ANY_WRITE_PERMISSION = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def run(recipe: None, flags: FlagValues, console: Console) -> dict:
    """Rewrite each file in place and print its changes; a file with an error stays as it is.

    Returns:
        `{file: ["line: old -> new", ...]}`.

    Raises:
        UserError: A file could not be read or rewritten; the others are rewritten.
    """
    if not flags.rewrite:
        raise InputError("upgrade needs a file, such as mine.yaml")
    changes, problems = {}, []
    for file in flags.rewrite:
        try:
            changes[file] = _upgrade(file)
        except UserError as problem:
            problems.append(problem)
            continue
        for change in changes[file]:
            console.say(f"{file}:{change}")
        if not changes[file]:
            console.say(f"{file}: no old spelling; unchanged")
    if problems:
        raise type(problems[0])("\n".join(map(str, problems)))
    return changes


def _upgrade(file):
    """Rewrite one file, atomically, and return its changes."""
    content = files.read_bytes(file, LARGEST_FILE, follow=True)
    text, spellings = in_new_spelling(files.decode(content, file), file)
    if spellings:
        mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
        _replace(file, mark + text.encode())
    return [f"{spelling.line}: {spelling.before} -> {spelling.after}" for spelling in spellings]


def _replace(file, content):
    """Replace the content of a file, or of the target of a link, and keep its owner and permissions."""
    with files.disk_errors(file, "rewrite"):
        status = os.stat(file)
        # The administrator may write any file, so `access` alone would ignore that this one is read-only.
        if not (status.st_mode & _ANY_WRITE_PERMISSION and os.access(file, os.W_OK)):
            raise InputError(f"{file}: is read-only; make it writable, for example with chmod u+w")
    files.check_single_link(file)
    if os.geteuid() not in (0, status.st_uid):
        raise InputError(f"{file}: belongs to the user {status.st_uid}, who must upgrade it; or upgrade a copy")
    files.write_atomic(os.path.realpath(file), content)
