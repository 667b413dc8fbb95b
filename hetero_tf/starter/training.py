"""Layers and keys of a recipe that the data determine: model, input, clients, levels, local steps and rounds."""

import math

import numpy as np

from hetero_tf.base.sound_files import FULL_SCALE
from hetero_tf.data.codecs import ColumnCodec, picture, series, sound, words
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.inspection import sample
from hetero_tf.data.targets import LABEL, LABEL_MAP, NUMBERS, POSITIONS
from hetero_tf.starter.choices import Choice

# Training examples of a client without owners in the data, and limits of the number of clients.
EXAMPLES_PER_CLIENT, LEAST_CLIENTS, MOST_CLIENTS = 30, 2, 100
CLIENTS_PER_ROUND = 10
# Values of pictures and clips of which the mean and the deviation are computed, and the largest value of dark pictures.
SAMPLED_VALUES, SAMPLED_CLIPS, DARK = 2**24, 200, 63
# Share of the most frequent class from which accuracy alone is misleading.
LARGE_SHARE = 0.6
# Rows of running text of a client, which are one batch, and positions of a segment.
ROWS_PER_CLIENT, SEGMENT = 4, 64
# Fewer training examples than this are memorised within a few rounds.
FEW_EXAMPLES, FEW_ROUNDS = 100, 10


def keys_for(dataset: Dataset, task: Choice) -> dict[str, Choice]:
    """Return all keys of a recipe except `name`, `data` and `model`, in order."""
    clients, partition = _partition(dataset)
    examples, active = len(dataset.train.x) / clients, min(CLIENTS_PER_ROUND, clients)
    (optimizer, learning_rate, rounds), has_texts = dataset.codec.STEPS, isinstance(dataset.codec, words.Codec)
    is_running = dataset.targets == POSITIONS
    epochs = 1 if is_running or examples > 1000 else 2 if examples > 100 or has_texts else 5
    # A power of two, with at least four steps in an epoch of a client where that is possible.
    batch = max([8, *(size for size in (16, 32, 64) if size <= examples / 4)])
    batch = ROWS_PER_CLIENT if is_running else batch
    segments = dataset.train.x.shape[1] / SEGMENT if is_running else 1
    per_round = round(active * epochs * segments * examples / batch)
    noun = "rows" if is_running else "examples"
    levels = {"widths": {"a": 1.0, "b": 0.5, "c": 0.25}, "mix": "a-b-c"}
    is_small = not is_running and len(dataset.train.x) < FEW_EXAMPLES
    reason = f"{len(dataset.train.x)} training examples are few: more rounds may only memorise them"
    return {
        "task": task,
        "input": _input(dataset),
        "partition": partition,
        "levels": Choice(levels, "equal shares of the clients train all, half or a quarter of the channels"),
        "round": Choice({"clients": active}, f"about {per_round:,} local steps in a round"),
        "client": Choice({"epochs": epochs, "batch_size": batch}, f"about {examples:,.0f} {noun} of a client"),
        "optimizer": Choice({"name": optimizer, "learning_rate": learning_rate}),
        "rounds": Choice(FEW_ROUNDS, reason, True) if is_small else Choice(rounds),
        "evaluate": _evaluation(dataset),
    }


