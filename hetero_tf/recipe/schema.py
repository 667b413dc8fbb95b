"""Frozen dataclasses of the recipe: every key with its type, default and meaning.

A field described by `Args:` is a key. This file and `model` are the single source of all defaults. `docs/reference`
is generated from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

from hetero_tf.base import registry
from hetero_tf.base.constraints import Kind, NotNegative, Plugin, Positive, Range, Share, SmallCount, Text, Units
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.metrics import task_metrics
from hetero_tf.recipe.model import Model
from hetero_tf.recipe.nodes import Node

if TYPE_CHECKING:
    import numpy as np

NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
LEVEL = "[A-Za-z]{1,20}"
MEMORY_SIZE = "[0-9]{1,9}([.][0-9]{1,9})? ?[MG]iB"
MIX = f"{LEVEL}[0-9]{{0,6}}(-{LEVEL}[0-9]{{0,6}})*"
# Budgets of four levels with equal shares of clients, largest first. With `lack` the smallest budget is too small for
# the first blocks; with `surplus` the largest fits two models. Source: FeDepth (Zhang et al. 2023), section 5.
SCENARIOS = {
    "fair": (1.0, 1 / 2, 1 / 3, 1 / 6),
    "lack": (1.0, 1 / 2, 1 / 6, 1 / 8),
    "surplus": (2.0, 1 / 2, 1 / 3, 1 / 6),
}
Fraction = Annotated[float, Range(above=0.0, high=1.0, fractions=True)]
# `Mebibytes` until the full cost of the model is known.
Budget = Annotated[float, Range(above=0.0, high=100.0, fractions=True, memory=True)]
Networks = Annotated[int, Range(low=1, high=1000)]


def is_compression(update: Plugin | None) -> bool:
    """Return whether an update is a compression, see `methods.updates`."""
    return update is not None and registry.constant("updates", update.name, "UNBIASED") is not None


@dataclass(frozen=True, kw_only=True)
class Data:
    """Source of the examples. Other keys are options of the loader (see its table).

    Args:
        fallback: embedded data set that replaces the real one, with a warning, if that cannot be downloaded
        class_order: names of the classes in the order of their numbers, such as [low, medium, high]; null: the order of
            the loader, which sorts texts
    """

    loader: Annotated[Plugin, Kind("data")]
    fallback: Literal["digits", "pydoc"] | None = None
    class_order: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Mebibytes:
    """A budget of training memory, in units of 2**20 bytes."""

    amount: float


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Levels of clients: the width of each level and its share of the clients.

    Args:
        widths: level -> width in (0, 1]: share of the channels that the level keeps, such as 0.5 or 1/3
        rounding: rounding of `!w n` at a width: up, as in the code of HeteroFL, FjORD and FedRolex; down, as in that
            of FeDepth and SplitMix; the result is at least 1
        mix: shares of clients: a1-e9, a-e (equal shares) or {a: 1, e: 9}; the first level is that of the global model
        assignment: fixed: a client keeps its level for the whole run; dynamic: every client draws a new level in each
            round
        depths: level -> number of its deepest exit; levels without an entry keep all units
        members: level -> number of networks of the ensemble that its clients train; the first level of the mix has all
        members_fan_in: fan-in for the initial values of the networks of an ensemble: own, their own fan-in; wide, that
            of the network of width 1 that they are parts of, so kernels and biases after the first layer are smaller
            by sqrt(width)
        entries: level -> share of its entries that round.mask keeps, such as 1/16; levels without an entry keep all
        idle: levels whose clients never train
        budgets: level -> budget of its clients: a share of the cost of the model at width 1, such as 1/6, or training
            memory, such as 20 MiB; or one of the FeDepth scenarios fair, lack and surplus, for the levels of the mix in
            order
        tolerance: fraction by which a budget may be exceeded; the published stages of FeDepth need 0.0415 to 0.14
        fit: which property of a level is reduced until the level fits its budget: widths; common_width, one width for
            all levels; depths, and the width if even the first exit exceeds the budget; members, with one width for all
            networks; null: nothing, levels over budget are reported. device: each client has the largest level of the
            mix whose training memory fits its device (fleet); clients that fit none never train, and the shares of the
            mix are those that result
        fit_seconds: with `fit: device`, the largest simulated seconds of a client's round without jitter; null: only
            memory counts
        measure: cost that budgets are a share of: training memory or multiply-adds of the whole model

    Attributes:
        level_of_client: int8 [clients], index of each client's level in the mix after `fit: device`, -1 for clients
            that never train. If None, levels are assigned by the shares of the mix.
    """

    widths: Annotated[dict[str, Fraction], Range(low=1)]
    rounding: Literal["up", "down"] = "up"
    mix: Annotated[dict[str, Annotated[float, Range(above=0.0, high=1e6)]], Text(pattern=MIX)]
    assignment: Literal["fixed", "dynamic"] = "dynamic"
    depths: dict[str, Networks] = field(default_factory=dict)
    members: dict[str, Networks] = field(default_factory=dict)
    members_fan_in: Literal["own", "wide"] = "own"
    entries: dict[str, Fraction] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    budgets: Annotated[dict[str, Budget], Text(choices=tuple(SCENARIOS))] = field(default_factory=dict)
    tolerance: Share = 0.05
    fit: Literal["widths", "common_width", "depths", "members", "device"] | None = None
    fit_seconds: Positive | None = None
    measure: Literal["memory", "multiply_adds"] = "memory"
    level_of_client: "np.ndarray | None" = field(default=None, compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Levels of the mix, in order."""
        return tuple(self.mix)

    def divided(self, amount: float) -> dict[str, float]:
        """Divide an amount among the levels of the mix by their shares; return `{level: part}`."""
        total = sum(self.mix.values())
        return {name: amount * share / total for name, share in self.mix.items()}

    def active(self, amount: float) -> dict[str, float]:
        """Divide an amount among the levels that train; idle levels get 0."""
        able = sum(share for name, share in self.mix.items() if name not in self.idle)
        return {name: 0.0 if name in self.idle else amount * share / able for name, share in self.mix.items()}

    @property
    def global_level(self) -> str:
        """Level of the global model: the first of the mix."""
        return next(iter(self.mix))

    def resolve(self, level: str | None) -> str:
        """Return the name of a level that the global model contains; None means the level of the global model.

        Raises:
            InputError: The level is unknown or wider than the global model.
        """
        level = self.global_level if level is None else level
        if level not in self.widths:
            raise InputError(
                "`level` must be one of the recipe's levels. "
                f"Received: level={level!r}{did_you_mean(level, self.widths)}"
            )
        if self.widths[level] > self.widths[self.global_level]:
            raise InputError(
                f"`level` must not be wider than the global model, level {self.global_level!r}. "
                f"Received: level={level!r}"
            )
        return level

    @property
    def ensemble(self) -> int | None:
        """Number of networks of the global model; None for a single network without a leading axis."""
        return self.members.get(self.global_level)

    def networks_of(self, level: str) -> int:
        """Number of networks that a client of a level trains; 1 without an ensemble."""
        return self.members.get(level, 1)


def is_window(hours: Sequence[object]) -> bool:
    """True for the start and the end of a time of the day in hours."""
    is_time = all(isinstance(hour, float) and 0 <= hour <= 24 for hour in hours)
    return is_time and len(hours) == 2 and hours[0] != hours[1]


@dataclass(frozen=True, kw_only=True)
class Device:
    """A class of devices. Every device has `seconds_per_step`, `gflops` or both.

    Args:
        share: share of the clients that have this device, relative to the other shares
        seconds_per_step: constant seconds of each local step, whatever its size
        gflops: training speed in 1e9 floating-point operations per second, counted as `train_flops`; null: only
            seconds_per_step counts
        memory: memory for training, such as 400 MiB or 2 GiB; null:
            unlimited
        down_mbit: download rate of the device in Mbit/s; null: unlimited
        up_mbit: upload rate of the device in Mbit/s; null: unlimited
        train_watts: power in watts during training, above the idle device
        radio_watts: power in watts during transfers, above the idle device
        dropout: probability that an active client drops out of a round and returns nothing
        hours: local hours of the day in which the device takes part, such as [[22, 7], [12, 13.5]]; []: all
        charging: probability that a client is charging, drawn for each client and hour; it takes part only while it is
            charging
    """

    share: Annotated[float, Range(above=0.0, high=1e6)] = 1.0
    seconds_per_step: Annotated[float, Range(low=0.0, high=1e6)] = 0.0
    gflops: Positive | None = None
    memory: Annotated[str, Text(pattern=MEMORY_SIZE)] | None = None
    down_mbit: Positive | None = None
    up_mbit: Positive | None = None
    train_watts: NotNegative = 0.0
    radio_watts: NotNegative = 0.0
    dropout: Share = 0.0
    hours: tuple[tuple[float, ...], ...] = ()
    charging: Annotated[float, Range(above=0.0, high=1.0)] = 1.0


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Devices of the clients in simulated time: no client actually waits.

    Args:
        devices: name -> class of devices
        spread: standard deviation of the logarithm of a client's speed within its class, drawn once per client
        jitter: standard deviation of the logarithm of a client's speed, drawn in each round
        distribution: distribution of speeds within a class: lognormal; half_normal, seconds are multiplied by the
            absolute value of a normal number, and spread and jitter are its standard deviations
        shared_down_mbit: download rate in Mbit/s that the clients of a round share; null: unlimited
        shared_up_mbit: upload rate in Mbit/s that the clients of a round share; null: unlimited
        assign: device of a client: share, drawn once per client by the shares; order, the first share of the clients
            has the first device, and so on; levels, the device that is named like the client's level
        time_zones: number of time zones of one hour over which clients are spread; the run starts at midnight of the
            first one
        trace: CSV file with a row for each client instead of devices; its columns are keys of a device
    """

    devices: Annotated[dict[str, Device], Text(named=True)] = field(default_factory=dict)
    spread: Annotated[float, Range(low=0.0, high=10.0)] = 0.0
    jitter: Annotated[float, Range(low=0.0, high=10.0)] = 0.0
    distribution: Literal["lognormal", "half_normal"] = "lognormal"
    shared_down_mbit: Positive | None = None
    shared_up_mbit: Positive | None = None
    assign: Literal["share", "order", "levels"] = "share"
    time_zones: Annotated[int, Range(low=1, high=24)] = 1
    trace: str | None = None


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round: from one version of the global model to the next.

    Args:
        clients: number of active clients in each round; with the selection poisson, their mean
        policy: the clients whose results a round waits for
        selection: how the active clients are chosen
        submodel: channels of the global model that a sub-model keeps
        mask: entries of its sub-model that a client trains (share: levels.entries); null: all
        weighting: weight of a client in the merge: uniform, 1; samples, the number of its examples
        untrained: whether the merge includes values that a client has but does not train: left_out or counted
        uncovered: how clients with narrower sub-models count in the mean of channels or ranks that they lack:
            left_out, not at all; zeros, as a zero, as if clients padded their adapters
        merge: how the weights of the clients become one value of each entry: mean, or a rule that sees every client
        adapters: how the factors of low-rank adapters are trained and merged
        label_rows: rows of label axes in which a client is merged: own, those of its labels; all
        personal: values that stay on the client and are never merged: units, numbered from 0 as in model.layers; kinds
            (norms, biases, embeddings, head, body); layers, or patterns of paths such as */bias; all: every value
        by_level: values with one copy for each level, which only clients of the level merge: units, norms, biases,
            embeddings, layers, patterns or all; last: the last unit of the level's trunk, before its exit
        update: compression of the values that clients receive (qsgd), whose messages count in all traffic; null: none
        server: server optimizer: how the merged weights change the global ones
        non_finite_share: if at least this share of clients returns NaN or infinite values, the round is repeated with
            another cohort; if that fails too, the run stops
    """

    clients: Annotated[int, Range(low=1, high=10_000_000)]
    policy: Annotated[Plugin, Kind("policies")] = Plugin("wait")
    selection: Annotated[Plugin, Kind("selections")] = Plugin("uniform")
    submodel: Annotated[Plugin, Kind("submodels")] = Plugin("prefix")
    mask: Annotated[Plugin, Kind("masks")] | None = None
    weighting: Literal["uniform", "samples"] = "uniform"
    untrained: Literal["left_out", "counted"] = "left_out"
    uncovered: Literal["left_out", "zeros"] = "left_out"
    merge: Annotated[Plugin, Kind("merges")] = Plugin("mean")
    adapters: Annotated[Plugin, Kind("adapters")] = Plugin("mean")
    label_rows: Literal["own", "all"] = "own"
    personal: Units = ()
    by_level: Units = ()
    update: Annotated[Plugin, Kind("updates")] | None = None
    server: Annotated[Plugin, Kind("servers")] = Plugin("replace")
    non_finite_share: Annotated[float, Range(above=0.0, high=1.0)] = 0.5


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Differential privacy of the global model for each client. Set `noise`, `epsilon` or both.

    Args:
        clip: largest L2 norm of a client's change of all merged values together; longer changes are scaled down
        noise: standard deviation of the noise in each entry of the sum of the changes, as a multiple of clip; null: the
            smallest one with which all rounds keep epsilon
        epsilon: privacy budget, which no round may exceed; null: no limit
        delta: probability with which the bound epsilon may fail; less than 1 / clients is usual
        accountant: bound of epsilon: rdp (Renyi divergences), or pld (privacy loss distributions), which is tighter and
            needs round.selection: poisson or cyclic
        bands: rounds whose noise cancels in part in the sum of their changes (DP-FTRL with banded noise); at most the
            rounds that a client waits between two of its rounds (round.selection: cyclic); 1: independent noise
        seed: fixed seed of the noise and of the cohorts, for tests: whoever knows it can subtract the noise; null: a
            random key that only the run folder has
    """

    clip: Positive
    noise: NotNegative | None = None
    epsilon: Positive | None = None
    delta: Annotated[float, Range(above=0.0, high=0.5)] = 1e-5
    accountant: Literal["rdp", "pld"] = "rdp"
    bands: SmallCount = 1
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Local training of one client.

    Args:
        epochs: local epochs in a round; or level -> epochs, such as {a: 5, d: 1}, for all levels of the mix
        batch_size: examples of a local step (rows of tokens for text)
        sampling: examples of a local epoch: shuffled, each once; balanced, as many, with an equal number of each of the
            client's classes, so that examples of rare classes repeat (of numbers, label sets and maps: of the classes
            by which partitions divide them)
        stages: units that each local step runs and trains
        loss: loss of the local steps; null: that of the task
        coupling: how the losses of several outputs (exits, widths, peers) are combined
        correction: term added to the local gradients (FedProx, FedDyn, SCAFFOLD); null: none
        personalization: local steps of clients with a second model or personal values (Ditto, FedRep, MOON); null: none
        update: transformation of a client's update before the merge (clip), or its compression (qsgd, top_k, sign),
            whose messages count in all traffic; null: none
        label_cut: compute only the logits of a client's labels if the loss allows it; changes the cost, not the
            result; no effect if round.label_rows is all, if units are personal, with a mask, a correction, a
            personalization or an update, or if the coupling reads logits
    """

    epochs: SmallCount | dict[str, SmallCount] = 1
    batch_size: SmallCount
    sampling: Literal["shuffled", "balanced"] = "shuffled"
    stages: Annotated[Plugin, Kind("stages")] = Plugin("joint")
    loss: Annotated[Plugin, Kind("losses")] | None = None
    coupling: Annotated[Plugin, Kind("couplings")] = Plugin("sum")
    correction: Annotated[Plugin, Kind("corrections")] | None = None
    personalization: Annotated[Plugin, Kind("personalizations")] | None = None
    update: Annotated[Plugin, Kind("updates")] | None = None
    label_cut: bool = True

    def epochs_of(self, level: str) -> int:
        """Return the local epochs of the clients of a level."""
        return self.epochs[level] if isinstance(self.epochs, dict) else self.epochs


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Optimizer of the local steps. Other keys are options of the optimizer (see its table).

    Args:
        learning_rate: learning rate before the schedule
        clip_norm: maximum L2 norm of a client's gradient; null: no clipping
    """

    method: Annotated[Plugin, Kind("optimizers")] = Plugin("sgd")
    learning_rate: Positive
    clip_norm: Annotated[float, Range(low=1e-6)] | None = 1.0


