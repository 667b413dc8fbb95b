"""The state of a run between two rounds: by variable path for users and files, in order for the compiled round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from hetero_tf.store.states import CLIENTS, SERVER, WEIGHTS

# Personal values, memories of corrections, and the peer networks of a client.
TABLES = ("personal", "memory", "peers")


@dataclass(frozen=True)
class State:
    """The state that one round passes to the next.

    Attributes:
        round: Finished rounds.
        weights: Global values by variable path; those of an ensemble lead with an axis for its networks.
        server: State of the server's step for each value, `{slot: {path: value}}`.
        clients: Client state between rounds, `{one of TABLES: {path: [clients, ...]}}`.
    """

    round: int
    weights: dict
    server: dict = field(default_factory=dict)
    clients: dict = field(default_factory=dict)


def flatten_state(state: State) -> dict:
    """Return every value of a state under one flat name, for checkpoints and messages."""
    values = {WEIGHTS + path: value for path, value in state.weights.items()}
    for prefix, tables in ((SERVER, state.server), (CLIENTS, state.clients)):
        values |= {f"{prefix}{name}/{path}": value for name, table in tables.items() for path, value in table.items()}
    return values


def unflatten_state(round: int, values: Mapping, like: State) -> State:
    """Invert `flatten_state`, with the paths of another state."""

    def tables(prefix, of_like):
        return {name: {path: values[f"{prefix}{name}/{path}"] for path in table} for name, table in of_like.items()}

    weights = {path: values[WEIGHTS + path] for path in like.weights}
    return State(round, weights, tables(SERVER, like.server), tables(CLIENTS, like.clients))


def in_order(state: State) -> dict:
    """Return a state in the form of the compiled round, see `rounds.round.new_state`."""
    positions = {path: position for position, path in enumerate(state.weights)}
    # Tensors instead of the arrays of a loaded state: tf.function converts arrays only under string keys.
    tables = {
        name: {at: tf.convert_to_tensor(table[path]) for path, at in positions.items() if path in table}
        for name, table in ((name, state.clients.get(name, {})) for name in TABLES)
    }
    slots = [list(slot.values()) for slot in state.server.values()]
    return {"weights": list(state.weights.values()), "slots": slots, "tables": tables}


def state_of(round: int, paths: Sequence[str], slots: Sequence[str], values: dict) -> State:
    """Return the state from the values of the compiled round.

    Args:
        round: Finished rounds.
        paths: Paths of the global values, in order.
        slots: Names of the server's slots.
        values: In the form of `in_order`.
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
