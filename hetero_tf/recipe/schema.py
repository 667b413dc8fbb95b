"""Frozen dataclasses of the recipe: every key with its type, default and meaning.

This file is the single source of all defaults. `recipes/README.md` is generated from it.
"""

from dataclasses import dataclass, field

from hetero_tf.base import metrics
from hetero_tf.base.constraints import Plugin, key
from hetero_tf.recipe.model import Model
from hetero_tf.recipe.nodes import Node

NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
LEVEL = "[A-Za-z]{1,20}"


@dataclass(frozen=True, kw_only=True)
class Data:
    """Source of the examples. Other keys are options of the loader (see its table)."""

    loader: Plugin = field(metadata={"kind": "data"})
    fallback: str | None = key(
        "embedded data set that replaces the real one, with a warning, if that cannot be downloaded",
        choices=("digits", "pydoc"),
    )


@dataclass(frozen=True)
class Megabytes:
    """A budget of training memory, in units of 2**20 bytes."""

    amount: float


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Levels of clients: the width of each level and its share of the clients."""

    widths: dict = key(
        "level -> width in (0, 1]: share of the channels that the level keeps, such as 0.5 or 1/3", required=True
    )
    rounding: str = key(
        "rounding of `!w n` at a width: up, as in the code of HeteroFL, FjORD and FedRolex; down, as in that of "
        "FeDepth and SplitMix; the result is at least 1",
        "up",
        choices=("up", "down"),
    )
    mix: tuple = key(
        "shares of clients: a1-e9, a-e (equal shares) or {a: 1, e: 9}; the first level is that of the global model",
        required=True,
    )
    assignment: str = key(
        "fixed: a client keeps its level for the whole run; dynamic: every client draws a new level in each round",
        "dynamic",
        choices=("fixed", "dynamic"),
    )
    depths: dict = key("level -> number of its deepest exit; levels without an entry keep all units", {})
    members: dict = key(
        "level -> number of networks of the ensemble that its clients train; the first level of the mix has all", {}
    )
    members_fan_in: str = key(
        "fan-in for the initial values of the networks of an ensemble: own, their own fan-in; wide, that of the "
        "network of width 1 that they are parts of, so kernels and biases after the first layer are smaller by "
        "sqrt(width)",
        "own",
        choices=("own", "wide"),
    )
    entries: dict = key(
        "level -> share of its entries that round.mask keeps, such as 1/16; levels without an entry keep all", {}
    )
    idle: tuple[str, ...] = key("levels whose clients never train", ())
    budgets: dict = key(
        "level -> budget of its clients: a share of the cost of the model at width 1, such as 1/6, or training memory, "
        "such as 20 MB; or one of the FeDepth scenarios fair, lack and surplus, for the levels of the mix in order",
        {},
    )
    tolerance: float = key(
        "fraction by which a budget may be exceeded; the published stages of FeDepth need 0.0415 to 0.14",
        0.05,
        low=0.0,
        below=1.0,
    )
    fit: str | None = key(
        "which property of a level is reduced until the level fits its budget: widths; common_width, one width for all "
        "levels; depths; members, with one width for all networks; null: nothing, levels over budget are reported",
        choices=("widths", "common_width", "depths", "members"),
    )
    measure: str = key(
        "cost that budgets are a share of: training memory or multiply-adds of the whole model",
        "memory",
        choices=("memory", "multiply_adds"),
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Levels of the mix, in order."""
        return tuple(name for name, _ in self.mix)

    def divided(self, amount: float) -> dict[str, float]:
        """Divide an amount among the levels of the mix by their shares; return `{level: part}`."""
        total = sum(share for _, share in self.mix)
        return {name: amount * share / total for name, share in self.mix}

    def active(self, amount: float) -> dict[str, float]:
        """Divide an amount among the levels that train; idle levels get 0."""
        able = sum(share for name, share in self.mix if name not in self.idle)
        return {name: 0.0 if name in self.idle else amount * share / able for name, share in self.mix}

    @property
    def global_level(self) -> str:
        """Level of the global model: the first of the mix."""
        return self.mix[0][0]

    @property
    def ensemble(self) -> int | None:
        """Number of networks of the global model; None for a single network without a leading axis."""
        return self.members_of(self.global_level)

    def members_of(self, level: str) -> int | None:
        """Number of networks of a level's ensemble; None for a single network."""
        return self.members.get(level)

    def networks_of(self, level: str) -> int:
        """Number of networks that a client of a level trains; 1 without an ensemble."""
        return self.members.get(level, 1)

    def entries_of(self, level: str) -> float:
        """Share of its entries that a level's client trains."""
        return self.entries.get(level, 1.0)

    def budget_of(self, level: str) -> float | None:
        """Share of the full model that fits on the clients of a level; None without a budget."""
        return self.budgets.get(level)

    def depth_of(self, level: str, last: int) -> int:
        """Number of a level's deepest exit; `last`: that of the whole model."""
        return self.depths.get(level, last)


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Dropouts and late clients. Seconds are simulated: no client actually waits."""

    dropout: float = key("probability that an active client drops out and returns nothing", 0.0, low=0.0, below=1.0)
    deadline: float | None = key(
        "simulated seconds after which a round stops waiting for clients; null: it waits for all", above=0.0
    )
    seconds_per_step: dict = key("level -> simulated seconds of a local step that trains the whole sub-model", {})
    spread: float = key(
        "standard deviation of the logarithm of a client's pace, drawn in each round", 0.0, low=0.0, high=10.0
    )
    late: str = key(
        "result of a client that misses the deadline: drop, nothing; partial, its completed steps, or its completed "
        "stages if several stages run in sequence",
        "drop",
        choices=("drop", "partial"),
    )

    @property
    def is_limited(self) -> bool:
        """True if clients can drop out or need simulated time."""
        return self.dropout > 0 or bool(self.seconds_per_step)


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round: from one version of the global model to the next."""

    clients: int = key("number of active clients in each round", required=True, low=1, high=10_000_000)
    submodel: Plugin = key("channels of the global model that a sub-model keeps", Plugin("prefix"), kind="submodels")
    mask: Plugin | None = key(
        "entries of its sub-model that a client trains (share: levels.entries); null: all", kind="masks"
    )
    weighting: str = key(
        "weight of a client in the merge: uniform, 1; samples, the number of its examples",
        "uniform",
        choices=("uniform", "samples"),
    )
    untrained: str = key(
        "whether the merge includes values that a client has but does not train: left_out or counted",
        "left_out",
        choices=("left_out", "counted"),
    )
    uncovered: str = key(
        "how clients with narrower sub-models count in the mean of channels or ranks that they lack: left_out, not at "
        "all; zeros, as a zero, as if clients padded their adapters",
        "left_out",
        choices=("left_out", "zeros"),
    )
    label_rows: str = key(
        "rows of label axes in which a client is merged: own, those of its labels; all", "own", choices=("own", "all")
    )
    personal: tuple[str, ...] = key(
        "units that stay on the client and are never merged, numbered from 0 as in model.layers; all: every unit", ()
    )
    server: Plugin = key(
        "server optimizer: how the merged weights change the global ones", Plugin("replace"), kind="servers"
    )
    non_finite_share: float = key(
        "if at least this share of clients returns NaN or infinite values, the round is repeated with another cohort; "
        "if that fails too, the run stops",
        0.5,
        above=0.0,
        high=1.0,
    )


