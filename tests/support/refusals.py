"""What a refusal says."""

import pytest

from hetero_tf.base.errors import InputError


def refusal(action, *arguments, kind=InputError, **options):
    """The sentence with which `action(*arguments, **options)` is refused."""
    with pytest.raises(kind) as error:
        action(*arguments, **options)
    return str(error.value)
