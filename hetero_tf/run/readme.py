"""README.txt of a run folder: what lies in it, and what to type about it."""

import shlex

from hetero_tf.base import files
from hetero_tf.base.console import printable
from hetero_tf.recipe import Recipe
from hetero_tf.store.run_folder import RunFolder

CONTENTS = {
    "recipe": "the recipe with every value that it left open",
    "metrics": "a JSON object for each round; `hetero_tf explain NAME` says what a metric means",
    "best": "the sealed state of the round that {metric} chose",
    "checkpoints": "the sealed states of the newest rounds, from which the run goes on",
    "partition": "which client has which examples; another recipe may read it (partition: {{name: file}})",
    "data": "shape, classes, words and columns of the data, without examples: `predict` and `export` need no more",
    "environment": "what equality bit for bit depends on: versions, processor, threads",
    "costs": "what a client of each level costs",
    "timings": "how long each part of the work took",
    "log": "what the program said",
    "export": "what `export` has written, if it was called",
}


def text(run: RunFolder, recipe: Recipe, command: str, metric: str) -> str:
    """Returns the text.

    Args:
        run: The folder.
        recipe: The recipe.
        command: What a person typed.
        metric: The metric that chooses the best round.
    """
    place = shlex.quote(str(run.path))
    listed = [(getattr(run, name).name, meaning.format(metric=metric)) for name, meaning in CONTENTS.items()]
    listed.append(("run.lock", "held by the process that trains here"))
    width = max(len(name) for name, _ in listed)
    program = command.partition(" ")[0] or "hetero_tf"
    lines = [
        f"A run of the recipe {recipe.name!r}, by hetero_tf: federated learning on unequal devices.",
        "",
        *(f"  {name:{width}}  {meaning}" for name, meaning in listed),
        "",
        "It began, or last went on, by the command",
        "",
        f"  {command}",
        "",
        "which also resumes it; with --set rounds=N it trains more. The commands below take its --plugin, --data_dir.",
        "",
        f"  {program} evaluate --run_dir {place}   measures the best state again (--state last: the newest)",
        f"  {program} export --run_dir {place}     writes a SavedModel that needs no hetero_tf",
        f"  {program} list {place}                 says how far it is",
        "",
        "In Python, `process, state = hetero_tf.load_run(FOLDER)` opens the best state.",
    ]
    return printable("\n".join(lines) + "\n")


def write(run: RunFolder, recipe: Recipe, command: str, metric: str) -> None:
    """Writes README.txt as it is now; nothing reads it but a person.

    Raises:
        InputError: Something else than a file has that name.
        DiskProblem: The system refused.
    """
    files.write_atomic(run.readme, text(run, recipe, command, metric).encode("utf-8", "backslashreplace"))
