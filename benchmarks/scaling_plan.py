"""Costs of rounds of large populations for a server, computed from the measured costs of one client."""

import math
from dataclasses import dataclass

import numpy as np
from round import timed

from hetero_tf.base import registry

REGISTERED, ACTIVE = (10_000, 1_000_000, 100_000_000), (10, 1_000, 100_000)
# Bytes of the partition for each client (where its examples begin) and for each of its examples (its number).
PER_CLIENT, PER_EXAMPLE = 8, 4
GIGABIT = 1e9 / 8
COLUMNS = (
    "recipe",
    "registered",
    "active",
    "traffic GB",
    "link s",
    "memory GB",
    "merge s",
    "plan s",
    "tree s",
    "first",
)


@dataclass(frozen=True)
class OneClient:
    """Measured and counted costs of one client of a recipe, averaged over its mix.

    Attributes:
        down, up: Bytes of weights that it receives and sends.
        table: Bytes that the server stores for it between rounds: personal values, memories, peers.
        index: Bytes of its part of the partition.
        merge: Seconds to add its result to the sum.
        plan: Seconds to plan and pack its round.
        model: Bytes of the global values and of the server's slots.
    """

    down: float
    up: float
    table: float
    index: float
    merge: float
    plan: float
    model: float


def one_client(process) -> OneClient:
    """Measures a learning process."""
    shares, costs = process.recipe.levels.divided(1), process.client_costs
    of_mix = [shares[name] for name in process.recipe.levels.names]
    state = process.initialize()
    weights = [np.asarray(value) for value in state.weights.values()]
    size = sum(value.nbytes for value in weights)
    slots = len(registry.find("servers", process.recipe.round.server.name).SLOTS)
    tables = sum(np.asarray(value).nbytes for table in state.clients.values() for value in table.values())
    clients = len(process.partition.train)
    up = sum(share * cost.bytes_up for share, cost in zip(of_mix, costs))
    total = [np.zeros_like(value) for value in weights]

    def add():
        for summed, value in zip(total, weights):
            np.add(summed, value, out=summed)

    seconds = min(timed(add)[0] for _ in range(5))
    planning = min(timed(lambda number=number: process.plan(number))[0] for number in range(5))
    return OneClient(
        down=sum(share * cost.bytes_down for share, cost in zip(of_mix, costs)),
        up=up,
        table=tables / clients,
        index=PER_CLIENT + process.dataset.classes + PER_EXAMPLE * float(process.partition.train.sizes.mean()),
        merge=seconds * up / size,
        plan=planning / process.recipe.round.clients,
        # The values, the slots of the server, and the sums and coverage of a round.
        model=size * (3 + slots),
    )


def row(
    name: str, client: OneClient, registered: int, active: int, gigabits: float, workers: int, memory: float
) -> tuple:
    """One line of the table.

    Args:
        name: Name of the recipe.
        client: Costs of one client.
        registered, active: Numbers of clients.
        gigabits: Gigabits per second of the server's link.
        workers: Number of workers of a tree, each with a separate link; they add up by a ring all-reduce.
        memory: Bytes of memory of the server.
    """
    traffic = active * (client.down + client.up)
    link, merge = traffic / (gigabits * GIGABIT), active * client.merge
    stored_bytes = client.model + registered * (client.table + client.index)
    # A ring all-reduce transfers the sums twice, for any number of workers.
    tree = (link + merge) / workers + 2 * client.model / (gigabits * GIGABIT) * (workers > 1)
    parts = {"link": link, "merge": merge, "plan": active * client.plan}
    first = "memory" if stored_bytes > memory else max(parts, key=parts.__getitem__)
    return (name, registered, active, traffic / 1e9, link, stored_bytes / 1e9, merge, parts["plan"], tree, first)


def table(clients: dict[str, OneClient], gigabits: float, workers: int, memory: float) -> list[tuple]:
    """All lines: each recipe with every population and every cohort that fits into it."""
    return [
        row(name, client, registered, active, gigabits, workers, memory)
        for name, client in clients.items()
        for registered in REGISTERED
        for active in ACTIVE
        if active <= registered
    ]


def to_text(rows: list[tuple]) -> str:
    """The lines as a table of Markdown."""
    shown = [COLUMNS, *(tuple(map(_figure, each)) for each in rows)]
    widths = [max(map(len, column)) for column in zip(*shown)]
    lines = ["| " + " | ".join(cell.rjust(width) for cell, width in zip(each, widths)) + " |" for each in shown]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|", *lines[1:]])


def _figure(value):
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.{max(0, 2 - math.floor(math.log10(max(value, 1e-4))))}f}"
