"""Rule that every option of a plug-in has an effect: other values change its results, or are refused."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.base.constraints import Constraint
from hetero_tf.base.errors import InputError
from hetero_tf.recipe.check import convert
from hetero_tf.testing import cut_checks, data_checks, loss_checks, step_checks
from hetero_tf.testing.subject import Subject

# Functions that return the results on examples, for each kind.
RESULTS = {
    kind: result
    for module in (cut_checks, data_checks, loss_checks, step_checks)
    for kind, result in module.RESULTS.items()
}
# Options that the program reads, not the functions of a plug-in.
OF_PROGRAM = {"partitions": ("noise",), "personalizations": ("alpha",), "updates": ("error_feedback",)}
# Values to try, if an option allows them.
NUMBERS = (2, 3, 1, 5, 30, 46, 3000, 0, 0.3, 0.6, 0.05, 5.0)
VALUES = (False, True, *NUMBERS, (0.5,), (3,), "other", None)
REFUSED = "refused"


def other_values(constraint: Constraint, value: Any) -> list:
    """Return valid values of an option that differ from one: all choices, or some small and large numbers."""

    def is_valid(each):
        try:
            convert(each, constraint, ())
        except InputError:
            return False
        return True

    return [each for each in constraint.choices or VALUES if is_valid(each) and each != value]


def has_effect(
    result: Callable[[Mapping[str, Any]], Any], options: Mapping[str, Any], name: str, values: Sequence, distinct: bool
) -> bool:
    """Return whether other values of an option change a bit of the result, or are all refused with an error.

    Args:
        result: Returns nested arrays and other values for options.
        options: Options without an error.
        name, values: The option and its other values.
        distinct: Whether each of the values needs a result of its own; otherwise one value that has an effect suffices.
    """
    first, outcomes = _outcome(result, options), set()
    for value in values if not first.startswith(REFUSED) else ():
        outcome = _outcome(result, {**options, name: value})
        outcomes.add(outcome)
        if not distinct and outcome != first and not outcome.startswith(REFUSED):
            return True
    return bool(outcomes) and (len(outcomes - {first}) == len(values) if distinct else first not in outcomes)


def _outcome(result, options):
    """Return a result as text that differs if a bit does, or the error."""
    try:
        leaves = tf.nest.flatten(result(options))
    # The code of a plug-in may raise anything for an unusual value.
    except Exception as error:
        return f"{REFUSED}: {error}"
    arrays = (np.ndarray, tf.Tensor)
    return repr([(x.shape, np.asarray(x).tobytes()) if isinstance(x, arrays) else x for x in leaves])


def check_effects(subject: Subject) -> None:
    """Other values of every option change the results or are refused, at least beside some value of another option."""

    def result(options):
        return RESULTS[subject.kind](dataclasses.replace(subject, options=options))

    options = registry.options(subject.kind, subject.name)
    tried = {
        name: other_values(option.constraint, subject.options.get(name, option.default))
        for name, option in options.items()
        if name not in OF_PROGRAM.get(subject.kind, ())
    }
    for name, values in tried.items():
        besides = [{}, *({other: value} for other in tried if other != name for value in tried[other])]
        distinct = bool(options[name].constraint.choices)
        is_used = not values or any(
            has_effect(result, {**subject.options, **beside}, name, values, distinct) for beside in besides
        )
        subject.require(is_used, f"the option {name} must have an effect; pass options beside which it has one", values)
