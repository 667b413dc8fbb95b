"""Table of all flags, which `flags` defines and `help` prints."""

from typing import Any, NamedTuple

from hetero_tf.base import hardware


class Flag(NamedTuple):
    """A flag.

    Attributes:
        kind: absl defines the flag by `DEFINE_<kind>`.
        meaning: Help text; `Command.meanings` has those of single commands.
        default: Default value; None for a list means an empty one.
        low, high: Bounds of a number.
        choices: Values of an enum.
    """

    kind: str
    meaning: str
    default: Any = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


FLAGS = {
    "recipe": Flag("string", "YAML file, or the name of a shipped recipe such as mnist; required"),
    "set": Flag("multi_string", "override of the recipe, path=value; may be repeated; default none"),
    "fleet": Flag(
        "string", "devices of the clients: a shipped fleet such as phones, or a YAML file; default the recipe's"
    ),
    "run_dir": Flag("string", "folder of the run; default runs/NAME, plus the changes of --set"),
    "data_dir": Flag("string", "folder of the data; default HETERO_TF_DATA"),
    "plugin": Flag("multi_string", "Python module with layers or plug-ins, or its name in list --plugins; repeatable"),
    "plugins": Flag("boolean", "list the plug-in modules of installed packages instead", False),
    "threads": Flag("integer", "clients to train at the same time", hardware.core_count()),
    "workers": Flag("list", "host:port of every worker process of the run; the first one is the chief; default none"),
    "worker": Flag("integer", "index of this process in --workers, from 0; required with --workers", low=0),
    "devices": Flag("integer", "devices of this process that share each round", 1, 1, 64),
    "local": Flag("integer", "logical devices of this machine that share each round; required", None, 2, 64),
    "role": Flag("multi_string", "server, client or keys; same as the word after flower; required"),
    "address": Flag("string", "host:port of the server; required"),
    "certificates": Flag("string", "server: folder written by flower keys; required"),
    "key": Flag("string", "client: private key file of the device, written by flower keys; required"),
    "client": Flag("integer", "client: index of the device among the clients, from 0; required", low=0),
    "litert": Flag("string", "client: folder of an export with litert_train; default none (TensorFlow trains)"),
    "file": Flag("multi_string", "model_train.tflite of an export, next to its export.json; may be repeated; required"),
    "name": Flag("string", "name of the device class", "device"),
    "append": Flag("string", "fleet file to add the device class to; default none (print it)"),
    "patience": Flag("float", "server: seconds after which a request without a response is lost", 600.0, 1),
    "deadline": Flag("float", "server: seconds to wait for the results of a round; default --patience", low=1),
    "quorum": Flag(
        "float", "server: minimum share of round.clients that must return a result; at least one client", 0.0, 0, 1
    ),
    "over_selection": Flag("float", "server: share of additional clients to request, such as 0.3", 0.0, 0, 10),
    "max_examples": Flag("integer", "server: maximum examples of a device; default that of the recipe's data", low=1),
    "state": Flag("enum", "checkpoint to use", "best", choices=("best", "last")),
    "levels": Flag("enum", "models to evaluate; default evaluate.levels of the recipe", choices=("global", "all")),
    "level": Flag("string", "level of the model; default the level of the global model"),
    "input": Flag(
        "multi_string",
        "file, folder of pictures or WAV files, row or sentence; same as the words after predict; required",
    ),
    "export_dir": Flag("string", "folder of exports, or of one version, to use instead of --run_dir; default none"),
    "top": Flag("integer", "most likely classes or words to show, at most 5 words", 3, 1),
    "maps": Flag("string", "folder for a PNG of the class of each pixel of each picture; default none"),
    "copy_columns": Flag("bool", "write the columns of the input to --out too", False),
    "task": Flag(
        "enum",
        "task; default that of the label",
        choices=("classification", "binary", "ordinal", "regression", "multi_label", "segmentation"),
    ),
    "label": Flag("list", "label column, or columns of targets such as x,y; default the likely ones"),
    "yes": Flag("bool", "ask no questions, and replace an existing file", False),
    "definition": Flag("multi_string", "YAML file of a sweep; same as the word after sweep; required without --recipe"),
    "sweep": Flag(
        "multi_string", "values to try, path=value,value; may be repeated for all combinations; default none"
    ),
    "seeds": Flag("string", "seeds of a sweep, such as 0-2 or 0,3; default that of the recipe"),
    "jobs": Flag("integer", "parallel runs; --threads are divided among them", 1, 1, 256),
    "only": Flag("string", "part K of N of a sweep's runs, K/N such as 3/12; default all runs"),
    "dry_run": Flag("bool", "print the runs of a sweep, their costs and times; train nothing", False),
    "commands": Flag("bool", "print a shell command for each run of a sweep; train nothing", False),
    "on": Flag("enum", "submit each run of a sweep as a job; default none (train here)", choices=("slurm",)),
    "slurm": Flag("multi_string", "option of the jobs, key=value such as time=240; may be repeated; default none"),
    "word": Flag("multi_string", "word to explain; same as the words after explain; required"),
    "run": Flag("multi_string", "run folders, or folders of them; same as the words after the command"),
    "metric": Flag("list", "metrics, such as global_accuracy,local_std; default the usual ones"),
    "reach": Flag("list", "values of the first metric, such as 95,98: time, rounds and MB to reach each; default none"),
    "at": Flag(
        "list", "rounds or device times at which to show the first metric, such as 10,90s,20min,3h; default none"
    ),
    "published": Flag("list", "papers' results to show: TABLE, TABLE/ROW, or a .yaml file of tables; default none"),
    "as": Flag("enum", "format of the table", "text", choices=("text", "markdown", "csv", "latex", "json")),
    "x": Flag(
        "enum",
        "x axis",
        "round",
        choices=("round", "device_hours", "energy", "megabytes", "seconds", "parameters", "paper_flops"),
    ),
    "y": Flag("string", "metric to draw; default that of the global model"),
    "band": Flag("enum", "meaning of the bands over seeds", "range", choices=("range", "std")),
    "out": Flag("string", "file or folder to write"),
    "open": Flag("bool", "open the page in a browser", False),
    "classes": Flag("bool", "also show the results of each class, and its confusion with others", False),
    "pair": Flag("list", "ids of the two clients to compare, such as 0,60; required"),
    "draw": Flag("string", "PNG file to draw into: the split, confusion of classes, or similarity; default none"),
    "format": Flag("list", "additional formats, such as keras,onnx,litert,litert_train; default none"),
    "push": Flag("string", "folder of a model repository, as Hugging Face reads it, to write too; default none"),
    "export_version": Flag("integer", "number of the exported version; default the next one", low=1),
    "host": Flag("string", "address to serve at; other addresses are open to the network", "127.0.0.1"),
    "port": Flag("integer", "port to serve at; 0 selects a free one", 8501, 0, 65535),
    "versions": Flag("string", "versions to serve: latest, latest:COUNT, all, or numbers such as 3,5", "latest:2"),
    "allow_host": Flag(
        "multi_string", "additional allowed host name in requests, such as that of a proxy; may be repeated"
    ),
    "log": Flag("list", "trackers that get the metrics of each round: mlflow, wandb; default none"),
    "allow_other_machine": Flag("bool", "resume although the numbers may differ", False),
    "json": Flag("bool", "print one JSON line on standard output; messages go to standard error", False),
    "quiet": Flag("bool", "print only errors and the line of --json", False),
    "verbose": Flag("bool", "print all metrics of each round, as log.txt has them", False),
    "debug": Flag("bool", "show tracebacks", False),
    "help": Flag("bool", "show this help", False),
    "version": Flag("bool", "show the version", False),
}