@dataclass(frozen=True, kw_only=True)
class Client:
    """Local training of one client."""

    epochs: int | dict = key(
        "local epochs in a round; or level -> epochs, such as {a: 5, d: 1}, for all levels of the mix",
        1,
        low=1,
        high=1_000_000,
    )
    batch_size: int = key("examples of a local step (rows of tokens for text)", required=True, low=1, high=1_000_000)
    stages: Plugin = key("units that each local step runs and trains", Plugin("joint"), kind="stages")
    loss: Plugin = key("loss of the local steps", Plugin("masked_cross_entropy"), kind="losses")
    coupling: Plugin = key(
        "how the losses of several outputs (exits, widths, peers) are combined", Plugin("sum"), kind="couplings"
    )
    correction: Plugin | None = key(
        "term added to the local gradients (FedProx, FedDyn, SCAFFOLD); null: none", kind="corrections"
    )
    update: Plugin | None = key("transformation of a client's update before the merge; null: none", kind="updates")
    label_cut: bool = key(
        "compute only the logits of a client's labels if the loss allows it; changes the cost, not the result; no "
        "effect if round.label_rows is all, if units are personal, with a mask, a correction or an update, or if the "
        "coupling reads logits",
        True,
    )

    def epochs_of(self, level: str) -> int:
        """Return the local epochs of the clients of a level."""
        return self.epochs[level] if isinstance(self.epochs, dict) else self.epochs


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Optimizer of the local steps. Other keys are options of the optimizer (see its table)."""

    method: Plugin = field(default=Plugin("sgd"), metadata={"kind": "optimizers"})
    learning_rate: float = key("learning rate before the schedule", required=True, above=0.0)
    clip_norm: float | None = key("maximum L2 norm of a client's gradient; null: no clipping", 1.0, low=1e-6)


@dataclass(frozen=True, kw_only=True)
class FineTune:
    """Local training before each client's local test; it does not affect training."""

    epochs: int = key("local epochs of fine-tuning before each client's local test; 0: none", 0, low=0, high=1_000_000)
    units: tuple[str, ...] = key(
        "units that fine-tuning trains, numbered from 0 as in model.layers, even if in model.frozen; all: every unit",
        ("all",),
    )
    learning_rate: float | None = key(
        "learning rate of fine-tuning, independent of the schedule; null: optimizer.learning_rate", above=0.0
    )


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluation of models."""

    every: int = key("rounds between two evaluations; the last round is always evaluated", 1, low=1)
    batch_size: int = key("examples of a test batch (rows of tokens for text)", 50, low=1, high=1_000_000)
    statistics: str = key(
        "how the statistics of static batch normalisation are computed: pooled, over the training set (authors' code); "
        "clients, client by client (paper)",
        "pooled",
        choices=("pooled", "clients"),
    )
    statistics_batch: int = key("batch size for these statistics", 10, low=2, high=1_000_000)
    exits: str = key(
        "prediction of a model with several exits: last, the last exit; mean, the mean of all logits",
        "last",
        choices=("last", "mean"),
    )
    levels: str = key(
        "models that are evaluated on the test set: global, only the global one; all, also the exported model of every "
        "level of the mix",
        "global",
        choices=("global", "all"),
    )
    members: str = key(
        "networks of the ensemble that a level with fewer networks predicts with: first, the first ones; best, those "
        "with the highest accuracy on the held-out examples",
        "first",
        choices=("first", "best"),
    )
    best: str | None = key(
        "metric that selects the best round; null: validation_accuracy if clients hold out examples "
        "(partition.held_out), else global_accuracy; perplexity for text",
        choices=metrics.selection_metrics(),
    )
    fine_tune: FineTune = key("local training before each client's local test (FedBABU)", FineTune())


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Checkpoints on disk."""

    every: int = key("rounds between two checkpoints: the most that a killed run loses", 1, low=1)
    keep: int = key("number of checkpoints to keep", 2, low=1, high=1_000_000)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All keys that determine a run, in the order of the data flow."""

    name: str = key(
        "short name; the run folder is runs/NAME, or runs/NAME-KEY=VALUE if --set changes a key",
        required=True,
        pattern=NAME,
    )
    seed: int = key("seed of all random numbers of the run", 0, low=0)
    data: Data = key("source of the examples", required=True, kind="data")
    input: Plugin = key("how examples become batches", required=True, kind="inputs")
    partition: Plugin = key("how examples are split over clients", required=True, kind="partitions")
    model: Model = key("the layers", required=True)
    levels: Levels = key("levels of clients", required=True)
    availability: Availability = key("dropouts and late clients", Availability())
    round: Round = key("settings of a round", required=True)
    client: Client = key("local training of one client", required=True)
    optimizer: Optimizer = key("optimizer of the local steps", required=True)
    schedule: Plugin = key("factor of the learning rate over the rounds", Plugin("constant"), kind="schedules")
    rounds: int = key("number of rounds", required=True, low=1)
    evaluate: Evaluate = key("evaluation of models", Evaluate())
    checkpoint: Checkpoint = key("checkpoints on disk", Checkpoint())
    engine: str = key(
        "how clients are trained: sequential, one at a time; stacked, several clients of a level together; auto, the "
        "fastest for each level on this machine",
        "auto",
        choices=("auto", "sequential", "stacked"),
    )
    precision: str = key(
        "float type of weights and computation; mixed_bfloat16: bfloat16 products in local training, float32 for all "
        "else; faster only on processors with bf16 units (AVX512_BF16, AMX) or on a GPU",
        "float32",
        choices=("float32", "float64", "mixed_bfloat16"),
    )
    path: str = field(default="", compare=False)
    source: str = field(default="", compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    tree: Node | None = field(default=None, compare=False, repr=False)
    history: tuple[tuple[str, Node], ...] = field(default=(), compare=False, repr=False)

    @property
    def float_type(self) -> str:
        """Float type of weights, optimizer, loss, merge and evaluation."""
        return "float32" if self.precision == "mixed_bfloat16" else self.precision


# Budgets of four levels with equal shares of clients, largest first. With `lack` the smallest budget is too small for
# the first blocks; with `surplus` the largest fits two models. Source: FeDepth (Zhang et al. 2023), section 5.
SCENARIOS = {
    "fair": (1.0, 1 / 2, 1 / 3, 1 / 6),
    "lack": (1.0, 1 / 2, 1 / 6, 1 / 8),
    "surplus": (2.0, 1 / 2, 1 / 3, 1 / 6),
}
