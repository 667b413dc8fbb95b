"""Writes the metrics of runs as TensorBoard event files.

Each number of the metrics becomes a scalar at its round, and the recipe a text and the hyperparameters of the HParams
plug-in. Updates of single clients are not included, because runs do not store them.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import require_modules
from hetero_tf.reports.summaries import active_clients
from hetero_tf.runs.history import Run, hyperparameters, is_number
from hetero_tf.runs.run_folder import RunFolder

# TensorBoard reads files with "tfevents" in the name; a fixed name replaces the file of an earlier call.
FILE = "events.out.tfevents.hetero_tf"
# TensorBoard sorts groups by name, so numbers put the results first. Prefix of a metric -> group.
GROUPS = {
    **dict.fromkeys(("global", "validation"), "1_results"),
    "level": "2_levels",
    **dict.fromkeys(("local", "tuned", "clients"), "3_clients"),
    **dict.fromkeys(("bytes", "train", "round", "device", "client", "energy"), "5_costs"),
}


def write_events(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write one event file for each run, FOLDER/RUN/..., atomically; earlier files are replaced.

    Returns:
        The folders of the runs.
    """
    require_modules("tensorboard", ["tensorboard"], "tensorboard")
    import tensorflow as tf
    from tensorboard.plugins.hparams import api

    names = [Path(run.folder).resolve().name for run in runs]
    run_folders = [
        folder / (name if names.count(name) == 1 else f"{name}-{names[: index + 1].count(name)}")
        for index, name in enumerate(names)
    ]
    for run_folder in (folder, *run_folders):
        files.make_folder(run_folder)
    for run, run_folder in zip(runs, run_folders):
        with tempfile.TemporaryDirectory() as temporary:
            with tf.summary.create_file_writer(temporary).as_default():
                # Indented Markdown is code.
                text = "\n".join(f"    {line}" for line in RunFolder(Path(run.folder)).read_recipe().splitlines())
                tf.summary.text("recipe", text, 0)
                api.hparams(hyperparameters(run.keys), Path(run.folder).resolve().name)
                for round, tag, value in scalars(run):
                    tf.summary.scalar(tag, value, round)
            (path,) = Path(temporary).iterdir()
            files.write_atomic(run_folder / FILE, path.read_bytes())
    return run_folders


def scalars(run: Run) -> Iterator[tuple[int, str, float]]:
    """Yield (round, tag, value) of all numbers of a run; a tag is GROUP/METRIC."""
    for row in run.rows:
        for name, value in row.items():
            if is_number(value) and name != "round":
                # "train_flops" is a cost, "loss" belongs to the training.
                group = GROUPS.get(name.partition("_")[0], "4_training")
                yield row["round"], f"{group}/{name}", float(value)
        for level, count in active_clients(row).items():
            yield row["round"], f"4_training/active_{level}", float(count)
    for row in run.timings:
        for name, value in row.items():
            if name.endswith("seconds") and is_number(value):
                yield row["round"], f"6_time/{name}", float(value)
