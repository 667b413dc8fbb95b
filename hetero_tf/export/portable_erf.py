"""The error function, computed with built-in operations of LiteRT."""

import tensorflow as tf

# The result is 1 for larger values. Coefficients start with that of the highest power.
IS_ONE = 3.7439211627767994
NUMERATOR = (
    2.2905065861350646e-4,
    3.4082910107109506e-3,
    5.0955695062380861e-2,
    1.8520832239976145e-1,
    1.128379143519084,
)
DENOMINATOR = (
    -1.1791602954361697e-7,
    2.3547966471313185e-5,
    1.0179625278914885e-3,
    1.4070470171167667e-2,
    1.1098505178285362e-1,
    4.9746925110067538e-1,
    1.0,
)


def erf(values: tf.Tensor) -> tf.Tensor:
    """Return the error function of float32 values within 4e-7, as a quotient of two polynomials.

    Reference: the coefficients of XLA for float32 (openxla/xla).
    """
    values = tf.clip_by_value(values, -IS_ONE, IS_ONE)
    squared = tf.square(values)
    return values * _polynomial(squared, NUMERATOR) / _polynomial(squared, DENOMINATOR)


def _polynomial(values, coefficients):
    """Evaluate a polynomial; the coefficient of the highest power comes first."""
    total = tf.fill(values.shape, tf.constant(coefficients[0], values.dtype))
    for coefficient in coefficients[1:]:
        total = total * values + coefficient
    return total
