"""What papers and ports report, from published.yaml beside this file or from a file of one's own.

A file is a list of tables. Each has a `name`, a `source` (paper and table), the `setting` in a few words, the `recipe`
whose keys a run must have (`{dotted key: value}`), and `rows`: a name, further keys in `recipe`, and the values by the
names of our metrics.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.recipe.nodes import plain
from hetero_tf.recipe.reader import parse

SHIPPED = Path(__file__).with_name("published.yaml")
LARGEST_FILE = 2**20
TABLE = {"name": str, "source": str, "setting": str, "recipe": dict, "rows": dict}


@dataclass(frozen=True)
class Value:
    """One number of a table.

    Attributes:
        name: "TABLE/ROW".
        metric: Which of our metrics it is one of.
        value: In the unit of that metric.
        source: Paper and table.
        setting: In which setting, in a few words.
        recipe: `{dotted key: value}` that a run must have to stand beside it.
    """

    name: str
    metric: str
    value: float
    source: str
    setting: str
    recipe: dict

    def to_json(self) -> dict:
        """Everything but the recipe."""
        return {name: value for name, value in asdict(self).items() if name != "recipe"}


def read_published(path: Path = SHIPPED) -> list[Value]:
    """Reads the values of a file.

    Raises:
        InputError: It is no such file; the sentence names file and table.
    """
    text = files.decode(files.read_bytes(path, LARGEST_FILE, follow=True), path)
    tables = plain(parse(text, str(path)))
    if not isinstance(tables, list):
        raise InputError(f"{path}: must be a list of tables, as hetero_tf/results/published.yaml is")
    return [value for place, table in enumerate(tables, 1) for value in _values(f"{path}: table {place}", table)]


def _values(where, table):
    wrong = [name for name, kind in TABLE.items() if not isinstance(table, dict) or type(table.get(name)) is not kind]
    if wrong:
        raise InputError(f"{where}: must have {', '.join(TABLE)}. Received: a missing or wrong {wrong[0]}")
    for row, cells in table["rows"].items():
        cells = dict(cells) if isinstance(cells, dict) else {}
        recipe = table["recipe"] | (cells.pop("recipe", None) or {})
        for metric, value in cells.items():
            if type(value) not in (int, float):
                raise InputError(f"{where}: {row}: {metric} must be a number. Received: {value!r}")
            yield Value(f"{table['name']}/{row}", metric, value, table["source"], table["setting"], recipe)


def choose(names: Sequence[str]) -> tuple[list[Value], list[Value]]:
    """What may stand beside runs, and what is shown in any case.

    Args:
        names: Of tables or rows ("TABLE", "TABLE/ROW"), which are shown in any case; and files ending in .yaml, whose
            values are taken besides the shipped ones.

    Raises:
        InputError: A file is wrong, or no table or row has such a name.
    """
    values = [*read_published(), *_own_values(names)]
    asked = []
    for name in (name for name in names if not _is_file(name)):
        found = [value for value in values if value.name == name or value.name.startswith(f"{name}/")]
        if not found:
            known = {part for value in values for part in (value.name, value.name.partition("/")[0])}
            raise InputError(f"no published table or row has that name{did_you_mean(name, known)} Received: {name}")
        asked += found
    return values, asked


def named(names: Sequence[str]) -> list[Value]:
    """The values of tables, rows and files; `names` and what is raised are those of `choose`."""
    # A table of a file may be named beside it.
    asked = choose(names)[1]
    return [*asked, *(value for value in _own_values(names) if value not in asked)]


def _is_file(name):
    return name.endswith((".yaml", ".yml"))


def _own_values(names):
    return [value for name in names if _is_file(name) for value in read_published(Path(name))]


def matching(values: Iterable[Value], keys: dict[str, object], metrics: Sequence[str]) -> list[Value]:
    """The values of a recipe with these keys, of the metrics that are shown."""
    return [
        value
        for value in values
        if value.metric in metrics and all(keys.get(key) == wanted for key, wanted in value.recipe.items())
    ]
