"""A starter recipe of each kind of data is valid, says why, and trains unchanged."""

import functools

import folders
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from refusals import check_refusals

from hetero_tf import recipe, starter
from hetero_tf.base.errors import InputError
from hetero_tf.run.learning_process import learning_process

RNG = np.random.default_rng(7)
WORDS = {"sport": "goal team match player win", "food": "bread soup rice salt plate"}


def rows(count=160):
    """A table whose class and amount follow from two numbers."""
    (a, b), n = RNG.normal(size=(2, count)), np.arange(count)
    columns = {"user": [f"u{i % 8}" for i in n], "name": [f"N {i} x" for i in n], "a": a, "b": b}
    columns |= {"zip": [f"0{i % 5}" for i in n], "amount": 3 * a - b, "kind": np.where(a + b > 0, "high", "low")}
    return pd.DataFrame(columns)


def sentences(count=120):
    topics = list(WORDS) * (count // 2)
    return pd.DataFrame({"text": [" ".join(RNG.choice(WORDS[each].split(), 7)) for each in topics], "topic": topics})


def pictures(count=80, size=8):
    """Pictures uint8 [n, size, size, 3] with a bright half, and its side."""
    y = np.arange(count) % 2
    x = RNG.integers(0, 60, (count, size, size, 3), np.uint8)
    for one, side in zip(x, y):
        one[:, : size // 2] += np.uint8(150 * side)
    return x, y


def draft(path, **options):
    request = {"data_dir": None, "task": None, "label": ()}
    made = starter.draft_recipe(starter.Request(str(path), **{**request, **options}))
    text = starter.render(made, ("train it",))
    starter.check(text, "mine.yaml", made)
    return made, text


@pytest.fixture
def improves(eager):
    """Whether a short round of the unchanged model of a text lowers the loss; eager, as each has another graph."""
    return _improves


def _improves(text):
    loaded = recipe.loads(text, "mine.yaml", ["levels.mix=a", "rounds=1", "round.clients=1", "client.epochs=1"])
    process = learning_process(loaded)
    state = process.initialize()
    before = process.evaluate(state)[0]["global_loss"]
    state, _ = process.next(state)
    return process.evaluate(state)[0]["global_loss"] < before


def test_a_table(tmp_path):
    rows().to_csv(tmp_path / "t.csv", index=False)
    made, text = draft(tmp_path / "t.csv")
    assert {
        "  label: kind   # check: the last column that can be a label; other columns with --label, such as amount, zip, b",
        "  owner: user",
        "  ignore: [name]   # check: name: names or free text, 160 distinct in 160 rows",
        "  columns: {zip: category}   # check: zip: numbers with leading zeros such as '00'",
        "task: classification   # 2 distinct texts in 160 rows",
        "partition: {name: natural, clients: 8}   # each owner is a client",
    } <= set(text.splitlines())
    assert made.dataset.train.x.shape[1] == 2 + 5 + 1 and _improves(text)


@pytest.mark.long
def test_a_regression_and_tasks_of_labels_on_request(tmp_path, improves):
    rows().to_csv(tmp_path / "t.csv", index=False)
    made, text = draft(tmp_path / "t.csv", label=("amount",))
    assert "task: regression   # 160 distinct numbers in 160 rows" in text.splitlines()
    assert "of always predicting the mean of the training examples" in text and improves(text)
    assert improves(draft(tmp_path / "t.csv", task="binary")[1])
    table = rows()
    table.assign(kind=table["kind"].mask(abs(table["a"]) < 0.5, "medium")).to_csv(tmp_path / "t.csv", index=False)
    _, text = draft(tmp_path / "t.csv", task="ordinal")
    order = "  class_order: [high, low, medium]   # check: list the classes from the lowest to the highest"
    assert order in text.splitlines() and improves(text)
    with pytest.raises(InputError, match="has 3 classes, and the task binary needs 2. Received: --task=binary"):
        draft(tmp_path / "t.csv", task="binary")


def test_requests_that_do_not_fit_are_rejected(tmp_path):
    rows().to_csv(tmp_path / "t.csv", index=False)
    check_refusals(
        functools.partial(draft, tmp_path / "t.csv"),
        ({"task": "segmentation"}, "--task: .* can train classification or binary or ordinal or regression or mul"),
        ({"label": ("amont",)}, "t.csv: `--label` must name a column. Received: --label='amont'; did you mean 'am"),
        ({"task": "multi_label"}, "no column can be the label of multi_label; .* Columns: user, name, a, b, zip"),
        ({"task": "classification", "label": ("a", "b")}, "the task classification needs one column. Received: a, b"),
    )
    assert draft(tmp_path / "t.csv", label=("a", "amount"))[0].data.task.reason == "2 columns of numbers"


def test_pictures_in_folders(tmp_path, improves):
    for index, (picture, side) in enumerate(zip(*pictures())):
        folder = tmp_path / "pictures" / ("dark", "bright")[side]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{index}.png").write_bytes(tf.io.encode_png(picture).numpy())
    (tmp_path / "pictures/dark").rename(tmp_path / "elsewhere")
    (tmp_path / "pictures/dark").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "pictures/bright").rename(tmp_path / "bright")
    (tmp_path / "pictures/bright").symlink_to(tmp_path / "bright")
    made, text = draft(tmp_path / "pictures")
    assert "  size: 8   # the size of all sampled pictures" in text and "channels: 3   # color" in text
    x = made.dataset.train.x / 255
    assert made.keys["input"].value["mean"] == [round(float(each), 4) for each in x.mean((0, 1, 2))]
    assert "    - [PaddedConv2D: {filters: !w 32}, Scaler, Norm, ReLU, MaxPooling2D]" in text and improves(text)


@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "y"), [("classification", "sides"), ("regression", "means"), ("segmentation", "maps")]
)
def test_arrays(tmp_path, task, y, improves):
    x, sides = pictures()
    targets = {"sides": sides, "means": x.mean((1, 2, 3)), "maps": (x[..., 0] > 100).astype(np.int64)}[y]
    np.savez(tmp_path / "p.npz", x_train=x[:60], y_train=targets[:60], x_test=x[60:], y_test=targets[60:])
    made, text = draft(tmp_path / "p.npz")
    assert made.data.task.value == task and improves(text)
    if task == "classification":
        for name, array in np.load(tmp_path / "p.npz").items():
            np.save(tmp_path / f"{name}.npy", array)
        assert draft(tmp_path)[0].data.options["name"].value == "npy"


