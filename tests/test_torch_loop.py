"""The PyTorch yardstick where PyTorch is missing, as in every environment of this project."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
SCRIPT = CHECKOUT / "benchmarks" / "torch_loop.py"


def test_without_torch_it_says_how_to_install_it():
    # An entry of None makes the import fail, also where somebody has PyTorch.
    hide = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", hide, str(SCRIPT)], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "torch_loop.py needs PyTorch, which is not installed here; put it into an environment of its own: "
        "python3 -m venv torch_env && torch_env/bin/pip install torch numpy, then "
        "torch_env/bin/python benchmarks/torch_loop.py\n"
    )


def test_it_compiles_and_nothing_of_the_project_asks_for_torch():
    compile(SCRIPT.read_text(encoding="utf-8"), str(SCRIPT), "exec")
    assert "torch" not in (CHECKOUT / "setup.py").read_text(encoding="utf-8")
