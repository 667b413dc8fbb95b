"""The flags of the command line and the word before them."""

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
# Flags that absl adds by itself: one reads flags from a file, the other ignores flags that do not exist.
_OF_ABSL = re.compile("--?(flagfile|undefok)(=.*)?", re.DOTALL)
# More clients in flight than this cost only memory; machines with many cores may have more.
MOST_THREADS, MOST_THREADS_OF_A_CORE = 256, 4
LONGEST_NAME = 255
# Stands for --help once more.
SHORT = "h"
# Of the keys that a wrong flag may have meant, so many are named.
MOST_PATHS = 3


def definitions() -> "flags.FlagValues":
    """All flags; absl's own ones are not shown to a person."""
    from absl import flags

    values = flags.FlagValues()
    flags.DEFINE_string("recipe", None, "YAML file, or the name of a shipped recipe such as mnist; required", values)
    flags.DEFINE_multi_string("set", [], "override of the recipe, path=value; may be repeated; default none", values)
    flags.DEFINE_string("run_dir", None, "folder of the run; default runs/NAME, with what --set changes", values)
    flags.DEFINE_string("data_dir", None, "folder of the data; default HETERO_TF_DATA", values)
    flags.DEFINE_multi_string(
        "plugin", [], "own Python module with layers or plug-ins; may be repeated; default none", values
    )
    flags.DEFINE_integer("threads", hardware.cores(), "clients in flight at once", flag_values=values)
    flags.DEFINE_list(
        "workers", [], "host:port of every process that shares the run; the first one leads; default none", values
    )
    flags.DEFINE_integer(
        "worker", None, "which of --workers this process is, from 0; required with --workers", 0, flag_values=values
    )
    flags.DEFINE_integer("devices", 1, "devices of this process that share each round", 1, 64, flag_values=values)
    flags.DEFINE_integer(
        "local", None, "parts of this machine that share each round; required", 2, 64, flag_values=values
    )
    flags.DEFINE_multi_string("role", [], "server, client or keys; the word after flower is the same; required", values)
    flags.DEFINE_string("address", None, "host:port of the server of a fleet of devices; required", values)
    flags.DEFINE_string("certificates", None, "server: folder that flower keys wrote; required", values)
    flags.DEFINE_string(
        "key", None, "client: private key of the device, a file that flower keys wrote; required", values
    )
    flags.DEFINE_integer(
        "client", None, "client: number of the device among the clients, from 0; required", 0, flag_values=values
    )
    flags.DEFINE_string(
        "litert",
        None,
        "client: folder of an export with litert_train to train; default none, TensorFlow trains",
        values,
    )
    flags.DEFINE_float(
        "patience", 600.0, "server: seconds after which an unanswered request is lost", 1, flag_values=values
    )
    flags.DEFINE_float(
        "deadline", None, "server: seconds to wait for the devices of a round; default --patience", 1, None, values
    )
    flags.DEFINE_float(
        "quorum", 0.0, "server: share of round.clients whose results a round needs; at least one", 0, 1, values
    )
    flags.DEFINE_float(
        "over_selection", 0.0, "server: share of round.clients to ask in addition, such as 0.3", 0, 10, values
    )
    flags.DEFINE_integer(
        "max_examples", None, "server: most examples of a device; default those of the recipe's data", 1, None, values
    )
    flags.DEFINE_enum(
        "engine",
        None,
        ["auto", "sequential", "stacked"],
        "how clients are computed, as --set engine=; default that of the recipe",
        values,
    )
    flags.DEFINE_enum("state", "best", ["best", "last"], "which state to use", values)
    flags.DEFINE_enum(
        "levels", None, ["global", "all"], "whose models to measure; default evaluate.levels of the recipe", values
    )
    flags.DEFINE_string("level", None, "level whose model to use; default the global model's", values)
    flags.DEFINE_multi_string(
        "input", [], "picture file, row or sentence; the words after predict are the same; required", values
    )
    flags.DEFINE_multi_string(
        "definition", [], "YAML file of a sweep; the word after sweep is the same; required without --recipe", values
    )
    flags.DEFINE_multi_string(
        "sweep", [], "values to try, path=value,value; may be repeated: each with each; default none", values
    )
    flags.DEFINE_string("seeds", None, "seeds of a sweep, such as 0-2 or 0,3; default that of the recipe", values)
    flags.DEFINE_integer("jobs", 1, "runs at a time; --threads are divided among them", 1, 256, flag_values=values)
    flags.DEFINE_bool("dry_run", False, "say which runs a sweep has and how long they take, measured briefly", values)
    flags.DEFINE_multi_string("word", [], "word to explain; the words after explain are the same; required", values)
    flags.DEFINE_multi_string(
        "run", [], "run folders, or folders of them; the words after the command are the same", values
    )
    flags.DEFINE_list("metric", [], "metrics, such as global_accuracy,local_std; default the usual ones", values)
    flags.DEFINE_float(
        "target", None, "value of the first metric that is to be reached; default none", flag_values=values
    )
    flags.DEFINE_list("at", [], "rounds at which to show the first metric, such as 10,20; default none", values)
    flags.DEFINE_list(
        "published", [], "papers' results to show: TABLE, TABLE/ROW, or a .yaml file of tables; default none", values
    )
    flags.DEFINE_enum("as", "markdown", ["markdown", "csv", "latex", "json"], "how the table is written", values)
    flags.DEFINE_enum(
        "x", "round", ["round", "bytes", "seconds", "parameters", "paper_flops"], "what the curves run along", values
    )
    flags.DEFINE_string("y", None, "metric that is drawn; default that of the global model", values)
    flags.DEFINE_enum("band", "range", ["range", "std"], "what the bands over seeds show", values)
    flags.DEFINE_string("out", None, "file or folder to write", values)
    flags.DEFINE_string("draw", None, "PNG file to draw the split into; default none", values)
    flags.DEFINE_list(
        "format", [], "formats beside the SavedModel, such as keras,onnx,litert,litert_train; default none", values
    )
    flags.DEFINE_integer(
        "export_version",
        None,
        "number of the exported version; default the next one",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_string("host", "127.0.0.1", "address to serve at; any other is open to the network", values)
    flags.DEFINE_integer("port", 8501, "port to serve at; 0 takes a free one", 0, 65535, flag_values=values)
    flags.DEFINE_string(
        "versions", "latest:2", "versions to serve: latest, latest:COUNT, all, or numbers such as 3,5", values
    )
    flags.DEFINE_multi_string(
        "allow_host", [], "public host that requests may name, such as that of a proxy; may be repeated", values
    )
    flags.DEFINE_bool("allow_other_machine", False, "resume although the numbers may differ", values)
    flags.DEFINE_bool("json", False, "one JSON line on standard output; sentences go to standard error", values)
    flags.DEFINE_bool("quiet", False, "print nothing but refusals and the line of --json", values)
    flags.DEFINE_bool("debug", False, "show tracebacks", values)
    flags.DEFINE_bool("help", False, "show this help", values, short_name=SHORT)
    flags.DEFINE_bool("version", False, "show the version", values)
    return values


def parse(argv: list[str]) -> tuple[str | None, "flags.FlagValues"]:
    """Returns the command, None where none is named, and the values of the flags; `train` is meant by None.

    Raises:
        InputError: A word is unknown, or a flag has no effect on the command.
    """
    from absl import flags

    values = definitions()
    try:
        for word in argv[1 : argv.index("--") if "--" in argv else None]:
            if match := _OF_ABSL.fullmatch(word):
                raise flags.UnrecognizedFlagError(match.group(1))
        words = values(argv, known_only=False)[1:]
    except flags.UnrecognizedFlagError as error:
        known = [name for name in values if name != SHORT]
        hint = _as_override(error.flagname, argv) or did_you_mean(error.flagname, known)
        raise InputError(f"unknown flag --{error.flagname}{hint}") from error
    except (flags.Error, ValueError) as error:
        # absl has no error of its own for --noFLAG=VALUE.
        raise InputError(f"{_plainly(error)}; --help lists the flags") from error
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


def _as_override(name, argv):
    """How a key of recipes that was typed as a flag is given, as the end of a sentence; "" if it is none."""
    from hetero_tf.recipe.explanations import paths_of

    paths = paths_of(name)[:MOST_PATHS]
    at = next((index for index, word in enumerate(argv) if re.match(f"--?{re.escape(name)}(=|$)", word)), None)
    if not paths or at is None:
        return ""
    _, equals, value = argv[at].partition("=")
    following = argv[at + 1] if at + 1 < len(argv) and not argv[at + 1].startswith("-") else "VALUE"
    given = shlex.quote(value if equals else following)
    return "; use " + " or ".join(f"--set {path}={given}" for path in paths)


def _check(command, values):
    """Refuses flags that have no effect on the command, and values that no computer could use."""
    for name in values:
        if values[name].present and name != SHORT and command not in commands.with_flag(name):
            *first, last = commands.with_flag(name)
            others = f"{', '.join(first)} and {last}" if first else last
            raise InputError(f"--{name} has no effect on {command}; it is a flag of {others}")
    most = max(MOST_THREADS, MOST_THREADS_OF_A_CORE * hardware.cores())
    if not 1 <= values.threads <= most:
        raise InputError(
            f"--threads must be a whole number from 1 to {most}, which is {MOST_THREADS_OF_A_CORE} for each core and "
            f"at least {MOST_THREADS}. Received: --threads={values.threads}"
        )
    for name in PATHS:
        longest = max((part.encode(errors="surrogatepass") for part in (values[name].value or "").split("/")), key=len)
        if len(longest) > LONGEST_NAME:
            raise InputError(
                f"--{name}: a name in a path may have at most {LONGEST_NAME} bytes. "
                f"Received: {longest[:40].decode(errors='replace')}..., {len(longest)} bytes"
            )


def _plainly(error):
    """What absl says about a flag's value, in words that are not Python's."""
    text = " ".join(str(error).split()).rstrip(".")
    text = re.sub(r"Exceeds the limit .* for integer string conversion: .*", "is too large", text)
    text = re.sub(r"invalid literal for int\(\) with base 10: .*", "must be a whole number", text)
    return re.sub(r"\('Non-boolean argument to boolean flag', .*\)", "must be true or false", text)


def program() -> str:
    """How the user called the program, for "what to type next"."""
    return os.environ.get("HETERO_TF_PROGRAM", "hetero_tf")


def plugins(values: "flags.FlagValues") -> str:
    """The modules of one's own, as other commands about the same run are told of them."""
    return "".join(f" --plugin {shlex.quote(name)}" for name in values.plugin)


def again(values: "flags.FlagValues") -> str:
    """The flags that other commands about the same run need too."""
    return plugins(values) + (f" --data_dir {shlex.quote(values.data_dir)}" if values.data_dir else "")
