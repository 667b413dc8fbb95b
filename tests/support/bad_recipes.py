"""Invalid recipes and overrides with the exact first lines of their error messages, from `bad_recipes.txt`.

There a row of `BASE` or `TEXT` has a name, the piece of the recipe that it replaces (lines that begin with -), what stands
there instead (+) and the refusal (!); a row of `OVERRIDES` has an override of `BASE` (=) and its refusal; those of
`LAYERS` have the name of a shipped recipe, overrides (=) and a part of the refusal.
"""

import re
from pathlib import Path

BASE = """\
name: base
seed: 0
data: {name: synthetic, kind: images}
input: {name: images, mean: [0.5], std: [0.5]}
partition: {name: iid, clients: 10}
model:
  settings: {norm: sbn, blocks: [1, 2]}
  layers:
    - [PaddedConv2D: {filters: !w 16}, Scaler, Norm: {kind: !setting norm}, ReLU, MaxPooling2D]
    - Repeat: {times: !setting blocks.1, first: {stride: 2}, layer: {PreActivationBlock: {filters: !w 32}}}
    - GlobalAveragePooling2D
    - Dense: {units: !classes}
levels:
  widths: {a: 1.0, c: 0.25, e: 0.0625}
  mix: a1-e9
round: {clients: 5, submodel: prefix}
client: {epochs: 1, batch_size: 10}
optimizer: {learning_rate: 0.1}
schedule: {name: steps, at: [1, 2]}
rounds: 2
"""


def with_layers(*items, base=BASE):
    """The base recipe with these layers alone."""
    layers = "".join(f"    - {item}\n" for item in items)
    return re.sub(r"(  settings: .*\n)?  layers:\n(    .*\n)*", "  layers:\n" + layers, base)


TEXT = BASE.replace("kind: images", "kind: text, rows: 10")
TEXT = TEXT.replace("images, mean: [0.5], std: [0.5]", "masked_text, segment: 16") + "evaluate: {best: global_loss}\n"
EMBEDDING = "MaskedTokenEmbedding: {classes: !classes, positions: 16, width: !w 16}"
TEXT = with_layers(EMBEDDING, "Dense: {units: !classes}", base=TEXT)
# Pieces that no text file may contain: name, piece, replacement, error.
CONTROL = (
    (
        "tab",
        "seed: 0",
        "seed: 0\n\tname: x",
        "r.yaml:3:1: not valid YAML: found character '\\t' that cannot start any token; indent with spaces, not with tabs",
    ),
    ("bell", "seed: 0", "seed: \x070", "r.yaml:2:7: unreadable character U+0007; a recipe must be plain text"),
)


def _rows(section):
    """The rows of a section, as tuples of text."""
    text = (Path(__file__).parent / "bad_recipes.txt").read_text().partition(f"# {section}\n\n")[2].partition("\n# ")[0]
    return tuple(_row(row.split("\n")) for row in text.strip("\n").split("\n\n"))


def _row(lines):
    name = () if lines[0][:2] == "= " else (lines[0],)
    parts = (mark for mark in "=-+!" if any(line[:2] == f"{mark} " for line in lines))
    return (*name, *("\n".join(line[2:] for line in lines if line[:2] == f"{mark} ") for mark in parts))


EDITS, TEXT_EDITS, OVERRIDES = (*_rows("BASE"), *CONTROL), _rows("TEXT"), _rows("OVERRIDES")
LAYERS = _rows("LAYERS")
