"""The order of imports inside the package, and the calls that it must not contain, read from the source by `ast`."""

import ast
import re
import shutil
from pathlib import Path

import programs
import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "hetero_tf"

# A room is a package or a module directly in hetero_tf. It imports rooms of earlier lines only; rooms of one line do
# not import each other. `__init__` is the public Python API: its functions may import any room, but its import imports
# none.
LINES = (
    ("base",),
    ("__init__",),
    ("recipe", "store", "data", "partitions"),
    ("fleets",),
    ("layers", "inputs", "methods", "runs"),
    ("planning", "models"),
    ("rounds", "evaluation"),
    ("process",),
    ("run", "reference", "testing"),
    ("describe", "export", "workers", "sweeps", "reports", "devices", "starter"),
    ("cli",),
    ("__main__",),
)
# The inner ring runs a recipe; each package of the outer ring adds commands to it and knows no other one of its ring.
OUTER = LINES[-3]
LINE_OF = {unit: number for number, line in enumerate(LINES) for unit in line}
# Modules that run before a recipe is validated; they must not wait for the import of TensorFlow.
QUICK = ("__init__", "base", "recipe", "store", "data", "partitions", "fleets")
QUICK += ("methods/stages", "methods/schedules", "runs", "reports", "sweeps", "cli")
QUICK += ("workers/__init__", "workers/cluster", "starter")
QUICK += ("evaluation/__init__", "evaluation/class_results")
QUICK += tuple(
    f"planning/{name}" for name in ("__init__", "level_assignment", "plan", "timing", "round_spans", "selection")
)
QUICK += ("devices", "process/__init__", "process/data")
NOT_QUICK = (
    "base/replicas",
    "base/graph_random",
    "base/picture_decoding",
    "base/sound_decoding",
    "base/written_gradient",
)
NOT_QUICK += tuple(f"devices/{name}" for name in ("apps", "device_index", "device_rounds", "tensorflow_client"))
SLOW = {"tensorflow", "keras", "tensorflow_datasets"}
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNSAFE_CALLS = {"eval", "exec", "__import__", "os.system", "os.popen"} | {
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
}
YAML_LOADS = {"yaml.load", "yaml.load_all"}
YAML_UNSAFE = {"yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all"}
YAML_UNSAFE_LOADERS = {"Loader", "UnsafeLoader", "FullLoader", "CLoader", "CFullLoader", "CUnsafeLoader"}
SOURCES = sorted(PACKAGE.rglob("*.py"))


def unit_of(path):
    """`hetero_tf/data/npz.py` -> `data`, `hetero_tf/reference.py` -> `reference`."""
    return Path(path).relative_to(PACKAGE).parts[0].removesuffix(".py")


def is_quick(parts):
    """True if importing the module `hetero_tf/PARTS...` must not import TensorFlow."""
    path = "/".join(parts).removesuffix(".py") + "/"

    def within(folders):
        return any(path.startswith(f"{folder}/") for folder in folders)

    return within(QUICK) and not within(NOT_QUICK)


def dotted(node):
    """`yaml.load` for the expression of that name, "" for anything but names and attributes."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def imports(tree, package):
    """(line, full module name) of every import; `package` resolves relative imports.

    `from a.b import c` gives `a.b.c`, as c may be a module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) + 1 - node.level]) if node.level else ""
            start = ".".join(part for part in (base, node.module) if part)
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)


def at_import(tree):
    """The statements that run at import time: no bodies of functions, no blocks for type checkers."""
    for node in ast.iter_child_nodes(tree):
        for_types = isinstance(node, ast.If) and dotted(node.test) == "TYPE_CHECKING"
        if not for_types and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from at_import(node)


def only_imports(tree):
    """A module of nothing but the imports that run when `tree` is imported."""
    return ast.Module([node for node in at_import(tree) if isinstance(node, ast.Import | ast.ImportFrom)], [])


def upward(source, unit, package="hetero_tf"):
    """Messages about imports of `source`, a part of `unit`, that violate the order."""
    if unit not in LINE_OF:
        return [f"`{unit}` has no position in the order of imports; add it to LINES in tests/project/test_layering.py"]
    tree, messages = ast.parse(source), []
    for line, name in imports(only_imports(tree) if unit == "__init__" else tree, package):
        top, *rest = name.split(".")
        other = rest[0] if rest and rest[0] in LINE_OF else "__init__"
        if top == "hetero_tf" and other != unit and LINE_OF[other] >= LINE_OF[unit]:
            messages.append(f"line {line}: `{unit}` must not import `{other}`, which is on the same or a later line")
    return messages


