"""The checks of the contract of a kind, for every shipped plug-in; new ones are found automatically."""

import pytest

from hetero_tf.base import registry
from hetero_tf.testing import plugin_checks


def shipped(kind, options=None, **examples):
    """Parametrize a test by the checks of all shipped plug-ins of a kind.

    Args:
        kind: Their kind.
        options: `{name: options}`; a list has several sets of options.
        examples: Fields of `testing.subject.Subject`, each `{name: value}`.
    """
    checks = []
    for name in registry.names(kind):
        sets = (options or {}).get(name, {})
        for each in sets if isinstance(sets, list) else [sets]:
            fields = {field: values.get(name) for field, values in examples.items()}
            checks += plugin_checks(kind, name, each, **fields)
    return pytest.mark.parametrize("check", checks, ids=str)
