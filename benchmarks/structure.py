#!/usr/bin/env python3
"""Measures the structure of the package: modules that a run enters, and imports between sources.

    benchmarks/structure.py [CHECKOUT] [--recipe tiny/mnist] [--sources]

CHECKOUT is the folder that holds hetero_tf, tests and recipes; default: this one. From a run of the recipe, profiled
call by call: "modules_entered", modules of the package of which a function is called; "module_changes", how often the
module changes when all functions stand in the order of their first calls; "frames_to_step", frames of the package from
`main` to the step of local SGD, both included. From the sources: "rooms", files and folders right under the package;
"arrows", pairs of rooms of which one imports the other; "floors", rooms in the longest chain of imports; lines of the
package, the tests and the recipes. Imports inside the functions of `__init__` are not counted, as they are the public
Python API.
"""

import argparse
import ast
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

# Functions that compute a step of local SGD, in this version and earlier ones: (end of the file's path, function).
STEPS = (("optimizers/sgd.py", "step"), ("local_training.py", "sgd"), ("clients.py", "sgd"))


class Profile:
    """The functions of a package in the order of their first calls, and the depth of the first step of local SGD."""

    def __init__(self, package: Path):
        self.prefix = f"{package}{os.sep}"
        self.functions = {}
        self.frames = None

    def __call__(self, frame, event, argument):
        code = frame.f_code
        # Bodies of modules and classes are entered by an import.
        if event != "call" or not code.co_filename.startswith(self.prefix) or not code.co_flags & 0x2:
            return
        self.functions.setdefault((code.co_filename, code.co_qualname), None)
        is_step = any(code.co_filename.endswith(end) and code.co_name == name for end, name in STEPS)
        if is_step and self.frames is None:
            self.frames = self._depth(frame)

    def _depth(self, frame):
        """Frames of the package in this thread and, where that is another one, in the main thread that waits for it."""
        frames = [frame]
        main = threading.main_thread().ident
        if threading.get_ident() != main:
            frames.append(sys._current_frames()[main])
        return sum(map(self._count, frames))

    def _count(self, frame):
        count = 0
        while frame is not None:
            code = frame.f_code
            count += code.co_filename.startswith(self.prefix) and bool(code.co_flags & 0x2)
            frame = frame.f_back
        return count


def traced(checkout: Path, recipe: str) -> dict:
    """Profile of a run of a recipe; the package must not have been imported yet."""
    sys.path.insert(0, str(checkout))
    from hetero_tf.__main__ import main

    profile = Profile(checkout / "hetero_tf")
    with tempfile.TemporaryDirectory() as folder:
        threading.setprofile(profile)
        sys.setprofile(profile)
        code = main(["hetero_tf", "--recipe", recipe, "--run_dir", f"{folder}/run", "--json"])
        sys.setprofile(None)
    if code:
        raise SystemExit(code)
    modules = [path for path, _ in profile.functions]
    return {
        "modules_entered": len(set(modules)),
        "module_changes": sum(one != other for one, other in zip(modules, modules[1:])),
        "functions_entered": len(modules),
        "frames_to_step": profile.frames,
    }


def imports(path: Path, root: Path) -> set:
    """Rooms that a module of a package at `root` imports."""
    tree = ast.parse(path.read_text("utf-8"))
    nodes = tree.body if path == root / "__init__.py" else ast.walk(tree)
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    parts = [name.split(".") for name in names]
    rooms = {name[1] for name in parts if name[0] == root.name and len(name) > 1}
    return {room for room in rooms if (root / room).is_dir() or (root / f"{room}.py").is_file()}


def sources(checkout: Path) -> dict:
    """Counts of the sources."""
    root = checkout / "hetero_tf"
    arrows = {}
    for path in root.rglob("*.py"):
        room = path.relative_to(root).parts[0].removesuffix(".py")
        arrows.setdefault(room, set()).update(imports(path, root) - {room})

    @functools.cache
    def floor(room):
        return 1 + max(map(floor, arrows[room]), default=0)

    def lines(folder, *ends):
        paths = [path for path in (checkout / folder).rglob("*") if path.suffix in ends]
        return sum(len(path.read_text("utf-8").splitlines()) for path in paths)

    return {
        "rooms": len(arrows),
        "arrows": sum(map(len, arrows.values())),
        "floors": max(map(floor, arrows)),
        "package_lines": lines("hetero_tf", ".py"),
        "test_lines": lines("tests", ".py"),
        "recipe_lines": lines("recipes", ".yaml"),
    }


def main() -> None:
    """Prints the counts as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--recipe", default="tiny/mnist", help="recipe to run")
    parser.add_argument("--sources", action="store_true", help="only count the sources, without a run")
    parser.add_argument("--traced", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    checkout = args.checkout.resolve()
    if args.traced:
        # The run itself prints one line on standard output.
        print(json.dumps(traced(checkout, args.recipe)))
        return
    if args.sources:
        print(json.dumps(sources(checkout), indent=2))
        return
    # A separate process imports that checkout and nothing of this one.
    command = [sys.executable, __file__, str(checkout), "--recipe", args.recipe, "--traced"]
    run = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True)
    print(json.dumps(json.loads(run.stdout.splitlines()[-1]) | sources(checkout), indent=2))


if __name__ == "__main__":
    main()
