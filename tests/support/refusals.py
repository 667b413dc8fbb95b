"""Messages of expected errors."""

from unittest import mock

import pytest

from hetero_tf.base.errors import InputError


def refusal(action, *arguments, kind=InputError, **options):
    """The message of the error that `action(*arguments, **options)` raises."""
    with pytest.raises(kind) as error:
        action(*arguments, **options)
    return str(error.value)


def raising(error):
    """A function that raises an error whatever its arguments are."""
    return mock.Mock(side_effect=error)


def check_refusals(action, *cases):
    """Check that `action(**options)` raises an `InputError` whose message matches, for each `(options, pattern)`."""
    for options, pattern in cases:
        with pytest.raises(InputError, match=pattern):
            action(**options)
