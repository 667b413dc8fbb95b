"""Tiny recipes of every method, and their passes through the model spelled out by hand for `oracle_methods`."""

import functools
from typing import NamedTuple

import tiny
from oracle_methods import Way

HEAD = "Dense: {units: !classes, kernel_initializer: fan_in_uniform}"
EXIT = f"    - Exit: [GlobalAveragePooling2D, {HEAD}]\n"


def conv(filters, stride=1, norm="none"):
    return f"    - [PaddedConv2D: {{filters: !w {filters}, stride: {stride}}}, Norm: {{kind: {norm}}}, ReLU]\n"


def deep(norm="none"):
    """Units: stem 0, body 1 3 5, head 6; exits 1 and 2 behind 1 and 3 (branches 2 and 4), the head is exit 3."""
    layers = conv(4, norm=norm) + conv(4) + EXIT + conv(6, 2, norm) + EXIT + conv(6)
    start = tiny.IMAGES.index("    - [Padded")
    layers += f"    - [GlobalAveragePooling2D, {HEAD}]\n"
    return tiny.IMAGES[:start].replace("epochs: 2", "epochs: 1") + layers + tiny.COMMON


DENSE = tiny.DENSE.replace("epochs: 1", "epochs: 2")
BARE, DEEP, TRACKED = deep(), deep("sbn"), deep("bn")
TEXT = tiny.TEXT.replace(
    "    - Dense:",
    "    - Exit: [Dense: {units: !classes}]\n    - TransformerBlock: {heads: 2, head_width: !w 4, hidden: !w 8}\n    - Dense:",
)
TRUNK = ("0", "1", "3", "5", "6")
PLAIN = ("client.loss=cross_entropy", "round.label_rows=all")
EVEN = "levels.widths={a: 1, b: 1, c: 1}"
DEPTHS = (EVEN, "levels.depths={a: 3, b: 2, c: 1}")
ALL = frozenset({"0", "1", "3", "5", "6"})


def joint(level, stage):
    """Everything that a level of `DENSE` or `TEXT` has, read at the end."""
    return [Way(level, ("0", "1", "2", "3", "4"), (1,))], None


def by_depth(level, stage):
    """`DEPTHS` of `DEEP`."""
    return {"a": [Way("a", TRUNK, (1, 2, 3))], "b": [Way("b", TRUNK[:3], (1, 2))], "c": [Way("c", TRUNK[:2], (1,))]}[
        level
    ], None


def of_text(level, stage):
    """Two depths of `TEXT`."""
    return {"a": [Way("a", ("0", "1", "3", "4"), (1, 2))], "c": [Way("c", ("0", "1"), (1,))]}[level], None


def nested(level, stage):
    """The drawn width: stages count from the narrowest."""
    return [Way("cba"[stage], ("0", "1"), (1,))], None


def taught(level, stage):
    """The drawn width, and behind it the level's own."""
    return nested(level, stage)[0] + [Way(level, ("0", "1"), (1,))], None


def slim(level, stage):
    """All widths up to the level's own, the narrowest first."""
    return [Way(width, ("0", "1"), (1,)) for width in "cba" if width >= level], None


def blocks(level, stage):
    """Budgets 1, 0.4 and 0.2 of `DEEP`: all at once; 1 and then 3, 5; without unit 1, 3 and then 5."""
    return {
        ("a", 0): ([Way("a", TRUNK, (3,))], ALL),
        ("b", 0): ([Way("b", ("0", "1", "6"), (3,), linked=True)], {"0", "1", "6"}),
        ("b", 1): ([Way("b", TRUNK, (3,), frozen=2)], {"3", "5", "6"}),
        ("c", 0): ([Way("c", ("0", "3", "6"), (3,), linked=True)], {"0", "3", "6"}),
        ("c", 1): ([Way("c", ("0", "3", "5", "6"), (3,), frozen=2)], {"5", "6"}),
    }[level, stage]


def stems(level, stage):
    """The same with the stem trained in every stage, so that no unit stops the gradient."""
    ways, units = blocks(level, stage)
    return [way._replace(frozen=0) for way in ways], units | {"0"}


def branches(level, stage):
    """The same, but a stage before the last ends in the exit behind it."""
    return {
        ("b", 0): ([Way("b", ("0", "1"), (1,))], {"0", "1", "2"}),
        ("c", 0): ([Way("c", ("0", "3"), (2,))], {"0", "3", "4"}),
    }.get((level, stage)) or blocks(level, stage)


