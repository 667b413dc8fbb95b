"""Chooses how the clients of each sub-model are computed: one by one, or several at once in a stack."""

from dataclasses import dataclass

from hetero_tf.base import hardware
from hetero_tf.rounds.stack import CannotStack, build_stack

# More clients side by side gain nothing: the operations are long enough then.
LARGEST = 8
# Multiply-adds of one product (convolution, matrix product) over a batch, on average over a forward pass, up to which
# a CPU step is bound by the number of its operations more than by their arithmetic. Measured, see BUILD.md: stacks are
# 1.1 to 2.3 times as fast below, equally fast here, and slower from three times as much on.
NARROW = 5_000_000


@dataclass(frozen=True)
class Engine:
    """What was chosen.

    Attributes:
        stacks: `stacks.Stack` of each sub-model of the mix.
        compiled: Whether XLA compiles the local training.
        reasons: One sentence for each sub-model that could have been stacked and is not.
    """

    stacks: tuple
    compiled: bool
    reasons: tuple


def choose(engine, expected, build, apart, device, parallel, product_cost):
    """Chooses the engine of a recipe. The choice depends on nothing but the arguments, so a resumed run repeats it.

    Args:
        engine: "auto", "sequential" or "stacked".
        expected: `{level name: clients that a round has of its sub-model, on average}`.
        build: `(level name, clients) -> stacks.Stack`.
        apart: Names of the levels whose clients cannot be computed side by side.
        device: "cpu" or "gpu".
        parallel: Stacks in flight at once.
        product_cost: `level name -> multiply-adds` of a product over a batch, on average over a forward pass.

    Returns:
        `Engine`.
    """
    stacks, reasons = [], []
    for name, many in expected.items():
        clients = 1 if name in apart else _clients(engine, many, device, parallel, lambda: product_cost(name))
        stack = build(name, 1)
        if clients > 1:
            try:
                stack = build_stack(stack, lambda clients: build(name, clients), clients)
            except CannotStack as problem:
                reasons.append(f"level {name} is computed client by client: {problem}")
        stacks.append(stack)
    return Engine(tuple(stacks), device == "gpu", tuple(reasons))


def _clients(engine, expected, device, parallel, cost):
    """How many clients of a sub-model to compute at once, given how many of them a round has on average."""
    if engine == "sequential":
        return 1
    if device == "gpu":
        return min(LARGEST, max(1 if engine == "auto" else 2, round(expected)))
    # As many stacks as run at once; a larger stack would leave a core idle.
    clients = min(LARGEST, -int(-expected // parallel))
    if engine == "stacked":
        return max(2, clients)
    return clients if clients > 1 and cost() <= NARROW else 1


def report(engine, recipe, submodel_of, parallel):
    """How clients are computed, as a dict of plain JSON.

    Args:
        engine: `Engine`.
        recipe: `recipe.schema.Recipe`.
        submodel_of: For each level of the mix the position of its sub-model.
        parallel: Stacks in flight at once.

    Returns:
        {"clients_at_once": {level: clients}, "reasons": [sentence], "compiled", "parallel" (stacks in flight),
        "threads" (of each kernel), "precision", "device"}.
    """
    at_once = {name: engine.stacks[place].clients for name, place in zip(recipe.levels.names, submodel_of)}
    return {
        "clients_at_once": at_once,
        "reasons": list(engine.reasons),
        "compiled": engine.compiled,
        "parallel": parallel,
        "threads": hardware.KERNEL_THREADS,
        "precision": recipe.precision,
        "device": hardware.devices(),
    }