def slow_imports(source, package="hetero_tf"):
    """Lines that import TensorFlow, or a unit that may import it, when the module is imported."""
    lines = []
    for line, name in imports(only_imports(ast.parse(source)), package):
        top, *rest = name.split(".")
        ours = top == "hetero_tf" and bool(rest) and rest[0] in LINE_OF and rest[0] != "methods"
        if top in SLOW or ours and not is_quick(rest):
            lines.append(line)
    return lines


def unsafe_loader(call, safe):
    """True if a `yaml.load` call names no loader, or one that is not known to be safe."""
    loaders = [word.value for word in call.keywords if word.arg == "Loader"] + call.args[1:2]
    names = [dotted(value).split(".")[-1] for value in loaders]
    return not names or names[0] not in safe


def safe_loaders(trees):
    """SafeLoader, CSafeLoader and the classes in `trees` whose bases are all safe loaders."""
    safe, grown = {"SafeLoader", "CSafeLoader"}, True
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while grown:
        new = {c.name for c in classes if c.bases and all(dotted(base).split(".")[-1] in safe for base in c.bases)}
        grown = not new <= safe
        safe |= new
    return safe - YAML_UNSAFE_LOADERS


def unsafe(source, safe=frozenset({"SafeLoader", "CSafeLoader"})):
    """Messages about code in `source` that could run untrusted code."""
    tree, messages = ast.parse(source), []
    for line, name in imports(tree, "hetero_tf"):
        if name.split(".")[0] in UNSAFE_MODULES or name in UNSAFE_CALLS | YAML_LOADS | YAML_UNSAFE:
            messages.append(f"line {line}: imports {name}")
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = dotted(call.func)
        if name in UNSAFE_CALLS | YAML_UNSAFE or name in YAML_LOADS and unsafe_loader(call, safe):
            messages.append(f"line {call.lineno}: calls {name}")
        for word in call.keywords:
            off = isinstance(word.value, ast.Constant) and not word.value.value
            if word.arg in ("shell", "allow_pickle") and not off:
                messages.append(f"line {call.lineno}: passes {word.arg}")
    return messages


@pytest.fixture(scope="module")
def safe():
    return safe_loaders([ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES])


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_keeps_the_rules(path, safe):
    source, unit = path.read_text(encoding="utf-8"), unit_of(path)
    package = ".".join(path.relative_to(PACKAGE.parent).parts[:-1])
    assert upward(source, unit, package) == []
    assert unsafe(source, safe) == []
    if is_quick(path.relative_to(PACKAGE).parts):
        assert slow_imports(source, package) == [], f"`{unit}` must import TensorFlow in functions only"


QUICK_COMMANDS = {
    "help": "from hetero_tf.cli.main import main; assert main(['hetero_tf', '--help']) == 0",
    "a refusal": "from hetero_tf.cli.main import main; assert main(['hetero_tf', '--recipe=digitz']) == 2",
    "recipes": "from hetero_tf import recipe; recipe.load('cifar10')",
    "versions": "from hetero_tf.store.environment import environment; environment({}, {})",
}


@pytest.mark.parametrize("name", QUICK_COMMANDS)
def test_quick_commands_do_not_import_tensorflow(name):
    done = programs.python(f"import sys; {QUICK_COMMANDS[name]}; print({SLOW} & set(sys.modules))")
    assert done.stdout.splitlines()[-1:] == ["set()"], done.stderr


COMMANDS_OF = {
    "describe": ("describe",),
    "export": ("export", "predict", "serve"),
    "workers": ("launch",),
    "sweeps": ("sweep",),
    "reports": ("compare", "plot", "report", "tensorboard"),
    "devices": ("flower", "measure_device"),
    "starter": ("new",),
}


@pytest.fixture
def without(tmp_path):
    """Run code in a copy of the package that lacks some outer packages and their commands."""
    # With its compiled modules, which take seconds to write.
    shutil.copytree(PACKAGE, tmp_path / "hetero_tf")
    shutil.copytree(PACKAGE.parent / "recipes", tmp_path / "recipes")

    def run(removed, code):
        for name in removed:
            shutil.rmtree(tmp_path / "hetero_tf" / name)
            for command in COMMANDS_OF[name]:
                (tmp_path / "hetero_tf" / "cli" / "commands" / f"{command}.py").unlink()
        code = f"from hetero_tf.cli import commands, main; assert main.main(['hetero_tf', '--help']) == 0; {code}"
        return programs.python(code, cwd=tmp_path, env=programs.environment() | {"PYTHONPATH": str(tmp_path)})

    return run


def test_a_recipe_runs_without_outer_packages_and_their_commands(without, tmp_path):
    train = "main.main(['hetero_tf', '--recipe=tiny/digits', '--run_dir=run', '--set=rounds=1', '--quiet'])"
    done = without(OUTER, f"assert {train} == 0; assert main.main(['hetero_tf', 'evaluate', '--run_dir=run']) == 0")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "costs.json").exists()


