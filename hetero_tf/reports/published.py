"""Results reported by papers and ports, from published.yaml in this folder or from a user file.

A file is a list of tables. Each has a `name`, a `source` (paper and table), a short `setting`, the `recipe` keys that
a run must have (`{dotted key: value}`), and `rows`: a name, more keys in `recipe`, and values by metric name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.recipe.nodes import to_plain
from hetero_tf.recipe.reader import parse

SHIPPED = Path(__file__).with_name("published.yaml")
LARGEST_FILE = 2**20
TABLE_KEYS = {"name": str, "source": str, "setting": str, "recipe": dict, "rows": dict}


@dataclass(frozen=True)
class PublishedValue:
    """One number of a table.

    Attributes:
        name: "TABLE/ROW".
        metric: Name of the metric.
        value: Value in the unit of the metric.
        source: Paper and table.
        setting: Short description of the setting.
        recipe: `{dotted key: value}` that a matching run must have.
    """

    name: str
    metric: str
    value: float
    source: str
    setting: str
    recipe: dict

    def to_json(self) -> dict:
        """Return all fields except the recipe."""
        return {name: value for name, value in asdict(self).items() if name != "recipe"}


def read_published(path: Path = SHIPPED) -> list[PublishedValue]:
    """Read the values of a file.

    Raises:
        InputError: The file is invalid; the message names file and table.
    """
    text = files.decode(files.read_bytes(path, LARGEST_FILE, follow=True), path)
    tables = to_plain(parse(text, str(path)))
    if not isinstance(tables, list):
        raise InputError(f"{path}: must be a list of tables, like hetero_tf/reports/published.yaml")
    return [value for number, table in enumerate(tables, 1) for value in _values(f"{path}: table {number}", table)]


def _values(location, table):
    invalid = [
        name for name, kind in TABLE_KEYS.items() if not isinstance(table, dict) or type(table.get(name)) is not kind
    ]
    if invalid:
        raise InputError(f"{location}: must have {', '.join(TABLE_KEYS)}. Received: a missing or wrong {invalid[0]}")
    for row, cells in table["rows"].items():
        cells = dict(cells) if isinstance(cells, dict) else {}
        recipe = table["recipe"] | (cells.pop("recipe", None) or {})
        for metric, value in cells.items():
            if type(value) not in (int, float):
                raise InputError(f"{location}: {row}: {metric} must be a number. Received: {value!r}")
            yield PublishedValue(f"{table['name']}/{row}", metric, value, table["source"], table["setting"], recipe)


def select_published(names: Sequence[str]) -> tuple[list[PublishedValue], list[PublishedValue]]:
    """Return all known values, and the requested ones, which are always shown.

    Args:
        names: Requested tables or rows ("TABLE", "TABLE/ROW"), and .yaml files that add values to the shipped ones.

    Raises:
        InputError: A file is invalid, or a table or row does not exist.
    """
    values = [*read_published(), *_file_values(names)]
    requested = []
    for name in (name for name in names if not _is_file(name)):
        matches = [value for value in values if value.name == name or value.name.startswith(f"{name}/")]
        if not matches:
            known = {part for value in values for part in (value.name, value.name.partition("/")[0])}
            raise InputError(f"no published table or row has that name{did_you_mean(name, known)} Received: {name}")
        requested += matches
    return values, requested


def selected_values(names: Sequence[str]) -> list[PublishedValue]:
    """Return the values of tables, rows and files; see `select_published` for `names` and errors."""
    # Both a file and a table in it may be named.
    requested = select_published(names)[1]
    return [*requested, *(value for value in _file_values(names) if value not in requested)]


def _is_file(name):
    return name.endswith((".yaml", ".yml"))


def _file_values(names):
    return [value for name in names if _is_file(name) for value in read_published(Path(name))]


def matching_values(
    values: Iterable[PublishedValue], keys: dict[str, object], metrics: Sequence[str]
) -> list[PublishedValue]:
    """Return the values of the shown metrics that match the keys of a recipe."""
    return [
        value
        for value in values
        if value.metric in metrics and all(keys.get(key) == expected for key, expected in value.recipe.items())
    ]
