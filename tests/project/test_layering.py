"""The order of imports inside the package, and the calls that it must not contain, read from the source by `ast`."""

import ast
import re
import shutil
from pathlib import Path

import programs
import pytest
from import_graph import imports

PACKAGE = Path(__file__).resolve().parents[2] / "hetero_tf"

# A room is a package or a module directly in hetero_tf. It imports rooms of earlier lines only; rooms of one line do
# not import each other. `__init__` is the public Python API: its functions may import any room, but its import imports
# none.
LINES = (
    ("base",),
    ("__init__",),
    ("recipe", "data"),
    ("layers", "methods", "runs"),
    ("planning",),
    ("models",),
    ("rounds", "evaluation"),
    ("run",),
    ("reference", "testing"),
    ("export", "workers", "sweeps", "reports", "devices", "starter"),
    ("cli",),
    ("__main__",),
)
# The inner ring runs a recipe; each package of the outer ring adds commands to it and knows no other one of its ring.
OUTER = LINES[-3]
LINE_OF = {unit: number for number, line in enumerate(LINES) for unit in line}
# Modules that run before a recipe is validated; they must not wait for the import of TensorFlow.
QUICK = {"__init__", "base", "recipe", "data", "runs", "reports", "sweeps", "cli"}
QUICK |= {"methods/stages", "methods/schedules", "workers/__init__", "workers/cluster", "starter", "devices"}
QUICK |= {f"evaluation/{name}" for name in ("__init__", "class_results")}
QUICK |= {f"planning/{name}" for name in ("__init__", "level_assignment", "plan", "timing", "selection")}
QUICK |= {"run/__init__", "run/data", "run/round_spans", "planning/fleets"}
NOT_QUICK = {
    f"base/{name}" for name in ("replicas", "graph_random", "picture_decoding", "sound_decoding", "written_gradient")
}
NOT_QUICK |= {"data/inputs", "reports/describe"}
NOT_QUICK |= {f"devices/{name}" for name in ("apps", "device_index", "device_rounds", "tensorflow_client")}
SLOW = {"tensorflow", "keras", "tensorflow_datasets"}
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNSAFE_CALLS = {"eval", "exec", "__import__", "os.system", "os.popen"}
UNSAFE_CALLS |= {"subprocess.getoutput", "subprocess.getstatusoutput"}
YAML_LOADS = {"yaml.load", "yaml.load_all"}
YAML_UNSAFE = {"yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all"}
YAML_UNSAFE_LOADERS = {"Loader", "UnsafeLoader", "FullLoader", "CLoader", "CFullLoader", "CUnsafeLoader"}


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


def upward(tree, unit, package="hetero_tf"):
    """Messages about imports of a module, a part of `unit`, that violate the order."""
    if unit not in LINE_OF:
        return [f"`{unit}` has no position in the order of imports; add it to LINES in tests/project/test_layering.py"]
    messages = []
    for line, name in imports(only_imports(tree) if unit == "__init__" else tree, package):
        top, *rest = name.split(".")
        other = rest[0] if rest and rest[0] in LINE_OF else "__init__"
        if top == "hetero_tf" and other != unit and LINE_OF[other] >= LINE_OF[unit]:
            messages.append(f"line {line}: `{unit}` must not import `{other}`, which is on the same or a later line")
    return messages


def slow_imports(tree, package="hetero_tf"):
    """Messages about imports of TensorFlow, or of a unit that may import it, when a quick module is imported."""
    messages = []
    for line, name in imports(only_imports(tree), package):
        top, *rest = name.split(".")
        ours = top == "hetero_tf" and bool(rest) and rest[0] in LINE_OF and rest[0] != "methods"
        if top in SLOW or ours and not is_quick(rest):
            messages.append(f"line {line}: imports {name}; quick modules import TensorFlow in functions only")
    return messages


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


