"""Messages of expected errors."""

import pytest

from hetero_tf.base.errors import InputError


def refusal(action, *arguments, kind=InputError, **options):
    """The message of the error that `action(*arguments, **options)` raises."""
    with pytest.raises(kind) as error:
        action(*arguments, **options)
    return str(error.value)
