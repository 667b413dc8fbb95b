"""The recipe as frozen dataclasses: every key, its type, its default and its meaning.

This file is the only place where a default is written down. `recipes/README.md` is generated from it.
"""

from dataclasses import dataclass, field

from hetero_tf.base import metrics
from hetero_tf.base.constraints import Plugin, key
from hetero_tf.recipe.model import Model
from hetero_tf.recipe.nodes import Node

NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where the examples come from. Other keys are options of the loader (see its table)."""

    loader: Plugin = field(metadata={"kind": "data"})
    fallback: str | None = key(
        "embedded data set that takes the place of the real one, with a warning, if that cannot be fetched",
        choices=("digits", "pydoc"),
    )


@dataclass(frozen=True)
class Megabytes:
    """A budget of so much training memory, 2**20 bytes each."""

    amount: float


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Which levels of clients there are: the width of each, and the share of the clients that has it."""

    widths: dict = key(
        "level -> width in (0, 1]: the share of channels that the level keeps, such as 0.5 or 1/3", required=True
    )
    rounding: str = key(
        "how `!w n` becomes a whole number at a width: up, as the code of HeteroFL, FjORD and FedRolex does it; down, "
        "as that of FeDepth and SplitMix; at least 1",
        "up",
        choices=("up", "down"),
    )
    mix: tuple = key(
        "shares of clients: a1-e9, a-e (equal shares) or {a: 1, e: 9}; the first is the global model's", required=True
    )
    assignment: str = key(
        "fixed: for the whole run; dynamic: every client draws its level anew each round",
        "dynamic",
        choices=("fixed", "dynamic"),
    )
    depths: dict = key("level -> number of its deepest exit; without it a level keeps all units", {})
    members: dict = key(
        "level -> how many networks of an ensemble its clients train; the first level of the mix has them all", {}
    )
    members_fan_in: str = key(
        "fan-in by which networks of an ensemble draw their initial values: own; wide, that of the network of width 1 "
        "of which they are parts, so that kernels and biases behind the first layer are smaller by sqrt(width)",
        "own",
        choices=("own", "wide"),
    )
    entries: dict = key("level -> share of its single entries that round.mask keeps, such as 1/16; without it all", {})
    idle: tuple[str, ...] = key("levels whose clients never take part", ())
    budgets: dict = key(
        "level -> what its clients can hold: a share of what the model takes at width 1, such as 1/6; or training "
        "memory, such as 20 MB; or one of FeDepth's scenarios fair, lack and surplus, for the levels of the mix in "
        "order",
        {},
    )
    tolerance: float = key(
        "share by which a budget may be exceeded; FeDepth's published stages need 0.0415 to 0.14",
        0.05,
        low=0.0,
        below=1.0,
    )
    fit: str | None = key(
        "what becomes smaller, from what the levels have here, until their budgets hold it: widths; common_width, one "
        "for all; depths; members, with one width for all networks; null: nothing, and what exceeds its budget is said",
        choices=("widths", "common_width", "depths", "members"),
    )
    measure: str = key(
        "what budgets are shares of: the whole model's training memory or its multiply-adds",
        "memory",
        choices=("memory", "multiply_adds"),
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The levels of the mix, in its order."""
        return tuple(name for name, _ in self.mix)

    def divided(self, amount: float) -> dict[str, float]:
        """`{level: its part}` of an amount that the levels of the mix divide by their shares."""
        total = sum(share for _, share in self.mix)
        return {name: amount * share / total for name, share in self.mix}

    def active(self, amount: float) -> dict[str, float]:
        """The same of the levels whose clients take part; an idle level's part is 0."""
        able = sum(share for name, share in self.mix if name not in self.idle)
        return {name: 0.0 if name in self.idle else amount * share / able for name, share in self.mix}

    @property
    def global_level(self) -> str:
        """The level of the global model: the first of the mix."""
        return self.mix[0][0]

    @property
    def ensemble(self) -> int | None:
        """How many networks the global model consists of, None where it is one without a leading axis."""
        return self.members.get(self.global_level)


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Which active clients return, and with how much of their work. Seconds are simulated: nothing is waited for."""

    dropout: float = key("share of a round's clients that drop out and return nothing", 0.0, low=0.0, below=1.0)
    deadline: float | None = key(
        "simulated seconds after which a round waits for nobody; null: it waits for all", above=0.0
    )
    seconds_per_step: dict = key(
        "level -> simulated seconds of a local step that trains the client's whole sub-model", {}
    )
    spread: float = key(
        "standard deviation of the logarithm of a client's pace, drawn anew each round", 0.0, low=0.0, high=10.0
    )
    late: str = key(
        "what a client returns that misses the deadline: drop, nothing; partial, the steps it has done, but only "
        "whole stages where several follow each other",
        "drop",
        choices=("drop", "partial"),
    )

    @property
    def is_limited(self) -> bool:
        """Whether a round is any other than one in which everyone returns at once."""
        return self.dropout > 0 or bool(self.seconds_per_step)


@dataclass(frozen=True, kw_only=True)
class Round:
    """What happens between two versions of the global model."""

    clients: int = key("active clients of a round", required=True, low=1, high=10_000_000)
    submodel: Plugin = key("which channels of the global model a sub-model keeps", Plugin("prefix"), kind="submodels")
    mask: Plugin | None = key(
        "which single entries of its sub-model a client trains, as many as levels.entries says; null: all", kind="masks"
    )
    weighting: str = key(
        "weight of a client in the merge: uniform, one; samples, the number of its examples",
        "uniform",
        choices=("uniform", "samples"),
    )
    untrained: str = key(
        "whether the merge counts values that a client holds but no stage of it trains",
        "left_out",
        choices=("left_out", "counted"),
    )
    uncovered: str = key(
        "what a client with a narrower sub-model counts for in the mean of the channels or ranks that it lacks: "
        "left_out, nothing; zeros, a zero, as where clients pad their adapters",
        "left_out",
        choices=("left_out", "zeros"),
    )
    label_rows: str = key(
        "which rows of label axes a client is merged in: own, those of the labels that it has; all",
        "own",
        choices=("own", "all"),
    )
    personal: tuple[str, ...] = key(
        "units that stay with the client and are never merged, numbered from 0 as in model.layers; all: every unit", ()
    )
    server: Plugin = key("how the merged weights change the global ones", Plugin("replace"), kind="servers")
    non_finite_share: float = key(
        "share of clients with NaN or infinite results from which a round is repeated with another cohort; if that "
        "fails too, the run stops",
        0.5,
        above=0.0,
        high=1.0,
    )


@dataclass(frozen=True, kw_only=True)
class Client:
    """Local training of one client."""

    epochs: int | dict = key(
        "passes over the client's examples in a round; or level -> passes, such as {a: 5, d: 1}, for all levels of "
        "the mix",
        1,
        low=1,
        high=1_000_000,
    )
    batch_size: int = key("examples of a step (rows of tokens for text)", required=True, low=1, high=1_000_000)
    stages: Plugin = key("which units each local step runs and trains", Plugin("joint"), kind="stages")
    loss: Plugin = key("loss of the local steps", Plugin("masked_cross_entropy"), kind="losses")
    coupling: Plugin = key(
        "how the losses of several outputs (exits, widths, peers) become one", Plugin("sum"), kind="couplings"
    )
    correction: Plugin | None = key(
        "term added to the local gradients (FedProx, FedDyn, SCAFFOLD); null: none", kind="corrections"
    )
    update: Plugin | None = key(
        "what becomes of a client's trained values before they are merged; null: nothing", kind="updates"
    )
    label_cut: bool = key(
        "whether a client computes only the logits of its labels, where the loss allows it; "
        "changes the cost, not the result; without effect where round.label_rows is all, units are "
        "personal, there is a mask, a correction or an update, or the coupling reads logits",
        True,
    )

    def epochs_of(self, level: str) -> int:
        """How often the clients of a level go through their examples in a round."""
        return self.epochs[level] if isinstance(self.epochs, dict) else self.epochs


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The local steps: what is common to all optimizers. Other keys are options of the optimizer (see its table)."""

    method: Plugin = field(default=Plugin("sgd"), metadata={"kind": "optimizers"})
    learning_rate: float = key("step size before the schedule", required=True, above=0.0)
    clip_norm: float | None = key("largest L2 norm of a client's gradient; null: not clipped", 1.0, low=1e-6)


@dataclass(frozen=True, kw_only=True)
class FineTune:
    """Local training before the test of each client's own model; training knows nothing of it."""

    epochs: int = key("local epochs of fine-tuning before each client's own test; 0: none", 0, low=0, high=1_000_000)
    units: tuple[str, ...] = key(
        "units that fine-tuning trains, numbered from 0 as in model.layers, those of model.frozen too; all: every unit",
        ("all",),
    )
    learning_rate: float | None = key(
        "step size of fine-tuning, whatever the schedule; null: optimizer.learning_rate", above=0.0
    )


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """When and how models are measured."""

    every: int = key("rounds between two evaluations; the last round is always evaluated", 1, low=1)
    batch_size: int = key("examples of a test batch (rows of tokens for text)", 50, low=1, high=1_000_000)
    statistics: str = key(
        "how the statistics of static batch normalisation are measured: pooled, over the training set (authors' code); "
        "clients, client by client (paper)",
        "pooled",
        choices=("pooled", "clients"),
    )
    statistics_batch: int = key("examples of a batch of that measurement", 10, low=2, high=1_000_000)
    exits: str = key(
        "prediction of a model with several exits: the last one's, or the mean of all logits",
        "last",
        choices=("last", "mean"),
    )
    levels: str = key(
        "whose models are measured on the test set: global, the global one alone; all, that of every level of the mix, "
        "as it would be exported",
        "global",
        choices=("global", "all"),
    )
    members: str = key(
        "with which networks of an ensemble a level predicts that has not all of them: first, the first ones; best, "
        "those with the highest accuracy on the held-out examples",
        "first",
        choices=("first", "best"),
    )
    best: str | None = key(
        "metric that chooses the best round; null: validation_accuracy where clients hold examples out "
        "(partition.held_out), else global_accuracy; of text the perplexity",
        choices=metrics.selecting(),
    )
    fine_tune: FineTune = key("local training before the test of each client's own model (FedBABU)", FineTune())


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """When the state is sealed on disk."""

    every: int = key("rounds between two sealed states: what a kill can cost at most", 1, low=1)
    keep: int = key("sealed states that are kept", 2, low=1, high=1_000_000)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that determines a run, in the order of the data's path."""

    name: str = key(
        "short name; the run folder is runs/NAME, or runs/NAME-KEY=VALUE where --set changes a key",
        required=True,
        pattern=NAME,
    )
    seed: int = key("one seed for every draw of the run", 0, low=0)
    data: Data = key("where the examples come from", required=True, kind="data")
    input: Plugin = key("how examples become batches", required=True, kind="inputs")
    partition: Plugin = key("how examples are split over clients", required=True, kind="partitions")
    model: Model = key("the layers", required=True)
    levels: Levels = key("which levels of clients there are", required=True)
    availability: Availability = key("which active clients return, and with how much of their work", Availability())
    round: Round = key("what happens between two versions of the global model", required=True)
    client: Client = key("local training of one client", required=True)
    optimizer: Optimizer = key("the local steps", required=True)
    schedule: Plugin = key("factor of the learning rate over the rounds", Plugin("constant"), kind="schedules")
    rounds: int = key("rounds of the run", required=True, low=1)
    evaluate: Evaluate = key("when and how models are measured", Evaluate())
    checkpoint: Checkpoint = key("when the state is sealed on disk", Checkpoint())
    engine: str = key(
        "how clients are computed: sequential, one by one; stacked, several of a level at once; auto, what "
        "suits the level and the machine, in whatever form of the step is the fastest there",
        "auto",
        choices=("auto", "sequential", "stacked"),
    )
    precision: str = key(
        "float type of weights and computation; mixed_bfloat16: bfloat16 products in local training, "
        "all else float32; pays only where the processor has bf16 units (AVX512_BF16, AMX) or on a "
        "GPU",
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
        """Float type of weights, optimiser, loss, merge and evaluation."""
        return "float32" if self.precision == "mixed_bfloat16" else self.precision


# Budgets of four levels that equally many clients have, largest first. Under `lack` the smallest does not hold the
# first blocks; under `surplus` the largest holds two models. Source: FeDepth (Zhang et al. 2023), section 5.
SCENARIOS = {
    "fair": (1.0, 1 / 2, 1 / 3, 1 / 6),
    "lack": (1.0, 1 / 2, 1 / 6, 1 / 8),
    "surplus": (2.0, 1 / 2, 1 / 3, 1 / 6),
}
