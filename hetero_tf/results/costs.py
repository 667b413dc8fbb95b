"""What a client of each level costs, as a run has kept it in costs.json."""

from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.files import Damaged
from hetero_tf.results.numbers import is_number
from hetero_tf.store import plain_json

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