@dataclass(frozen=True, kw_only=True)
class FineTune:
    """Local training before each client's local test; it does not affect training.

    Args:
        epochs: local epochs of fine-tuning before each client's local test; 0: none
        units: units that fine-tuning trains, numbered from 0 as in model.layers, even if in model.frozen; all: every
            unit
        learning_rate: learning rate of fine-tuning, independent of the schedule; null: optimizer.learning_rate
    """

    epochs: Annotated[int, Range(low=0, high=1_000_000)] = 0
    units: Units = ("all",)
    learning_rate: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluation of models.

    Args:
        every: rounds between two evaluations; the last round is always evaluated
        batch_size: examples of a test batch (rows of tokens for text)
        statistics: how the statistics of static batch normalisation are computed: pooled, over the training set
            (authors' code); clients, client by client (paper); sample, over a tenth of the training set, at least
            1,000 examples, the same ones in each evaluation (on MNIST accuracies differ by at most 0.2 points)
        statistics_batch: batch size for these statistics
        exits: prediction of a model with several exits: last, the last exit; mean, the mean of all logits
        metrics: further metrics of the global model, of the validation examples and, with `levels: all`, of every level
        levels: models that are evaluated on the test set: global, only the global one; all, also the exported model of
            every level of the mix
        best: metric that selects the best round; null: the first metric of the task, such as accuracy, or perplexity
            for text, on the validation examples if clients hold out some (partition.held_out), else on the test set;
            with models of clients, validation_local_accuracy is that of the clients' models
        fine_tune: local training before each client's local test (FedBABU)
    """

    every: int = 1
    batch_size: SmallCount = 50
    statistics: Literal["pooled", "clients", "sample"] = "pooled"
    statistics_batch: Annotated[int, Range(low=2, high=1_000_000)] = 10
    exits: Literal["last", "mean"] = "last"
    metrics: tuple[str, ...] = ()
    levels: Literal["global", "all"] = "global"
    best: str | None = None
    fine_tune: FineTune = FineTune()


@dataclass(frozen=True, kw_only=True)
class StoppingSettings:
    """End of the training before the last round.

    Args:
        patience: evaluations without an improvement of the metric after which the run ends; null: it never ends early
        metric: metric that must improve; null: the one that selects the best round (evaluate.best)
        min_delta: difference from the best value that an improvement exceeds, in the unit of the metric
    """

    patience: SmallCount | None = None
    metric: str | None = None
    min_delta: NotNegative = 0.0


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """Checkpoints on disk.

    Args:
        every: rounds between two checkpoints: the most that a killed run loses
        keep: number of checkpoints to keep, in addition to that of the best round
    """

    every: int = 1
    keep: SmallCount = 2


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All keys that determine a run, in the order of the data flow.

    Args:
        name: short name; the run folder is runs/NAME, or runs/NAME-KEY=VALUE if --set changes a key
        seed: seed of all random numbers of the run
        data: source of the examples
        task: the form of the targets, and the meaning of the outputs
        input: how examples become batches
        partition: how examples are split over clients
        model: the layers, or the name of a function that builds them
        levels: levels of clients
        fleet: devices of the clients, in simulated time: the name of a shipped fleet such as phones, a YAML file, or a
            mapping; null: time is not simulated
        round: settings of a round
        privacy: differential privacy of the global model for each client; null: none
        client: local training of one client
        optimizer: optimizer of the local steps
        schedule: factor of the learning rate over the rounds
        rounds: number of rounds
        evaluate: evaluation of models
        early_stopping: end of the training before the last round
        checkpoint: checkpoints on disk
        engine: how clients are trained: sequential, one at a time; stacked, several clients of a level together; auto,
            the fastest for each level on this machine
        precision: float type of weights and computation; mixed_bfloat16: bfloat16 products in local training, float32
            for all else; faster only on processors with bf16 units (AVX512_BF16, AMX) or on a GPU

    Attributes:
        path: File name in messages.
        source: Resolved YAML text with all defaults.
        tree: The values with their positions.
        overrides: Texts `path=value` that changed the file.
    """

    name: Annotated[str, Text(pattern=NAME)]
    seed: int = 0
    data: Data
    task: Annotated[Plugin, Kind("tasks")] = Plugin("classification")
    input: Annotated[Plugin, Kind("inputs")]
    partition: Annotated[Plugin, Kind("partitions")]
    model: Model
    levels: Levels
    fleet: Fleet | None = None
    round: Round
    privacy: Privacy | None = None
    client: ClientSettings
    optimizer: Optimizer
    schedule: Annotated[Plugin, Kind("schedules")] = Plugin("constant")
    rounds: int
    evaluate: Evaluate = Evaluate()
    early_stopping: StoppingSettings = StoppingSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    engine: Literal["auto", "sequential", "stacked"] = "auto"
    precision: Literal["float32", "float64", "mixed_bfloat16"] = "float32"
    path: str = field(default="", compare=False)
    source: str = field(default="", compare=False)
    tree: Node | None = field(default=None, compare=False, repr=False)
    overrides: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def selected_metrics(self) -> dict[tuple[str, str], str]:
        """Metrics that the keys `evaluate.best` and `early_stopping.metric` name, by path."""
        metrics_by_path = {
            ("evaluate", "best"): self.evaluate.best,
            ("early_stopping", "metric"): self.early_stopping.metric,
        }
        return {path: metric for path, metric in metrics_by_path.items() if metric is not None}

    @property
    def loss(self) -> Plugin:
        """Loss of the local steps."""
        if self.client.loss is not None:
            return self.client.loss
        name = registry.constant("tasks", self.task.name, "LOSS")
        return Plugin(name, {key: option.default for key, option in registry.options("losses", name).items()})

    @property
    def twin(self) -> str | None:
        """Table of the second model of each client, "twin" or "previous", see `methods.personalizations`; or None."""
        plugin = self.client.personalization
        if plugin is None or not registry.constant("personalizations", plugin.name, "TWIN"):
            return None
        return "previous" if registry.constant("personalizations", plugin.name, "PREVIOUS") else "twin"

    @property
    def targets(self) -> str:
        """Form of the targets of the task, see `data.targets`; for words at each position, "positions"."""
        form = registry.constant("inputs", self.input.name, "TARGETS")
        return form if form == "positions" else registry.constant("tasks", self.task.name, "TARGETS")

    @property
    def loss_targets(self) -> str:
        """Form of the encoded targets of the task, which the loss must support."""
        return registry.constant("tasks", self.task.name, "LOSS_TARGETS") or self.targets

    def num_outputs(self, classes: int) -> int:
        """Return the number of outputs of the model, `!classes`, for a number of classes or targets."""
        return classes - (registry.constant("tasks", self.task.name, "OUTPUTS") == "thresholds")

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that every evaluation measures in addition to the loss."""
        return tuple(dict.fromkeys((*task_metrics(self.input.name, self.task.name), *self.evaluate.metrics)))

    @property
    def float_type(self) -> str:
        """Float type of weights, optimizer, loss, merge and evaluation."""
        return "float32" if self.precision == "mixed_bfloat16" else self.precision
