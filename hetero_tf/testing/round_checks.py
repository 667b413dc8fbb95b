"""Contracts of plug-ins of the round's plan: policies."""

from hetero_tf.methods.policies import AsynchronousPolicy, SynchronousPolicy
from hetero_tf.testing.subject import Subject


def check_policy(subject: Subject) -> None:
    """The policy is a plain value, equal for equal options, that starts at least the clients that it merges."""
    policy = subject.call("policy")
    kinds = (SynchronousPolicy, AsynchronousPolicy)
    subject.require(isinstance(policy, kinds), "a policy must be a SynchronousPolicy or an AsynchronousPolicy", policy)
    subject.require(policy == subject.call("policy"), "equal options must give equal policies")
    for clients in (1, 7, 10):
        size = policy.cohort_size(clients)
        subject.require(type(size) is int and size >= clients, "a policy must start the clients that it merges", size)


CHECKS = {"policies": (check_policy,)}
