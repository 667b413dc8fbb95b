"""Keys of a recipe that the size of the data determines: input, clients, levels, local steps and rounds."""

import math

import numpy as np

from hetero_tf.base.sound_files import FULL_SCALE
from hetero_tf.data.codecs import picture, sound, words
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.inspection import sample
from hetero_tf.data.targets import LABEL, POSITIONS
from hetero_tf.starter.choices import Choice

# Training examples of a client without owners in the data, and limits of the number of clients.
EXAMPLES_PER_CLIENT, LEAST_CLIENTS, MOST_CLIENTS = 30, 2, 100
CLIENTS_PER_ROUND = 10
# Values of pictures of which the mean and the standard deviation are computed.
SAMPLED_VALUES = 2**24
# Clips of which the same is computed.
SAMPLED_CLIPS = 200
# Share of the most frequent class from which accuracy alone is misleading.
LARGE_SHARE = 0.6
# Rows of running text of a client, which are one batch, and positions of a segment.
ROWS_PER_CLIENT, SEGMENT = 4, 64
# Fewer training examples than this are memorised within a few rounds.
FEW_EXAMPLES, FEW_ROUNDS = 100, 10


def keys_for(dataset: Dataset, task: Choice) -> dict[str, Choice]:
    """Return all keys of a recipe except `name`, `data` and `model`, in order.

    Args:
        dataset: The data as read.
        task: The task.
    """
    clients, partition = _partition(dataset)
    examples, active = len(dataset.train.x) / clients, min(CLIENTS_PER_ROUND, clients)
    (optimizer, learning_rate, rounds), has_texts = dataset.codec.STEPS, isinstance(dataset.codec, words.Codec)
    is_running = dataset.targets == POSITIONS
    epochs = 1 if is_running or examples > 1000 else 2 if examples > 100 or has_texts else 5
    batch = ROWS_PER_CLIENT if is_running else _batch_size(examples)
    segments = dataset.train.x.shape[1] / SEGMENT if is_running else 1
    per_round = round(active * epochs * segments * examples / batch)
    return {
        "task": task,
        "input": _input(dataset),
        "partition": partition,
        "levels": Choice(
            {"widths": {"a": 1.0, "b": 0.5, "c": 0.25}, "mix": "a-b-c"},
            "equal shares of the clients train all, half or a quarter of the channels",
        ),
        "round": Choice({"clients": active}, f"about {per_round:,} local steps in a round"),
        "client": Choice(
            {"epochs": epochs, "batch_size": batch},
            f"about {examples:,.0f} {'rows' if is_running else 'examples'} of a client",
        ),
        "optimizer": Choice({"name": optimizer, "learning_rate": learning_rate}),
        "rounds": _rounds(dataset, rounds),
        "evaluate": _evaluation(dataset),
    }


def _input(dataset):
    if isinstance(dataset.codec, picture.Codec):
        means, stds = picture_statistics(dataset)
        return Choice({"name": "images", "mean": means, "std": stds}, "mean and deviation of the training pictures")
    if isinstance(dataset.codec, sound.Codec):
        mean, std = spectrogram_statistics(dataset)
        return Choice({"name": "audio", "mean": mean, "std": std}, "mean and deviation of the training spectrograms")
    if dataset.targets == POSITIONS:
        segment = min(SEGMENT, dataset.train.x.shape[1] - 1)
        return Choice({"name": "next_word", "segment": segment}, "each word is predicted from those before it")
    return Choice(dataset.codec.KIND)


def picture_statistics(dataset: Dataset) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of each channel of the training pictures, as shares of 255."""
    x = dataset.train.x
    count = max(SAMPLED_VALUES // math.prod(x.shape[1:]), 1)
    pictures = x[np.array(sample(range(len(x)), count))]
    values = pictures.astype(np.float64) / (255 if pictures.dtype == np.uint8 else 1)
    mean, std = values.mean((0, 1, 2)), values.std((0, 1, 2))
    return [round(float(each), 4) for each in mean], [max(round(float(each), 4), 0.001) for each in std]


def spectrogram_statistics(dataset: Dataset) -> tuple[float, float]:
    """Return mean and standard deviation of the spectrograms of the training clips."""
    import tensorflow as tf

    from hetero_tf.data.inputs import audio

    clips = dataset.train.x[np.array(sample(range(len(dataset.train.x)), SAMPLED_CLIPS))]
    spectrogram = audio.build("float32", rate=dataset.codec.rate).spectrogram
    values = spectrogram(tf.constant(clips / FULL_SCALE, tf.float32)).numpy()
    return round(float(values.mean()), 2), max(round(float(values.std()), 2), 0.01)


def _partition(dataset):
    owners, examples = dataset.train.owners, len(dataset.train.x)
    if owners is not None:
        clients = len(np.unique(owners))
        reason = "each owner is a client"
        return clients, Choice({"name": "natural", "clients": clients}, reason)
    if dataset.targets == POSITIONS:
        clients = examples // ROWS_PER_CLIENT
        return clients, Choice(
            {"name": "iid", "clients": clients}, f"each client has {ROWS_PER_CLIENT} rows of the text"
        )
    clients = min(max(examples // EXAMPLES_PER_CLIENT, LEAST_CLIENTS), MOST_CLIENTS)
    reason = f"no owners in the data: {clients} clients with equal random parts; see also dirichlet"
    return clients, Choice({"name": "iid", "clients": clients}, reason)


def _batch_size(examples):
    """Return a power of two, with at least four steps in an epoch of a client where that is possible."""
    size = 8
    while size < 64 and 2 * size <= examples / 4:
        size *= 2
    return size


def _rounds(dataset, rounds):
    if dataset.targets == POSITIONS or len(dataset.train.x) >= FEW_EXAMPLES:
        return Choice(rounds)
    return Choice(
        FEW_ROUNDS, f"{len(dataset.train.x)} training examples are few: more rounds may only memorise them", True
    )


def _evaluation(dataset):
    evaluate: dict[str, int | list[str]] = {"batch_size": min(max(len(dataset.test.x), 1), 500)}
    if dataset.targets == POSITIONS:
        return Choice({"batch_size": min(len(dataset.test.x), 10)})
    share = majority_share(dataset)
    if share is not None and share > LARGE_SHARE:
        evaluate["metrics"] = ["balanced_accuracy"]
        return Choice(evaluate, f"{share:.0%} of the training examples have one class, so accuracy alone misleads")
    return Choice(evaluate)


def majority_share(dataset: Dataset) -> float | None:
    """Return the share of the most frequent class of the training examples; None for other targets."""
    if dataset.targets != LABEL:
        return None
    return float(np.bincount(dataset.train.labels).max() / len(dataset.train.labels))
