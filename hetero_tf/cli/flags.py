"""Flags of the command line, and the command word."""

import os
import re
import shlex
from typing import TYPE_CHECKING

from hetero_tf.base import hardware
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.cli import commands

if TYPE_CHECKING:
    from absl import flags

PATHS = ("recipe", "run_dir", "data_dir", "out", "draw", "certificates", "key", "litert")
# Flags that absl adds: one reads flags from a file, the other ignores unknown flags.
_OF_ABSL = re.compile("--?(flagfile|undefok)(=.*)?", re.DOTALL)
# Beyond this limit, more clients in parallel only cost memory; machines with many cores may use more.
MOST_THREADS, MOST_THREADS_OF_A_CORE = 256, 4
LONGEST_NAME = 255
# Short form of --help.
SHORT = "h"
# Maximum number of recipe keys to suggest for an unknown flag.
MOST_PATHS = 3


def define_flags() -> "flags.FlagValues":
    """Define all flags; the help does not show absl's built-in flags."""
    from absl import flags

    values = flags.FlagValues()
    flags.DEFINE_string("recipe", None, "YAML file, or the name of a shipped recipe such as mnist; required", values)
    flags.DEFINE_multi_string("set", [], "override of the recipe, path=value; may be repeated; default none", values)
    flags.DEFINE_string("run_dir", None, "folder of the run; default runs/NAME, plus the changes of --set", values)
    flags.DEFINE_string("data_dir", None, "folder of the data; default HETERO_TF_DATA", values)
    flags.DEFINE_multi_string(
        "plugin", [], "user Python module with layers or plug-ins; may be repeated; default none", values
    )
    flags.DEFINE_integer("threads", hardware.core_count(), "clients to train at the same time", flag_values=values)
    flags.DEFINE_list(
        "workers", [], "host:port of every worker process of the run; the first one is the chief; default none", values
    )
    flags.DEFINE_integer(
        "worker", None, "index of this process in --workers, from 0; required with --workers", 0, flag_values=values
    )
    flags.DEFINE_integer("devices", 1, "devices of this process that share each round", 1, 64, flag_values=values)
    flags.DEFINE_integer(
        "local", None, "logical devices of this machine that share each round; required", 2, 64, flag_values=values
    )
    flags.DEFINE_multi_string("role", [], "server, client or keys; same as the word after flower; required", values)
    flags.DEFINE_string("address", None, "host:port of the server; required", values)
    flags.DEFINE_string("certificates", None, "server: folder written by flower keys; required", values)
    flags.DEFINE_string("key", None, "client: private key file of the device, written by flower keys; required", values)
    flags.DEFINE_integer(
        "client", None, "client: index of the device among the clients, from 0; required", 0, flag_values=values
    )
    flags.DEFINE_string(
        "litert", None, "client: folder of an export with litert_train; default none (TensorFlow trains)", values
    )
    flags.DEFINE_float(
        "patience", 600.0, "server: seconds after which a request without a response is lost", 1, flag_values=values
    )
    flags.DEFINE_float(
        "deadline", None, "server: seconds to wait for the results of a round; default --patience", 1, None, values
    )
    flags.DEFINE_float(
        "quorum",
        0.0,
        "server: minimum share of round.clients that must return a result; at least one client",
        0,
        1,
        values,
    )
    flags.DEFINE_float(
        "over_selection", 0.0, "server: share of additional clients to request, such as 0.3", 0, 10, values
    )
    flags.DEFINE_integer(
        "max_examples", None, "server: maximum examples of a device; default that of the recipe's data", 1, None, values
    )
    flags.DEFINE_enum(
        "engine",
        None,
        ["auto", "sequential", "stacked"],
        "execution of clients, as --set engine=; default that of the recipe",
        values,
    )
    flags.DEFINE_enum("state", "best", ["best", "last"], "checkpoint to use", values)
    flags.DEFINE_enum(
        "levels", None, ["global", "all"], "models to evaluate; default evaluate.levels of the recipe", values
    )
    flags.DEFINE_string("level", None, "level of the model; default the level of the global model", values)
    flags.DEFINE_multi_string(
        "input", [], "picture file, table row or sentence; same as the words after predict; required", values
    )
    flags.DEFINE_multi_string(
        "definition", [], "YAML file of a sweep; same as the word after sweep; required without --recipe", values
    )
    flags.DEFINE_multi_string(
        "sweep", [], "values to try, path=value,value; may be repeated for all combinations; default none", values
    )
    flags.DEFINE_string("seeds", None, "seeds of a sweep, such as 0-2 or 0,3; default that of the recipe", values)
    flags.DEFINE_integer("jobs", 1, "parallel runs; --threads are divided among them", 1, 256, flag_values=values)
    flags.DEFINE_bool("dry_run", False, "list the runs of a sweep and estimate their time from short runs", values)
    flags.DEFINE_multi_string("word", [], "word to explain; same as the words after explain; required", values)
    flags.DEFINE_multi_string("run", [], "run folders, or folders of them; same as the words after the command", values)
    flags.DEFINE_list("metric", [], "metrics, such as global_accuracy,local_std; default the usual ones", values)
    flags.DEFINE_float("target", None, "target value of the first metric; default none", flag_values=values)
    flags.DEFINE_list("at", [], "rounds at which to show the first metric, such as 10,20; default none", values)
    flags.DEFINE_list(
        "published", [], "papers' results to show: TABLE, TABLE/ROW, or a .yaml file of tables; default none", values
    )
    flags.DEFINE_enum("as", "markdown", ["markdown", "csv", "latex", "json"], "format of the table", values)
    flags.DEFINE_enum("x", "round", ["round", "bytes", "seconds", "parameters", "paper_flops"], "x axis", values)
    flags.DEFINE_string("y", None, "metric to draw; default that of the global model", values)
    flags.DEFINE_enum("band", "range", ["range", "std"], "meaning of the bands over seeds", values)
    flags.DEFINE_string("out", None, "file or folder to write", values)
    flags.DEFINE_string("draw", None, "PNG file to draw the split into; default none", values)
    flags.DEFINE_list("format", [], "additional formats, such as keras,onnx,litert,litert_train; default none", values)
    flags.DEFINE_integer(
        "export_version",
        None,
        "number of the exported version; default the next one",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_string("host", "127.0.0.1", "address to serve at; other addresses are open to the network", values)
    flags.DEFINE_integer("port", 8501, "port to serve at; 0 selects a free one", 0, 65535, flag_values=values)
    flags.DEFINE_string(
        "versions", "latest:2", "versions to serve: latest, latest:COUNT, all, or numbers such as 3,5", values
    )
    flags.DEFINE_multi_string(
        "allow_host", [], "additional allowed host name in requests, such as that of a proxy; may be repeated", values
    )
    flags.DEFINE_bool("allow_other_machine", False, "resume although the numbers may differ", values)
    flags.DEFINE_bool("json", False, "print one JSON line on standard output; messages go to standard error", values)
    flags.DEFINE_bool("quiet", False, "print only errors and the line of --json", values)
    flags.DEFINE_bool("debug", False, "show tracebacks", values)
    flags.DEFINE_bool("help", False, "show this help", values, short_name=SHORT)
    flags.DEFINE_bool("version", False, "show the version", values)
    return values


def parse(argv: list[str]) -> tuple[str | None, "flags.FlagValues"]:
    """Return the command (None means `train`) and the values of the flags.

    Raises:
        InputError: A word is unknown, or a flag has no effect on the command.
    """
    from absl import flags

    values = define_flags()
    try:
        for word in argv[1 : argv.index("--") if "--" in argv else None]:
            if match := _OF_ABSL.fullmatch(word):
                raise flags.UnrecognizedFlagError(match.group(1))
        words = values(argv, known_only=False)[1:]
    except flags.UnrecognizedFlagError as error:
        known = [name for name in values if name != SHORT]
        hint = _suggest_override(error.flagname, argv) or did_you_mean(error.flagname, known)
        raise InputError(f"unknown flag --{error.flagname}{hint}") from error
    except (flags.Error, ValueError) as error:
        # absl raises a ValueError for --noFLAG=VALUE.
        raise InputError(f"{_simplify_message(error)}; --help lists the flags") from error
    command = words[0] if words else None
    if command is not None and command not in commands.NAMES:
        raise InputError(f"unknown command {command!r}{did_you_mean(command, commands.NAMES)}")
    module = commands.find(command or "train")
    if module.WORDS:
        values[module.WORDS].value = [*(values[module.WORDS].value or ()), *words[1:]]
    elif len(words) > 1:
        raise InputError(f"unexpected word {words[1]!r} after {command!r}; flags begin with --")
    if not (values.help or values.version):
        _check(command or "train", values)
    return command, values


def _suggest_override(name, argv):
    """Return the end of a sentence that suggests --set for a recipe key typed as a flag, or ""."""
    from hetero_tf.recipe.explanations import paths_of

    paths = paths_of(name)[:MOST_PATHS]
    position = next((index for index, word in enumerate(argv) if re.match(f"--?{re.escape(name)}(=|$)", word)), None)
    if not paths or position is None:
        return ""
    _, equals, value = argv[position].partition("=")
    following = argv[position + 1] if position + 1 < len(argv) and not argv[position + 1].startswith("-") else "VALUE"
    text = shlex.quote(value if equals else following)
    return "; use " + " or ".join(f"--set {path}={text}" for path in paths)


def _check(command, values):
    """Refuse flags without effect on the command, and values out of range."""
    for name in values:
        if values[name].present and name != SHORT and command not in commands.commands_with_flag(name):
            *first, last = commands.commands_with_flag(name)
            others = f"{', '.join(first)} and {last}" if first else last
            raise InputError(f"--{name} has no effect on {command}; it is a flag of {others}")
    max_threads = max(MOST_THREADS, MOST_THREADS_OF_A_CORE * hardware.core_count())
    if not 1 <= values.threads <= max_threads:
        raise InputError(
            f"--threads must be a whole number from 1 to {max_threads}, which is {MOST_THREADS_OF_A_CORE} per core and "
            f"at least {MOST_THREADS}. Received: --threads={values.threads}"
        )
    for name in PATHS:
        longest = max((part.encode(errors="surrogatepass") for part in (values[name].value or "").split("/")), key=len)
        if len(longest) > LONGEST_NAME:
            raise InputError(
                f"--{name}: a name in a path may have at most {LONGEST_NAME} bytes. "
                f"Received: {longest[:40].decode(errors='replace')}..., {len(longest)} bytes"
            )


def _simplify_message(error):
    """Rewrite absl's message about a flag value without Python terms."""
    text = " ".join(str(error).split()).rstrip(".")
    text = re.sub(r"Exceeds the limit .* for integer string conversion: .*", "is too large", text)
    text = re.sub(r"invalid literal for int\(\) with base 10: .*", "must be a whole number", text)
    return re.sub(r"\('Non-boolean argument to boolean flag', .*\)", "must be true or false", text)


def program_name() -> str:
    """Return the name under which the user called the program, for printed commands."""
    return os.environ.get("HETERO_TF_PROGRAM", "hetero_tf")


def plugin_flags(values: "flags.FlagValues") -> str:
    """Return the --plugin flags for printed commands about the same run."""
    return "".join(f" --plugin {shlex.quote(name)}" for name in values.plugin)


def shared_flags(values: "flags.FlagValues") -> str:
    """Return the flags that printed commands about the same run need."""
    return plugin_flags(values) + (f" --data_dir {shlex.quote(values.data_dir)}" if values.data_dir else "")
