"""Reads run folders, finished or running, and gathers those that differ in their seed only."""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from hetero_tf.base import files
from hetero_tf.base.errors import InputError, short
from hetero_tf.base.files import Damaged
from hetero_tf.base.metrics import renamed
from hetero_tf.recipe import keys_of, loads
from hetero_tf.recipe.nodes import show
from hetero_tf.store import environment, metrics_file, plain_json
from hetero_tf.store.run_folder import RunFolder

LARGEST = 1e100


# Above it, floats no longer tell rounds apart.
LAST_ROUND = 2**53


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of a JSON file is a number that can be computed with."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST


# Of one level: its sub-model, one forward pass of one example, and one client and round.
OF_A_LEVEL = (
    "width",
    "parameters",
    "paper_flops",
    "multiply_adds",
    "megabytes",
    "bytes_down",
    "bytes_up",
    "training_bytes",
)


OF_THE_MIX = ("parameters", "paper_flops", "multiply_adds", "ratio")


@dataclass(frozen=True)
class Costs:
    """Numbers of `describe`.

    Attributes:
        levels: `{level: {each of OF_A_LEVEL}}`, the levels of the mix.
        mix: `{each of OF_THE_MIX}`: means over the clients, and the ratio of mean parameters to the global model's.
    """

    levels: dict[str, dict[str, float]]
    mix: dict[str, float]


def read_costs(path: Path) -> Costs | None:
    """Reads `costs.json`; None where there is none, since earlier versions did not keep it.

    Raises:
        Damaged: It does not hold what a run writes.
    """
    if not path.exists():
        return None
    told = plain_json.parse(files.read_bytes(path, plain_json.LIMIT), path)
    try:
        return Costs(
            {str(level): _numbers(cost, OF_A_LEVEL) for level, cost in told["levels"].items()},  # type: ignore[index]
            _numbers(told["mix"], OF_THE_MIX),  # type: ignore[index]
        )
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise Damaged(f"{path}: does not hold the costs of a run; delete it, and the same training adds it") from error


def _numbers(costs, names):
    found = {name: costs[name] for name in names}
    if not all(map(is_number, found.values())):
        raise ValueError("not a number")
    return found


# A name with more differences than these is told apart by its folder.
MOST_DIFFERENCES = 3


MIX = "levels.mix"


@dataclass(frozen=True)
class Run:
    """One run folder.

    Attributes:
        folder: Its path, as given.
        name: The recipe's.
        seed: The recipe's.
        rounds: How many it is to have.
        mix: `{level: share}`, in the recipe's own units; the first level is the global model's.
        keys: `{dotted key: value}` of the resolved recipe; the mix is one text under "levels.mix".
        rows: Its metrics, at least one.
        timings: How long its calls took; none of runs of earlier versions.
        costs: What a client of each level costs; None where the run has not kept it.
    """

    folder: str
    name: str
    seed: int
    rounds: int
    mix: dict[str, float]
    keys: dict[str, object]
    rows: list[dict]
    timings: list[dict]
    costs: Costs | None

    @property
    def done(self) -> int:
        """The last finished round."""
        return self.rows[-1]["round"]

    @property
    def shares(self) -> dict[str, float]:
        """`{level: share of the clients}`, adding up to 1."""
        total = sum(self.mix.values())
        return {level: share / total for level, share in self.mix.items()}


def gather(folders: Iterable[str | Path]) -> tuple[list[Run], list[str]]:
    """Reads the runs in some folders; a folder that holds run folders stands for all of them.

    Returns:
        The runs that have finished a round, and a sentence for each that is left out or not finished.

    Raises:
        InputError: A folder holds no run, a file of one is damaged, or no run has finished a round.
    """
    found, sentences = [], []
    for folder in dict.fromkeys(place for given in folders for place in _within(Path(given))):
        run = read(folder)
        if run is None:
            sentences.append(f"left out: {folder}, it has no finished round yet")
            continue
        found.append(run)
        if run.done < run.rounds:
            sentences.append(f"not finished: {folder}, {run.done} of {run.rounds} rounds")
    if not found:
        raise InputError(f"no run has finished a round yet. Received: {'; '.join(sentences)}")
    return found, sentences


def _within(folder: Path) -> list[Path]:
    """The run folders that a folder stands for: itself, or those right inside it."""
    if RunFolder(folder).started or not os.path.isdir(folder):
        return [folder]
    with files.disk(folder, "list"):
        inside = sorted(folder / name for name in os.listdir(folder))
    return [path for path in inside if RunFolder(path).started] or [folder]


