"""Writes the pages of `docs/reference` from the code: `python docs/reference_pages.py`, in the checkout.

Everything is read from source text, the recipes and the glossary; TensorFlow is not imported.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hetero_tf import recipe  # noqa: E402
from hetero_tf.base import constraints, errors, hardware, processes, registry  # noqa: E402
from hetero_tf.base.constraints import Option, inline_plugin, walk_keys  # noqa: E402
from hetero_tf.base.errors import InputError  # noqa: E402
from hetero_tf.base.metrics import all_metrics  # noqa: E402
from hetero_tf.cli import commands, flags  # noqa: E402
from hetero_tf.recipe import geometry  # noqa: E402
from hetero_tf.recipe.explanations import allowed, format_default  # noqa: E402
from hetero_tf.recipe.recipe_files import PLUGINS, shipped  # noqa: E402
from hetero_tf.recipe.schema import Recipe  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
PACKAGE = ROOT / "hetero_tf"
# Sections of a docstring that become lists.
SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Yields")
# The Python interface: public name -> definition, as FILE:NAME; of a class also its public methods.
API = {
    "Recipes, training and runs": {
        "hetero_tf.load_recipe": "__init__.py:load_recipe",
        "hetero_tf.learning_process": "run/learning_process.py:learning_process",
        "hetero_tf.train": "run/callbacks.py:train",
        "hetero_tf.load_run": "__init__.py:load_run",
        "hetero_tf.load_model": "export/formats/keras.py:load",
        "hetero_tf.static_norms": "models/custom_model.py:static_norms",
        "hetero_tf.base.registry.register_plugin": "base/registry.py:register_plugin",
        "hetero_tf.testing.check_plugin": "testing/__init__.py:check_plugin",
    },
    "The learning process": {
        "hetero_tf.run.learning_process.LearningProcess": "run/learning_process.py:LearningProcess",
        "hetero_tf.models.state.State": "models/state.py:State",
    },
    "Callbacks": {
        f"hetero_tf.run.callbacks.{name}": f"run/callbacks.py:{name}"
        for name in ("RoundEnd", "Trained", "EarlyStopping", "Checkpoint", "log")
    }
    | {"hetero_tf.run.live_curves.LiveCurves": "run/live_curves.py:LiveCurves"},
    "Data": {
        "hetero_tf.data.from_arrays": "data/in_memory.py:from_arrays",
        "hetero_tf.data.from_tf_data": "data/in_memory.py:from_tf_data",
        "hetero_tf.data.DiskArray": "data/disk_array.py:DiskArray",
        "hetero_tf.data.Dataset": "data/dataset.py:Dataset",
    },
    "Exports and devices": {
        "hetero_tf.export.predictions.predictor_of_process": "export/predictions.py:predictor_of_process",
        "hetero_tf.export.predictions.predict": "export/predictions.py:predict",
        "hetero_tf.export.predictions.Item": "export/predictions.py:Item",
        "hetero_tf.devices.on_device.LiteRTTrainer": "devices/on_device.py:LiteRTTrainer",
    },
}
# Tasks with the overrides that a method's recipe needs for them.
TASKS = {
    "classification": (),
    "binary": ("client.loss=null", "data.classes=2"),
    "ordinal": ("client.loss=null",),
    "regression": ("client.loss=null",),
    "multi_label": ("client.loss=null",),
    "segmentation": (),
}
METHODS = sorted(name for name in shipped() if name.startswith("methods/"))
IMAGES = "data={name: synthetic, kind: images, examples: 60, test_examples: 20, size: 8, channels: 3, classes: 3}"
SHAPES = "data={name: shapes, examples: 60, test_examples: 20, size: 8}"


def pages() -> dict[str, str]:
    """Return `{file name in docs/reference: text}` of all pages."""
    texts = {
        "keys.md": keys_page(),
        **{f"plugins/{kind}.md": plugin_page(kind) for kind in registry.EXPORTS},
        "layers.md": layers_page(),
        "metrics.md": metrics_page(),
        "methods.md": methods_page(),
        "commands.md": commands_page(),
        "exit_codes.md": exit_codes_page(),
        "python.md": python_page(),
        "glossary.md": (ROOT / "recipes" / "GLOSSARY.md").read_text("utf-8"),
    }
    return {"README.md": index_page(texts), **texts}


def write() -> None:
    """Write all pages, and delete pages of removed parts."""
    texts = pages()
    for path in FOLDER.rglob("*.md"):
        if path.relative_to(FOLDER).as_posix() not in texts:
            path.unlink()
    for name, text in texts.items():
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(text, "utf-8")


def table(head: tuple[str, ...], rows: list[tuple]) -> str:
    """Return a Markdown table of plain texts and links."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(
        f"| {' | '.join(escape(str(cell)).replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


