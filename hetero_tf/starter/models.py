"""Models for each kind of data, as the YAML lines of `model.layers`; sizes with `!w` scale with a level's width."""

import math

from hetero_tf.data.codecs import ColumnCodec, picture, series, sound
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.targets import LABEL, LABEL_MAP, NUMBERS

_HEAD = "- Dense: {kernel_initializer: fan_in_uniform, units: !classes }"
# Larger pictures get a residual network.
LARGEST_OF_CNN = 40
# The last stage has at least this height and width.
LEAST_MAP = 4
CHANNELS = (32, 64, 128)
RESIDUAL_CHANNELS = (16, 32, 64, 128)
# Training rows from which an MLP gets the next number of hidden units.
MLP_UNITS = {0: 8, 60: 32, 1000: 64, 20_000: 128}
# Characters need fewer values than words.
EMBEDDING = {"words": 64, "characters": 32}
UNITS = 128


def layers_for(dataset: Dataset) -> tuple[str, ...]:
    """Return the lines of `model.layers` for a data set."""
    codec = dataset.codec
    if isinstance(codec, picture.Codec):
        if dataset.targets == LABEL_MAP:
            return _map_layers()
        height, width, _ = dataset.train.x.shape[1:]
        return _residual_layers(min(height, width)) if min(height, width) > LARGEST_OF_CNN else _cnn_layers(dataset)
    if isinstance(codec, sound.Codec):
        return _sound_layers()
    if isinstance(codec, ColumnCodec):
        return _mlp_layers(len(dataset.train.x))
    if isinstance(codec, series.Codec):
        return _forecast_layers() if dataset.targets == NUMBERS else _series_layers()
    return _lstm_layers(dataset)


def _cnn_layers(dataset):
    height, width, _ = dataset.train.x.shape[1:]
    size = min(height, width)
    stages = min(max(int(math.log2(max(size, LEAST_MAP) / LEAST_MAP)) + 1, 1), len(CHANNELS))
    units = []
    for stage, filters in enumerate(CHANNELS[:stages]):
        pooling = ", MaxPooling2D" if stage + 1 < stages else ""
        units.append(f"- [PaddedConv2D: {{filters: !w {filters}}}, Scaler, Norm, ReLU{pooling}]")
    comment = f"# a small CNN, since the pictures have {height} x {width} pixels"
    return (comment, *units, "- GlobalAveragePooling2D", _HEAD)


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


def _sound_layers():
    units = [f"- [PaddedConv2D: {{filters: !w {filters}}}, Scaler, Norm, ReLU, MaxPooling2D]" for filters in (16, 32)]
    comment = "# a small CNN over the spectrogram, a map of frames and mel bands"
    last = "- [PaddedConv2D: {filters: !w 64}, Scaler, Norm, ReLU]"
    return (comment, *units, last, "- GlobalAveragePooling2D", _HEAD)


def _map_layers():
    unit = "- UNet: {filters: !w 16, depth: 2, norm: sbn, scaler: true}"
    return ("# a small U-Net: one output for each pixel", unit, "- Conv2D: {filters: !classes , kernel_size: 1}")


def _mlp_layers(rows):
    units = max(units for least, units in MLP_UNITS.items() if rows >= least)
    layer = f"- [Dense: {{units: !w {units}}}, Scaler, ReLU]"
    return (f"# an MLP, whose {units} hidden units suit {rows:,} training rows", layer, layer, _HEAD)


def _series_layers():
    units = [
        f"- [Conv1D: {{filters: !w {filters}, kernel_size: {size}, padding: same}}, Scaler, Norm, ReLU]"
        for filters, size in ((32, 7), (64, 5), (64, 3))
    ]
    return ("# convolutions over time, and the mean over all positions", *units, "- GlobalAveragePooling1D", _HEAD)


def _forecast_layers():
    convolution = "Conv1D: {filters: !w 32, kernel_size: 3, padding: causal"
    return (
        "# convolutions over time and an LSTM",
        f"- [{convolution}}}, Scaler, ReLU]",
        f"- [{convolution}, dilation_rate: 2}}, Scaler, ReLU]",
        "- [LSTM: {units: !w 32}, Scaler]",
        _HEAD,
    )


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
