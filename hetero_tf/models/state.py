"""The state of a run between two rounds: by variable path for people and files, in order for the compiled round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from hetero_tf.store.states import CLIENTS, SERVER, WEIGHTS

# Values that are never merged, what corrections remember, and the networks that a client trains beside its own.
TABLES = ("personal", "memory", "peers")


@dataclass(frozen=True)
class State:
    """What one round hands to the next.

    Attributes:
        round: Finished rounds.
        weights: Global values by variable path; those of an ensemble lead with an axis for its networks.
        server: What the server's step keeps of each value, `{slot: {path: value}}`.
        clients: What clients keep between rounds, `{one of TABLES: {path: [clients, ...]}}`.
    """

    round: int
    weights: dict
    server: dict = field(default_factory=dict)
    clients: dict = field(default_factory=dict)


def named(state: State) -> dict:
    """Every value of a state under one name, as it is sealed and sent."""
    found = {WEIGHTS + path: value for path, value in state.weights.items()}
    for prefix, tables in ((SERVER, state.server), (CLIENTS, state.clients)):
        found |= {f"{prefix}{name}/{path}": value for name, table in tables.items() for path, value in table.items()}
    return found


def from_named(round: int, values: Mapping, like: State) -> State:
    """The state of what `named` gives, with the paths of another one."""

    def tables(prefix, of_like):
        return {name: {path: values[f"{prefix}{name}/{path}"] for path in table} for name, table in of_like.items()}

    weights = {path: values[WEIGHTS + path] for path in like.weights}
    return State(round, weights, tables(SERVER, like.server), tables(CLIENTS, like.clients))


def in_order(state: State) -> dict:
    """Returns a state as the compiled round takes it, see `rounds.round.new_state`."""
    positions = {path: position for position, path in enumerate(state.weights)}
    # Tensors, not the arrays of a loaded state: tf.function converts arrays only under keys that are text.
    tables = {
        name: {at: tf.convert_to_tensor(table[path]) for path, at in positions.items() if path in table}
        for name, table in ((name, state.clients.get(name, {})) for name in TABLES)
    }
    slots = [list(slot.values()) for slot in state.server.values()]
    return {"weights": list(state.weights.values()), "slots": slots, "tables": tables}


def state_of(round: int, paths: Sequence[str], slots: Sequence[str], values: dict) -> State:
    """Returns the state of what the compiled round gives.

    Args:
        round: Finished rounds.
        paths: Paths of the global values, in order.
        slots: Names of what the server keeps of each value.
        values: As `in_order` gives them.
    """
    return State(
        round,
        dict(zip(paths, values["weights"])),
        {name: dict(zip(paths, slot)) for name, slot in zip(slots, values["slots"])},
        {
            name: {paths[position]: value for position, value in table.items()}
            for name, table in values["tables"].items()
        },
    )
