"""Texts that would take long to read, and recipes with random edits."""

import random
import re
import time

import pytest
from bad_recipes import BASE
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base.errors import InputError
from hetero_tf.recipe.recipe_files import shipped

FILES = {name: path.read_text("utf-8") for name, path in shipped().items()}
BOMBS = {
    "aliases": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "itself": "a: &a [*a]\n",
    "depth of lists": "[" * 100_000,
    "depth of mappings": "{a: " * 50_000,
    "depth of blocks": "".join(" " * depth + "a:\n" for depth in range(300)),
    "many items": "[" + "1," * 100_000 + "]",
    "one long word": "a: " + "x" * 250_000,
    "one long number": "rounds: " + "9" * 250_000,
    "line ends": "\n" * 250_000,
    "merges": "".join(f"k{number}: {{<<: {{}}}}\n" for number in range(10_000)),
    "complex keys": "? " * 100_000,
    "tags": "!w " * 80_000,
    "huge tag": "!" + "w" * 250_000 + " 1",
    "directives": "%TAG ! tag:yaml.org,2002:python/\n---\na: !object/apply:os.system [x]\n",
    "keys": "".join(f"k{number}: 1\n" for number in range(15_000)),
    "keys above a base": "base: mnist\n" + "".join(f"k{number}.k: 1\n" for number in range(4_900)),
    "surrogate": "a: \ud800",
    "layers": BASE.replace("  layers:\n", "  layers:\n" + "    - ReLU\n" * 9_000),
    "repeats": BASE.replace("  layers:\n", "  layers:\n" + "    - Repeat: {times: 1000, layer: ReLU}\n" * 900),
    "settings": BASE.replace("blocks: [1, 2]", "blocks: [1, 2], " + ", ".join(f"s{n}: 1" for n in range(5_000))),
    "schedule": BASE.replace("at: [1, 2]", "at: [" + "1, " * 15_000 + "]"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_rejected_quickly(name):
    start = time.process_time()
    message = refusal(recipe.loads, BOMBS[name], "r.yaml")
    # 0.5 s is the promise; a slow processor gets some room.
    assert time.process_time() - start < 5
    assert message.startswith(("r.yaml:", "recipes/mnist.yaml:")) and len(message) < 5000


JUNK = ("", "!w ", "!classes ", "!setting x ", "!!python/name:os.system ", "&a ", "*a ", "<<: ", "-1", "1e99", ".nan")
JUNK += ("9" * 30, "null", "'7'", *"0\n{}[]:,&*!|>'\"%@`#-?\t\0\x07\ufeff٣😀=~ ")


def mutated(generator, text):
    for _ in range(generator.randint(1, 3)):
        at = generator.randrange(len(text))
        text = text[:at] + generator.choice(JUNK) + text[at + generator.randint(0, 9) :]
    return text


def test_mutated_recipes_load_or_report_their_line():
    generator = random.Random(7)
    errors = placed = 0
    for _ in range(150):
        text = mutated(generator, FILES[generator.choice(sorted(FILES))])
        try:
            got = recipe.loads(text, "r.yaml")
        except InputError as error:
            errors += 1
            placed += bool(re.match(r"(r\.yaml: \d+ errors\n)?r\.yaml:\d+:\d+: ", str(error)))
        else:
            assert recipe.loads(got.source) == got
    assert errors > 60
    assert placed >= 0.95 * errors
