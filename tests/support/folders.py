"""Small data folders in the format of the real ones, and damaged files."""

import dataclasses
import importlib.util
import json
import struct
import zlib
from pathlib import Path

import numpy as np

from hetero_tf.data.disk_array import DiskArray

TFDS_EXAMPLES = {"train": 30, "test": 12}


def damaged(content, times, seed=0, cuts=2):
    """Copies of bytes with one flipped bit each; every `cuts`-th copy is truncated instead."""
    rng = np.random.default_rng(seed)
    for number in range(times):
        position = int(rng.integers(len(content)))
        copy = bytearray(content)
        if number % cuts == cuts - 1:
            del copy[position:]
        else:
            copy[position] ^= 1 << int(rng.integers(8))
        yield bytes(copy)


def png(width, height, rows=b"", bits=8, color_type=0, palette=()):
    """A PNG file of packed rows, grey by default; `palette`: its chunks, as (kind, data)."""
    header = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, 0)
    chunks = ((b"IHDR", header), *palette, (b"IDAT", rows), (b"IEND", b""))
    parts = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def write_femnist(folder, writers=3, images=4, tests=2):
    """LEAF's folders: two files of train/ and one of test/; pixels are multiples of 1 / 255."""
    for part, count, files in (("train", images, 2), ("test", tests, 1)):
        (folder / part).mkdir(parents=True)
        for number in range(files):
            names = [f"f{one:04}_{one:02}" for one in range(writers) if one % files == number]
            document = {
                "users": names,
                "num_samples": [count] * len(names),
                "user_data": {name: femnist_writer(part, name, count) for name in names},
            }
            (folder / part / f"all_data_{number}_niid_0_keep_0_{part}_9.json").write_text(json.dumps(document))


def femnist_writer(part, name, count):
    """LEAF's entry of one writer."""
    rng = np.random.default_rng([len(part), int(name[1:5])])
    pixels, labels = rng.integers(0, 256, (count, 784)) / 255, rng.integers(0, 62, count)
    return {"x": pixels.tolist(), "y": labels.tolist()}


def write_pictures(folder, classes=("bat", "cat", "dog"), images=4, size=8):
    """A folder of JPEG pictures for each class; those of class k are about 60 * k + 40 bright."""
    for label, name in enumerate(classes):
        for number in range(images):
            write_jpeg(folder / name / f"{number}.jpg", label, size)


