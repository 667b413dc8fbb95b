"""The guides are true: their flags exist, and every override and recipe that they show loads."""

import re
from pathlib import Path

from each import for_each

from hetero_tf import recipe
from hetero_tf.base.errors import InputError
from hetero_tf.cli.flags import define_flags

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
TEXTS = {path.stem: path.read_text("utf-8") for path in sorted(GUIDES.glob("*.md"))}
# Lines about other programs.
OTHERS = re.compile("chromium|tensorflow_model_server|ovms|vit_checkpoint|--side|scaling.py")


@for_each(TEXTS)
def test_flags_exist(name):
    lines = "\n".join(line for line in TEXTS[name].splitlines() if not OTHERS.search(line))
    assert set(re.findall(r"(?<![\w-])--([a-z_]+)(?![\w-])", lines)) <= set(define_flags())


@for_each(re.findall(r"`((?:--set [^`|]+)+)`", TEXTS["change_a_recipe"]))
def test_overrides_load_and_change_a_recipe(line):
    overrides = [part.strip().strip("'").replace("='", "=") for part in line.split("--set") if part.strip()]
    if overrides == ["PATH=VALUE"]:
        return
    loaded = []
    for name in ("mnist", "cifar10", "wikitext2"):
        try:
            loaded.append(recipe.load(name, overrides))
        except InputError:
            continue
    assert loaded, f"no shipped recipe takes {overrides}"
    assert all(got.source != recipe.load(got.name).source for got in loaded) or "levels.mix=a-e" in overrides


def test_every_guide_is_in_the_index():
    assert set(re.findall(r"\((\w+)\.md\)", TEXTS["README"])) == set(TEXTS) - {"README"}
