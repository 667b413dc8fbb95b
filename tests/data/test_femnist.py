"""FEMNIST from LEAF's files: pixels, labels and writers; what is damaged or missing is one sentence."""

import json

import folders
import numpy as np
import pytest

from hetero_tf.base.errors import InputError
from hetero_tf.data import decoded, femnist
from hetero_tf.data.dataset import NotAvailable


@pytest.fixture
def folder(tmp_path):
    folders.write_femnist(tmp_path / "femnist")
    return tmp_path


def changed(folder, change, part="train", number=0):
    """Reads one file, lets `change` alter the document, writes it back."""
    file = sorted((folder / "femnist" / part).iterdir())[number]
    document = json.loads(file.read_text())
    document = change(document) or document
    file.write_text(json.dumps(document))
    return file


def writer(**values):
    """A change of what the first writer of a file holds."""

    def change(document):
        document["user_data"][document["users"][0]].update(values)

    return change


def test_images_come_with_labels_and_writers_in_the_order_of_their_names(folder):
    dataset = femnist.load(folder)
    assert dataset.classes == 62 and dataset.class_names[9:12] == ("9", "A", "B") and dataset.class_names[36] == "a"
    assert dataset.source == f"FEMNIST, 3 writers ({folder}/femnist)" and dataset.name == "FEMNIST, 3 writers"
    for part, split, count in (("train", dataset.train, 4), ("test", dataset.test, 2)):
        assert split.x.shape == (3 * count, 28, 28, 1) and split.x.dtype == np.uint8
        assert split.owners.dtype == np.int32 and split.owners.tolist() == np.repeat([0, 1, 2], count).tolist()
        for number in range(3):
            expected = folders.femnist_writer(part, f"f{number:04}_{number:02}", count)
            is_owner = split.owners == number
            np.testing.assert_array_equal(split.x[is_owner].reshape(count, -1) / 255, expected["x"])
            assert split.y[is_owner].tolist() == expected["y"]


def test_json_is_read_once(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(decoded, "FOLDER", tmp_path / "cache")
    monkeypatch.setattr(decoded, "SMALLEST", 1)
    first = femnist.load(folder)
    with monkeypatch.context() as context:
        context.setattr(femnist, "_parse_json", None)
        assert femnist.load(folder).sha256 == first.sha256
    changed(folder, writer(y=[7, 7, 7, 7]))
    assert (femnist.load(folder).train.y == 7).sum() >= 4


def test_writer_without_test_images_keeps_the_numbers_of_the_others(folder):
    def drop(document):
        document["user_data"].pop(document["users"].pop(1))

    changed(folder, drop, "test")
    assert femnist.load(folder).test.owners.tolist() == [0, 0, 2, 2]


def test_writer_only_in_the_test_split_is_rejected(folder):
    def rename(document):
        name = document["users"][0]
        document["users"][0] = "stranger"
        document["user_data"]["stranger"] = document["user_data"].pop(name)

    changed(folder, rename, "test")
    with pytest.raises(
        InputError,
        match=r"every writer in test/ must also be in train/; let LEAF split by sample "
        r"\(-t sample\). Received: 'stranger' in test/ only",
    ):
        femnist.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: [1], r"expected LEAF's keys users and user_data. Received: list"),
        (lambda document: {"users": []}, r"expected LEAF's keys users and user_data. Received: \['users'\]"),
        (lambda document: document["users"].append("more"), "users must equal the keys of user_data. Received: "),
        (
            lambda document: document | {"users": [1, 2]},
            r"users must equal .* Received: users \[1, 2\], user_data {'f0000",
        ),
        (writer(x=[[0.5] * 783] * 4), r"x must have 784 numbers for each image. Received: \(4, 783\)"),
        (writer(x=[[0.5] * 784, [0.5]]), "x must have 784 numbers for each image. Received: None"),
        (writer(x="much"), "writer 'f0000_00': x must have 784 numbers for each image. Received: None"),
        (writer(x=[[1.5] * 784] * 4), r"pixels must be in 0..1. Received: 1.5 to 1.5"),
        (writer(x=[[float("nan")] * 784] * 4), r"pixels must be in 0..1. Received: nan to nan"),
        (writer(y=[1, 2, 3]), r"y must have one integer for each of 4 images. Received: int64 \(3,\)"),
        (writer(y=[1, 2, 3, 0.5]), r"y must have one integer .* Received: float64 \(4,\)"),
        (writer(y=[1, 2, 3, [4]]), "y must have one integer .* Received: None"),
        (writer(y=[1, 2, 3, 62]), r"labels must be in 0..61. Received: 1 to 62"),
    ],
)
def test_other_json_than_leaf_is_rejected(folder, change, message):
    file = changed(folder, change)
    with pytest.raises(InputError, match=message) as refusal:
        femnist.load(folder)
    assert str(refusal.value).startswith(str(file)) and "\n" not in str(refusal.value)


def test_damaged_and_doubled_files_are_rejected(folder):
    first, second = sorted((folder / "femnist" / "train").iterdir())
    whole = first.read_text()
    for broken in (whole[:1000], "", "\ud800".encode("utf-8", "surrogatepass")):
        first.write_bytes(broken if isinstance(broken, bytes) else broken.encode())
        with pytest.raises(InputError, match="cannot be parsed as JSON; it is damaged or has another format: "):
            femnist.load(folder)
    first.write_text(whole)
    second.write_text(whole)
    with pytest.raises(InputError, match=f"{second}: writer 'f0000_00' appears in two files"):
        femnist.load(folder)


def test_empty_or_missing_folder_explains_the_expected_files(folder, tmp_path):
    for file in (folder / "femnist" / "test").iterdir():
        file.unlink()
    with pytest.raises(InputError, match="femnist/test: expected LEAF's .json files. Received: none"):
        femnist.load(folder)
    with pytest.raises(
        NotAvailable,
        match="searched: .*/nowhere; create its train/ and test/ with LEAF's scripts: "
        "github.com/TalwalkarLab/leaf, data/femnist, preprocess.sh",
    ):
        femnist.load(tmp_path, path="nowhere")
