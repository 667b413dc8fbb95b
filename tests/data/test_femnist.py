"""FEMNIST from LEAF's files: pixels, labels and writers; what is damaged or missing is one sentence."""

import json

import folders
import numpy as np
import pytest
from refusals import refusal

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
        context.setattr(femnist, "_read_files", None)
        assert femnist.load(folder).sha256 == first.sha256
    changed(folder, writer(y=[7, 7, 7, 7]))
    assert (femnist.load(folder).train.y == 7).sum() >= 4


def test_a_writer_may_have_no_test_images_but_not_only_these(folder):
    def drop(document):
        document["user_data"].pop(document["users"].pop(1))

    changed(folder, drop, "test")
    assert femnist.load(folder).test.owners.tolist() == [0, 0, 2, 2]

    def rename(document):
        document["user_data"]["stranger"] = document["user_data"].pop(document["users"][0])

    changed(folder, rename, "test")
    assert "'stranger' is a writer of test/ only; let LEAF split by sample" in refusal(femnist.load, folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: [1], "TypeError"),
        (lambda document: {"users": []}, "KeyError('user_data')"),
        (writer(x=[[0.5] * 783] * 4), "ValueError"),
    ],
)
def test_other_json_than_leaf_is_rejected(folder, change, message):
    changed(folder, change)
    assert f"is damaged, or not one of LEAF's JSON files: {message}" in refusal(femnist.load, folder)


def test_empty_or_missing_folder_explains_the_expected_files(folder, tmp_path):
    for file in (folder / "femnist" / "test").iterdir():
        file.unlink()
    assert "femnist/test: expected LEAF's .json files. Received: none" in refusal(femnist.load, folder)
    with pytest.raises(NotAvailable, match="searched: .*/nowhere; create its train/ and test/ with LEAF's scripts: "):
        femnist.load(tmp_path, path="nowhere")
