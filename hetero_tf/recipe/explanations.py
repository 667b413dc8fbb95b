"""Explains a word: of the output by the glossary, of a recipe by its schema, a plug-in by its own documentation."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin, constraint_of, default_of, is_plugin, keys
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.files import decode, read_bytes
from hetero_tf.recipe.changes import PLUGINS
from hetero_tf.recipe.recipe_files import LARGEST_FILE, SHIPPED
from hetero_tf.recipe.schema import Recipe

# What other programs call some keys.
USUAL = {"lr": "learning_rate", "num_clients": "clients", "num_rounds": "rounds", "bs": "batch_size"}
# How many clients of a level are active, and the term of the glossary for them.
COUNT, COUNTS = re.compile(r"[a-z]+[0-9]+"), "a3 b3 c4"
ROW = re.compile(r"^\| (.+?) \| (.+) \|$", re.MULTILINE)


def explain(word: str) -> list[str]:
    """Returns everything that is known of a word, a paragraph each.

    Args:
        word: Of the output ("coverage", "global_accuracy", "level_accuracy_c", "a3"), the path of a key of recipes or
            its last part ("levels.mix", "mix"), or the name of a plug-in or layer ("slimmable", "Scaler").

    Raises:
        InputError: Nothing is.
    """
    wanted = word.strip().lower()
    entries = [*_glossary(), *_of_keys(Recipe, ""), *_of_plugins()]
    found = [text for names, text in entries if any(_matches(wanted, name) for name in names)]
    if not found and all(map(COUNT.fullmatch, wanted.split() or [""])):
        found = [text for names, text in entries if COUNTS in names]
    if not found:
        known = sorted({name for names, _ in entries for name in names})
        hint = did_you_mean(wanted, known) if len(wanted) > 2 else ""
        hint = "" if hint.startswith("; known") else hint
        raise InputError(f"no word {word!r} in output or recipes{hint}; recipes/GLOSSARY.md has those of the output")
    return found


def paths_of(word: str) -> list[str]:
    """Returns the paths of the keys of recipes that a word names: a path itself, the last part of one, or its usual
    short form, such as "lr". Of several with the same last part, those that lie least deep."""
    word = USUAL.get(word, word)
    own = [names[0] for names, _ in _of_keys(Recipe, "")]
    chosen = [
        f"{'.'.join(path)}.{option}"
        for path, field in PLUGINS.items()
        for option in dict.fromkeys(
            option
            for name in registry.names(field.metadata["kind"])
            for option in registry.options(field.metadata["kind"], name)
        )
    ]
    paths = [*own, *chosen]
    found = [path for path in paths if path.rpartition(".")[2] == word]
    least = min((path.count(".") for path in found), default=0)
    return [word] if word in paths else [path for path in found if path.count(".") == least]


def _matches(wanted, name):
    """Metrics of levels have one entry for all of them."""
    if name.endswith("_level"):
        return wanted == name or re.fullmatch(f"{name.removesuffix('level')}[a-z0-9]+", wanted)
    return wanted == name


def _glossary() -> Iterator[tuple[list[str], str]]:
    folder = next(folder for folder in SHIPPED if (folder / "GLOSSARY.md").is_file())
    text = decode(read_bytes(folder / "GLOSSARY.md", LARGEST_FILE, follow=True), "GLOSSARY.md")
    for terms, meaning in ROW.findall(text):
        plain = terms.replace("`", "")
        yield [part.strip().lower() for part in re.split(r", | \(|\)", plain) if part.strip()], f"{plain}: {meaning}"


def _of_keys(section: type, path: str) -> Iterator[tuple[list[str], str]]:
    """Entries of the keys of a section and of those below it."""
    for name, field in keys(section).items():
        full = f"{path}{name}"
        below: Any = field.type if dataclasses.is_dataclass(field.type) and field.type is not Plugin else None
        yield [full, name], f"recipe key {full}: {field.metadata['doc']}{_limits(field, below)}"
        if below is not None:
            yield from _of_keys(below, f"{full}.")


def _limits(field, below):
    """What a key may hold and what it holds where a recipe leaves it out, as the end of a sentence."""
    if field.metadata["kind"] is not None:
        said = f"one of {', '.join(registry.names(field.metadata['kind']))}"
    elif below is not None:
        return ""
    else:
        said = "" if is_plugin(field) or field.type in (dict, tuple) else _allowed(constraint_of(field))
    default = "it must be given" if field.metadata["required"] else f"default {_told(default_of(field))}"
    return f" ({'; '.join(part for part in (said, default) if part)})"


def _allowed(constraint):
    return constraint.allowed().removeprefix("must be ")


def _told(value):
    if isinstance(value, Plugin):
        return value.name
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _of_plugins() -> Iterator[tuple[list[str], str]]:
    for kind in registry.KINDS:
        for name in registry.names(kind):
            lines = [f"{kind}: {name}: {registry.meaning(kind, name)}"]
            for option in registry.options(kind, name).values():
                default = "must be given" if option.required else f"default {_told(option.default)}"
                lines.append(f"  {option.name}: {option.doc} ({_allowed(option.constraint)}; {default})")
            yield [name.lower()], "\n".join(lines)
