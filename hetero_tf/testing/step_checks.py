"""Contracts of plug-ins of the round: its plan, local steps and the server."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.methods.adapters import AdapterMerge
from hetero_tf.methods.personalizations import LocalStep
from hetero_tf.methods.policies import AsynchronousPolicy, SynchronousPolicy
from hetero_tf.methods.selections import Choice, ClientPool
from hetero_tf.testing.subject import Subject

# Clients and values of each; steps of each client before; keys of each client; the learning rate.
SHAPE, STEPS, RATE = (3, 7), np.array([2, 1, 5], np.int32), 0.1
KEYS = np.array([[0, 1, 2], [0, 1, 5], [0, 1, 7]], np.int32)
REGISTERED, SERVER_SHAPE = 20, (4, 5)
DTYPES = ("float32", "float64")


def draw(count: int, dtype: str = "float64", seed: int = 0) -> tuple[tf.Tensor, ...]:
    """Return arrays with a row for each client."""
    return tuple(tf.constant(np.random.default_rng(seed).normal(size=(count, *SHAPE)), dtype))


def _correction_values(subject, dtype="float64"):
    """Weights, start, memory (None if the correction has none) and the slots that it reads."""
    module = subject.module
    weights, start, memory, *slots = draw(3 + len(module.READS), dtype)
    return weights, start, memory if module.REMEMBERS else None, tuple(slots)


def _terms(subject):
    """The function of the term of a correction and, if it has one, of its new memory."""

    def terms(weights, start, memory, slots, steps=STEPS):
        values = [subject.call("correct", weights, start, memory, slots)]
        if subject.module.REMEMBERS:
            rate = tf.constant(RATE, weights.dtype)
            values.append(subject.call("remember", memory, weights, start, slots, tf.constant(steps), rate))
        return values

    return terms


def check_correction_constants(subject: Subject) -> None:
    """`remember` exists only if declared; `READS` names slots of servers."""
    module = subject.module
    subject.require(hasattr(module, "remember") == module.REMEMBERS, "REMEMBERS must say whether `remember` exists")
    server_slots = {slot for server in registry.names("servers") for slot in registry.find("servers", server).SLOTS}
    is_valid = isinstance(module.READS, tuple) and set(module.READS) <= server_slots
    subject.require(is_valid, f"READS must be a tuple of slots of servers, {sorted(server_slots)}", module.READS)


def check_corrections_of_clients(subject: Subject) -> None:
    """Batched clients get the terms of single clients, in the form and type of the weights."""
    for dtype in DTYPES:
        for term in subject.require_rows(_terms(subject), *_correction_values(subject, dtype), STEPS):
            subject.require_form(term, SHAPE, dtype, "terms must have the weights' form and type")


def check_correction_at_the_start(subject: Subject) -> None:
    """Terms are zero at the start with an empty memory; a graph is stateless and equals the eager terms."""
    weights, start, *others = _correction_values(subject)
    zeros = tf.nest.map_structure(lambda value: None if value is None else tf.zeros_like(value), others)
    for term in _terms(subject)(start, start, *zeros):
        subject.require(not term.numpy().any(), "terms must be zero at the start with an empty memory")
    subject.require_graph(lambda weights, start: _terms(subject)(weights, start, *others), weights, start)


def local_step(*values: tf.Tensor) -> LocalStep:
    """Return a step on the loss `sum(targets * values + values^4)`; the twins' optimizer is plain SGD.

    Args:
        values: Weights, start, twin, alpha, targets and number of earlier steps of each client.
    """
    weights, start, twin, alpha, targets, number = values
    rate = tf.constant(RATE, weights.dtype)

    def evaluate(values, contrast, anchors):
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = tf.reduce_sum(targets * values + values**4, 1)
            # The representations of two examples have three values each.
            features = [tf.reshape(each[:, :6], [-1, 2, 3]) for each in (values, *anchors)]
            loss = loss if contrast is None else loss + contrast(*features)
        return loss, tape.gradient(loss, values)

    def step(values, gradients):
        return values - rate * gradients, ()

    personal = tf.constant(np.arange(SHAPE[1]) < 3)
    return LocalStep(weights, start, twin, alpha, personal, number, number // 2, rate, evaluate, step)


def _local_values(dtype="float64"):
    """The arguments of `local_step`."""
    alpha = tf.constant([[0.3], [0.9], [0.0]], dtype)
    return *draw(3, dtype), alpha, *draw(1, dtype, seed=1), tf.constant(STEPS)


def check_personalization_of_clients(subject: Subject) -> None:
    """Batched clients step like single ones, in a stateless graph; only modules with `TWIN` return twins."""
    passes, options = subject.constant("PASSES"), registry.options(subject.kind, subject.name)
    subject.require(passes in options or type(passes) is int, "PASSES must be a number or an option", passes)
    for dtype in DTYPES:
        values = _local_values(dtype)

        def personalize(*values):
            update = subject.call("personalize", local_step(*values))
            return tuple(each for each in update if each is not None)

        # Powers of single rows may round differently.
        subject.require_rows(personalize, *values, rtol=1e-5)
        update = subject.call("personalize", local_step(*values))
        returns_twins = update.twin is not None or getattr(subject.module, "PREVIOUS", False)
        subject.require(returns_twins == subject.module.TWIN, "TWIN must say whether a step returns twins")
        subject.require_form(update.gradient.values, SHAPE, dtype, "gradients must have the weights' form and type")
        subject.require_form(update.gradient.loss, SHAPE[:1], dtype, "each client must have a loss")
    subject.require_graph(personalize, *values, rtol=1e-12)


def optimizer_values(subject: Subject, dtype: str = "float64") -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Return weights and slots of a client after some steps: squares are not negative."""
    rng = np.random.default_rng(0)
    weights = tf.constant(rng.normal(size=SHAPE), dtype)
    return weights, tuple(tf.constant(rng.random(SHAPE), dtype) for _ in subject.module.SLOTS)


