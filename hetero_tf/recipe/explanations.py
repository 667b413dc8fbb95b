"""Explains terms: output by the glossary, recipe keys by the schema, plug-ins by their documentation."""

import re
from collections.abc import Iterator

from hetero_tf.base import registry
from hetero_tf.base.constraints import Constraint, Option, Plugin, inline_plugin, walk_keys
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.files import decode, read_bytes
from hetero_tf.base.metrics import all_metrics
from hetero_tf.recipe.nodes import format_value
from hetero_tf.recipe.recipe_files import LARGEST_FILE, SHIPPED
from hetero_tf.recipe.schema import Recipe

# Number of active clients of each level, and the glossary entry for it.
LEVEL_COUNT, LEVEL_COUNTS_TERM = re.compile(r"[a-z]+[0-9]+"), "a3 b3 c4"
GLOSSARY_ROW = re.compile(r"^\| (.+?) \| (.+) \|$", re.MULTILINE)


def explain(word: str) -> list[str]:
    """Return all explanations of a term, one paragraph each.

    Args:
        word: A word of the output ("coverage", "global_accuracy", "level_accuracy_c", "a3"), the path of a recipe key
            or its last part ("levels.mix", "mix"), or the name of a plug-in or layer ("slimmable", "Scaler").

    Raises:
        InputError: The term is unknown.
    """
    term = word.strip().lower()
    metrics = (([name.lower()], f"{name}: {metric.meaning}") for name, metric in all_metrics().items())
    entries = [*_glossary_entries(), *metrics, *_key_entries(), *_plugin_entries()]
    explanations = [text for names, text in entries if any(_matches(term, name) for name in names)]
    if not explanations and all(map(LEVEL_COUNT.fullmatch, term.split() or [""])):
        explanations = [text for names, text in entries if LEVEL_COUNTS_TERM in names]
    if not explanations:
        hint = did_you_mean(term, sorted({name for names, _ in entries for name in names})) if len(term) > 2 else ""
        hint = "" if hint.startswith("; known") else hint
        raise InputError(f"unknown term {word!r}{hint}; see recipes/GLOSSARY.md for the terms of the output")
    return explanations


def allowed(constraint: Constraint) -> str:
    """Format the allowed values of an option: "one of uniform, samples"; the names of the registered plug-ins."""
    if not constraint.kind:
        return constraint.noun()
    return "one of " + ", ".join(registry.names(constraint.kind)) + (" or null" if constraint.optional else "")


def format_default(option: Option) -> str:
    """Format the default of an option as in a recipe, or "required"."""
    if option.required:
        return "required"
    value = option.default
    return value.name if isinstance(value, Plugin) else format_value(value).strip("'")


def _matches(term, name):
    """Match a term with a glossary name; metrics by level share one entry."""
    pattern = f"{name.removesuffix('level')}[a-z0-9]+"
    return term == name or name.endswith("_level") and re.fullmatch(pattern, term)


def _glossary_entries() -> Iterator[tuple[list[str], str]]:
    folder = next(folder for folder in SHIPPED if (folder / "GLOSSARY.md").is_file())
    text = decode(read_bytes(folder / "GLOSSARY.md", LARGEST_FILE, follow=True), "GLOSSARY.md")
    for terms, meaning in GLOSSARY_ROW.findall(text):
        unquoted = terms.replace("`", "")
        names = [part.strip().lower() for part in re.split(r", | \(|\)", unquoted) if part.strip()]
        yield names, f"{unquoted}: {meaning}"


def _key_entries() -> Iterator[tuple[list[str], str]]:
    for key, option, plugin in _plugin_keys():
        text = f"recipe key {key}: {option.doc}"
        yield [key.lower(), key.rpartition(".")[2]], text if plugin is None else f"{text} {_limits(plugin)}"


def _plugin_keys():
    """Yield each key, its option, and the one of its values: None for a section without a plug-in."""
    for path, option in walk_keys(Recipe):
        yield ".".join(path), option, inline_plugin(option.constraint.section) if option.is_section else option


def _limits(option):
    return f"({allowed(option.constraint)}; {'' if option.required else 'default '}{format_default(option)})"


def _plugin_entries() -> Iterator[tuple[list[str], str]]:
    keys = {plugin.constraint.kind: f" (key {key})" for key, _, plugin in _plugin_keys() if plugin}
    for kind in registry.KINDS:
        for name in registry.names(kind):
            lines = [f"{kind}: {name}: {registry.meaning(kind, name)}{keys.get(kind, '')}"]
            lines += [f"  {each.name}: {each.doc} {_limits(each)}" for each in registry.options(kind, name).values()]
            yield [name.lower()], "\n".join(lines)