def test_sounds_in_folders(tmp_path, improves):
    folders.write_sounds(tmp_path / "sounds", clips=20)
    made, text = draft(tmp_path / "sounds")
    assert "  rate: 8000   # the rate of the files" in text
    assert made.data.options["seconds"].value == 0.5 and made.data.options["seconds"].comment == (
        "check: files have 0.25 to 0.487 s, 0.369 in the median; longer ones are cut off, zeros follow shorter ones"
    )
    assert made.keys["input"].reason == "mean and deviation of the training spectrograms" and improves(text)
    (tmp_path / "sounds" / "low" / "0.wav").write_bytes(folders.wav(folders.tone(300, 44_100), 44_100))
    options = draft(tmp_path / "sounds")[0].data.options
    assert options["rate"].comment == "check: the rate of most files; others are converted"


def test_labelled_texts(tmp_path, improves):
    sentences().to_csv(tmp_path / "t.csv", index=False)
    text = draft(tmp_path / "t.csv")[1]
    assert "  name: labelled_text" in text and "  label: topic   # the column named topic" in text
    assert "  length: 8   # 0% of the texts are longer and cut" in text and improves(text)


@pytest.mark.long
def test_running_text(tmp_path, improves):
    (tmp_path / "t.txt").write_text("the cat sat on the mat and then it ran\n" * 3500)
    made, text = draft(tmp_path / "t.txt")
    assert made.data.options["rows"].value == 76 and "tokenizer: words   # the text has spaces between words" in text
    assert "input: {name: next_word, segment: 64}" in text and improves(text)


def test_a_table_of_times_is_a_series(tmp_path, improves):
    dates = np.arange("2020-01-01", "2020-09-01", dtype="datetime64[D]")
    sales = np.sin(np.arange(len(dates)) / 3).round(4)
    pd.DataFrame({"day": dates, "sales": sales}).to_csv(tmp_path / "t.csv", index=False)
    made, text = draft(tmp_path / "t.csv")
    assert "  time: day" in text.splitlines() and "LSTM" in text and improves(text)
    x = RNG.normal(size=(60, 12, 2))
    np.savez(tmp_path / "s.npz", x_train=x, y_train=np.arange(60) % 2, x_test=x, y_test=np.arange(60) % 2)
    made, text = draft(tmp_path / "s.npz")
    assert made.data.options["kind"].value == "series" and "GlobalAveragePooling1D" in text


def test_pictures_with_masks(tmp_path, improves):
    x, sides = pictures(20)
    for name, arrays in {"images": x, "masks": np.where(x > 100, 255, 0).astype(np.uint8)[..., :1]}.items():
        (tmp_path / "p" / name).mkdir(parents=True)
        for index, array in enumerate(arrays):
            (tmp_path / "p" / name / f"{index}.png").write_bytes(tf.io.encode_png(array).numpy())
    made, text = draft(tmp_path / "p")
    assert "  values: [0, 255]   # check: values of the masks of 200 pictures, one for each class" in text.splitlines()
    assert made.data.task.value == "segmentation" and "- UNet: {filters: !w 16" in text and improves(text)