def unsafe(tree, safe=frozenset({"SafeLoader", "CSafeLoader"})):
    """Messages about code that could run untrusted code."""
    messages = []
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
def trees():
    """The syntax trees of all modules, by path."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def test_every_module_keeps_the_rules(trees):
    safe, broken = safe_loaders(trees.values()), []
    for path, tree in trees.items():
        parts, unit = path.relative_to(PACKAGE).parts, unit_of(path)
        package = ".".join(("hetero_tf", *parts[:-1]))
        messages = upward(tree, unit, package) + unsafe(tree, safe)
        messages += slow_imports(tree, package) if is_quick(parts) else []
        broken += [f"{'/'.join(parts)}: {message}" for message in messages]
    assert len(trees) > 400
    assert not broken, "\n".join(broken)


def test_every_folder_of_modules_is_a_package(trees):
    folders = {path.parent for path in trees}
    assert len(folders) > 5
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


# Started in this order, in one process.
QUICK_COMMANDS = {
    "import": "import hetero_tf",
    "versions": "from hetero_tf.runs.environment import environment; environment({}, {})",
    "recipes": "from hetero_tf import recipe; recipe.load('cifar10')",
    "help": "from hetero_tf.cli.main import main; assert main(['hetero_tf', '--help']) == 0",
    "a refusal": "from hetero_tf.cli.main import main; assert main(['hetero_tf', '--recipe=digitz']) == 2",
}


def test_quick_commands_do_not_import_tensorflow():
    checks = [f"{code}; print({name!r}, {SLOW} & set(sys.modules))" for name, code in QUICK_COMMANDS.items()]
    done = programs.python("\n".join(["import sys", *checks]))
    printed = [line for line in done.stdout.splitlines() if line.rpartition(" ")[0] in QUICK_COMMANDS]
    assert printed == [f"{name} set()" for name in QUICK_COMMANDS], done.stdout + done.stderr


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


@pytest.mark.long
def test_a_recipe_runs_without_outer_packages_and_their_commands(without, tmp_path):
    train = "main.main(['hetero_tf', '--recipe=tiny/digits', '--run_dir=run', '--set=rounds=1', '--quiet'])"
    done = without(OUTER, f"assert {train} == 0; assert main.main(['hetero_tf', 'evaluate', '--run_dir=run']) == 0")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "costs.json").exists()


@pytest.mark.long
@pytest.mark.parametrize("name", OUTER)
def test_the_commands_of_other_outer_packages_are_imported_without_one(name, without):
    others = sorted(sum((COMMANDS_OF[other] for other in OUTER if other != name), ()))
    code = "; ".join(f"importlib.import_module('hetero_tf.cli.commands.{each}')" for each in others)
    done = without((name,), f"import importlib; {code}")
    assert done.returncode == 0, done.stderr


# (unit, source): the unit in the message; None if the import is allowed.
IMPORTS = {
    ("data", "from hetero_tf import rounds"): "rounds",
    ("rounds", "import hetero_tf.run.loop"): "run",
    ("run", "def f():\n    from hetero_tf.cli.main import main"): "cli",
    ("layers", "from ..rounds.cut import Cut"): "rounds",
    ("base", "from .. import recipe"): "recipe",
    ("__init__", "from hetero_tf import run"): "run",
    ("devices", "from hetero_tf.workers import worker_rounds"): "workers",
    ("data", "from hetero_tf.base import errors, seeds"): None,
    ("data", "from .dataset import Split"): None,
    ("base", "import numpy as np"): None,
    ("__init__", "def open():\n    from hetero_tf import run"): None,
}


def test_imports_against_the_order_are_reported():
    for (unit, source), other in IMPORTS.items():
        messages = upward(ast.parse(source), unit, "hetero_tf" if unit == "__init__" else f"hetero_tf.{unit}")
        reported = [message.partition(": ")[2].partition(",")[0] for message in messages]
        assert reported == ([f"`{unit}` must not import `{other}`"] if other else []), source
    assert upward(ast.parse(""), "wizard") == [
        "`wizard` has no position in the order of imports; add it to LINES in tests/project/test_layering.py"
    ]


# Source of a quick module of `data`: the line of an import that is slow; None without one.
QUICK_SOURCES = {
    "import os\nimport tensorflow as tf": 2,
    "try:\n    from keras import ops\nexcept ImportError:\n    pass": 2,
    "class A:\n    import tensorflow_datasets": 2,
    "from hetero_tf.layers import scaler": 1,
    "from ..layers import scaler": 1,
    "def load():\n    import tensorflow_datasets as tfds": None,
    "from hetero_tf.base import errors\nimport numpy": None,
}


def test_slow_imports_are_reported_at_import_time_only():
    for source, line in QUICK_SOURCES.items():
        messages = slow_imports(ast.parse(source), "hetero_tf.data")
        assert [message.partition(":")[0] for message in messages] == ([f"line {line}"] if line else []), source


# Each statement is reported once, or never.
UNSAFE = [
    "import pickle",
    "from marshal import loads",
    "from os import system",
    "eval('1')",
    "exec(text)",
    "os.system('ls')",
    "yaml.load(text)",
    "yaml.load(text, Loader=yaml.Loader)",
    "yaml.load(text, yaml.FullLoader)",
    "yaml.unsafe_load(text)",
    "yaml.load(text, Loader=choose())",
    "yaml.load(text, Loader=C)",
    "subprocess.run('ls', shell=True)",
    "subprocess.run('ls', shell=wanted)",
    "np.load(path, allow_pickle=True)",
]
SAFE = [
    "yaml.safe_load(text)",
    "yaml.load(text, Loader=yaml.SafeLoader)",
    "yaml.load(text, Loader=B)",
    "model.eval()",
    "subprocess.run(['ls'], shell=False)",
    "np.load(path, allow_pickle=False)",
]


def test_unsafe_calls_are_reported():
    """A loader is safe if all its bases are."""
    loaders = (
        "class B(A): pass\nclass A(yaml.SafeLoader): pass\nclass C(A, Other): pass\nclass D: pass\n"
        "class FullLoader(yaml.SafeLoader): pass"
    )
    safe = safe_loaders([ast.parse(loaders)])
    assert safe == {"SafeLoader", "CSafeLoader", "A", "B"}
    reported = {source: len(unsafe(ast.parse(source), safe)) for source in (*UNSAFE, *SAFE)}
    assert reported == dict.fromkeys(UNSAFE, 1) | dict.fromkeys(SAFE, 0)


def test_build_md_describes_the_checked_structure():
    text = (PACKAGE.parent / "BUILD.md").read_text()
    block = re.search(r"## Architecture.*?```\n(.*?)```", text, re.DOTALL).group(1)
    drawn = [line.split("#")[0].strip() for line in re.sub(r",\n +", ", ", block).splitlines()]
    assert drawn == [", ".join(line) for line in LINES]
