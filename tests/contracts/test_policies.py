"""Synchronous policies: their rules and the sizes of their cohorts."""

from hetero_tf.base import registry
from hetero_tf.methods.policies import SynchronousPolicy


def test_rules_of_the_shipped_policies():
    policies = {name: registry.find("policies", name).policy for name in ("wait", "deadline", "over_selection")}
    assert policies["wait"]() == SynchronousPolicy(deadline=None, partial=False, factor=1.0)
    assert policies["deadline"](seconds=9.0, late="partial") == SynchronousPolicy(deadline=9.0, partial=True)
    assert not policies["deadline"](seconds=9.0).partial
    assert policies["over_selection"]() == SynchronousPolicy(factor=1.3)


def test_a_cohort_is_rounded_up():
    # 1.1 * 10 is 11.000000000000002.
    sizes = {
        factor: [SynchronousPolicy(factor=factor).cohort_size(n) for n in (1, 9, 10)] for factor in (1.0, 1.1, 1.3)
    }
    assert sizes == {1.0: [1, 9, 10], 1.1: [2, 10, 11], 1.3: [2, 12, 13]}
