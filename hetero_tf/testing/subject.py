"""The plug-in under test, and assertions that name it with the rule that it violates."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry

# The reason why a function of rows must not reduce over them.
SOME_CLIENTS = "; its rows are some of the clients of a round, and padding"


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
        """Call a function of the module with the options that it takes."""
        of_module = getattr(self.module, function)
        taken = inspect.signature(of_module).parameters
        return of_module(
            *arguments, **{name: value for name, value in self.options.items() if name in taken}, **keywords
        )

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

    def require_stateless(self, function: Callable, *values: Any) -> None:
        """Raise `AssertionError` if the graph of a function has a stateful operation, which would serialise clients."""
        graph = tf.function(function, autograph=False).get_concrete_function(*values).graph
        stateful = [operation.type for operation in graph.get_operations() if operation.op_def.is_stateful]
        self.require(not stateful, "the graph must have no stateful operation", stateful)