def check_optimizer_defaults(subject: Subject) -> None:
    """Every option has a default."""
    required = [option.name for option in registry.options("optimizers", subject.name).values() if option.required]
    subject.require(not required, "every option of an optimizer must have a default", required)


def check_optimizer_of_clients(subject: Subject) -> None:
    """Batched clients move like single ones; the first step follows the negative gradient; the graph is stateless."""
    counts = np.array([4, 0, 9], np.int32)
    for dtype in DTYPES:
        (gradients,), (weights, slots) = draw(1, dtype, seed=1), optimizer_values(subject, dtype)

        def step(weights, gradients, slots=slots, counts=counts):
            rate = tf.constant(RATE, weights.dtype)
            return subject.call("step", weights, gradients, slots, rate, tf.constant(counts))

        moved, after = subject.require_rows(step, weights, gradients, slots, counts)
        subject.require(moved.dtype == dtype and len(after) == len(slots), "a step must return weights and all slots")
    zeros = tf.zeros(SHAPE, tf.float64)
    first, _ = step(zeros, gradients, (zeros,) * len(slots), np.zeros(3, np.int32))
    subject.require((first * gradients < 0).numpy().all(), "the first step must follow the negative gradient")
    subject.require_graph(lambda weights, gradients: step(weights, gradients), weights, gradients)


def _update_values(dtype="float64"):
    """Weights, start, steps and keys of the clients."""
    start, change = np.random.default_rng(0).normal(size=(2, *SHAPE))
    # The first client moves less than the others.
    weights, start = tf.constant(start + change * [[0.1], [1.0], [3.0]], dtype), tf.constant(start, dtype)
    return weights, start, tf.constant(STEPS), tf.constant(KEYS)


def check_updates_of_clients(subject: Subject) -> None:
    """Batched clients get the updates of single ones; equal keys give equal updates in a stateless graph."""
    for dtype in DTYPES:
        values = _update_values(dtype)
        batched = subject.require_rows(functools.partial(_update, subject), *values)
        subject.require_form(batched, SHAPE, dtype, "an update must have the weights' form and type")
    subject.require_graph(functools.partial(_update, subject), *values)