def write_masks(folder, images=9, size=8):
    """Pictures with masks: picture k has class k % 3 in its upper half, and class 0 below."""
    import tensorflow as tf

    for number in range(images):
        write_jpeg(folder / "images" / f"{number}.jpg", number % 3, size)
        (folder / "masks").mkdir(exist_ok=True)
        mask = np.zeros((size, size, 1), np.uint8)
        mask[: size // 2] = number % 3
        (folder / "masks" / f"{number}.png").write_bytes(tf.io.encode_png(mask).numpy())


def write_tables(folder, rows=20):
    """The same small table as own.csv and own.parquet: a number, a category, a farm and a kind."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = {
        "height": [row_index + 0.5 for row_index in range(rows)],
        "colour": ["red" if row_index % 3 else "blue" for row_index in range(rows)],
        "farm": [f"f{row_index % 4}" for row_index in range(rows)],
        "kind": ["ox" if row_index % 2 else "cow" for row_index in range(rows)],
    }
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values()))]
    (folder / "own.csv").write_text("\n".join(lines) + "\n", "utf-8")
    pq.write_table(pa.table(table), folder / "own.parquet")


def write_tiny_imagenet(folder, classes=("n01", "n02", "n10"), images=4, tests=2, size=8):
    """The folders of the unpacked archive; a picture of class k is about 60 * k + 40 bright. Test images go round."""
    for label, name in enumerate(classes):
        for number in range(images):
            write_jpeg(folder / "train" / name / "images" / f"{name}_{number}.JPEG", label, size)
        (folder / "train" / name / f"{name}_boxes.txt").write_text("")
    lines = []
    for number in reversed(range(tests * len(classes))):
        label = number % len(classes)
        write_jpeg(folder / "val" / "images" / f"val_{number}.JPEG", label, size)
        lines.append(f"val_{number}.JPEG\t{classes[label]}\t0\t0\t{size - 1}\t{size - 1}")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")


def write_jpeg(path, label, size, channels=3):
    """A picture that shades from left to right."""
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    shade = np.broadcast_to(60 * label + 40 + np.arange(size)[None, :, None], (size, size, channels))
    path.write_bytes(tf.io.encode_jpeg(shade.astype(np.uint8), quality=100).numpy())


def tfds_pixels(split, number, size):
    """The pixels of one example of `write_tfds`."""
    return np.random.default_rng((split == "test", number)).integers(0, 256, size, dtype=np.uint8)


def write_tfds(folder, name, ragged=False):
    """Writes a set of small images as TensorFlow Datasets would; every second one of a ragged set is a row taller."""
    import tensorflow_datasets as tfds

    class Prepared(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            shape = (None, None, 3) if ragged else (6, 5, 3)
            image, note = tfds.features.Image(shape=shape), tfds.features.Text()
            features = {"image": image, "note": note, "label": tfds.features.ClassLabel(names=["cat", "dog", "eel"])}
            features = tfds.features.FeaturesDict(features)
            return tfds.core.DatasetInfo(builder=self, disable_shuffling=True, features=features)

        def _split_generators(self, _):
            return {split: self._generate_examples(split, count) for split, count in TFDS_EXAMPLES.items()}

        def _generate_examples(self, split, count):
            for number in range(count):
                size = (6 + (ragged and number % 2), 5, 3)
                yield number, {"image": tfds_pixels(split, number, size), "label": number % 3, "note": "n"}

    Prepared.name = name
    Prepared(data_dir=str(folder)).download_and_prepare()


def write_arrays(folder, examples=8):
    """A folder of .npy files: grey images of noise with four labels, the same for training and testing."""
    folder.mkdir(parents=True)
    x = np.random.default_rng(0).integers(0, 256, (examples, 6, 6), np.uint8)
    for part in ("train", "test"):
        np.save(folder / f"x_{part}.npy", x)
        np.save(folder / f"y_{part}.npy", np.arange(examples) % 4)


def write_npz(folder, examples=8):
    """A file of grey images of noise with four labels, the same for training and testing."""
    x, y = np.random.default_rng(0).integers(0, 256, (examples, 6, 6), np.uint8), np.arange(examples) % 4
    np.savez(folder / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y, train_owners=y)


def write_texts(folder):
    """Running text under several names, and sentences with a label."""
    (folder / "wikitext-2").mkdir()
    for name in ("own.txt", "wikitext-2/train.txt", "wikitext-2/test.txt"):
        (folder / name).write_text("some words of a small text \ufeff \xe9\n" * 5)
    lines = "".join(f"{word} is {kind},{kind}\n" for kind in ("good", "bad") for word in ("this", "that", "all"))
    (folder / "own_texts.csv").write_text(f"text,label\n{lines}")


def write_series(folder):
    """Four stations of two climates, with nine months each."""
    rows = "".join(f"{month},{station},{month * station},{station % 2}\n" for station in range(4) for month in range(9))
    (folder / "own_series.csv").write_text(f"month,station,rain,climate\n{rows}")


SERIES = {"path": "own_series.csv", "label": "climate", "time": "month", "series": "station", "window": 3}
TABLE = {"label": "kind", "owner": "farm"}
# Each loader of files: the function that writes a small data set into a folder, and the options that read it. A new
# loader has the same as `CASE` in its test file, data/test_NAME.py.
LOADERS = {
    "audio": (lambda folder: write_sounds(folder / "own"), {"path": "own", "rate": 8000, "seconds": 0.1}),
    "csv": (write_tables, {"path": "own.csv", **TABLE}),
    "femnist": (lambda folder: write_femnist(folder / "own"), {"path": "own"}),
    "folder": (lambda folder: write_pictures(folder / "own"), {"path": "own", "size": 8}),
    "labelled_text": (write_texts, {"path": "own_texts.csv"}),
    "masks": (lambda folder: write_masks(folder / "own"), {"path": "own", "size": 8}),
    "npy": (lambda folder: write_arrays(folder / "own"), {"path": "own"}),
    "npz": (write_npz, {"path": "own.npz"}),
    "parquet": (write_tables, {"path": "own.parquet", **TABLE}),
    "series": (write_series, {**SERIES, "test_share": 0.5}),
    "text": (write_texts, {"train": "own.txt", "rows": 3, "test_rows": 1}),
    "tiny_imagenet": (lambda folder: write_tiny_imagenet(folder / "own"), {"path": "own", "size": 8}),
    "wikitext2": (write_texts, {"rows": 3, "test_rows": 1, "verify": False, "download": False}),
}


def loader_case(name):
    """`(write, options)` of a loader of files, or None for one that generates its data."""
    file = Path(__file__).parents[1] / "data" / f"test_{name}.py"
    if name in LOADERS or not file.exists():
        return LOADERS.get(name)
    spec = importlib.util.spec_from_file_location(f"case_of_{name}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, "CASE", None)


def on_disk(folder, dataset):
    """A data set of images as it is, but they stay on disk: as train.npy and test.npy of a folder."""
    splits = {}
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        np.save(folder / f"{name}.npy", split.x)
        splits[name] = dataclasses.replace(split, x=DiskArray.open(folder / f"{name}.npy"))
    return dataclasses.replace(dataset, **splits)


def tone(pitch, rate, count=None):
    """A sine of half the full scale; a quarter of a second without a count."""
    return 0.5 * np.sin(2 * np.pi * pitch * np.arange(count or rate // 4) / rate)


def wav(samples, rate, bits=16, is_extensible=False):
    """The content of a WAV file with samples in -1..1, [n] or [n, channels]."""
    samples = np.atleast_2d(np.transpose(samples)).T
    if bits == 8:
        data = np.rint(samples * 127 + 128).astype(np.uint8).tobytes()
    else:
        whole = np.rint(samples * (2 ** (bits - 1) - 1)).astype("<i4")
        data = whole[..., None].view(np.uint8)[..., : bits // 8].tobytes()
    frame = samples.shape[1] * bits // 8
    layout = struct.pack("<HHIIHH", 1, samples.shape[1], rate, rate * frame, frame, bits)
    if is_extensible:
        layout = struct.pack("<H", 0xFFFE) + layout[2:] + struct.pack("<HHIH", 22, bits, 0, 1) + bytes(14)
    chunks = [(b"fmt ", layout), (b"LIST", b"even"), (b"data", data)]
    body = b"".join(name + struct.pack("<I", len(part)) + part + bytes(len(part) % 2) for name, part in chunks)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def write_sounds(folder, classes=("high", "low"), clips=5, rate=8000):
    """A folder of WAV files for each class: tones of 600 Hz in the first class, 300 in the second, and so on."""
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(clips):
            samples = tone(600 / (label + 1), rate, rate // 4 + 100 * number)
            (folder / name / f"{number}.wav").write_bytes(wav(samples, rate))
