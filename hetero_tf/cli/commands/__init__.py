"""Table of the commands: their flags, and the functions that run them, which it does not import."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

COMMON = ("json", "quiet", "debug", "help", "version")
# Flags of every command that builds a recipe.
_RECIPE = "set plugin data_dir threads"
_RUN_DIR = {"run_dir": "folder of a trained run; required"}
_BATCHES = {"threads": "batches to compute at the same time"}
_RUN = {"run": "run folders, or folders of them; same as the words after the command; required"}
_RUNS = {
    **_RUN,
    "fleet": "shipped fleet or YAML file that times finished runs whose rounds wait for all clients; default none",
}


@dataclass(frozen=True)
class Command:
    """One command, selected by the first word of the command line.

    Attributes:
        usage, summary: Its line in the help.
        function: MODULE.FUNCTION in this package. Called with the recipe (if there is a `source`), the flags and the
            console; returns its result, ready for JSON.
        words: Flag that receives the words after the command, or None.
        source: Flag that names its recipe, "recipe" or "run_dir", or None.
        needs_tensorflow: Import TensorFlow before the function is called.
        resumes: The same command continues a stopped run.
        meanings: `{flag: meaning}` where it differs from `flags.FLAGS`.
    """

    usage: str
    summary: str
    function: str
    flags: str
    words: str | None = None
    source: str | None = None
    needs_tensorflow: bool = False
    resumes: bool = False
    meanings: Mapping[str, str] = field(default_factory=dict)

    @property
    def flag_names(self) -> tuple[str, ...]:
        """Names of its flags in addition to `COMMON`."""
        return tuple(self.flags.split())

    @property
    def run(self) -> Callable:
        """The function that runs the command."""
        module, name = self.function.split(".")
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)


# Commands by what a user wants to do, as the help shows them.
GROUPS = {
    "Everyday": "new train describe list evaluate predict explain",
    "Compare": "sweep bench compare plot report similarity tensorboard",
    "Deploy": "export serve flower measure-device",
    "Extend": "launch schema",
}
# In the order of typical use.
COMMANDS = {
    "new": Command(
        "new PATH",
        "a commented recipe for a file or folder of your data",
        "new.write_recipe",
        "input task label out data_dir yes",
        words="input",
        meanings={
            "input": "file or folder of the data, or name of a set; same as the word after new; required",
            "out": "recipe to write; default the name of the data, such as iris.yaml",
        },
    ),
    "train": Command(
        "--recipe FILE",
        "trains; the same command resumes",
        "training.train",
        f"recipe fleet run_dir allow_other_machine log verbose workers worker devices {_RECIPE}",
        needs_tensorflow=True,
        source="recipe",
        resumes=True,
    ),
    "launch": Command(
        "launch --local N --recipe FILE",
        "trains with N logical devices that share each round",
        "training.launch",
        f"local recipe fleet run_dir allow_other_machine log verbose {_RECIPE}",
        needs_tensorflow=True,
        source="recipe",
        resumes=True,
        meanings={"threads": "clients to train at the same time, divided among the devices"},
    ),
    "sweep": Command(
        "sweep FILE",
        "trains variants of a recipe; resumes",
        "sweep.run_sweep",
        f"definition recipe fleet sweep seeds run_dir only jobs fork log dry_run commands on slurm {_RECIPE}",
        words="definition",
        resumes=True,
        meanings={
            "recipe": "recipe to vary, instead of FILE; default none",
            "run_dir": "folder of all runs; default runs/sweep-NAME",
            "threads": "clients to train at the same time, divided among the runs",
        },
    ),
    "bench": Command(
        "bench FILE|verify ROW",
        "results of a sweep, as files that anyone can replay",
        "bench.run_bench",
        "definition seeds run_dir only jobs fork data_dir out plugin threads",
        words="definition",
        meanings={
            "definition": "YAML file of a sweep, or verify and files of rows; same as the words after bench; required",
            "seeds": "verify: seeds to train again, such as 0-2; default the first one of each row",
            "run_dir": "folder of all runs; default runs/sweep-NAME, or for verify a temporary one",
            "out": "folder of the rows; default benchmarks/rows if it exists, else rows",
            "threads": "clients to train at the same time, divided among the runs; default all cores, or the row's",
        },
    ),
    "describe": Command(
        "describe --recipe FILE",
        "costs of every level, and the split of the data",
        "results.describe_recipe",
        f"recipe fleet all draw workers devices {_RECIPE}",
        needs_tensorflow=True,
        source="recipe",
        meanings={
            "workers": "host:port of every worker process, to show the division of the work; default none",
            "devices": "devices of one process, to show the division of the work",
        },
    ),
    "evaluate": Command(
        "evaluate --run_dir DIR",
        "evaluates a trained model",
        "evaluation.evaluate",
        f"run_dir state levels classes draw {_RECIPE}",
        needs_tensorflow=True,
        source="run_dir",
        meanings=_RUN_DIR | _BATCHES,
    ),
    "similarity": Command(
        "similarity --run_dir DIR --pair A,B",
        "compares the local models of two clients",
        "evaluation.compare_clients",
        f"run_dir state pair draw {_RECIPE}",
        needs_tensorflow=True,
        source="run_dir",
        meanings=_RUN_DIR,
    ),
    "export": Command(
        "export --run_dir DIR",
        "writes a SavedModel that runs without hetero_tf",
        "deploy.export_run",
        f"run_dir state level out format push export_version {_RECIPE}",
        needs_tensorflow=True,
        source="run_dir",
        meanings={
            **_RUN_DIR,
            **_BATCHES,
            "level": "level to export, or all; default the level of the global model",
            "out": "folder to write into; default RUN_DIR/export",
        },
    ),
    "predict": Command(
        "predict --run_dir DIR X",
        "predicts pictures, rows, sentences or whole files",
        "deploy.predict_items",
        f"run_dir export_dir state level input out top maps copy_columns {_RECIPE}",
        needs_tensorflow=True,
        words="input",
        source="run_dir",
        meanings={
            "run_dir": "folder of a trained run; required without --export_dir",
            "out": "file to write: .csv, .tsv, .jsonl or .ndjson; default none (print a line for each item)",
            **_BATCHES,
        },
    ),
    "serve": Command(
        "serve --run_dir DIR",
        "serves exports over HTTP, with a page to try them",
        "deploy.serve_exports",
        "run_dir out host port allow_host versions threads batch",
        needs_tensorflow=True,
        meanings={
            "run_dir": "run with exports to serve; required without --out",
            "out": "folder of exports to serve; default RUN_DIR/export",
            "threads": "requests to compute at the same time",
        },
    ),
    "flower": Command(
        "flower server|client|keys",
        "trains on real devices connected by Flower",
        "devices.run_role",
        "role recipe run_dir allow_other_machine address certificates patience out deadline quorum over_selection "
        f"max_examples client key level litert {_RECIPE}",
        words="role",
        source="recipe",
        resumes=True,
        meanings={
            "run_dir": "server: folder of the run; default runs/NAME, plus the changes of --set",
            "out": "keys: new folder for certificates and keys; required",
            "level": "client: level of the device; default that of the recipe for its index",
        },
    ),
    "measure-device": Command(
        "measure-device --file FILE",
        "measures this device as a class of a fleet",
        "devices.measure_device",
        "file name append threads",
        meanings={"threads": "threads of a training step, as flower client has them"},
    ),
    "list": Command(
        "list [DIR ...]",
        "recipes, runs in runs/ or DIR; --plugins: plug-ins",
        "listing.list_runs",
        "run plugin plugins",
        words="run",
        meanings={"run": "folders of runs; same as the words after list; default runs"},
    ),
    "compare": Command(
        "compare RUN...",
        "runs side by side, seeds together",
        "results.compare_runs",
        "run fleet metric columns baseline reach at published as out",
        words="run",
        meanings=_RUNS | {"out": "output file of the table; default standard output"},
    ),
    "plot": Command(
        "plot RUN... --out FILE",
        "curves of runs with bands over seeds",
        "results.plot_runs",
        "run fleet x y width published out",
        words="run",
        meanings=_RUNS | {"out": "picture to write, such as curves.pdf, curves.svg or curves.png; required"},
    ),
    "report": Command(
        "report RUN...",
        "one HTML page: curves, tables, costs",
        "results.report_runs",
        "run fleet published out open",
        words="run",
        meanings=_RUNS | {"out": "page to write; default report.html"},
    ),
    "tensorboard": Command(
        "tensorboard RUN...",
        "metrics of runs as event files",
        "results.write_event_files",
        "run out",
        words="run",
        needs_tensorflow=True,
        meanings=_RUN | {"out": "folder to write into; default tensorboard"},
    ),
    "explain": Command(
        "explain WORD",
        "a word of the output, a key of recipes or a plug-in",
        "listing.explain_words",
        "word plugin",
        words="word",
    ),
    "schema": Command("schema", "the JSON Schema of recipes, for editors", "listing.print_schema", "plugin"),
}


def commands_with_flag(flag: str) -> list[str]:
    """Return the commands on which a flag has an effect."""
    return [name for name, command in COMMANDS.items() if flag in (*COMMON, *command.flag_names)]
