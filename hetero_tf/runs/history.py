"""Reads run folders, finished or running, and groups runs that differ only in their seed."""

import functools
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeGuard

from hetero_tf.base import files, typed_json
from hetero_tf.base.constraints import Range
from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.typed_json import from_json
from hetero_tf.recipe import Recipe, keys_of, load
from hetero_tf.recipe.nodes import format_value
from hetero_tf.recipe.recipe_files import shipped
from hetero_tf.runs import environment, facts, metrics_file
from hetero_tf.runs.early_stopping import is_stopped_early
from hetero_tf.runs.run_folder import RunFolder

LARGEST = 1e100
MOST_READS = 10**6
Number = int | float
Work = Annotated[float, Range(low=0, high=1e30)]
# Floats cannot represent larger integers exactly.
LAST_ROUND = 2**53


def is_number(value: object) -> TypeGuard[float]:
    """Return True if a value of a JSON file is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST


@dataclass(frozen=True)
class LevelCost:
    """Costs of a level: of its sub-model, of a forward pass of one example, and of one client and round."""

    width: Number
    parameters: Number
    paper_flops: Number
    multiply_adds: Number
    bytes_down: Number
    bytes_up: Number
    training_bytes: Number


@dataclass(frozen=True)
class MixCost:
    """Means over the clients.

    Attributes:
        ratio: Ratio of the mean number of parameters to that of the global model.
        budget_share: The largest memory of a level as a share of its budget; None without budgets.
    """

    parameters: Number
    paper_flops: Number
    multiply_adds: Number
    ratio: Number
    budget_share: Number | None = None


@dataclass(frozen=True)
class _LevelWork:
    """Work of a client of a level in a round; of one network that an ensemble's client trains.

    Attributes:
        bytes_down, bytes_up: Bytes of weights.
        train_flops: Operations of training on one example in each stage.
    """

    bytes_down: Work
    bytes_up: Work
    train_flops: tuple[Work, ...]


@dataclass(frozen=True)
class RoundWork:
    """Work of a client in a round.

    Attributes:
        levels: The levels of the mix.
        reads: Number of times that an epoch reads each batch: the segments of a row of text, else 1.
        draws_stages: Each step draws its stage at random.
    """

    levels: dict[str, _LevelWork]
    reads: Annotated[int, Range(low=1, high=MOST_READS)]
    draws_stages: bool

    def __post_init__(self):
        if not all(level.train_flops for level in self.levels.values()):
            raise ValueError("each level must have a stage")


@dataclass(frozen=True)
class _RecipeKeys:
    name: str
    seed: int
    rounds: int
    mix: dict[str, Annotated[float, Range(above=0)]]

    def __post_init__(self):
        if not self.mix:
            raise ValueError("levels.mix is missing")


@dataclass(frozen=True)
class RunCosts:
    """Costs of a run, as `describe` reports them."""

    levels: dict[str, LevelCost]
    mix: MixCost
    round: RoundWork


# Runs with more differences are named by their folders.
MOST_DIFFERENCES = 3
MIX = "levels.mix"
# Keys of the plug-ins that define a method, and other keys that tell one shipped method from another.
METHOD_KEYS = (
    *("round.submodel", "round.mask", "round.server", "client.stages", "client.loss"),
    *("client.coupling", "client.correction", "client.personalization", "client.update"),
)
NAMING_KEYS = ("round.merge", "round.by_level", "levels.idle", "client.stages.exit", "client.stages.peers")


@dataclass(frozen=True)
class Run:
    """One run folder.

    Attributes:
        mix: `{level: share}`, in the units of the recipe; the first level is the global model's.
        keys: `{dotted key: value}` of the resolved recipe; the mix is one text under "levels.mix". If a fallback
            replaced the data, "data.stand_in_for" names them.
        costs: Costs of a client of each level; None if the file is missing.
        timeline: First rounds on the fleet, as `metrics_file.timeline_row` returns them; empty without a fleet.
    """

    folder: str
    name: str
    seed: int
    rounds: int
    mix: dict[str, float]
    keys: dict[str, object]
    rows: list[dict]
    timings: list[dict]
    costs: RunCosts | None
    timeline: list[dict]

    @property
    def done(self) -> int:
        """The last finished round."""
        return self.rows[-1]["round"]

    @property
    def is_finished(self) -> bool:
        """True if all rounds are done, or early stopping ended the run."""
        return self.done >= self.rounds or is_stopped_early(self.keys, self.rows)


def gather(folders: Iterable[str | Path]) -> tuple[list[Run], list[str]]:
    """Read the runs in some folders; a folder that contains run folders represents all of them.

    Returns:
        The runs that have finished a round, and a message for each run that is omitted or unfinished.
    """
    runs, messages = [], []
    for folder in dict.fromkeys(path for parent in folders for path in _within(Path(parent))):
        if (run := read(folder)) is None or len(run.rows) < run.done:
            missing = "finished round yet" if run is None else f"metrics of {run.done - len(run.rows)} of its rounds"
            messages.append(f"left out: {folder}, it has no {missing}")
            continue
        runs.append(run)
        if not run.is_finished:
            messages.append(f"not finished: {folder}, {run.done} of {run.rounds} rounds")
    if not runs:
        raise InputError(f"no run remains. Received: {'; '.join(messages)}")
    return runs, messages


def _within(folder: Path) -> list[Path]:
    """The run folders that a folder represents: itself, or its subfolders."""
    if RunFolder(folder).started or not os.path.isdir(folder):
        return [folder]
    with files.disk_errors(folder, "list"):
        inside = sorted(folder / name for name in os.listdir(folder))
    return [path for path in inside if RunFolder(path).started] or [folder]


def read(folder: str | Path) -> Run | None:
    """Read the run in a folder; None if it has not finished a round.

    A recipe with plug-in modules is read as the run wrote it, without importing them.
    """
    run = RunFolder(Path(folder))
    try:
        text = facts.load_recipe(run).source
    except InputError:
        if not environment.missing_plugins(run.environment):
            raise
        text = run.read_recipe()
    rows = _rows(run.metrics)
    if not rows:
        return None
    keys, mix = checked_keys(text, run.recipe)
    keys[MIX] = mix_text(mix)
    if keys.get("data.fallback") and run.data.exists():
        stand_in_for = typed_json.read(dict[str, Any], run.data).get("stand_in_for")
        keys |= {"data.stand_in_for": stand_in_for} if stand_in_for else {}
    timings = _rows(run.timings)
    name, seed, rounds = (keys[key] for key in ("name", "seed", "rounds"))
    advice = "; delete the file, and run the training command again to restore it"
    costs = typed_json.read(RunCosts, run.costs, advice) if run.costs.exists() else None
    return Run(str(folder), name, seed, rounds, mix, keys, rows, timings, costs, metrics_file.rows(run.timeline))


def recipe_keys(recipe: Recipe | str, name: str) -> tuple[dict[str, Any], dict[str, float]]:
    """Return `{dotted key: value}` of a resolved recipe without its mix, and the mix: `{level: share}`."""
    keys = keys_of(recipe, name)
    return keys, {key.removeprefix(f"{MIX}."): keys.pop(key) for key in list(keys) if key.startswith(f"{MIX}.")}


def keys_of_recipe(recipe: Recipe | str) -> dict[str, Any]:
    """Return `Run.keys` of a recipe, or of its resolved text."""
    keys, mix = recipe_keys(recipe, "recipe")
    return keys | {MIX: mix_text(mix)}


def hyperparameters(keys: dict[str, object]) -> dict[str, bool | float | str]:
    """Return the keys of a recipe that trackers compare: all but the layers of the model, as numbers or text."""
    return {
        key: value if isinstance(value, bool | int | float) else shown(value)
        for key, value in keys.items()
        if not key.startswith("model.layers")
    }


def method_parts(keys: dict[str, Any], parts: Sequence[str] = METHOD_KEYS) -> dict[str, Any]:
    """Return the plug-in of each part of a method, or its value, by the last word of the key."""
    return {key.rpartition(".")[2]: keys.get(f"{key}.name", keys.get(key)) for key in parts}


def method_name(keys: dict[str, Any]) -> str:
    """Return the shipped method with the parts of a recipe, such as "FedRolex"; without one, the name of the recipe."""
    parts, methods = _naming_parts(keys), _shipped_methods()
    titles = {name: title for name, (title, others) in methods.items() if others == parts}
    # Recipes of some methods have equal parts.
    return titles.get(keys["name"], next(iter(titles.values()), keys["name"]))


@functools.cache
def _shipped_methods():
    """Return `{name: (title, parts)}` of the recipes of methods; a title begins the first comment of a recipe."""
    files_by_name = {name: path for name, path in shipped().items() if name.startswith("methods/")}
    titles = {name: path.read_text("utf-8").partition("\n")[0].strip("# .") for name, path in files_by_name.items()}
    parts = {name: _naming_parts(keys_of_recipe(load(name))) for name in titles}
    return {name.partition("/")[2]: (title.partition(":")[0], parts[name]) for name, title in titles.items()}


def _naming_parts(keys):
    """Return the parts of a recipe that name its method; the loss does not, since it follows the task."""
    parts = {**method_parts(keys, (*METHOD_KEYS, *NAMING_KEYS)), "loss": None}
    personal = [*keys["round.personal"], ""][0]
    parts["personal values"] = personal if personal in ("", "all", "head", "norms") else "of units"
    parts["privacy"] = any(value is not None for key, value in keys.items() if key.startswith("privacy"))
    levels = [part.rstrip(".0123456789") for part in str(keys[MIX]).split("-")]
    for name in ("widths", "depths", "members", "entries"):
        parts[f"unequal {name}"] = len({keys.get(f"levels.{name}.{level}") for level in levels}) > 1
    return parts


def _rows(path):
    rows = metrics_file.rows(path)
    invalid_round = next((row["round"] for row in rows if not 0 < row["round"] < LAST_ROUND), None)
    if invalid_round is not None:
        raise InputError(
            f"{path}: a round must be from 1 to {LAST_ROUND - 1}. Received: round={shorten_repr(invalid_round, 30)}"
        )
    return rows


def checked_keys(text: str, path: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """Return `recipe_keys` of a resolved text, such as one with plug-in modules that are not registered."""
    keys, mix = recipe_keys(text, str(path))
    from_json(_RecipeKeys, {**keys, "mix": mix}, path)
    return keys, mix


def mix_text(mix: dict[str, float]) -> str:
    """Format a mix in the short form of recipes: "a-e" if all shares are equal, else "a1-e9"."""
    equal = len(set(mix.values())) == 1
    return "-".join(level if equal else f"{level}{share:g}" for level, share in mix.items())


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs that differ only in their seed: `{name: [Run]}`, in the order of `runs`."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        same = groups.setdefault(repr(sorted((key, value) for key, value in run.keys.items() if key != "seed")), [])
        for other in same:
            if other.seed == run.seed:
                raise InputError(
                    f"{run.folder} and {other.folder} are the same recipe with the same seed, so their "
                    f"spread would be meaningless; name only one of them. Received: seed={run.seed}"
                )
        same.append(run)
    return dict(zip(distinct_names([group[0] for group in groups.values()]), groups.values()))


def distinct_names(runs: Sequence[Run], without: Collection[str] = ("name", "seed")) -> list[str]:
    """Return a distinct name for each run: the recipe's name, with the differing keys if several runs have that name.

    Args:
        runs: One run of each recipe.
        without: Keys to ignore.
    """
    names = []
    for run in runs:
        alike = [other for other in runs if other.name == run.name]
        by_key = differing_values(alike, without)
        plugins = [values for key, values in by_key.items() if key.endswith(".name")]
        # The rounds, for instance, often differ only with the plug-in of one kind.
        implied = {
            key
            for key, values in by_key.items()
            if not key.endswith(".name") and any(_decides(names_of_plugins, values) for names_of_plugins in plugins)
        }
        description = differences(alike, {*without, *implied})[alike.index(run)]
        names.append(f"{run.name} ({description})" if description else run.name)
    return [name if names.count(name) == 1 else run.folder for name, run in zip(names, runs)]


def differences(runs: Sequence[Run], without: Collection[str]) -> list[str]:
    """Describe the differences of each run from the others: "client.epochs=2, partition=iid, mix=a-e".

    Args:
        runs: One run of each recipe.
        without: Keys to ignore.

    Returns:
        A text for each run; "" for all if no key or more than `MOST_DIFFERENCES` keys differ.
    """
    by_key = differing_values(runs, without)
    if len(by_key) > MOST_DIFFERENCES:
        return ["" for _ in runs]
    return [
        ", ".join(
            f"{'mix' if key == MIX else key.removesuffix('.name')}={values[number]}"
            for key, values in by_key.items()
            if values[number] is not None
        )
        for number in range(len(runs))
    ]


def differing_values(runs: Sequence[Run], without: Collection[str]) -> dict[str, list[str | None]]:
    """Return the keys in which runs differ, without those that the name of a plug-in implies.

    Returns:
        `{key: text of each run}`, None for a run that lacks the key.
    """
    recipes = _with_null_parts(runs)
    keys = dict.fromkeys(key for recipe in recipes for key in recipe if key not in without)
    texts = {key: [shown(recipe[key]) if key in recipe else None for recipe in recipes] for key in keys}
    differing = {key: values for key, values in texts.items() if len(set(values)) > 1}

    def is_option(key):
        """True if the plug-in that only some runs have decides the value of its option."""
        parts = (part for part in differing if part != key and key.startswith(f"{part.removesuffix('.name')}."))
        return None in differing[key] and any(_decides(differing[part], differing[key]) for part in parts)

    return {key: values for key, values in differing.items() if not is_option(key)}


def _decides(plugins, values):
    """True if runs with the same plug-in have the same value."""
    return len(set(zip(plugins, values))) == len(set(plugins))


def _with_null_parts(runs):
    """Return the keys of each run, with a common key for each part that is null in some runs and present in others.

    The key is the name of a plug-in, such as `client.update.name`, or `fleet` with the names of the devices as value.
    """
    recipes = [dict(run.keys) for run in runs]
    for part in dict.fromkeys(key for recipe in recipes for key, value in recipe.items() if value is None):
        for recipe in recipes:
            inside = [key.removeprefix(f"{part}.") for key in recipe if key.startswith(f"{part}.")]
            if inside and "name" not in inside:
                devices = [key.split(".")[1] for key in inside if key.startswith("devices.")]
                recipe[part] = "-".join(dict.fromkeys(devices or inside))
        if any(f"{part}.name" in recipe for recipe in recipes):
            for recipe in (recipe for recipe in recipes if part in recipe):
                recipe[f"{part}.name"] = recipe.pop(part)
    return recipes


def shown(value: object) -> str:
    """Format a value as in a recipe, strings without quotes."""
    return value if isinstance(value, str) else format_value(value)
