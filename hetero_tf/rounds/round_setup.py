"""The setup of a round: the records that every function of its graph reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hetero_tf.data.inputs import Examples
from hetero_tf.models.entry_masks import EntryMask
from hetero_tf.models.global_layout import GlobalLayout
from hetero_tf.models.state import TABLES
from hetero_tf.rounds.arrivals import StaleMerge
from hetero_tf.rounds.client_block import ClientBlock
from hetero_tf.rounds.client_tables import TableCut
from hetero_tf.rounds.engine import Engine
from hetero_tf.rounds.submodel_cut import SubmodelCut


@dataclass(frozen=True)
class LocalOptimizer:
    """The steps of local training.

    Attributes:
        step: `(weights, gradients, slots, rate, count) -> (weights, slots)`, see `methods.optimizers`.
        slots: Number of tensors of the optimizer's state, each in the shape of the weights.
        clip_norm: Largest L2 norm of a client's gradient, or None for no clipping.
    """

    step: Callable
    slots: int
    clip_norm: float | None


@dataclass(frozen=True)
class Update:
    """A transformation of clients' values, see `methods.updates`.

    Attributes:
        transform: `(weights, start, steps, key, entries) -> weights`.
        is_compression: Whether it sees only the entries that are sent.
        has_errors: Whether a client stores what its messages leave out.
    """

    transform: Callable
    is_compression: bool
    has_errors: bool


@dataclass(frozen=True)
class Algorithm:
    """The functions of the recipe's plug-ins, with their options.

    Attributes:
        submodel: Selects the coordinates of an axis for a client's sub-model, see `methods.submodels`.
        loss: Loss of one exit, see `methods.losses`.
        couple: Combines the losses of all exits into one, see `methods.couplings`.
        correct: The term added to local gradients, see `methods.corrections`, or None for no correction.
        remember: Computes the memory of a client's correction after its steps, or None for no memory.
        read_slots: Positions of the server's slots that the correction reads.
        personalize: A local step of clients with a model of their own, from the fields of a `LocalStep` of
            `methods.personalizations`; or None.
        update: Transforms trained values before the merge, or None for no update.
        broadcast: Compresses the global values that clients receive, or None for no compression.
        aggregate: `(old, **clients) -> mean` of the results of all clients, see `methods.merges` and
            `cohort.client_results`; None for the weighted mean, which needs only their sums.
        server: `(old, mean, coverage, slots) -> (new, slots)`, see `methods.servers`.
        sums_memory: Whether the server also reads `memory_change`.
        stale_merge: The merge of stale results of an asynchronous policy. If None, all results arrive in their round.
        records_squares: Whether the round also returns the mean squared loss of each client.
    """

    submodel: Callable
    loss: Callable
    couple: Callable
    correct: Callable | None
    remember: Callable | None
    read_slots: tuple[int, ...]
    personalize: Callable | None
    update: Update | None
    broadcast: Update | None
    optimizer: LocalOptimizer
    aggregate: Callable | None
    server: Callable
    sums_memory: bool
    stale_merge: StaleMerge | None
    records_squares: bool


@dataclass(frozen=True)
class Submodel:
    """The part of the global model that some clients train; a branch of the round's graph.

    Attributes:
        number: Its position among the sub-models of the mix.
        block: The clients that are computed together.
        cut: Cuts its values out of the global row.
        tables: Cuts of its values out of each client table, `{one of TABLES: TableCut}`.
        mask: Mask of the entries that its clients train, or None for all entries.
        positions: Positions of a client's values among the global ones.
        factors: Cut of the factors of adapters whose products are merged, or None.
    """

    number: int
    block: ClientBlock
    cut: SubmodelCut
    tables: dict[str, TableCut]
    mask: EntryMask | None
    positions: tuple[int, ...]
    factors: TableCut | None


def build_submodels(
    layout: GlobalLayout, blocks: Sequence[ClientBlock], masks: Sequence[EntryMask | None]
) -> tuple[Submodel, ...]:
    """Build the sub-models of the mix from the block and the entry mask of each."""
    stored: dict[str, Sequence[int]] = dict.fromkeys(TABLES, range(len(layout.cut.shapes)))
    stored |= {"personal": layout.personal, **dict.fromkeys(("twin", "previous"), range(layout.trainable))}

    def build(number, block, mask):
        stages = [first_stage[number] for first_stage in layout.first_merged_stage]
        tables = {name: TableCut.of(layout.cut, number, positions) for name, positions in stored.items()}
        positions = tuple(at for at, contained in enumerate(layout.cut.contained) if contained[number])
        factors = layout.adapters.factors if layout.adapters and layout.adapters.products else ()
        factor_cut = TableCut.of(layout.cut, number, factors, [stages[at] for at in factors]) if factors else None
        return Submodel(number, block, SubmodelCut.of(layout.cut, number, stages), tables, mask, positions, factor_cut)

    return tuple(build(number, *each) for number, each in enumerate(zip(blocks, masks, strict=True)))


@dataclass(frozen=True)
class PrivateMerge:
    """The constants of a private merge, see `private_sum`.

    Attributes:
        clip: Largest L2 norm of a client's change.
        clients: Expected number of clients of a round, for each sub-model.
        summands: Number of summands of the noise of each round; None if it varies.
    """

    clip: float
    summands: int | None
    clients: tuple[float, ...]


@dataclass(frozen=True)
class RoundSetup:
    """The complete input of a round except its state and its plan.

    Attributes:
        examples, algorithm, layout, engine: See there.
        submodels: Those of the mix.
        on_progress: Callback for the steps of a running round, see `block_training.build_progress`, or None.
        private: The constants of a private merge, or None.
    """

    examples: Examples
    algorithm: Algorithm
    layout: GlobalLayout
    submodels: tuple[Submodel, ...]
    engine: Engine
    on_progress: Callable[[int, int], None] | None
    private: PrivateMerge | None = None

    @property
    def block_sizes(self) -> list[int]:
        """Clients of a block, for each sub-model."""
        return [submodel.block.clients for submodel in self.submodels]

    @property
    def peers(self) -> int:
        """The largest number of peers of a client."""
        return max(submodel.block.networks for submodel in self.submodels) - 1