def peers(level, stage):
    """A budget of 2: two networks side by side."""
    return ([Way("a", TRUNK, (3,)), Way("a", TRUNK, (3,), network=1)], ALL) if level == "a" else blocks(level, stage)


def teachers(level, stage):
    """A budget of 1.4: a whole network, and one in the stages of level b."""
    if level != "a":
        return blocks(level, stage)
    (way,), trained = blocks("b", stage)
    return [Way("a", TRUNK, (3,)), way._replace(level="a", network=1, trained=trained)], ALL


class Method(NamedTuple):
    """A recipe of a method: its base, its settings as `--set` takes them, and its passes."""

    base: str
    settings: tuple
    ways: object


def blockwise(*options, budgets="a: 1, b: 0.4, c: 0.2"):
    return (
        EVEN,
        f"levels.budgets={{{budgets}}}",
        "client.stages={name: blockwise" + "".join(f", {option}" for option in options) + "}",
    )


def server(name, **options):
    return "round.server={" + ", ".join([f"name: {name}", *(f"{k}: {v}" for k, v in options.items())]) + "}"


def personalization(name, **options):
    return "client.personalization={" + ", ".join([f"name: {name}", *(f"{k}: {v}" for k, v in options.items())]) + "}"


STEPS = "{learning_rate: 0.05, clip_norm: 1.0, name: "
PLAIN_SGD = "optimizer={learning_rate: 0.1, momentum: 0, weight_decay: 0.01, clip_norm: null}"
FIARSE = ("levels.mix=a1-c1", EVEN, "levels.entries={c: 1/4}")
PAIR, ENDS = "levels.mix=a-b", "levels.mix=a-c"
DYNAMIC = ("client.correction={name: dynamic, alpha: 0.3}", server("dynamic", alpha=0.3))
SCAFFOLD = ("client.correction=scaffold", server("scaffold", learning_rate=0.8), "client.loss=cross_entropy")
MEMBERS = ("levels.widths={a: 0.25, c: 0.25}", "levels.members={a: 4, c: 1}")
TWO = ("levels.widths={a: 0.25}", "levels.members={a: 2}")
PUBLIC = ("levels.depths={a: 3, c: 1}", "round.mask={name: fiarse, surrogate: false}", "round.weighting=samples")
METHODS = {
    "fedavg": Method(DENSE, ("levels.mix=b1", "round.weighting=samples", *PLAIN), joint),
    "standalone": Method(DENSE, ("levels.mix=b1", "round.personal=[all]"), joint),
    "lg": Method(DENSE, (ENDS, 'round.personal=["0"]', *PLAIN), joint),
    "fedprox": Method(DENSE, (ENDS, "client.correction={name: proximal, mu: 0.7}"), joint),
    "fedrolex": Method(DENSE, (ENDS, "round.submodel=rolling", server("momentum", momentum=0.5)), joint),
    "federated_dropout": Method(DENSE, (ENDS, "round.submodel=random", "round.weighting=samples"), joint),
    "fjord": Method(DENSE, ("client.stages=nested", "round.weighting=samples", *PLAIN), nested),
    "fjord_taught": Method(DENSE, ("client.stages={name: nested, distill: true}", "client.coupling=self_distillation", *PLAIN), taught),
    "slimmable": Method(DENSE, ("client.stages=slimmable", "round.weighting=samples", *PLAIN), slim),
    "splitmix": Method(DENSE, (ENDS, *MEMBERS, "round.weighting=samples"), joint),
    "splitmix_kept": Method(DENSE, ("levels.mix=a1", *TWO, *PLAIN, 'round.personal=["0"]', *DYNAMIC), joint),
    "depthfl": Method(TRACKED, (PAIR, *DEPTHS, *PLAIN, *DYNAMIC, "client.coupling={name: mutual, ramp: 4, floor: 1.0e-7}"), by_depth),
    "depth_of_text": Method(TEXT, ("levels.depths={a: 2, c: 1}", "client.coupling={name: mutual, weight: 0.5}"), of_text),
    "inclusive": Method(DEEP, (ENDS, *DEPTHS, "client.coupling=last", "round.weighting=samples"), by_depth),
    "scalefl": Method(DEEP, (PAIR, DEPTHS[1], "client.coupling={name: weighted, gamma: 0.4, from_round: 1}"), by_depth),
    "fedepth_link": Method(TRACKED, (*blockwise(), "round.weighting=samples", *PLAIN), blocks),
    "fedepth_stem": Method(DEEP, (ENDS, *blockwise("stem: every"), *PLAIN), stems),
    "fedepth_branch": Method(DEEP, ("levels.mix=b-c", *blockwise("exit: branch"), "round.untrained=counted"), branches),
    "fedepth_peers": Method(
        DEEP,
        (ENDS, *blockwise("peers: true", budgets="a: 2, c: 0.2"), "client.coupling={name: mutual, ramp: null}"),
        peers,
    ),
    "fedepth_teachers": Method(
        TRACKED,
        (ENDS, *blockwise("peers: true", budgets="a: 1.4, c: 0.2"), "client.coupling={name: mutual, ramp: null}"),
        teachers,
    ),
    "zeros": Method(DENSE, (ENDS, "round.uncovered=zeros", "round.weighting=samples", server("momentum")), joint),
    "scaffold": Method(DENSE, (ENDS, PLAIN_SGD, *SCAFFOLD), joint),
    "scaffold_tracked": Method(
        TRACKED, (PAIR, *DEPTHS, *PLAIN, PLAIN_SGD, "client.correction=scaffold", "round.server=scaffold"), by_depth
    ),
    "fiarse": Method(DENSE, (*FIARSE, *PLAIN, "round.mask=fiarse"), joint),
    "fiarse_public": Method(TRACKED, (*FIARSE, *PUBLIC), by_depth),
    "clip": Method(DENSE, (ENDS, "client.update={name: clip, norm: 0.05}", 'round.personal=["0"]'), joint),
    "top_k": Method(DENSE, ("round.submodel=rolling", "client.update={name: top_k, share: 0.3}", 'round.personal=["0"]'), joint),
    "sign": Method(TRACKED, (PAIR, *DEPTHS, *PLAIN, "client.update=sign"), by_depth),
    "nesterov": Method(DENSE, (ENDS, "optimizer.nesterov=true"), joint),
    "local_adam": Method(DENSE, (ENDS, f"optimizer={STEPS}adam, epsilon: 0.001, weight_decay: 0.01}}"), joint),
    "local_adamw": Method(DEEP, (*blockwise(), f"optimizer={STEPS}adamw, epsilon: 0.001}}"), blocks),
    "fednova": Method(DENSE, ("round.merge=fednova", "round.weighting=samples"), joint),
    "fednova_proximal": Method(DENSE, (ENDS, PLAIN_SGD, "round.merge=fednova", "client.correction={name: proximal, mu: 0.7}"), joint),
    "qfedavg": Method(TRACKED, (PAIR, *DEPTHS, *PLAIN, "round.merge={name: qfedavg, q: 2}"), by_depth),
    "median": Method(DENSE, (*FIARSE, *PLAIN, "round.mask=fiarse", "round.merge=median"), joint),
    "trimmed_mean": Method(DENSE, ("round.submodel=rolling", "round.merge={name: trimmed_mean, share: 0.3}", server("momentum")), joint),
    "geometric_median": Method(DENSE, (ENDS, *MEMBERS, "round.merge=geometric_median", "round.weighting=samples"), joint),
    "bounded": Method(DENSE, (ENDS, "round.merge={name: bounded, multiple: 0.9}", 'round.personal=["0"]'), joint),
    "ditto": Method(DENSE, (ENDS, personalization("ditto", strength=0.4)), joint),
    "apfl": Method(DENSE, (ENDS, personalization("apfl", alpha=0.3)), joint),
    "pfedme": Method(DENSE, (ENDS, personalization("pfedme", strength=2.0, steps=3, rate=0.05), PLAIN_SGD), joint),
    "moon": Method(DENSE, (ENDS, personalization("moon", mu=3.0, temperature=0.4)), joint),
    "fedrep": Method(DENSE, (ENDS, personalization("fedrep"), 'round.personal=["1"]'), joint),
    "adam": Method(DENSE, (ENDS, server("adam", adaptivity=0.01)), joint),
}  # fmt: skip


def fewer_levels_and_blocks(loaded):
    """Overrides that leave a shipped method its two most different levels, and one block where three show the same."""
    levels = [] if loaded.levels.idle else ["levels.mix=a1-d1" if len(loaded.levels.mix) == 4 else "levels.mix=a"]
    divided = loaded.client.stages.name == "blockwise"
    # Blockwise stages, exits and personal units name blocks.
    needed = divided or set(loaded.round.personal) - {"all"} or "blocks" not in loaded.model.settings
    return [*levels, *([] if needed else ["model.settings.blocks=1"])]


def built(name, engine="stacked", precision="float64"):
    """The learning process of a method, which several tests share."""
    return _built(name, engine, precision)


@functools.cache
def _built(name, engine, precision):
    base, settings, _ = METHODS[name]
    return tiny.process(base, f"engine={engine}", f"precision={precision}", *settings)
