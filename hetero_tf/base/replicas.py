"""Who computes together: one process alone, or several devices or processes that share the work and add up results."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class Replicas:
    """The replicas of a `tf.distribute` strategy; without one, a single one that needs to ask nobody.

    What a replica does is written once: `run` calls it on all of them, and inside it `share` says which part of a
    loop is its own, and `summed` and `joined` put the parts together. All replicas get the same bits.

    Attributes:
        parallel: Stacks of clients, or batches, that a replica has in flight at once.
        strategy: `tf.distribute.Strategy`, or None.
    """

    parallel: int
    strategy: tf.distribute.Strategy | None = None

    @property
    def count(self) -> int:
        """How many there are."""
        return 1 if self.strategy is None else self.strategy.num_replicas_in_sync

    @property
    def number(self) -> tf.Tensor | int:
        """Which one this is; to be asked inside of `run`."""
        return 0 if self.strategy is None else tf.distribute.get_replica_context().replica_id_in_sync_group

    @property
    def here(self) -> range:
        """The numbers of those that this process computes."""
        resolver = None if self.strategy is None else self.strategy.cluster_resolver
        if resolver is None:
            return range(self.count)
        each = self.count // resolver.cluster_spec().num_tasks("worker")
        return range(resolver.task_id * each, (resolver.task_id + 1) * each)

    def run(self, function: Callable, *arguments: Any) -> Any:
        """Calls a function on every replica with the same arguments, and gives what the first one here returns."""
        if self.strategy is None:
            return function(*arguments)
        results = self.strategy.run(function, arguments)
        return tf.nest.map_structure(lambda value: self.strategy.experimental_local_results(value)[0], results)

    def compiled(self, function: Callable, **options: Any) -> Callable:
        """`run` of a function as a tf.function; `options`: of `tf.function`."""

        def on_all(*arguments):
            return self.run(function, *arguments)

        return tf.function(on_all, autograph=False, **options)

    def share(self, count: tf.Tensor | int) -> tuple[tf.Tensor | int, tf.Tensor | int]:
        """Which of `count` turns of a loop are this replica's: (first, behind the last one)."""
        if self.strategy is None:
            return 0, count
        return self.number * count // self.count, (self.number + 1) * count // self.count

    def summed(self, values: Any) -> Any:
        """The sum over all replicas of a nest of tensors, by one collective for each type."""
        if self.strategy is None:
            return values
        flat = tf.nest.flatten(values)
        by_type = {dtype: [at for at, value in enumerate(flat) if value.dtype == dtype] for dtype in _types(flat)}
        for dtype, positions in by_type.items():
            # A loop on a worker could not wait for another one inside of a collective of every tensor.
            whole = _summed(tf.concat([tf.reshape(flat[at], [-1]) for at in positions], 0), dtype)
            pieces = tf.split(whole, [tf.size(flat[at]) for at in positions], num=len(positions))
            for at, piece in zip(positions, pieces):
                flat[at] = tf.ensure_shape(tf.reshape(piece, tf.shape(flat[at])), flat[at].shape)
        return tf.nest.pack_sequence_as(values, flat)

    def joined(self, rows: tf.Tensor, first: tf.Tensor | int, count: tf.Tensor | int) -> tf.Tensor:
        """All rows [count, ...] of which every replica has those from `first` on."""
        if self.strategy is None:
            return rows
        behind = count - first - tf.shape(rows)[0]
        return self.summed(tf.pad(rows, [[first, behind], *[[0, 0]] * (rows.shape.rank - 1)]))


def _types(tensors):
    return dict.fromkeys(value.dtype for value in tensors)


def _summed(vector, dtype):
    """The sum over all replicas of a vector; truth values are added as numbers."""
    numbers = tf.cast(vector, tf.int32) if dtype == tf.bool else tf.identity(vector)
    return tf.cast(tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, numbers), dtype)
