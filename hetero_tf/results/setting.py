"""In which setting runs were made: what their recipes have in common, in what they differ, and on what they ran."""

from collections.abc import Iterator
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import Refusal
from hetero_tf.results.runs import MIX, Run, differences, shown
from hetero_tf.results.tables import Table, cleaned
from hetero_tf.store import plain_json
from hetero_tf.store.run_folder import RunFolder

# Keys that a reader asks for first, and how they are called; all runs that agree in one share its line.
SETTING = {
    "data.dataset": "data set",
    "data.name": "data",
    "partition.name": "split",
    "partition.clients": "clients",
    "round.clients": "active clients of a round",
    "round.submodel.name": "sub-models",
    "client.loss.name": "local loss",
    "client.epochs": "local epochs",
    "client.batch_size": "batch size",
    "optimizer.name": "optimizer",
    "optimizer.learning_rate": "learning rate",
    "schedule.name": "schedule",
    "rounds": "rounds",
}


def common(groups: dict[str, list[Run]]) -> dict[str, str]:
    """`{what: values}` of what a reader asks for first: one value where all runs agree, else all of them."""
    facts: dict[str, str] = {}
    for key, name in SETTING.items():
        values = dict.fromkeys(shown(runs[0].keys[key]) for runs in groups.values() if key in runs[0].keys)
        if values:
            facts[name] = ", ".join(values)
    machines = dict.fromkeys(_machines(groups))
    return facts | ({"ran on": "; ".join(machines)} if machines else {})


def apart(groups: dict[str, list[Run]]) -> Table:
    """A row for each recipe: in what it differs from the others, besides its mix; no rows where that is nothing."""
    told = differences([runs[0] for runs in groups.values()], without=("name", "seed", MIX))
    return cleaned(Table(["run", "differs in"], [[name, text] for name, text in zip(groups, told) if text], []))


def _machines(groups) -> Iterator[str]:
    """Processor and versions of the runs that say them."""
    for run in (run for runs in groups.values() for run in runs):
        path = RunFolder(Path(run.folder)).environment
        try:
            facts = plain_json.parse(files.read_bytes(path, plain_json.LIMIT), path)
            versions = facts["versions"]  # type: ignore[index]
            yield (
                f"{facts['cpu']['model']}, {facts['cores']} cores, TensorFlow {versions['tensorflow']}, "  # type: ignore[index]
                f"Keras {versions['keras']}, hetero_tf {versions['hetero_tf']}"
            )
        except (Refusal, TypeError, KeyError):
            continue
