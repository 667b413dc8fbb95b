"""The state of a run between two rounds: values by variable path, and the rows of the compiled round."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from hetero_tf.runs.facts import CLIENTS, HISTORY, PENDING, SERVER, WEIGHTS

# Personal values, memories of corrections, errors of compressed updates, peer networks, twins, and the last returned
# values of the clients.
TABLES = ("personal", "memory", "errors", "peers", "twin", "previous")
# Numbers of a client with a twin: the rounds that it trained, and the share of its twin in its model.
TWIN_SCALARS = ("rounds", "alpha")
# Sums of results that arrive in later rounds.
PENDING_SUMS = ("total", "coverage")


@dataclass(frozen=True)
class State:
    """The state that one round passes to the next.

    Attributes:
        round: Finished rounds.
        weights: Global values by variable path; those of an ensemble lead with an axis for its networks.
        server: State of the server's step for each value, `{slot: {path: value}}`.
        clients: Client state between rounds, `{one of TABLES: {path: [clients, ...]}}`; with twins also "twin_scalars",
            `{one of TWIN_SCALARS: [clients]}`.
        pending: Sums of the results that arrive in each of the next rounds, `{one of PENDING_SUMS: {path: [delays,
            ...]}}`; empty unless the policy is asynchronous.
        history: Results that selections read, see `planning.selection`; empty if the selection reads none.
    """

    round: int
    weights: dict
    server: dict = field(default_factory=dict)
    clients: dict = field(default_factory=dict)
    pending: dict = field(default_factory=dict)
    history: dict = field(default_factory=dict)


class StateRows(NamedTuple):
    """The values of a state inside a round. Tables without values are missing.

    Attributes:
        weights: [values], the global row: every global value, flattened, in order.
        slots: Row [values] of each slot of the server.
        tables: `{table of clients: [registered, columns]}`, one row for each client; with an axis before the columns
            for its peers, or for the networks of an ensemble.
        pending: `{one of PENDING_SUMS: [[delays, size], ...]}`; row i is for the round after the next i.
    """

    weights: tf.Tensor
    slots: tuple[tf.Tensor, ...]
    tables: dict[str, tf.Tensor]
    pending: dict[str, list[tf.Tensor]]


@dataclass(frozen=True)
class StateLayout:
    """Order and shapes of the values of a state; the only place that converts between paths and rows.

    Attributes:
        shapes: `{path: shape}` of the global values, in order.
        ensemble: Number of networks of the global model, the first axis of every shape, or None for no such axis.
        personal: Paths of the values that stay with the clients.
        memories: Of "memory" and "errors" the tables that clients store.
        twin, previous: Paths of the values of the clients' twins, and of those that they returned last.
        delays: Largest number of rounds by which a result may arrive late; 0: all arrive in the round of their start.
    """

    shapes: dict[str, tuple[int, ...]]
    dtype: str
    slots: tuple[str, ...]
    registered: int
    ensemble: int | None
    personal: tuple[str, ...]
    memories: tuple[str, ...]
    peers: int
    twin: tuple[str, ...] = ()
    previous: tuple[str, ...] = ()
    delays: int = 0

    def _tables(self) -> dict[tuple[str, str], tuple[list[int], dict[str, tuple[int, ...]]]]:
        """Return the leading axes of rows and `{path: shape}` of each table, by (field of `State`, name)."""
        every, clients, peers = tuple(self.shapes), [self.registered], [self.registered, self.peers]
        networks = [*clients, *([self.ensemble] if self.ensemble else [])]
        # Leading axes of the rows and of the values, and the paths of the values.
        tables: dict[tuple[str, str], tuple[list[int], list[int], tuple[str, ...]]] = {
            ("weights", ""): ([], [], every),
            **{("server", slot): ([], [], every) for slot in self.slots},
            ("clients", "personal"): (networks, clients, self.personal),
            **{
                ("clients", name): (networks, clients, every if name in self.memories else ())
                for name in ("memory", "errors")
            },
            ("clients", "peers"): (peers, peers, every if self.peers else ()),
            ("clients", "twin"): (clients, clients, self.twin),
            ("clients", "previous"): (clients, clients, self.previous),
            ("clients", "twin_scalars"): (clients, clients, TWIN_SCALARS if self.twin else ()),
            **{("pending", name): ([self.delays], [self.delays], every) for name in PENDING_SUMS if self.delays},
        }
        return {
            key: (axes, {path: (*leading, *self.shapes.get(path, ())) for path in paths})
            for key, (axes, leading, paths) in tables.items()
        }

    def build(self, make: Callable[[tuple[int, ...], str], Any]) -> dict:
        """Return `make(shape, dtype)` for every value, as the dict of the fields of a `State` without `round`."""
        tables = self._tables().items()
        return _nest(
            {key: {path: make(shape, self.dtype) for path, shape in each.items()} for key, (_, each) in tables}
        )

    def values_of(self, state: State) -> dict:
        """Return the values of a state in the structure of `build`."""
        return self._in_order(vars(state))

    def _in_order(self, values):
        """Return values in the structure of `build` in the order of the layout."""
        tables = self._tables().items()
        return _nest({key: {path: _table(values, *key)[path] for path in each} for key, (_, each) in tables})

    def state_of(self, round: int, values: Mapping[str, dict]) -> State:
        """Return the state after `round` rounds; `values`: in the structure of `build`, with dicts in any order."""
        return State(round, **self._in_order(values))

    def pack(self, values: Mapping[str, dict]) -> StateRows:
        """Concatenate values in the structure of `build` to rows; works inside and outside of a graph."""
        rows = {}
        for key, (axes, shapes) in self._tables().items():
            if shapes:
                shape = tf.constant([*axes, -1])
                parts = [tf.reshape(_table(values, *key)[path], shape) for path in shapes]
                rows[key] = parts if key[0] == "pending" else _concat(parts)
        nested = _nest(rows)
        return StateRows(nested["weights"], tuple(nested["server"].values()), nested["clients"], nested["pending"])

    def unpack(self, rows: StateRows) -> dict:
        """Invert `pack`."""
        server = dict(zip(self.slots, rows.slots, strict=True))
        packed = {"weights": rows.weights, "server": server, "clients": rows.tables, "pending": rows.pending}

        def split(key, axes, shapes):
            sizes = [math.prod(shape) // math.prod(axes) for shape in shapes.values()]
            parts = _split(_table(packed, *key), sizes) if shapes else []
            return {path: tf.reshape(part, shape) for (path, shape), part in zip(shapes.items(), parts)}

        return _nest({key: split(key, *table) for key, table in self._tables().items()})


def _table(values, kind, name):
    """Return one table of values in the structure of `StateLayout.build`."""
    return values[kind][name] if name else values[kind]


def _nest(tables):
    """Return `{(kind, name): table}` as `{kind: {name: table}}`; the weights are a single table."""
    nested = {"weights": tables["weights", ""], "server": {}, "clients": {}, "pending": {}}
    for (kind, name), table in tables.items():
        if name:
            nested[kind][name] = table
    return nested


def concat_values(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Flatten tensors of any shapes and concatenate them, [values]."""
    flat = tf.constant([-1])
    return _concat([tf.reshape(value, flat) for value in values])


