"""Chooses how the clients of each sub-model are computed: one by one, or several at once in a stack."""

from dataclasses import dataclass

from hetero_tf.base import hardware
from hetero_tf.base.replicas import Replicas
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.variables import all_layers
from hetero_tf.recipe.schema import Recipe
from hetero_tf.rounds.client_block import ClientBlock
from hetero_tf.rounds.layout import build_client_block
from hetero_tf.rounds.probe import check_stack, first_line

# More clients side by side gain nothing: the operations are long enough then.
LARGEST = 8
# Multiply-adds of one product (convolution, matrix product) over a batch, on average over a forward pass, up to which
# a CPU step is bound by the number of its operations more than by their arithmetic. Measured, see BUILD.md: stacks are
# 1.1 to 2.3 times as fast below, equally fast here, and slower from three times as much on.
NARROW = 5_000_000


@dataclass(frozen=True)
class Engine:
    """How the clients of each sub-model are computed.

    Attributes:
        stacks: `ClientBlock` of each sub-model of the mix.
        compiled: Whether XLA compiles the local training.
        reasons: One sentence for each sub-model that could have been stacked and is not.
        replicas: Who computes them, and how many stacks each has in flight at once.
    """

    stacks: tuple[ClientBlock, ...]
    compiled: bool
    reasons: tuple[str, ...]
    replicas: Replicas

    @property
    def peers(self) -> int:
        """The most peers that some client has."""
        return max(stack.networks for stack in self.stacks) - 1


def choose_engine(
    recipe: Recipe,
    family: ModelFamily,
    label_axis: int,
    example: tuple[int, ...],
    batch: int,
    replicas: Replicas,
    device: str,
) -> Engine:
    """Chooses the engine of a recipe. The choice depends on nothing but the arguments, so a resumed run repeats it.

    Args:
        label_axis: Length of the label axis that clients train.
        example: Shape of one input.
        batch: Examples of a client's largest batch.
        replicas: Who computes the stacks.
        device: "cpu" or "gpu".
    """
    stacks, reasons = [], []
    for level, expected in expected_clients(recipe, family).items():
        share = expected / replicas.count
        clients = 1 if level in family.apart else clients_at_once(recipe.engine, share, device, replicas.parallel)
        # Counting products takes a model built anew, so it is done only where it decides.
        if clients > 1 and recipe.engine == "auto" and device == "cpu":
            clients = clients if product_cost(family, level, label_axis, example, batch) <= NARROW else 1
        stack, reason = _stack(family, level, clients, label_axis)
        stacks.append(stack)
        if reason is not None:
            reasons.append(f"level {level} is computed client by client: {reason}")
    return Engine(tuple(stacks), device == "gpu", tuple(reasons), replicas)


def expected_clients(recipe: Recipe, family: ModelFamily) -> dict[str, float]:
    """`{one of its levels: clients of a round, on average}` of each sub-model; each network of an ensemble is one."""
    expected = dict.fromkeys(family.submodels, 0.0)
    by_level = recipe.levels.active(recipe.round.clients)
    for level, submodel in zip(by_level, family.submodel_of):
        expected[family.submodels[submodel]] += by_level[level] * recipe.levels.members.get(level, 1)
    return expected


def clients_at_once(engine: str, expected: float, device: str, parallel: int) -> int:
    """How many clients of a sub-model to compute at once, if their operations are short.

    Args:
        engine: "auto", "sequential" or "stacked".
        expected: Clients of the sub-model in a round on each replica, on average.
        device: "cpu" or "gpu".
        parallel: Stacks in flight at once on a replica.
    """
    if engine == "sequential":
        return 1
    least = 1 if engine == "auto" else 2
    # On a CPU as many stacks as run at once: a larger stack would leave a core idle.
    wanted = round(expected) if device == "gpu" else -int(-expected // parallel)
    if device == "gpu" and wanted > LARGEST:
        # As few stacks as possible, but all alike: a full one and a small rest would leave half of the slots empty.
        wanted = -int(-wanted // -int(-wanted // LARGEST))
    return min(LARGEST, max(least, wanted))


def product_cost(family: ModelFamily, level: str, label_axis: int, example: tuple[int, ...], batch: int) -> float:
    """Multiply-adds of a product over a batch, on average over a forward pass of a level's sub-model."""
    cost = family.forward(family.route(level), label_axis, example)
    return batch * cost.multiply_adds / max(cost.products, 1)


def _stack(family: ModelFamily, level: str, clients: int, label_axis: int) -> tuple[ClientBlock, str | None]:
    """The stack of a level's clients; of one client where more cannot be stacked, and then the reason."""
    alone = build_client_block(family, level, 1, label_axis)
    if clients == 1:
        return alone, None
    try:
        stack = build_client_block(family, level, clients, label_axis)
        check_stack(stack, alone)
    # A layer that was never meant for several clients may fail in any way; its model still runs one client at a time.
    except Exception as problem:
        return alone, first_line(problem)
    return stack, None


def report(engine: Engine, recipe: Recipe, submodel_of: tuple[int, ...]) -> dict:
    """Returns how clients are computed, as a dict of plain JSON.

    Args:
        submodel_of: For each level of the mix the position of its sub-model.

    Returns:
        {"clients_at_once": {level: clients}, "by_taps": [level], "by_function": [level], "reasons": [sentence],
        "compiled", "parallel" (stacks in flight), "threads" (of each kernel), "precision", "device", "replicas" (how
        many share a round)}. At the levels of "by_taps" wide kernels on small maps are computed tap by tap, see
        `PaddedConv2D`; at those of "by_function" repeated blocks are one function, see `models.repeated_blocks`.
    """
    at_once = {level: engine.stacks[submodel].clients for level, submodel in zip(recipe.levels.names, submodel_of)}
    return {
        "clients_at_once": at_once,
        **{
            way: [level for level, at in zip(recipe.levels.names, submodel_of) if _any_layer(engine.stacks[at], way)]
            for way in ("by_taps", "by_function")
        },
        "reasons": list(engine.reasons),
        "compiled": engine.compiled,
        "parallel": engine.replicas.parallel,
        "threads": hardware.KERNEL_THREADS,
        "precision": recipe.precision,
        "device": hardware.devices(),
        "replicas": engine.replicas.count,
    }


def _any_layer(stack, way):
    """Whether some layer of a stack's models trains in a way of its own, named like its attribute."""
    models = (routed.model for stage in stack.stages for routed in stage.models)
    return any(getattr(layer, way, False) for model in models for layer in all_layers(model))
