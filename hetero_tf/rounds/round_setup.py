"""What a round is made of: four records that every function of its graph reads."""

from collections.abc import Callable
from dataclasses import dataclass

from hetero_tf.inputs.examples import Examples
from hetero_tf.models.cut import Cut
from hetero_tf.models.entry_masks import EntryMask
from hetero_tf.rounds.engine import Engine


@dataclass(frozen=True)
class LocalOptimizer:
    """The steps of local training.

    Attributes:
        step: `(weights, gradients, slots, rate, count) -> (weights, slots)`, see `methods.optimizers`.
        slots: How many tensors it keeps beside the weights.
        clip_norm: Largest L2 norm of a client's gradient; None: it is not clipped.
    """

    step: Callable
    slots: int
    clip_norm: float | None


@dataclass(frozen=True)
class Algorithm:
    """The functions of the recipe's plug-ins, with their options.

    Attributes:
        submodel: Which coordinates of an axis a client's sub-model has, see `methods.submodels`.
        loss: Of one exit, see `methods.losses`.
        couple: Makes one loss of those of all exits, see `methods.couplings`.
        masks: For each sub-model which single entries its clients train; None: all.
        correct: What is added to local gradients, see `methods.corrections`; None: nothing.
        remember: What a client's correction remembers after its steps; None where it remembers nothing.
        read_slots: Positions of the server's slots that the correction reads.
        update: What becomes of trained values before the merge, see `methods.updates`; None: nothing.
        optimizer: The local steps.
        server: `(old, mean, coverage, slots) -> (new, slots)`, see `methods.servers`.
        sums_memory: Whether the server also takes `memory_change`.
    """

    submodel: Callable
    loss: Callable
    couple: Callable
    masks: tuple[EntryMask | None, ...] | None
    correct: Callable | None
    remember: Callable | None
    read_slots: tuple[int, ...]
    update: Callable | None
    optimizer: LocalOptimizer
    server: Callable
    sums_memory: bool


@dataclass(frozen=True)
class Placement:
    """Where the clients' values lie among the global ones, and which of them are merged.

    Attributes:
        cut: Where sub-models lie in the global values.
        dtype: Float type of the global values.
        trainable: How many of the global values are trainable; running statistics stand behind them.
        merged_from: For each global value and sub-model, after how many stages clients count in its merge; 0: never.
        merge_absent_labels: Whether the rows of labels that a client lacks are merged too.
        zeros_count: Whether the channels or ranks that a client lacks count as zeros in the merge.
        personal: Positions of the global values that stay with the clients.
    """

    cut: Cut
    dtype: str
    trainable: int
    merged_from: tuple[tuple[int, ...], ...]
    merge_absent_labels: bool
    zeros_count: bool
    personal: tuple[int, ...]


@dataclass(frozen=True)
class RoundSetup:
    """Everything that a round reads besides its state and its plan.

    Attributes:
        examples, algorithm, placement, engine: See there.
        watch: What hears of the clients' steps while a round runs, see `watch.build_progress`; None: nobody does.
    """

    examples: Examples
    algorithm: Algorithm
    placement: Placement
    engine: Engine
    watch: Callable[[int, int], None] | None
