"""The plug-in under test, and assertions that name it with the rule that it violates."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry


@dataclass(frozen=True)
class Subject:
    """A plug-in under test.

    Attributes:
        kind: Its kind, such as "submodels".
        options: Options of its function, or arguments of a layer; those without a default are needed.
        inputs: Layers: example inputs of the layer.
        data_dir: Data: folder of the data.
    """

    kind: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: np.ndarray | None = None
    data_dir: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"

    @property
    def module(self) -> ModuleType:
        """The module of the plug-in."""
        return registry.find(self.kind, self.name)

    def call(self, function: str, *arguments: Any, **keywords: Any) -> Any:
        """Call a function of the module with the options and the keywords that it takes."""
        of_module = getattr(self.module, function)
        taken = inspect.signature(of_module).parameters
        passed = {name: value for name, value in {**self.options, **keywords}.items() if name in taken}
        return of_module(*arguments, **passed)

    def constant(self, name: str) -> Any:
        """Return a constant of the module, read from its source; None without one."""
        return registry.constant(self.kind, self.name, name)

    def require(self, condition: Any, rule: str, received: object = None) -> None:
        """Raise `AssertionError` with the rule unless the condition holds."""
        if not condition:
            raise AssertionError(f"{self}: {rule}" + ("" if received is None else f". Received: {received!r}"))

    def require_close(self, actual: Any, expected: Any, rule: str, rtol: float = 0.0, atol: float = 0.0) -> None:
        """Raise `AssertionError` unless arrays have equal shapes, and bits if no tolerance of NumPy's is given."""
        actual, expected = np.asarray(actual), np.asarray(expected)
        self.require(actual.shape == expected.shape, rule, (actual.shape, expected.shape))
        if not rtol and not atol:
            self.require(actual.tobytes() == expected.tobytes(), rule, (actual, expected))
        np.testing.assert_allclose(actual, expected, rtol or 1e-7, atol, err_msg=f"{self}: {rule}")

    def require_form(self, value: Any, shape: tuple[int, ...], dtype: str, rule: str) -> None:
        """Raise `AssertionError` unless a tensor has a shape and a type."""
        self.require(value.shape == shape and value.dtype == dtype, rule, (value.shape, value.dtype))

    def require_rows(self, function: Callable, *values: Any, rtol: float = 0.0, atol: float = 0.0) -> Any:
        """Return a function of batched clients; raise `AssertionError` unless a client alone gets the same rows.

        Args:
            function: Returns a nest of arrays `[clients, ...]`.
            values: Nests of its arguments, arrays `[clients, ...]` or None.
        """
        rule = "batched clients must get the values of single ones; rows are some of a round's clients, and padding"

        def row_of(client):
            return tf.nest.map_structure(lambda value: None if value is None else value[client : client + 1], values)

        batched = function(*values)
        for client in range(len(tf.nest.flatten(values)[0])):
            single = function(*row_of(client))
            for one, other in zip(tf.nest.flatten(batched), tf.nest.flatten(single), strict=True):
                self.require_close(one[client : client + 1], other, rule, rtol, atol)
        return batched

    def require_graph(self, function: Callable, *values: Any, rtol: float = 1e-14, atol: float = 0.0) -> None:
        """Raise `AssertionError` unless the graph of a function is stateless and returns the eager values.

        A stateful operation would serialise the clients.
        """
        graph = tf.function(function, autograph=False).get_concrete_function(*values)
        eager = tf.nest.flatten(function(*values))
        for one, other in zip(tf.nest.flatten(graph(*values)), eager, strict=True):
            self.require_close(one, other, "a graph must return the eager values", rtol, atol)
        stateful = [operation.type for operation in graph.graph.get_operations() if operation.op_def.is_stateful]
        self.require(not stateful, "the graph must have no stateful operation", stateful)
