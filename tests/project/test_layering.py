"""The order of imports inside the package, and the calls that it must not contain."""

import ast
import re
import shutil
from pathlib import Path

import programs
import pytest
from import_graph import imports

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "hetero_tf"

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
QUICK |= {f"planning/{name}" for name in ("__init__", "plan", "timing", "selection")}
QUICK |= {"run/__init__", "run/data", "planning/fleets"}
NOT_QUICK = {f"base/{name}" for name in ("replicas", "graph_random", "picture_decoding", "written_gradient")}
NOT_QUICK |= {"data/inputs", "data/graph_tokenizer", "reports/describe"}
# Modules of commands are imported after TensorFlow if the command needs it.
NOT_QUICK |= {"cli/commands/evaluation", "cli/commands/training"}
NOT_QUICK |= {f"devices/{name}" for name in ("device_index", "device_rounds", "tensorflow_client")}
SLOW = {"tensorflow", "keras", "tensorflow_datasets"}


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


@pytest.fixture(scope="module")
def trees():
    """The syntax trees of all modules, by path."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def test_every_module_keeps_the_rules(trees):
    broken = []
    for path, tree in trees.items():
        parts, unit = path.relative_to(PACKAGE).parts, unit_of(path)
        package = ".".join(("hetero_tf", *parts[:-1]))
        messages = upward(tree, unit, package)
        messages += slow_imports(tree, package) if is_quick(parts) else []
        broken += [f"{'/'.join(parts)}: {message}" for message in messages]
    assert len(trees) > 400
    assert not broken, "\n".join(broken)


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


@pytest.fixture
def without(tmp_path):
    """Run code in a copy of the package that lacks some outer packages."""
    # With its compiled modules, which take seconds to write.
    shutil.copytree(PACKAGE, tmp_path / "hetero_tf")
    shutil.copytree(PACKAGE.parent / "recipes", tmp_path / "recipes")

    def run(removed, code):
        for name in removed:
            shutil.rmtree(tmp_path / "hetero_tf" / name)
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
    done = without((name,), "assert all(callable(command.run) for command in commands.COMMANDS.values())")
    assert done.returncode == 0, done.stderr


# Rules S and TID251 of ruff forbid the other ways to run code of other people.
UNKNOWN_TO_RUFF = re.compile(r"allow_pickle=(?!False\b)|\b__import__\(")


def test_code_that_could_run_code_of_others_is_forbidden(trees):
    assert [path for path in trees if UNKNOWN_TO_RUFF.search(path.read_text("utf-8"))] == []


def test_build_md_describes_the_checked_structure():
    text = (PACKAGE.parent / "BUILD.md").read_text()
    block = re.search(r"## Architecture.*?```\n(.*?)```", text, re.DOTALL).group(1)
    drawn = [line.split("#")[0].strip() for line in re.sub(r",\n +", ", ", block).splitlines()]
    assert drawn == [", ".join(line) for line in LINES]
