"""Small runs with every kind of state, data and evaluation that a method may have."""

import programs

IMAGES = programs.RECIPE
TRACKED = IMAGES.replace("kind: sbn", "kind: bn")
PLAIN = IMAGES.replace("kind: sbn", "kind: none")
EXITS = PLAIN.replace(
    "    - GlobalAveragePooling2D\n    - Dense",
    "    - Exit: [GlobalAveragePooling2D, Dense: {units: !classes}]\n    - [PaddedConv2D: {filters: !w 6}, ReLU]\n"
    "    - [GlobalAveragePooling2D, Dense",
).replace("Dense: {units: !classes}\nlevels", "Dense: {units: !classes}]\nlevels")
TEXT = """
name: words
seed: 3
data: {name: synthetic, kind: text, rows: 12, length: 24, vocabulary: 30}
input: {name: masked_text, segment: 8}
partition: {name: iid, clients: 6}
model:
  layers:
    - MaskedTokenEmbedding: {classes: !classes, positions: 8, width: !w 8}
    - Dense: {units: !classes}
"""
TEXT += (
    IMAGES[IMAGES.index("levels") :]
    .replace("size: 10", "size: 2")
    .replace("size: 40", "size: 2, best: global_perplexity")
)
PLAIN_SGD = ("optimizer={learning_rate: 0.05, momentum: 0, weight_decay: 0, clip_norm: null}",)
ALIKE = "levels.widths={a: 1.0, b: 1.0}"
# Recipe and overrides of each.
CASES = {
    "heterofl": (IMAGES, ()),
    "measured and sealed at other rounds": (IMAGES, ("evaluate.every=3", "checkpoint.every=2", "rounds=7")),
    "tracked statistics": (TRACKED, ("client.loss=cross_entropy",)),
    "text": (TEXT, ()),
    "text, random sub-models": (TEXT, ("round.submodel=random",)),
    "rolling sub-models": (PLAIN, ("round.submodel=rolling",)),
    "kept by the clients": (PLAIN, ("round.personal=[0]",)),
    "everything kept by the clients": (PLAIN, ("round.personal=[all]", "evaluate.best=local_accuracy")),
    "server adam": (PLAIN, ("round.server={name: adam, adaptivity: 0.01}",)),
    "server momentum": (PLAIN, ("round.server={name: momentum, momentum: 0.8}",)),
    "scaffold": (PLAIN, ("client.correction=scaffold", "round.server=scaffold", *PLAIN_SGD)),
    "feddyn": (PLAIN, ("client.correction={name: dynamic, alpha: 0.3}", "round.server={name: dynamic, alpha: 0.3}")),
    "fedprox": (PLAIN, ("client.correction={name: proximal, mu: 0.1}",)),
    "local adam": (PLAIN, ("optimizer={name: adam, learning_rate: 0.01}",)),
    "clipped updates": (PLAIN, ("client.update={name: clip, norm: 0.5}",)),
    "ensembles": (PLAIN, ("levels.widths={a: 0.5, b: 0.5}", "levels.members={a: 2, b: 1}")),
    "ordered dropout": (PLAIN, ("client.stages=nested", "round.weighting=samples")),
    "masks": (PLAIN, ("round.mask=fiarse", ALIKE, "levels.entries={b: 0.5}")),
    "depths": (EXITS, (ALIKE, "levels.depths={a: 2, b: 1}", "client.coupling=sum")),
    "absent clients": (IMAGES, ("fleet={devices: {any: {seconds_per_step: 1, dropout: 0.4}}}",)),
    "late clients": (
        IMAGES,
        (
            "fleet={devices: {any: {seconds_per_step: 0.02}}}",
            "round.policy={name: deadline, seconds: 0.05, late: partial}",
        ),
    ),
    "several clients at once": (IMAGES, ("engine=stacked", "round.clients=4")),
    "float64": (PLAIN, ("precision=float64",)),
}