def read(folder: str | Path) -> Run | None:
    """Reads the run in a folder; None if it has not finished a round.

    A recipe that names modules of a person's own is read as the run wrote it, without importing any of them.

    Raises:
        InputError: The folder holds no run, or a file of it is damaged.
    """
    place = RunFolder(Path(folder))
    text = place.read_recipe()
    try:
        text = loads(text, str(place.recipe)).source
    except InputError:
        if not environment.plugins(place.environment):
            raise
    rows = [renamed(row) for row in _rows(place.metrics)]
    if not rows:
        return None
    keys = keys_of(text, str(place.recipe))
    mix = {name.removeprefix(f"{MIX}."): keys.pop(name) for name in list(keys) if name.startswith(f"{MIX}.")}
    _check(place.recipe, keys, mix)
    keys[MIX] = mix_text(mix)
    timings = _rows(place.timings)
    name, seed, rounds = (keys[key] for key in ("name", "seed", "rounds"))
    return Run(str(folder), name, seed, rounds, mix, keys, rows, timings, read_costs(place.costs))


def _rows(path):
    """The rows of a file; refuses rounds that no run has."""
    rows = metrics_file.rows(path)
    wrong = next((row["round"] for row in rows if not 0 < row["round"] < LAST_ROUND), None)
    if wrong is not None:
        raise InputError(f"{path}: a round must be from 1 to {LAST_ROUND - 1}. Received: round={short(wrong, 30)}")
    return rows


def _check(path, keys, mix):
    """Refuses what no recipe has: one with modules of a person's own was not checked when it was read."""
    for name, kind in (("name", str), ("seed", int), ("rounds", int)):
        if type(keys.get(name)) is not kind:
            raise InputError(
                f"{path}: {name} must be {'text' if kind is str else 'a whole number'}. "
                f"Received: {name}={short(keys.get(name), 60)}"
            )
    if not mix or not all(is_number(share) and share > 0 for share in mix.values()):
        raise InputError(f"{path}: {MIX} must give each level a positive share. Received: {short(mix, 60)}")


def mix_text(mix: dict[str, float]) -> str:
    """Writes a mix as recipes may: "a-e" where all shares are equal, else "a1-e9"."""
    equal = len(set(mix.values())) == 1
    return "-".join(level if equal else f"{level}{share:g}" for level, share in mix.items())


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ in their seed only, as `{name: [Run]}` in the order given.

    Raises:
        InputError: Two of them have one seed, so that they are one run twice.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        same = groups.setdefault(repr(sorted((key, value) for key, value in run.keys.items() if key != "seed")), [])
        for other in same:
            if other.seed == run.seed:
                raise InputError(
                    f"{run.folder} and {other.folder} are the same recipe with the same seed, so their "
                    f"spread would say nothing; name one of them. Received: seed={run.seed}"
                )
        same.append(run)
    return dict(zip(told_apart([group[0] for group in groups.values()]), groups.values()))


def told_apart(runs: Sequence[Run], without: Collection[str] = ("name", "seed")) -> list[str]:
    """A name for each of some runs: the recipe's, with what differs behind it where several have that.

    Args:
        runs: One run of each recipe.
        without: Keys that are not to be named.
    """
    names = []
    for run in runs:
        alike = [other for other in runs if other.name == run.name]
        told = differences(alike, without)[alike.index(run)]
        names.append(f"{run.name} ({told})" if told else run.name)
    return [name if names.count(name) == 1 else run.folder for name, run in zip(names, runs)]


def differences(runs: Sequence[Run], without: Collection[str]) -> list[str]:
    """Says of each of some runs in what it differs from the others: "client.epochs=2, partition=iid, mix=a-e".

    Args:
        runs: One run of each recipe.
        without: Keys that are not to be named.

    Returns:
        A text for each; "" for all where more than `MOST_DIFFERENCES` keys differ, or none.
    """
    keys = dict.fromkeys(key for run in runs for key in run.keys if key not in without)
    differing = [key for key in keys if any(run.keys.get(key) != runs[0].keys.get(key) for run in runs)]
    # Options that only one of two plug-ins has follow from its name.
    own = {key for key in differing if not all(key in run.keys for run in runs) and _name_of(key) in differing}
    told = [key for key in differing if key not in own]
    if len(told) > MOST_DIFFERENCES:
        return ["" for _ in runs]
    return [", ".join(f"{_brief(key)}={shown(run.keys[key])}" for key in told if key in run.keys) for run in runs]


def _name_of(key):
    """The key that names the plug-in of which another key is an option: "partition.per_client" -> "partition.name"."""
    return f"{key.rpartition('.')[0]}.name"


def _brief(key):
    """A key as short as it can be understood: "partition.name" -> "partition", "levels.mix" -> "mix"."""
    return "mix" if key == MIX else key.removesuffix(".name")


def shown(value: object) -> str:
    """A value as a recipe may write it, texts without quotes."""
    return value if isinstance(value, str) else show(value)
