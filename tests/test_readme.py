"""What README.md shows works: its Python example, and the flags, commands and files that it names."""

import contextlib
import io
import re
from pathlib import Path

from hetero_tf.flags import COMMANDS, definitions

CHECKOUT = Path(__file__).resolve().parents[1]
TEXT = (CHECKOUT / "README.md").read_text()


def test_the_example_for_a_notebook_runs():
    example = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL).group(1)
    # The same structure with tiny data; its clients have ids below 100 too.
    example = example.replace('"digits"', '"tiny/digits"')
    names, said = {}, io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(example, names)
    assert names["state"].round == 5 and names["model"].count_params() > 0
    assert [line.split()[0] for line in said.getvalue().splitlines()[:5]] == ["1", "2", "3", "4", "5"]


def test_flags_and_commands_exist():
    words = set(re.findall(r"(?<![\w-])--([a-z_]+)", TEXT))
    assert words and words <= set(definitions())
    called = set(re.findall(r"bin/hetero_tf ([a-z]+)", TEXT))
    assert called == set(COMMANDS) - {"train"}


def test_files_exist():
    named = re.findall(r"`((?:hetero_tf|recipes|benchmarks|tests|bin)/[\w./-]+)`", TEXT)
    assert len(named) > 10
    assert [name for name in named if not (CHECKOUT / name.replace("NAME.py", "__init__.py")).exists()] == []
    assert [link for link in re.findall(r"\]\(([\w./]+)[)#]", TEXT) if not (CHECKOUT / link).exists()] == []
