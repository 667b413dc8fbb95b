"""Contracts of plug-ins of the round's plan: selections and policies."""

from collections.abc import Mapping

import numpy as np

from hetero_tf.methods.policies import AsynchronousPolicy, SynchronousPolicy
from hetero_tf.methods.selections import Choice, ClientPool
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


def check_selection_constants(subject: Subject) -> None:
    """`READS_HISTORY`, `READS_TIME` and `READS_LOSSES` are flags, and `MEMORY` names the form of each value."""
    for name in ("READS_HISTORY", "READS_TIME", "READS_LOSSES"):
        subject.require(type(subject.constant(name) or False) is bool, f"{name} must be True or False")
    memory = subject.constant("MEMORY") or {}
    is_valid = isinstance(memory, dict) and set(memory.values()) <= {"run", "clients"}
    subject.require(is_valid, 'MEMORY must be {name: "run" or "clients"}', memory)
    subject.require(not memory or subject.constant("READS_HISTORY"), "MEMORY needs READS_HISTORY = True")


def check_selection(subject: Subject) -> None:
    """Chosen clients are able and different, at most `count`, a pure function of the arguments."""
    for round, able in ((0, 30), (4, 30), (4, np.arange(3, 30, 3)), (4, np.asarray([5]))):
        pool = selection_pool(subject, round, able)
        for count in {1, min(len(pool.ids), 7), len(pool.ids)}:
            first, second = (_choose(subject, pool, count) for _ in range(2))
            ids = np.asarray(first.ids)
            subject.require(ids.ndim == 1 and ids.dtype.kind == "i", "ids must be integers with one axis", ids)
            is_valid = 0 < len(ids) <= count and len(set(ids.tolist())) == len(ids) and np.isin(ids, pool.ids).all()
            subject.require(is_valid, f"ids must be at most {count} different able clients", ids)
            subject.require_close(first.ids, second.ids, "equal arguments must give equal ids")
            _check_memory(subject, pool, first.memory)


def selection_pool(subject: Subject, round: int, able: int | np.ndarray) -> ClientPool:
    """Return an example of a pool of 30 registered clients, with what the plug-in reads."""
    rng, names = np.random.default_rng(round), ("squared_loss", "seconds", "round", "count")
    history = {name: rng.integers(1, 4, 30) * (rng.random(30) < 0.6) * 1.0 * min(round, 1) for name in names[2:]}
    history |= {name: np.where(history["count"], rng.random(30), 0.0) for name in names[:2]}
    history["round"] = np.where(history["count"], np.maximum(history["round"], 1), 0)
    memory = {
        name: np.zeros(30 if form == "clients" else ()) for name, form in (subject.constant("MEMORY") or {}).items()
    }
    return ClientPool(
        able=able,
        round=round,
        device_seconds=1000.0 * round,
        available_at=lambda ids, seconds: (np.asarray(ids) + seconds // 1200) % 3 < 2,
        examples_of=lambda ids: 5 + np.asarray(ids) % 4,
        seconds_of=lambda ids: 1.0 + np.asarray(ids) % 7,
        losses_of=lambda ids: np.sin(np.asarray(ids, float)),
        history=history if subject.constant("READS_HISTORY") else {},
        memory=memory,
    )


def _choose(subject, pool, count):
    result = subject.call("choose", pool, count, np.random.default_rng(1))
    return result if isinstance(result, Choice) else Choice(result)


def _check_memory(subject: Subject, pool: ClientPool, memory: Mapping) -> None:
    names = memory.keys() == pool.memory.keys()
    subject.require(names, "a choice must return the values of MEMORY", sorted(memory))
    for name, value in memory.items():
        is_valid = np.shape(value) == np.shape(pool.memory[name]) and np.isfinite(value).all()
        subject.require(is_valid, f"the memory {name} must be finite and keep its shape", value)


CHECKS = {"policies": (check_policy,), "selections": (check_selection_constants, check_selection)}
