"""What servers do with an export: requests that one answers before it takes others, and how many it may join.

The first request of each signature takes much longer than the next ones, since TensorFlow plans the graph for it. The
requests hold nothing of the data, black pictures and hidden words only.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.export import saved_model

# Where TensorFlow Serving looks for both, inside the folder of a version.
REQUESTS, BATCHING = Path("assets.extra", "tf_serving_warmup_requests"), Path("batching_params.pbtxt")
# Examples that are computed at once; more gain little on a processor, and make the first of them wait.
AT_ONCE = 64
WAIT_MICROSECONDS = 1000


def blank_requests(signatures: dict) -> dict[str, dict[str, np.ndarray]]:
    """Returns a small request for each signature, `{signature: {input: value}}`.

    Args:
        signatures: `{signature: {"inputs": {name: {"dtype", "shape"}}}}`, as `export.json` tells them; None: any size.
    """
    picture = tf.io.encode_png(tf.zeros([1, 1, 3], tf.uint8)).numpy()
    strings = {"image_bytes": np.array([picture], object), "text": np.array([b"<mask>"], object)}

    def blank(name, spec):
        shape = [1 if size is None else size for size in spec["shape"]]
        return strings[name] if spec["dtype"] == "string" else np.zeros(shape, spec["dtype"])

    return {
        signature: {name: blank(name, spec) for name, spec in told["inputs"].items()}
        for signature, told in signatures.items()
    }


def write(folder: Path, signatures: dict, most: int | None) -> None:
    """Writes into the folder of a version what TensorFlow Serving reads there.

    Args:
        folder: Of the version.
        signatures: See `blank_requests`.
        most: Examples that one call of the model may have; None: requests must not be joined, since their rows may be
            of different lengths.
    """
    (folder / REQUESTS.parent).mkdir()
    with saved_model.writing(folder), tf.io.TFRecordWriter(str(folder / REQUESTS)) as records:
        for signature, inputs in blank_requests(signatures).items():
            records.write(_prediction_log(signature, inputs))
    if most is not None:
        hint = (
            f"max_batch_size {{ value: {min(most, AT_ONCE)} }}\nbatch_timeout_micros {{ value: {WAIT_MICROSECONDS} }}\n"
        )
        files.write_new(folder / BATCHING, hint.encode())


def _prediction_log(signature, inputs):
    """A request as a message PredictionLog of TensorFlow Serving.

    Its fields on the way: predict_log = 6, request = 1; in the request model_spec = 1 with signature_name = 3, and
    inputs = 2, a map with key = 1 and value = 2.
    """
    tensors = b"".join(
        _field(2, _field(1, name.encode()) + _field(2, tf.make_tensor_proto(value).SerializeToString()))
        for name, value in inputs.items()
    )
    return _field(6, _field(1, _field(1, _field(3, signature.encode())) + tensors))


def _field(number, content):
    """A field of a protocol buffer that holds bytes: its number and kind, the length, the bytes."""
    length, left = b"", len(content)
    while left > 127:
        length, left = length + bytes([left % 128 + 128]), left // 128
    return bytes([number << 3 | 2]) + length + bytes([left]) + content