def split_values(row: tf.Tensor, shapes: Sequence[tuple[int, ...]]) -> list[tf.Tensor]:
    """Invert `concat_values` for tensors of these shapes."""
    return [tf.reshape(part, shape) for part, shape in zip(_split(row, list(map(math.prod, shapes))), shapes)]


def _concat(parts):
    return parts[0] if len(parts) == 1 else tf.concat(parts, -1)


def _split(rows, sizes):
    return rows if isinstance(rows, list) else [rows] if len(sizes) == 1 else tf.split(rows, sizes, axis=-1)


def flatten_state(state: State) -> dict:
    """Return every value of a state under one flat name, for checkpoints and messages."""
    values = {WEIGHTS + path: value for path, value in state.weights.items()}
    by_prefix = {SERVER: state.server, CLIENTS: state.clients, PENDING: state.pending, HISTORY: state.history}
    for prefix, tables in by_prefix.items():
        values |= {f"{prefix}{name}/{path}": value for name, table in tables.items() for path, value in table.items()}
    return values


def unflatten_state(round: int, values: Mapping, like: State) -> State:
    """Invert `flatten_state`, with the paths of another state."""

    def tables(prefix, of_like):
        return {name: {path: values[f"{prefix}{name}/{path}"] for path in table} for name, table in of_like.items()}

    weights = {path: values[WEIGHTS + path] for path in like.weights}
    server, clients, pending = tables(SERVER, like.server), tables(CLIENTS, like.clients), tables(PENDING, like.pending)
    return State(round, weights, server, clients, pending, tables(HISTORY, like.history))
