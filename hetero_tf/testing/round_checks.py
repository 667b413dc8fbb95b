"""Contracts of plug-ins of the round's plan: policies."""

from hetero_tf.methods.policies import SynchronousPolicy
from hetero_tf.testing.subject import Subject


def check_policy(subject: Subject) -> None:
    """The policy is a plain value, equal for equal options, that starts at least the clients that it merges."""
    policy = subject.call("policy")
    subject.require(isinstance(policy, SynchronousPolicy), "a policy must be a SynchronousPolicy", policy)
    subject.require(policy == subject.call("policy"), "equal options must give equal policies")
    for clients in (1, 7, 10):
        size = policy.cohort_size(clients)
        subject.require(type(size) is int and size >= clients, "a policy must start the clients that it merges", size)


CHECKS = {"policies": (check_policy,)}
