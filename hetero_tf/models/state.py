"""The state of a run between two rounds: values by variable path, and the rows of the compiled round."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from hetero_tf.runs.facts import CLIENTS, HISTORY, PENDING, SERVER, WEIGHTS

# Personal values, memories of corrections, and the peer networks of a client.
TABLES = ("personal", "memory", "peers")
# Sums of results that arrive in later rounds.
PENDING_SUMS = ("total", "coverage")


@dataclass(frozen=True)
class State:
    """The state that one round passes to the next.

    Attributes:
        round: Finished rounds.
        weights: Global values by variable path; those of an ensemble lead with an axis for its networks.
        server: State of the server's step for each value, `{slot: {path: value}}`.
        clients: Client state between rounds, `{one of TABLES: {path: [clients, ...]}}`.
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
        tables: `{one of TABLES: [registered, columns]}`, one row for each client; with an axis before the columns for
            its peers, or for the networks of an ensemble.
        pending: `{one of PENDING_SUMS: [delays, values]}`; row i is added to the sums of the round after the next i.
    """

    weights: tf.Tensor
    slots: tuple[tf.Tensor, ...]
    tables: dict[str, tf.Tensor]
    pending: dict[str, tf.Tensor]


@dataclass(frozen=True)
class StateLayout:
    """Order and shapes of the values of a state; the only place that converts between paths and rows.

    Attributes:
        shapes: `{path: shape}` of the global values, in order.
        ensemble: Number of networks of the global model, the first axis of every shape, or None for no such axis.
        personal: Paths of the values that stay with the clients.
        has_memory: Whether clients store the memory of a correction.
        delays: Largest number of rounds by which a result may arrive late; 0: all arrive in the round of their start.
    """

    shapes: dict[str, tuple[int, ...]]
    dtype: str
    slots: tuple[str, ...]
    registered: int
    ensemble: int | None
    personal: tuple[str, ...]
    has_memory: bool
    peers: int
    delays: int = 0

    def build(self, make: Callable[[tuple[int, ...], str], Any]) -> dict:
        """Return `make(shape, dtype)` for every value, as the dict of the fields of a `State` without `round`."""

        def make_all(shapes):
            return {path: make(shape, self.dtype) for path, shape in shapes.items()}

        return {
            "weights": make_all(self.shapes),
            "server": {slot: make_all(self.shapes) for slot in self.slots},
            "clients": {name: make_all(shapes) for name, shapes in self._table_shapes().items()},
            "pending": {name: make_all(shapes) for name, shapes in self._pending_shapes().items()},
        }

    def _pending_shapes(self):
        """Return `{sum: {path: shape}}`; empty if no result arrives late."""
        shapes = {path: (self.delays, *shape) for path, shape in self.shapes.items()}
        return dict.fromkeys(PENDING_SUMS if self.delays else (), shapes)

    def _table_shapes(self):
        """Return `{table: {path: shape}}`."""
        stored = {
            "personal": self.personal,
            "memory": self.shapes if self.has_memory else (),
            "peers": self.shapes if self.peers else (),
        }
        leading = {name: [self.registered, *([self.peers] if name == "peers" else [])] for name in TABLES}
        return {name: {path: (*leading[name], *self.shapes[path]) for path in stored[name]} for name in TABLES}

    def values_of(self, state: State) -> dict:
        """Return the values of a state in the structure of `build`."""
        tables = {
            name: {path: state.clients[name][path] for path in shapes} for name, shapes in self._table_shapes().items()
        }
        server = {slot: {path: state.server[slot][path] for path in self.shapes} for slot in self.slots}
        pending = {name: {path: state.pending[name][path] for path in self.shapes} for name in self._pending_shapes()}
        weights = {path: state.weights[path] for path in self.shapes}
        return {"weights": weights, "server": server, "clients": tables, "pending": pending}

    def state_of(self, round: int, values: Mapping[str, dict]) -> State:
        """Return the state after `round` rounds; `values`: in the structure of `build`, with dicts in any order."""
        return State(round, **self.values_of(State(round, **values)))

    def pack(self, values: Mapping[str, dict]) -> StateRows:
        """Concatenate values in the structure of `build` to rows; works inside and outside of a graph."""

        def row(by_path):
            return concat_values([by_path[path] for path in self.shapes])

        def rows(by_path, leading):
            return _concat([tf.reshape(value, [*leading, -1]) for value in by_path])

        tables = {
            name: rows([values["clients"][name][path] for path in shapes], self._leading(name))
            for name, shapes in self._table_shapes().items()
            if shapes
        }
        pending = {
            name: rows([values["pending"][name][path] for path in shapes], [self.delays])
            for name, shapes in self._pending_shapes().items()
        }
        slots = tuple(row(values["server"][slot]) for slot in self.slots)
        return StateRows(row(values["weights"]), slots, tables, pending)

    def _leading(self, name):
        """Return the leading axes of a table's rows."""
        networks = self.peers if name == "peers" else self.ensemble
        return [self.registered, *([networks] if networks else [])]

    def unpack(self, rows: StateRows) -> dict:
        """Invert `pack`."""

        def by_path(row):
            return dict(zip(self.shapes, split_values(row, tuple(self.shapes.values()))))

        def split_rows(rows, shapes, leading):
            parts = _split(rows, [math.prod(shape) // math.prod(leading) for shape in shapes.values()])
            return {path: tf.reshape(part, shape) for (path, shape), part in zip(shapes.items(), parts)}

        tables = {
            name: split_rows(rows.tables[name], shapes, self._leading(name)) if shapes else {}
            for name, shapes in self._table_shapes().items()
        }
        pending = {
            name: split_rows(rows.pending[name], shapes, [self.delays])
            for name, shapes in self._pending_shapes().items()
        }
        server = {slot: by_path(row) for slot, row in zip(self.slots, rows.slots, strict=True)}
        return {"weights": by_path(rows.weights), "server": server, "clients": tables, "pending": pending}


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
    return [rows] if len(sizes) == 1 else tf.split(rows, sizes, axis=-1)


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