def _input(dataset):
    if isinstance(dataset.codec, picture.Codec):
        x = dataset.train.x
        pictures = x[np.array(sample(range(len(x)), max(SAMPLED_VALUES // math.prod(x.shape[1:]), 1)))]
        values = pictures.astype(np.float64) / (255 if pictures.dtype == np.uint8 else 1)
        means = [round(float(each), 4) for each in values.mean((0, 1, 2))]
        stds = [max(round(float(each), 4), 0.001) for each in values.std((0, 1, 2))]
        largest, reason = pictures.max(), "mean and deviation of the training pictures"
        if is_dark := pictures.dtype == np.uint8 and largest < DARK:
            reason += f"; pixels are at most {largest} of 255: scale values of 12 bits by 16 in files of 16 bits"
        return Choice({"name": "images", "mean": means, "std": stds}, reason, is_dark)
    if isinstance(dataset.codec, sound.Codec):
        import tensorflow as tf

        from hetero_tf.data.inputs import audio

        clips = dataset.train.x[np.array(sample(range(len(dataset.train.x)), SAMPLED_CLIPS))]
        spectrogram = audio.build("float32", rate=dataset.codec.rate).spectrogram
        values = spectrogram(tf.constant(clips / FULL_SCALE, tf.float32)).numpy()
        mean, std = round(float(values.mean()), 2), max(round(float(values.std()), 2), 0.01)
        return Choice({"name": "audio", "mean": mean, "std": std}, "mean and deviation of the training spectrograms")
    if dataset.targets == POSITIONS:
        segment = min(SEGMENT, dataset.train.x.shape[1] - 1)
        return Choice({"name": "next_word", "segment": segment}, "each word is predicted from those before it")
    return Choice(dataset.codec.KIND)


def _partition(dataset):
    owners, examples, name = dataset.train.owners, len(dataset.train.x), "iid"
    if owners is not None:
        name, clients, reason = "natural", len(np.unique(owners)), "each owner is a client"
    elif dataset.targets == POSITIONS:
        clients, reason = examples // ROWS_PER_CLIENT, f"each client has {ROWS_PER_CLIENT} rows of the text"
    else:
        clients = min(max(examples // EXAMPLES_PER_CLIENT, LEAST_CLIENTS), MOST_CLIENTS)
        reason = f"no owners in the data: {clients} clients with equal random parts; see also dirichlet"
    return clients, Choice({"name": name, "clients": clients}, reason)


def _evaluation(dataset):
    if dataset.targets == POSITIONS:
        return Choice({"batch_size": min(len(dataset.test.x), 10)})
    evaluate: dict[str, int | list[str]] = {"batch_size": min(max(len(dataset.test.x), 1), 500)}
    labels = dataset.train.labels if dataset.targets == LABEL else []
    share = float(np.bincount(labels).max() / len(labels)) if len(labels) else 0.0
    if share <= LARGE_SHARE:
        return Choice(evaluate)
    evaluate["metrics"] = ["balanced_accuracy"]
    return Choice(evaluate, f"{share:.0%} of the training examples have one class, so accuracy alone misleads")


_HEAD = "- Dense: {kernel_initializer: fan_in_uniform, units: !classes }"
# Larger pictures get a residual network, and the last stage of smaller ones has at least the second size.
LARGEST_OF_CNN, LEAST_MAP = 40, 4
CHANNELS, CHANNELS_OF_SOUND = (32, 64, 128), (16, 32, 64)
RESIDUAL_CHANNELS = (16, 32, 64, 128)
# Training rows from which an MLP gets the next number of hidden units.
MLP_UNITS = {0: 8, 60: 32, 1000: 64, 20_000: 128}
# Characters need fewer values than words.
EMBEDDING = {"words": 64, "characters": 32}
UNITS = 128
SERIES_LAYERS = (
    "# convolutions over time, and the mean over all positions",
    "- [Conv1D: {filters: !w 32, kernel_size: 7, padding: same}, Scaler, Norm, ReLU]",
    "- [Conv1D: {filters: !w 64, kernel_size: 5, padding: same}, Scaler, Norm, ReLU]",
    "- [Conv1D: {filters: !w 64, kernel_size: 3, padding: same}, Scaler, Norm, ReLU]",
    "- GlobalAveragePooling1D",
    _HEAD,
)
FORECAST_LAYERS = (
    "# convolutions over time and an LSTM",
    "- [Conv1D: {filters: !w 32, kernel_size: 3, padding: causal}, Scaler, ReLU]",
    "- [Conv1D: {filters: !w 32, kernel_size: 3, padding: causal, dilation_rate: 2}, Scaler, ReLU]",
    "- [LSTM: {units: !w 32}, Scaler]",
    _HEAD,
)


def layers_for(dataset: Dataset) -> tuple[str, ...]:
    """Return the lines of `model.layers` for a data set."""
    codec, shape = dataset.codec, dataset.train.x.shape[1:]
    if isinstance(codec, picture.Codec):
        if dataset.targets == LABEL_MAP:
            unit = "- UNet: {filters: !w 16, depth: 2, norm: sbn, scaler: true}"
            last = "- Conv2D: {filters: !classes , kernel_size: 1}"
            return ("# a small U-Net: one output for each pixel", unit, last)
        size = min(shape[:2])
        if size > LARGEST_OF_CNN:
            return _residual_layers(size)
        stages = min(max(int(math.log2(max(size, LEAST_MAP) / LEAST_MAP)) + 1, 1), len(CHANNELS))
        comment = f"# a small CNN, since the pictures have {shape[0]} x {shape[1]} pixels"
        return (comment, *_convolutions(CHANNELS[:stages]), "- GlobalAveragePooling2D", _HEAD)
    if isinstance(codec, sound.Codec):
        comment = "# a small CNN over the spectrogram, a map of frames and mel bands"
        return (comment, *_convolutions(CHANNELS_OF_SOUND), "- GlobalAveragePooling2D", _HEAD)
    if isinstance(codec, ColumnCodec):
        rows = len(dataset.train.x)
        units = max(units for least, units in MLP_UNITS.items() if rows >= least)
        layer = f"- [Dense: {{units: !w {units}}}, Scaler, ReLU]"
        return (f"# an MLP, whose {units} hidden units suit {rows:,} training rows", layer, layer, _HEAD)
    if isinstance(codec, series.Codec):
        return FORECAST_LAYERS if dataset.targets == NUMBERS else SERIES_LAYERS
    return _lstm_layers(dataset)


def _convolutions(channels):
    lines = [f"- [PaddedConv2D: {{filters: !w {filters}}}, Scaler, Norm, ReLU, MaxPooling2D]" for filters in channels]
    return (*lines[:-1], lines[-1].replace(", MaxPooling2D", ""))


def _residual_layers(size):
    stride = 2 if size >= 2 * LARGEST_OF_CNN else 1
    lines = [
        f"# a PreResNet, since the pictures have more than {LARGEST_OF_CNN} x {LARGEST_OF_CNN} pixels",
        f"- [PaddedConv2D: {{filters: !w {RESIDUAL_CHANNELS[0]}, stride: {stride}, use_bias: false}}, Scaler, Norm]",
    ]
    for stage, filters in enumerate(RESIDUAL_CHANNELS):
        first = "first: {stride: 2}, " if stage else ""
        lines.append(f"- Repeat: {{times: 2, {first}layer: {{PreActivationBlock: {{filters: !w {filters}}}}}}}")
    return (*lines, "- [Scaler, Norm, ReLU]", "- GlobalAveragePooling2D", _HEAD)


def _lstm_layers(dataset):
    width = EMBEDDING[dataset.codec.tokenizer]
    if dataset.targets == LABEL:
        embedding = f"- Embedding: {{words: {len(dataset.codec.texts)}, width: !w {width}, padding: 0}}"
        lstm, comment = f"LSTM: {{units: !w {UNITS}}}", f"# an LSTM over the {dataset.codec.tokenizer} of a text"
    else:
        embedding = f"- Embedding: {{words: !classes , width: !w {width}}}"
        lstm = f"LSTM: {{units: !w {UNITS}, return_sequences: true}}"
        comment = f"# an LSTM that predicts each of the {dataset.codec.tokenizer} from those before it"
    return (comment, embedding, f"- [{lstm}, Scaler, Dropout: {{rate: 0.2}}]", _HEAD)