def check_compressions(subject: Subject) -> None:
    """A message is shorter than its values; it has their mean over all keys, or a part of the change."""
    is_unbiased = subject.constant("UNBIASED")
    if is_unbiased is None:
        return
    counts = 1_000, 1_000_000
    bits = [subject.call("message_bits", count) for count in counts]
    subject.require(0 < bits[0] < 32 * counts[0], "a message must be shorter than 32 bits for each value", bits[0])
    subject.require(bits[0] < bits[1], "a message with more values must not be shorter", bits)
    draws, (start, change) = 4_000, np.random.default_rng(0).normal(size=(2, *SHAPE))
    start, change = (np.repeat(each[:1], draws, axis=0) for each in (start, change))
    keys = np.stack([np.full(draws, 5), np.arange(draws), np.full(draws, 2)], 1).astype(np.int32)
    sent = _update(subject, start + change, start, np.ones(draws, np.int32), keys) - start
    if is_unbiased:
        # Six standard errors; the norm is the largest error of a single value.
        bound = 6 * (sent.numpy().std(axis=0) + 1e-12) / math.sqrt(draws)
        off = np.abs(sent.numpy().mean(axis=0) - change[0])
        subject.require((off <= bound).all(), "UNBIASED: the mean of the messages must be the change", off)
    else:
        errors = np.linalg.norm(change - sent, axis=1)
        subject.require(
            (errors < np.linalg.norm(change, axis=1)).all(), "a message must be closer to the change than 0", errors
        )


def _update(subject, weights, start, steps, keys):
    """Call an update; a compression receives the number of values that clients send."""
    entries = tf.fill([tf.shape(weights)[0]], SHAPE[1])
    return subject.call("update", *map(tf.convert_to_tensor, (weights, start, steps, keys)), entries=entries)