def escape(text: str) -> str:
    """Escape characters of plain text that Markdown would read as emphasis or HTML, except in code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("*", r"\*").replace("<", "&lt;") for part in parts)


def page(title: str, text: str, *parts: str) -> str:
    """Return a page: heading, introduction, parts."""
    return "\n".join([f"# {title}\n", textwrap.fill(text, 120) + "\n", *parts])


def index_page(texts: dict[str, str]) -> str:
    rows = []
    for name, text in texts.items():
        title, introduction = text.removeprefix("# ").split("\n\n")[:2]
        rows.append((f"[{title}]({name})", " ".join(introduction.split()).split(". ")[0].removesuffix(".")))
    return page(
        "Reference",
        "These pages are generated from the code by `python docs/reference_pages.py`.",
        table(("page", "content"), rows),
    )


def keys_page() -> str:
    """Every key of a recipe, by section."""
    rows_by_section: dict[str, list[tuple]] = {}
    for path, option in walk_keys(Recipe):
        name, section = ".".join(path), path[0] if len(path) > 1 or option.is_section else "Top level"
        if option.is_section and not (option := _inline(option)):
            continue
        name += "" if len(path) > 1 or section == "Top level" else ".name"
        rows_by_section.setdefault(section, []).append((f"`{name}`", *_option_cells(option)))
    parts = [
        f"## {section}\n\n{table(('key', 'allowed', 'default', 'meaning'), rows)}"
        for section, rows in rows_by_section.items()
    ]
    return page(
        "Keys of recipes",
        "Every key of a recipe. `--set KEY=VALUE` changes one of them, and `hetero_tf explain KEY` prints its entry.",
        *parts,
    )


def _inline(section: Option) -> Option | None:
    """Return the plug-in of a section, with the meaning of the section."""
    plugin = inline_plugin(section.constraint.section)
    return plugin and Option(plugin.name, plugin.constraint, plugin.default, section.doc)


def _option_cells(option: Option) -> tuple[str, str, str]:
    values = allowed(option.constraint)
    if option.constraint.kind:
        values += f" ([options](plugins/{option.constraint.kind}.md))"
    return values, format_default(option), option.doc.removesuffix(".")


def plugin_page(kind: str) -> str:
    """Every plug-in of a kind with its description, source and options."""
    tree = _parse(_folder(kind) / "__init__.py")
    purpose = re.split(r"[:.,]", ast.get_docstring(tree))[0]
    keys = [f"`{'.'.join(path)}`" for path, option in PLUGINS.items() if option.constraint.kind == kind]
    return page(
        f"Plug-ins: {kind}",
        f"{purpose}: the values of {' and '.join(keys) or '`evaluate.metrics`'}.",
        *(plugin_entry(kind, name) for name in registry.names(kind)),
    )


def plugin_entry(kind: str, name: str) -> str:
    if (module := registry.module_name(kind, name).rpartition(".")[2]) != name:
        return f"## {name}\n\nThe same as [`{module}`](#{module}), with the same options.\n"
    tree = _parse(_folder(kind) / f"{name}.py")
    details = describe(ast.get_docstring(_definition(tree, registry.EXPORTS[kind])) or "")
    rows = [(f"`{option.name}`", *_option_cells(option)) for option in registry.options(kind, name).values()]
    options = table(("option", "allowed", "default", "meaning"), rows) if rows else "No options.\n"
    return "\n".join([f"## {name}\n", f"{registry.meaning(kind, name)}\n", details, options])


def layers_page() -> str:
    """Every layer of recipes with its arguments."""
    own = registry.names("layers")
    keras = [name for name in geometry.known_layers() if name not in own]
    lists = {"activation": constraints.ACTIVATIONS, "initializer": constraints.INITIALIZERS}
    parts = [f"An *{noun}* is one of {', '.join(f'`{name}`' for name in names)}.\n" for noun, names in lists.items()]
    parts += ["## Layers of hetero_tf\n", *(_layer_entry(name) for name in own)]
    parts += ["## Layers of Keras\n", "They compute what Keras documents.\n", *(_layer_entry(name) for name in keras)]
    text = page("Layers", "The layers of `model.layers`, and the arguments that a recipe may set.", *parts)
    for noun, names in lists.items():
        text = text.replace(f"one of {', '.join(names)}", f"an *{noun}*")
    return text


def _layer_entry(name):
    options = geometry.layer_options(name).values()
    head, details = ("argument", "allowed", "default"), []
    if name in registry.names("layers"):
        tree = _parse(PACKAGE / "layers" / f"{registry.snake_case(name)}.py")
        details, head = [describe(ast.get_docstring(_definition(tree, name)))], (*head, "meaning")
    rows = [(f"`{option.name}`", *_option_cells(option))[: len(head)] for option in options]
    return "\n".join([f"### {name}\n", *details, table(head, rows) if rows else "No arguments.\n"])


def metrics_page() -> str:
    """Every metric of `metrics.jsonl`."""
    metrics, plugins = all_metrics(), registry.names("metrics")
    sample = plugins[-1]
    meaning = metrics[f"local_{sample}_std"].meaning.rpartition(": ")[2]
    templates = [
        (f"`{name.replace(sample, 'METRIC')}`", metric.meaning.replace(meaning, "METRIC"))
        for name, metric in metrics.items()
        if sample in name
    ]
    measured = [
        (f"`{name}`", registry.meaning("metrics", name), metric.better, metric.unit, ", ".join(metric.targets))
        for name in plugins
        for metric in [metrics[f"global_{name}"]]
    ]
    others = [
        (f"`{name}`", metric.meaning, metric.better or "", metric.unit)
        for name, metric in metrics.items()
        if name
        not in {template.replace("METRIC", plugin).strip("`") for template, _ in templates for plugin in plugins}
    ]
    return page(
        "Metrics",
        "The entries of `metrics.jsonl`. Global is the global model on the complete test set, Local the global model "
        "on each client's test examples, validation the global model on the clients' held-out training examples, and "
        "level the model of each level on the complete test set (`evaluate.levels: all`).",
        "## Rounds, losses and clients\n",
        table(("metric", "meaning", "better", "unit"), others),
        "## Metrics of tasks\n",
        "Each METRIC of the task, and of `evaluate.metrics`, has these entries:\n",
        table(("metric", "meaning"), templates),
        table(("METRIC", "meaning", "better", "unit", "targets"), measured),
    )


def methods_page() -> str:
    """The tasks that each method trains."""
    reasons = {name: {task: rejection(name, task) for task in TASKS} for name in METHODS}
    links = {name: f"[{name.removeprefix('methods/')}](../../recipes/{name}.yaml)" for name in METHODS}
    rows = [(links[name], *("no" if text else "yes" for text in reasons[name].values())) for name in METHODS]
    texts = [
        (links[name], ", ".join(task for task in TASKS if reasons[name][task] == text), text)
        for name in METHODS
        for text in dict.fromkeys(filter(None, reasons[name].values()))
    ]
    return page(
        "Methods and tasks",
        "The tasks that each recipe of `recipes/methods` trains. Other tasks than classification need `client.loss: "
        "null`. Segmentation needs a model without strides whose heads are convolutions of one pixel.",
        table(("recipe", *TASKS), rows),
        "A recipe with a *no* trains the task with `client.coupling: sum`. The reasons:\n",
        table(("recipe", "task", "reason"), texts),
    )


def load_method(name: str, task: str, overrides: tuple[str, ...] = ()) -> Recipe:
    """Load the recipe of a method for a task, on generated pictures.

    Raises:
        InputError: The method does not train the task.
    """
    changes = [SHAPES if task == "segmentation" else IMAGES, *overrides, f"task={task}", *TASKS[task]]
    if task == "segmentation":
        changes.append(f"model.layers=\n{layers_of_maps(name)}")
    return recipe.load(name, changes)


def layers_of_maps(name: str) -> str:
    """Return the layers of a method with logits for each pixel: no strides, and convolutions of one pixel as heads."""
    text = (ROOT / "recipes" / f"{name}.yaml").read_text("utf-8")
    layers = re.search(r"(?m)^  layers:\n((?:    .*\n)+)", text)
    if layers is None:
        return layers_of_maps(re.search(r"(?m)^base: (.+)$", text)[1])
    changed = layers[1].replace("stride: 2", "stride: 1")
    # DepthFL's exits halve the maps.
    changed = re.sub(r"(AttentionGate|SeparableBlock): \{[^}]*\},\s*", "", changed)
    head = "Conv2D: {kernel_size: 1, filters: !classes}"
    return re.sub(r"GlobalAveragePooling2D,\s*Dense: \{[^}]*\}", head, changed)


def rejection(name: str, task: str) -> str | None:
    """Return the reason for which a method does not train a task, or None."""
    try:
        load_method(name, task)
    except InputError as error:
        _, key, reason = str(error).split(": ", 2)
        return f"`{key}` {reason.partition('. Received: ')[0].replace(f'the task {task}', 'the task')}"
    return None


def commands_page() -> str:
    """Every command with its flags."""
    common = [(f"`--{name}`", flags.describe_flag("train", name)) for name in commands.COMMON]
    return page(
        "Commands",
        "The commands of the program and their flags. In a checkout, the program is `bin/hetero_tf`. "
        "`hetero_tf COMMAND --help` prints the same lists. Without a command, `hetero_tf --recipe RECIPE` trains.",
        *(_command_entry(name) for name in commands.COMMANDS),
        "## Flags of every command\n",
        table(("flag", "meaning"), common),
    )


def _command_entry(name):
    command = commands.COMMANDS[name]
    meanings = {flag: flags.describe_flag(name, flag) for flag in command.flag_names}
    if "threads" in meanings:
        # The default is the number of cores of this machine.
        meanings["threads"] = meanings["threads"].replace(f"default {hardware.core_count()}", "default: all cores")
    rows = [(f"`--{flag}`", meaning) for flag, meaning in meanings.items()]
    usage, summary = f"    hetero_tf {command.usage}\n", command.summary[0].upper() + command.summary[1:]
    return "\n".join([f"## {name}\n", usage, f"{summary}.\n", table(("flag", "meaning"), rows)])


def exit_codes_page() -> str:
    """Every exit code of the program."""
    classes = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.UserError)
    ]
    rows = [
        (cls.code, f"`{cls.__name__}`", inspect.cleandoc(cls.__doc__).partition("\n\n")[0])
        for cls in sorted(classes, key=lambda cls: cls.code)
        if cls.code > 1
    ]
    signals = [(f"128 + {signal:d} = {128 + signal}", f"`{signal.name}`") for signal in processes.SIGNALS]
    return page(
        "Exit codes",
        "The exit codes of the program. A failed command prints one sentence on standard error; `--debug` adds the "
        "traceback. In Python, the same sentence is the text of an exception of `hetero_tf.base.errors`.",
        table(
            ("code", "exception", "meaning"), [(0, "", "The command succeeded."), (1, "", "A bug in hetero_tf."), *rows]
        ),
        "A signal ends a run after its last finished round is saved; the same command continues it. The code is 128 "
        "and the number of the signal, here those of Linux:\n",
        table(("code", "signal"), signals),
    )


def python_page() -> str:
    """The Python interface."""
    parts = []
    for title, names in API.items():
        parts += [f"## {title}\n", *(text for name, location in names.items() for text in _api_entries(name, location))]
    return page(
        "Python interface",
        "The functions and classes for notebooks and programs. `import hetero_tf` takes a fraction of a second; "
        "TensorFlow is imported by the first call that needs it.",
        *parts,
    )


def _api_entries(name: str, location: str) -> Iterator[str]:
    file, _, symbol = location.partition(":")
    node = _definition(_parse(PACKAGE / file), symbol)
    yield _api_entry(f"### {name.rpartition('.')[2]}", name, node)
    if isinstance(node, ast.ClassDef):
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_") and ast.get_docstring(method):
                yield _api_entry(f"#### {symbol}.{method.name}", method.name, method)


def _api_entry(heading, name, node):
    signature = name if isinstance(node, ast.ClassDef) else name + _signature(node)
    return "\n".join(
        [f"{heading}\n", f"```python\n{signature}\n```\n", describe(ast.get_docstring(node), sections=SECTIONS)]
    )


def _signature(node):
    """Return the parameters and the result of a function as source text; of a property its type."""
    returns = _annotation(node.returns)
    if any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
        return f": {returns}"
    positional, keywords = [*node.args.posonlyargs, *node.args.args], node.args.kwonlyargs
    defaults = [*[None] * (len(positional) - len(node.args.defaults)), *node.args.defaults, *node.args.kw_defaults]
    texts = [
        f"{argument.arg}: {_annotation(argument.annotation)}{f' = {ast.unparse(default)}' if default else ''}"
        for argument, default in zip([*positional, *keywords], defaults, strict=True)
        if argument.arg not in ("self", "cls")
    ]
    if keywords:
        texts.insert(len(texts) - len(keywords), "*")
    line = f"({', '.join(texts)}) -> {returns}"
    return line if len(line) < 60 else f"(\n{''.join(f'    {text},{chr(10)}' for text in texts)}) -> {returns}"


def _annotation(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def describe(docstring: str, sections: tuple[str, ...] = ()) -> str:
    """Return a docstring as Markdown.

    Args:
        docstring: Text with sections such as `Args:`, each a line and indented entries `name: meaning`.
        sections: Titles of the sections to include, as lists; others are left out.
    """
    parts = []
    for block in re.split(r"\n\n+", inspect.cleandoc(docstring)):
        title, _, entries = block.partition(":\n")
        if title not in SECTIONS:
            parts.append(escape(re.sub(r"\n(?=(Input|Output|Reference)\w* ?[\w ]*: )", "\n\n", block)) + "\n")
        elif title in sections:
            entries = escape(textwrap.dedent(entries))
            if title not in ("Returns", "Yields"):
                entries = re.sub(r"(?m)^([\w, ]+): ", r"- `\1`: ", re.sub(r"\n {4,}", " ", entries))
            parts.append(f"**{title}**\n\n{entries}\n")
    return "\n".join(parts)


def _folder(kind):
    return PACKAGE.joinpath(*registry.folder(kind))


def _parse(path):
    return ast.parse(path.read_text("utf-8"))


def _definition(tree, name):
    """Return the function or class of a name."""
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name)


if __name__ == "__main__":
    write()