@pytest.mark.parametrize("name", OUTER)
def test_the_commands_of_other_outer_packages_are_imported_without_one(name, without):
    others = sorted(sum((COMMANDS_OF[other] for other in OUTER if other != name), ()))
    code = "; ".join(f"importlib.import_module('hetero_tf.cli.commands.{each}')" for each in others)
    done = without((name,), f"import importlib; {code}")
    assert done.returncode == 0, done.stderr


def test_every_folder_of_modules_is_a_package():
    folders = {path.parent for path in SOURCES}
    assert len(folders) > 5
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize(
    ("source", "unit", "other"),
    [
        ("from hetero_tf import rounds", "data", "rounds"),
        ("import hetero_tf.run.loop", "rounds", "run"),
        ("from hetero_tf.models import build", "planning", "models"),
        ("def f():\n    from hetero_tf.cli.main import main", "run", "cli"),
        ("from ..rounds.cut import Cut", "layers", "rounds"),
        ("from .. import recipe", "base", "recipe"),
        ("from hetero_tf import process", "__init__", "process"),
        ("from hetero_tf.describe import describe", "run", "describe"),
        ("from hetero_tf.workers import worker_rounds", "devices", "workers"),
    ],
)
def test_imports_against_the_order_are_reported(source, unit, other):
    package = f"hetero_tf.{unit}" if ".." in source else "hetero_tf"
    (sentence,) = upward(source, unit, package)
    assert f"`{unit}` must not import `{other}`" in sentence


@pytest.mark.parametrize(
    ("source", "unit", "package"),
    [
        ("from hetero_tf.base import errors, seeds", "data", "hetero_tf.data"),
        ("from hetero_tf.data.dataset import Split", "data", "hetero_tf.data"),
        ("from .dataset import Split", "data", "hetero_tf.data"),
        ("from hetero_tf.base.version import __version__", "recipe", "hetero_tf.recipe"),
        ("import numpy as np", "base", "hetero_tf.base"),
        ("def open():\n    from hetero_tf import process", "__init__", "hetero_tf"),
    ],
)
def test_imports_along_the_order_are_allowed(source, unit, package):
    assert upward(source, unit, package) == []


def test_a_unit_without_a_position_is_reported():
    assert upward("", "wizard") == [
        "`wizard` has no position in the order of imports; add it to LINES in tests/project/test_layering.py"
    ]


def test_slow_imports_are_reported_at_import_time_only():
    assert slow_imports("import os\nimport tensorflow as tf") == [2]
    assert slow_imports("try:\n    from keras import ops\nexcept ImportError:\n    pass") == [2]
    assert slow_imports("class A:\n    import tensorflow_datasets") == [2]
    assert slow_imports("from hetero_tf.layers import scaler") == [1]
    assert slow_imports("from ..layers import scaler", "hetero_tf.data") == [1]
    assert slow_imports("def load():\n    import tensorflow_datasets as tfds") == []
    assert slow_imports("from hetero_tf.base import errors\nimport numpy") == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from marshal import loads",
        "from os import system",
        "eval('1')",
        "exec(text)",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.load(text, yaml.FullLoader)",
        "yaml.load(text, Loader=choose())",
        "yaml.unsafe_load(text)",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "subprocess.run('ls', shell=wanted)",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_unsafe_calls_are_reported(source):
    assert len(unsafe(source)) == 1


def test_safe_calls_are_allowed():
    source = (
        "yaml.safe_load(text)\nyaml.load(text, Loader=yaml.SafeLoader)\nnp.load(path, allow_pickle=False)\n"
        "model.eval()\nsubprocess.run(['ls'], shell=False)"
    )
    assert unsafe(source) == []


def test_a_loader_is_safe_if_all_its_bases_are():
    tree = ast.parse(
        "class B(A): pass\nclass A(yaml.SafeLoader): pass\nclass C(A, Other): pass\nclass D: pass\n"
        "class FullLoader(yaml.SafeLoader): pass"
    )
    assert safe_loaders([tree]) == {"SafeLoader", "CSafeLoader", "A", "B"}
    assert unsafe("yaml.load(text, Loader=B)", safe_loaders([tree])) == []
    assert unsafe("yaml.load(text, Loader=C)", safe_loaders([tree])) == ["line 1: calls yaml.load"]


def test_build_md_describes_the_checked_structure():
    text = (PACKAGE.parent / "BUILD.md").read_text()
    block = re.search(r"## Architecture.*?```\n(.*?)```", text, re.DOTALL).group(1)
    drawn = [line.split("#")[0].strip() for line in re.sub(r",\n +", ", ", block).splitlines()]
    assert drawn == [", ".join(line) for line in LINES]
