"""README.txt of a run folder: its files, and the commands for it."""

from hetero_tf.base import files
from hetero_tf.base.escaping import escape_line, quote_shell
from hetero_tf.recipe import Recipe
from hetero_tf.runs.run_folder import RunFolder

CONTENTS = {
    "recipe": "the recipe with all defaults",
    "metrics": "a JSON object for each round; `hetero_tf explain NAME` explains a metric",
    "best": "the checkpoint of the best round by {metric}",
    "checkpoints": "the newest checkpoints, from which the run resumes",
    "partition": "the examples of each client; another recipe can read it (partition: {{name: file}})",
    "data": "shape, classes, words and columns of the data, without examples: enough for `predict` and `export`",
    "environment": "versions, processor and threads, on which bit-equal results depend",
    "costs": "the costs of a client of each level",
    "classes": "the confusion of the classes, which `evaluate --classes` stores for reports",
    "trace": "the devices of `fleet.trace`, if the recipe names one",
    "timings": "the time of each part of the work",
    "timeline": "the time of each client of the first rounds on the fleet",
    "mlflow": "the id of the MLflow run of `--log mlflow`, and its last logged round",
    "wandb": "the id of the W&B run of `--log wandb`, and its last logged round",
    "log": "the output of the program",
    "export": "the models that `export` wrote",
}


def text(run: RunFolder, recipe: Recipe, command: str, metric: str) -> str:
    """Return the text of README.txt.

    Args:
        run: The folder.
        recipe: The recipe.
        command: The command line of the training.
        metric: The selection metric of the best round.
    """
    folder = quote_shell(run.path)
    rows = [(getattr(run, name).name, meaning.format(metric=metric)) for name, meaning in CONTENTS.items()]
    rows.append(("run.lock", "locked by the process that trains here"))
    width = max(len(name) for name, _ in rows)
    program = command.partition(" ")[0] or "hetero_tf"
    lines = [
        f"A run of the recipe {recipe.name!r}, by hetero_tf: federated learning on unequal devices.",
        "",
        *(f"  {name:{width}}  {meaning}" for name, meaning in rows),
        "",
        "It was started, or last resumed, by the command",
        "",
        f"  {command}",
        "",
        "which also resumes it; --set rounds=N trains more. The commands below need the same --plugin, --data_dir.",
        "",
        f"  {program} evaluate --run_dir {folder}   evaluates the best state again (--state last: the newest)",
        f"  {program} export --run_dir {folder}     writes a SavedModel that needs no hetero_tf",
        f"  {program} list {folder}                 shows its progress",
        "",
        "In Python, `process, state = hetero_tf.load_run(FOLDER)` loads the best state.",
    ]
    return "".join(f"{escape_line(line)}\n" for line in lines)


def write(run: RunFolder, recipe: Recipe, command: str, metric: str) -> None:
    """Write the current README.txt. The program never reads it.

    Raises:
        InputError: The path is not a regular file.
        DiskProblem: The write failed.
    """
    files.write_atomic(run.readme, text(run, recipe, command, metric).encode("utf-8", "backslashreplace"))
