"""The TFDS loader on a tiny prepared set: order, damage, and what is said where a set is not there."""

import functools
import os
import re
import shutil

import folders
import numpy as np
import pytest
from refusals import check_refusals, raising, refusal

from hetero_tf.base.errors import InputError, MemoryProblem
from hetero_tf.data import decoded
from hetero_tf.data import tfds as loader
from hetero_tf.data.dataset import NotAvailable

TRAIN, TEST = folders.TFDS_EXAMPLES["train"], folders.TFDS_EXAMPLES["test"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    with loader._suppress_output():
        for name, ragged in (("tiny", False), ("ragged", True)):
            folders.write_tfds(folder / "tfds", name, ragged)
    return folder


@pytest.fixture
def copied(prepared, tmp_path):
    """A copy whose training file may be damaged."""
    shutil.copytree(prepared, tmp_path / "data")
    return tmp_path / "data", next((tmp_path / "data").rglob("tiny-train.tfrecord*"))


def test_prepared_set_comes_in_the_order_of_its_files(prepared, capfd):
    loaded = loader.load(prepared, dataset="tiny")
    assert loaded.train.x.shape == (TRAIN, 6, 5, 3)
    for split, part in (("train", loaded.train), ("test", loaded.test)):
        np.testing.assert_array_equal(
            part.x, [folders.tfds_pixels(split, number, (6, 5, 3)) for number in range(len(part.x))]
        )
        assert part.y.tolist() == [number % 3 for number in range(len(part.x))]
    assert loaded.class_names == ("cat", "dog", "eel")
    assert loaded.source == f"tiny/1.0.0 ({prepared}/tfds/tiny/1.0.0)"
    assert capfd.readouterr().out == ""


def test_cached_set_is_equal(copied, tmp_path, monkeypatch):
    folder, _ = copied
    monkeypatch.setattr(decoded, "FOLDER", tmp_path / "cache")
    monkeypatch.setattr(decoded, "SMALLEST", TRAIN)
    first = loader.load(folder, dataset="tiny")
    assert [path.name[:11] for path in (tmp_path / "cache").iterdir()] == ["tiny-1.0.0-"]
    with monkeypatch.context() as context:
        context.setattr(loader, "_read_examples", None)
        second = loader.load(folder, dataset="tiny")
    assert (first.sha256, first.source, first.class_names) == (second.sha256, second.source, second.class_names)
    # Other options are other arrays.
    assert loader.load(folder, dataset="tiny", train="test", test="train").test.x.shape[0] == TRAIN


def test_images_of_different_sizes_need_a_size(prepared):
    with pytest.raises(InputError, match="ragged/1.0.0 has images of different sizes; set `size` .*: size=None"):
        loader.load(prepared, dataset="ragged")
    loaded = loader.load(prepared, dataset="ragged", size=5)
    assert loaded.train.x.shape == (TRAIN, 5, 5, 3)
    assert loaded.train.y.tolist() == [number % 3 for number in range(TRAIN)]
    wide = loader.load(prepared, dataset="tiny", size=6).train.x
    # Rows stay, columns 5 -> 6: the outer columns lie outside the old centres, so they are repeated.
    np.testing.assert_array_equal(wide[:, :, 0], loader.load(prepared, dataset="tiny").train.x[:, :, 0])


def test_transposed_images_are_swapped(prepared):
    plain, turned = (loader.load(prepared, dataset="tiny", transpose=value) for value in (False, True))
    assert turned.train.x.shape == (TRAIN, 5, 6, 3) and turned.train.x.flags.c_contiguous
    for one, other in ((plain.train, turned.train), (plain.test, turned.test)):
        np.testing.assert_array_equal(other.x, np.swapaxes(one.x, 1, 2))
        np.testing.assert_array_equal(other.y, one.y)


def test_wrong_names_list_the_right_ones(prepared):
    check_refusals(
        functools.partial(loader.load, prepared, dataset="tiny"),
        ({"image": "picture"}, "must be features of tiny/1.0.0: image, label, note. Received: image='picture'"),
        ({"label": "note"}, "`label` one of class labels. Received: .*label='note', Text"),
        ({"image": "label"}, "`image` must be a feature of uint8 images with 3 axes.* Received: image='label', Class"),
        ({"test": "validation"}, r"tiny cannot be read in .*/tfds: Unknown split 'validation'. Should be one of \["),
    )


@pytest.mark.long
def test_damage_is_one_sentence(copied):
    folder, file = copied
    whole, about, features = file.read_bytes(), file.with_name("dataset_info.json"), file.with_name("features.json")
    # A record: length (8 bytes), its checksum (4), data, its checksum (4).
    first = 16 + int.from_bytes(whole[:8], "little")
    broken = [*folders.damaged(whole, 12), whole[:first], b"", whole + whole[:first]]
    no_examples = re.sub(r'"shardLengths": \[[^]]*\]', '"shardLengths": ["0"]', about.read_text())
    damages = [*((file, each) for each in broken), (about, no_examples.encode()), (features, b"{")]
    for path, content in damages:
        before = path.read_bytes()
        path.write_bytes(content)
        sentence = refusal(loader.load, folder, dataset="tiny")
        assert f"tiny cannot be read in {folder}/tfds: " in sentence and "\n" not in sentence
        path.write_bytes(before)
    file.unlink()
    assert "No such file or directory" in refusal(loader.load, folder, dataset="tiny")


@pytest.mark.parametrize(
    "name", ["huggingface:x", "a-b:mnist/c:1.0.0", "/etc", "../tiny", "mnist/a=1", "mnist:1.*.*", "mnist\n", "gs://set"]
)
def test_only_plain_names_reach_tensorflow_datasets(monkeypatch, name):
    monkeypatch.setattr(loader, "_open_builder", None)
    assert refusal(loader.load, None, dataset=name).startswith(
        "`dataset` must be a name of TensorFlow Datasets, such as mnist, emnist/balanced or mnist:3.0.1, without"
    )


def test_unknown_sets_and_missing_ones_are_rejected(tmp_path):
    with pytest.raises(
        InputError, match=f"mnistt cannot be read in {tmp_path}/tfds: Dataset mnistt not found; correct the name"
    ):
        loader.load(tmp_path, dataset="mnistt")
    with pytest.raises(InputError, match="emnist/none cannot be read in .*: BuilderConfig none not found"):
        loader.load(tmp_path, dataset="emnist/none")
    message = f"mnist is not prepared in {tmp_path}/tfds/mnist/3.*: downloads are disabled .* fallback: digits"
    with pytest.raises(NotAvailable, match=message):
        loader.load(tmp_path, dataset="mnist", download=False)


def test_unreachable_server_is_detected_at_once_and_a_failed_download_gives_its_reason(tmp_path, monkeypatch):
    urls = []

    def unreachable(request, timeout):
        urls.append(request.full_url)
        assert request.get_method() == "HEAD"
        raise loader.urllib.error.URLError("no route")

    monkeypatch.setattr(loader.urllib.request, "urlopen", unreachable)
    with pytest.raises(NotAvailable, match=r"could not be downloaded: \S+ does not respond \(no route\); put"):
        loader.load(tmp_path, dataset="mnist")
    # TensorFlow Datasets is never called; it would retry for three minutes.
    assert len(urls) == 1 and not (tmp_path / "tfds").exists()
    monkeypatch.setattr(loader, "_check_reachable", lambda builder: None)
    reset = raising(ConnectionError("connection reset\nsecond line"))
    monkeypatch.setattr("tensorflow_datasets.core.DatasetBuilder.download_and_prepare", reset)
    with pytest.raises(NotAvailable, match="could not be downloaded: connection reset; put"):
        loader.load(tmp_path, dataset="mnist")


def test_set_larger_than_memory_is_rejected(prepared, monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 60)
    with pytest.raises(MemoryProblem, match="tiny/1.0.0, split train: needs 0.0 GiB"):
        loader.load(prepared, dataset="tiny")