def apply_server(
    subject: Subject, old: np.ndarray, mean: np.ndarray, coverage: np.ndarray, slots: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return the new values and slots of a server."""
    tensors = [tf.constant(value) for value in (old, mean, coverage)]
    new, after = subject.call("apply", *tensors, tuple(map(tf.constant, slots)), **_injected(mean))
    return [new.numpy(), *(slot.numpy() for slot in after)]


def _injected(mean):
    """The keywords of servers that are not options."""
    return {"registered": REGISTERED, "memory_change": tf.constant(2 * mean)}


def check_uncovered_entries(subject: Subject) -> None:
    """Entries without coverage and their slots stay bit-equal; others change, first towards the mean."""
    for dtype in DTYPES:
        rng = np.random.default_rng(0)
        # Slots of earlier rounds: squares must not be negative.
        slots = [rng.random(SERVER_SHAPE).astype(dtype) for _ in subject.module.SLOTS]
        for _ in range(10):
            coverage = rng.integers(0, 4, SERVER_SHAPE).astype(dtype)
            change, old = rng.normal(size=(2, *SERVER_SHAPE)).astype(dtype)
            old[0, 0], coverage[0, 0] = -0.0, 0
            away, mean = coverage == 0, np.where(coverage == 0, old, old + change)
            for one, other in zip(apply_server(subject, old, mean, coverage, slots), (old, *slots), strict=True):
                is_valid = one.dtype == dtype and one.shape == SERVER_SHAPE and np.isfinite(one).all()
                subject.require(is_valid, "values and slots must stay finite, in their form and type")
                subject.require_close(one[away], other[away], "an entry without coverage must stay bit-equal")
                subject.require((one[~away] != other[~away]).all(), "an entry with coverage must change")
        first = apply_server(subject, old, mean, coverage, [np.zeros(SERVER_SHAPE, dtype) for _ in slots])[0]
        moved = ((first - old) * change)[~away]
        subject.require((moved > 0).all(), "the first round must move towards the mean")


def check_coverage_and_graph(subject: Subject) -> None:
    """Coverage may broadcast; the graph is stateless and equals the eager values."""
    rng = np.random.default_rng(1)
    old, mean, *slots = rng.random((2 + len(subject.module.SLOTS), *SERVER_SHAPE))
    for shape in ((4, 1), (), (1, 5)):
        coverage = rng.integers(1, 4, shape).astype(float)
        expected = apply_server(subject, old, mean, np.broadcast_to(coverage, SERVER_SHAPE).copy(), slots)
        for one, other in zip(apply_server(subject, old, mean, coverage, slots), expected, strict=True):
            subject.require_close(one, other, "coverage may have axes of size 1")
    values = [tf.constant(value) for value in (old, mean, np.ones(SERVER_SHAPE), *slots)]
    subject.require_graph(lambda *values: subject.call("apply", *values[:3], values[3:], **_injected(mean)), *values)


def merge_arguments(dtype: str = "float64", order: Sequence[int] = range(4)) -> tuple[tf.Tensor, dict[str, Any]]:
    """Return old values, and the other arguments of a merge for three clients and padding in some order."""
    rng = np.random.default_rng(0)
    old, covered = rng.normal(size=7), rng.random((4, 7)) < 0.7
    # No client covers the first entry, and padding covers none.
    covered[:, 0] = covered[3] = False
    floats = {"rows": np.where(covered, rng.normal(size=(4, 7)), old), "weight": [1, 2, 3, 0], "loss": [0.7, 0.5, 2, 0]}
    ints = {"steps": [2, 1, 5, 0], "examples": [20, 9, 50, 7], "submodel": [0, 0, 1, 1]}
    arrays = {"covered": tf.constant(covered)} | {name: tf.constant(each, dtype) for name, each in floats.items()}
    arrays |= {name: tf.constant(each, tf.int32) for name, each in ints.items()}
    arrays = {name: tf.gather(each, list(order)) for name, each in arrays.items()}
    blocks = ((np.array([5, 6]), 1, np.array([[1, 2], [3, 4]])),)
    arrays |= {"rate": tf.constant(RATE, dtype), "momentum": 0.5, "mu": 0.1, "blocks": blocks}
    return tf.constant(old, dtype), arrays


def aggregate_clients(subject: Subject, old: tf.Tensor, arguments: Mapping[str, Any]) -> tf.Tensor:
    """Return the result of a merge, which receives the arguments in its signature."""
    return subject.call("aggregate", old, **arguments)


def check_merge_of_clients(subject: Subject) -> None:
    """The result is finite, in the form and type of the old values, for clients and padding in any order."""
    for dtype in DTYPES:
        old, arguments = merge_arguments(dtype)
        new = aggregate_clients(subject, old, arguments)
        subject.require_form(new, old.shape, dtype, "a merge must keep shape and type")
        subject.require(np.isfinite(new).all(), "finite weights must have a finite merge", new)
    for order in ((2, 3, 0, 1), (0, 1, 2), (3, 0, 3, 1, 2)):
        other = aggregate_clients(subject, *merge_arguments(order=order))
        text = "neither the order of clients nor rows that cover nothing may change covered entries"
        subject.require_close(other[1:], new[1:], text, rtol=1e-9, atol=1e-12)
    subject.require_graph(
        lambda *values: aggregate_clients(subject, old, arguments | dict(zip(arguments, values))),
        *[each for each in arguments.values() if tf.is_tensor(each)],
        rtol=1e-12,
    )


def check_merge_of_equal_clients(subject: Subject) -> None:
    """Clients that agree move the weights towards theirs, and leave them if they have not moved."""
    old, arguments = merge_arguments()
    for change in (np.zeros(7), np.linspace(-3, 3, 7) + 0.1):
        rows = tf.where(arguments["covered"], old + change, old)
        moved = (aggregate_clients(subject, old, arguments | {"rows": rows}) - old)[1:].numpy()
        is_valid = np.allclose(moved, 0, atol=1e-9) if not change.any() else (moved * change[1:] > 0).all()
        subject.require(is_valid, "a merge must move towards clients that agree", moved)


def check_adapter_merge(subject: Subject) -> None:
    """The rule is a plain value, equal for equal options, and has parts that the package knows."""
    rule = subject.call("merge")
    subject.require(isinstance(rule, AdapterMerge), "a merge must be an AdapterMerge", rule)
    subject.require(rule == subject.call("merge"), "equal options must give equal rules")
    is_valid = rule.trained and all(factors and set(factors) <= {"a", "b"} for factors in rule.trained)
    subject.require(is_valid, "each round must train a, b or both", rule.trained)
    is_valid = set(rule.downloaded) <= {"a", "b", "base"}
    subject.require(is_valid, "downloaded must have parts of an adapter", rule.downloaded)
    is_valid = (rule.products is None) == (rule.combine is None)
    subject.require(is_valid, "a rule must have both products and combine, or neither")
    has_products = bool(subject.constant("PRODUCTS"))
    subject.require(has_products == (rule.products is not None), "PRODUCTS must be True if the rule reads products")


def check_adapter_products(subject: Subject) -> None:
    """New factors and the change of the base represent a mean product of their rank, in a stateless graph."""
    rule, rng = subject.call("merge"), np.random.default_rng(0)
    for dtype in DTYPES if rule.combine else ():
        old = tuple(tf.constant(rng.normal(size=shape), dtype) for shape in ((7, 3), (3, 5)))
        product = tf.constant(rng.normal(size=(7, 2)) @ rng.normal(size=(2, 5)), dtype)
        factors, change = rule.combine(old, old, product, tf.constant(KEYS[0]))
        is_downloaded = change is None or "base" in rule.downloaded
        subject.require(is_downloaded, "downloaded must have the base if it changes", rule.downloaded)
        for factor, before in zip(factors, old):
            subject.require_form(factor, before.shape, dtype, "a factor must keep its shape and type")
        actual = factors[0] @ factors[1] + (0 if change is None else change)
        text = "factors and the change of the base must add up to a mean product of their rank"
        subject.require_close(actual, product, text, rtol=1e-4, atol=1e-5)
        values = *old, product, tf.constant(KEYS[0])
        subject.require_graph(lambda *each: rule.combine(each[:2], each[:2], *each[2:])[0], *values, rtol=1e-5)


def check_schedule(subject: Subject) -> None:
    """Multipliers are plain floats from 1 down to at least 0, which never increase."""
    multipliers = [subject.call("multiplier", round) for round in (*range(30), 10**6)]
    subject.require(all(type(value) is float for value in multipliers), "a multiplier must be a float", multipliers)
    subject.require(multipliers[0] == 1, "the multiplier of round 0 must be 1", multipliers[0])
    is_falling = multipliers == sorted(multipliers, reverse=True) and multipliers[-1] >= 0
    subject.require(is_falling, "multipliers must never increase or be negative", multipliers)
    subject.require(subject.call("multiplier", 7) == multipliers[7], "equal rounds must have equal multipliers")


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
    sampling = subject.constant("SAMPLING")
    known = ("fixed", "poisson", "cyclic")
    subject.require(sampling in (None, *known), f"SAMPLING must be one of {', '.join(known)}", sampling)
    memory = subject.constant("MEMORY") or {}
    is_valid = isinstance(memory, dict) and set(memory.values()) <= {"run", "clients"}
    subject.require(is_valid, 'MEMORY must be {name: "run" or "clients"}', memory)
    subject.require(not memory or subject.constant("READS_HISTORY"), "MEMORY needs READS_HISTORY = True")


def check_selection(subject: Subject) -> None:
    """Chosen clients are able and different, at most `count`, a pure function of the arguments."""
    varies = subject.constant("SAMPLING") == "poisson"
    for round, able in ((0, 30), (4, 30), (4, np.arange(3, 30, 3)), (4, np.asarray([5]))):
        pool = selection_pool(subject, round, able)
        for count in {1, min(len(pool.ids), 7), len(pool.ids)}:
            first, second = (_choose(subject, pool, count) for _ in range(2))
            ids = np.asarray(first.ids)
            subject.require(ids.ndim == 1 and ids.dtype.kind == "i", "ids must be integers with one axis", ids)
            is_valid = varies or 0 < len(ids) <= count
            is_valid &= len(set(ids.tolist())) == len(ids) and bool(np.isin(ids, pool.ids).all())
            subject.require(is_valid, f"ids must be at most {count} different able clients", ids)
            subject.require_close(first.ids, second.ids, "equal arguments must give equal ids")
            _check_memory(subject, pool, first.memory)
    if subject.constant("SAMPLING") == "cyclic":
        # The accountant of `privacy` counts the rounds of a client from this, also if 30 is no multiple of the cohort.
        order = np.concatenate([_choose(subject, selection_pool(subject, round, 30), 7).ids for round in range(12)])
        waits = all(np.unique(order[start : start + 30]).size == 30 for start in range(len(order) - 29))
        subject.require(waits, "cyclic: a client must wait for all others", order)


def selection_pool(subject: Subject, round: int, able: int | np.ndarray) -> ClientPool:
    """Return an example of a pool of 30 registered clients, with what the plug-in reads."""
    rng, names = np.random.default_rng(round), ("squared_loss", "seconds", "round", "count")
    history = {
        name: rng.integers(1, 4, 30) * (rng.random(30) < 0.6 + round / 25) * 1.0 * min(round, 1) for name in names[2:]
    }
    history |= {name: np.where(history["count"], rng.random(30), 0.0) for name in names[:2]}
    history["round"] = np.where(history["count"], np.maximum(history["round"], 1), 0)
    memory = {
        name: np.zeros(30 if form == "clients" else ()) for name, form in (subject.constant("MEMORY") or {}).items()
    }
    return ClientPool(
        able=able,
        round=round,
        device_seconds=1000.0 * round,
        available_at=lambda ids, seconds: (np.asarray(ids) + seconds // 1200) % 30 < 2 + seconds // 1200,
        examples_of=lambda ids: 5 + np.asarray(ids) % 4,
        seconds_of=lambda ids: 1.0 + np.asarray(ids) % 7,
        losses_of=lambda ids: np.sin(np.asarray(ids, float)),
        history=history if subject.constant("READS_HISTORY") else {},
        memory=memory,
    )


def _choices(subject):
    """The choices of successive rounds; at last all clients have returned."""
    choices = [Choice(np.zeros(0), memory=selection_pool(subject, 0, 30).memory)]
    for round in range(12):
        pool = dataclasses.replace(selection_pool(subject, round, 30), memory=choices[-1].memory)
        choices.append(_choose(subject, pool, 8))
    return [vars(choice) for choice in choices]


def _choose(subject, pool, count):
    result = subject.call("choose", pool, count, np.random.default_rng(1))
    return result if isinstance(result, Choice) else Choice(result)


def _check_memory(subject: Subject, pool: ClientPool, memory: Mapping) -> None:
    names = memory.keys() == pool.memory.keys()
    subject.require(names, "a choice must return the values of MEMORY", sorted(memory))
    for name, value in memory.items():
        is_valid = np.shape(value) == np.shape(pool.memory[name]) and np.isfinite(value).all()
        subject.require(is_valid, f"the memory {name} must be finite and keep its shape", value)


def _optimizer_step(subject):
    weights, slots = optimizer_values(subject)
    return subject.call("step", weights, *draw(1, seed=1), slots, RATE, tf.constant(STEPS))


def _served(subject):
    old, mean, *slots = np.random.default_rng(1).random((2 + len(subject.module.SLOTS), *SERVER_SHAPE))
    return apply_server(subject, old, mean, np.ones(SERVER_SHAPE), slots)


RESULTS = {
    "corrections": lambda subject: _terms(subject)(*_correction_values(subject)),
    "personalizations": lambda subject: subject.call("personalize", local_step(*_local_values())),
    "optimizers": _optimizer_step,
    "updates": lambda subject: _update(subject, *_update_values()),
    "merges": lambda subject: aggregate_clients(subject, *merge_arguments()),
    "adapters": lambda subject: subject.call("merge"),
    "servers": _served,
    "schedules": lambda subject: [subject.call("multiplier", round) for round in range(40)],
    "policies": lambda subject: subject.call("policy"),
    "selections": _choices,
}
CHECKS = {
    "corrections": (check_correction_constants, check_corrections_of_clients, check_correction_at_the_start),
    "personalizations": (check_personalization_of_clients,),
    "optimizers": (check_optimizer_defaults, check_optimizer_of_clients),
    "updates": (check_updates_of_clients, check_compressions),
    "merges": (check_merge_of_clients, check_merge_of_equal_clients),
    "adapters": (check_adapter_merge, check_adapter_products),
    "servers": (check_uncovered_entries, check_coverage_and_graph),
    "schedules": (check_schedule,),
    "policies": (check_policy,),
    "selections": (check_selection_constants, check_selection),
}
