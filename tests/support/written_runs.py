"""Run folders in the format of `train`, written without training: for tables, figures and pages."""

import json

from hetero_tf import recipe
from hetero_tf.runs import checkpoints, metrics_file
from hetero_tf.runs.run_folder import RunFolder

COST = {"width": 1.0, "parameters": 4000, "paper_flops": 3_000_000, "multiply_adds": 1_500_000, "mebibytes": 0.01}
COST |= {"bytes_down": 16_000, "bytes_up": 16_000, "training_bytes": 99_000}


FACTS = {
    "recipe": "name: a\n",
    "environment": {"versions": {}, "cpu": {}, "threads": {}, "settings": {}},
    "metrics": {"bytes": 3, "sha256": "00"},
    "last": {"round": 4, "loss": 0.5, "global_loss": None},
    "best": {},
    "totals": {"bytes": 7, "device_seconds": 1.5},
}


def save_round(run, number, arrays, best=None):
    """Save a checkpoint of a run whose best round so far is `best`."""
    facts = {**FACTS, "last": {"round": number}, "best": {} if best is None else {"round": best}}
    checkpoints.save(run.checkpoints, number, arrays, facts, 1, best)


def costs(**parameters):
    """The costs in a run folder; `parameters` of each level, equal shares."""
    mean = sum(parameters.values()) / len(parameters)
    mix = {"parameters": mean, "paper_flops": 750 * mean, "multiply_adds": 375 * mean}
    levels = {level: {**COST, "parameters": number} for level, number in parameters.items()}
    mix |= {"ratio": mean / max(parameters.values()), "budget_share": None}
    work = {level: {"bytes_down": 16_000, "bytes_up": 16_000, "train_flops": [9e6]} for level in parameters}
    return {"levels": levels, "mix": mix, "round": {"levels": work, "draws_stages": False, "reads": 1}}


def write(folder, name, accuracies, *overrides, traffic=True, more=(), sizes=None, seconds=None, device_seconds=None):
    """Writes a run.

    Args:
        folder, name: Folder and name of the run.
        accuracies: Accuracy after each round; None for a round without evaluation.
        overrides: Overrides of the recipe tiny/digits.
        traffic: Whether rows have bytes and operations.
        more: Further entries of each row.
        sizes: `{level: parameters}` for its costs; None: no costs.
        seconds: Seconds of training in each round; None: no timings.
        device_seconds: Seconds of each round on its fleet, whose devices use 2 W; None: no fleet.
    """
    run = RunFolder(folder / name)
    run.path.mkdir(parents=True)
    run.recipe.write_text(recipe.load("tiny/digits", [f"rounds={len(accuracies)}", *overrides]).source)
    for number, accuracy in enumerate(accuracies, 1):
        row = {"round": number, "levels": {"a": 1, "c": 1}, "loss": 1 / number, **dict(more)}
        row |= {} if accuracy is None else {"global_accuracy": accuracy, "global_loss": 2 - accuracy / 100}
        spent = {"bytes_down": 3_000_000, "bytes_up": 1_000_000, "bytes": 4_000_000 * number}
        row |= {**spent, "train_flops": 5 * 10**11} if traffic else {}
        if device_seconds:
            row |= {"device_seconds": device_seconds * number, "energy": 2 * device_seconds * number}
        metrics_file.append(run.metrics, row)
        if seconds:
            parts = {"training_seconds": seconds, "measuring_seconds": 1.0, "merging_seconds": None}
            metrics_file.append(run.timings, {"round": number, "seconds": seconds, "clients": 2, **parts})
    if sizes:
        run.costs.write_text(json.dumps(costs(**sizes)))
    return str(run.path)
