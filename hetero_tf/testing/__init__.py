"""Contract tests for plug-ins: `check_plugin` in a test of your package, see docs/plugins.md.

from hetero_tf import testing
import my_windows

def test_contract():
    testing.check_plugin("submodels", my_windows)

A violated rule raises `AssertionError` with the plug-in, the rule and the value. The shipped plug-ins pass the same
checks, in tests/contracts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from hetero_tf.base import registry
from hetero_tf.testing import (
    cut_checks,
    data_checks,
    layer_checks,
    loss_checks,
    round_checks,
    signature_checks,
    step_checks,
)
from hetero_tf.testing.subject import Subject

CHECKS = {
    kind: checks
    for module in (cut_checks, data_checks, layer_checks, loss_checks, round_checks, step_checks)
    for kind, checks in module.CHECKS.items()
}


@dataclass(frozen=True)
class Check:
    """A rule for a plug-in; call it to test the rule, and pass `ids=str` to `pytest.mark.parametrize`.

    Attributes:
        function: Raises `AssertionError` if the plug-in violates the rule.
    """

    subject: Subject
    function: Callable[[Subject], None]

    def __call__(self) -> None:
        self.function(self.subject)

    def __str__(self) -> str:
        return f"{self.subject.name}-{self.function.__name__.removeprefix('check_')}"


def plugin_checks(kind: str, name: str, options: Mapping[str, Any] | None = None, **example: Any) -> list[Check]:
    """Return the checks of a shipped or registered plug-in; see `check_plugin`.

    Args:
        options, example: See `check_plugin`.

    Raises:
        ValueError: The kind is unknown.
    """
    if kind not in CHECKS:
        raise ValueError(f"`kind` must be one of {', '.join(sorted(CHECKS))}. Received: kind={kind!r}")
    subject = Subject(kind, name, options or {}, **example)
    functions = CHECKS[kind] if kind == "layers" else (*signature_checks.CHECKS, *CHECKS[kind])
    return [Check(subject, function) for function in functions]


def check_plugin(
    kind: str,
    module: ModuleType,
    options: Mapping[str, Any] | None = None,
    *,
    inputs: np.ndarray | None = None,
    data_dir: str | None = None,
) -> None:
    """Register the plug-ins of a module, and test those of one kind against the contract of the kind.

    Args:
        kind: "submodels", "losses", "layers" and so on, see `base.registry.KINDS`.
        module: The module, which defines the function of the kind, or layers.
        options: Options without a default; for layers, arguments of the constructor.
        inputs: Layers: example inputs, by default images [4, 6, 6, 8].
        data_dir: Data: folder of the data.

    Raises:
        AssertionError: A rule is violated.
        InputError: The module has no plug-in.
        ValueError: The kind is unknown, or the module has no plug-in of it.
    """
    names = [name for each, name in registry.register_plugin(module.__name__) if each == kind]
    checks = [
        check
        for name in names or [""]
        for check in plugin_checks(kind, name, options, inputs=inputs, data_dir=data_dir)
    ]
    if not names:
        raise ValueError(f"`module` must define a plug-in of the kind {kind}. Received: {module.__name__}")
    for check in checks:
        check()
