"""Compressed messages: their values and bits, the errors that clients store, and the bytes of a round."""

import numpy as np
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.methods.updates import qsgd, top_k

START = tf.zeros([1, 5], tf.float64)
CHANGE = tf.constant([[0.0, -3.0, 1.0, 0.5, 4.0]], tf.float64)
STEPS, KEY = tf.constant([1]), tf.constant([[1, 2, 3]])
COMPRESSIONS = ("qsgd", "{name: top_k, share: 0.2}", "sign")


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_values_of_qsgd_are_neighbouring_multiples(bits):
    sent = qsgd.update(START + CHANGE, START, STEPS, KEY, bits=bits).numpy()
    unit = np.linalg.norm(CHANGE) / (2 ** (bits - 1) - 1)
    np.testing.assert_allclose(sent / unit, np.round(sent / unit), atol=1e-12)
    assert (np.abs(sent - CHANGE) < unit).all() and not np.array_equal(sent, CHANGE)
    assert not qsgd.update(START, START, STEPS, KEY, bits=bits).numpy().any()


def test_top_k_sends_the_share_of_the_entries_that_a_client_sends():
    for entries, expected in ((5, [[0, -3, 0, 0, 4]]), (4, [[0, -3, 0, 0, 4]]), (2, [[0, 0, 0, 0, 4]])):
        sent = top_k.update(START + CHANGE, START, STEPS, KEY, entries=tf.constant([entries]), share=0.4)
        np.testing.assert_array_equal(sent, expected)


@pytest.mark.parametrize("update", COMPRESSIONS[1:])
def test_a_message_and_its_error_are_the_whole_update(update, eager):
    """In the first round of a client that is alone, the change of the global values and the error are its update."""
    settings = ("round.clients=1", "client.loss=cross_entropy", "round.label_rows=all", "levels.mix=a")
    states = []
    for more in ((), (f"client.update={update}",), (f"client.update={without_feedback(update)}",)):
        process = tiny.process(tiny.DENSE, *settings, *more)
        states.append((process.initialize(), process.run(process.initialize(), [process.plan(0, [1])])[0]))
    (start, plain), (_, compressed), (_, without) = states
    for path, old in start.weights.items():
        change = compressed.weights[path] - old + compressed.clients["errors"][path][1]
        np.testing.assert_allclose(change, plain.weights[path] - old, atol=1e-15)
        assert not np.asarray(compressed.clients["errors"][path][0]).any()
    assert tiny.same(compressed.weights, without.weights)
    assert not without.clients["errors"]


@pytest.mark.parametrize("update", COMPRESSIONS[1:])
def test_factors_that_a_round_does_not_train_keep_their_errors(update, eager):
    settings = ("round.clients=1", "round.adapters=rolora", f"client.update={update}")
    process = tiny.process(tiny.ADAPTERS, *settings)
    states = [process.initialize()]
    for round in range(2):
        states.append(process.run(states[-1], [process.plan(round, [1])])[0])
    errors = [{path: np.asarray(each[1]) for path, each in state.clients["errors"].items()} for state in states]
    # Even rounds train b, odd ones a.
    for path in [path for path in errors[0] if "/lora/" in path]:
        changes = [errors[at][path].tobytes() != errors[at + 1][path].tobytes() for at in range(2)]
        assert changes == [path.endswith("b"), path.endswith("a")], path


def without_feedback(update):
    """The same update without error feedback."""
    name = recipe.loads(tiny.DENSE, "tiny", [f"client.update={update}"]).client.update
    options = "".join(f", {key}: {value}" for key, value in name.options.items() if key != "error_feedback")
    return f"{{name: {name.name}{options}, error_feedback: false}}"


def test_bytes_of_a_round_are_those_of_the_messages():
    # Level a: 2 x 8 + 8 and 8 x 9 + 9 values; level c with two units: 2 x 2 + 2 and 2 x 9 + 9.
    values = (105, 33)
    bits = {
        "null": [32 * 105, 32 * 33],
        "qsgd": [32 + 8 * 105, 32 + 8 * 33],
        "{name: qsgd, bits: 2}": [32 + 2 * 105, 32 + 2 * 33],
        # Positions among 105 values take 7 bits, those among 33 take 6.
        "{name: top_k, share: 0.2}": [21 * (32 + 7), 7 * (32 + 6)],
        "sign": [32 + 105, 32 + 33],
    }
    for update, expected in bits.items():
        for key, sent, received in (("client", "up", "down"), ("round", "down", "up")):
            if key == "client" or "qsgd" in update:
                cost = costs(f"{key}.update={update}")
                assert [getattr(each, f"bytes_{sent}") for each in cost] == [round(each / 8) for each in expected]
                assert [getattr(each, f"bytes_{received}") for each in cost] == [4 * count for count in values]


def costs(setting):
    return tiny.process(tiny.DENSE, "levels.mix=a-c", "round.label_rows=all", setting).client_costs


def test_clients_start_from_the_message_and_return_their_change(eager):
    """Clients that hardly move change no global value; personal values are not sent."""
    settings = ("levels.mix=a-c", 'round.personal=["0"]', "round.update={name: qsgd, bits: 3}", "precision=float64")
    still = tiny.process(tiny.DENSE, *settings, "optimizer.learning_rate=1e-18", "optimizer.weight_decay=0")
    start = still.initialize()
    state, _ = still.run(start, tiny.plans(still, 2))
    assert tiny.gap(*map(tiny.arrays, (start, state))) < 1e-15
    moving, plain = (tiny.process(tiny.DENSE, *each) for each in (settings, (*settings[:2], settings[3])))
    after = [each.run(start, tiny.plans(each, 1))[0] for each in (moving, plain)]
    assert tiny.gap(*(tiny.arrays(each) for each in after)) > 1e-4


def test_what_cannot_be_compressed_is_refused():
    for settings, reason in (
        (
            ["round.update=sign"],
            "round.update: compresses all values without bias; must be one of qsgd. Received: 'sign'",
        ),
        (["round.update={name: clip, norm: 1.0}"], "must be one of qsgd. Received: 'clip'"),
        (["client.update=sign", "round.mask=fiarse", "levels.entries={c: 1/4}"], "remove one of them"),
    ):
        assert reason in refusal(recipe.loads, tiny.DENSE, "tiny", settings)
