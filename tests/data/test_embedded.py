"""The embedded sets, pinned by digest, and the generated ones: they must be learnable, not only well formed."""

import gzip
import hashlib

import numpy as np
from refusals import refusal

from hetero_tf.data import digits, pydoc, synthetic


def nearest_mean(dataset):
    """Test accuracy of the simplest classifier there is."""
    train, test = (split.x.reshape(len(split.x), -1).astype(float) for split in (dataset.train, dataset.test))
    means = np.stack([train[dataset.train.y == label].mean(0) for label in range(dataset.classes)])
    nearest = ((test[:, None] - means) ** 2).sum(-1).argmin(1)
    return (nearest == dataset.test.y).mean()


def test_digits_are_those_of_uci():
    dataset = digits.load(None)
    assert dataset.train.x.shape == (1500, 8, 8, 1)
    assert dataset.test.x.shape == (297, 8, 8, 1)
    # load_digits().target of scikit-learn 1.9.1, counted before and after example 1500.
    assert np.bincount(dataset.train.y).tolist() == [151, 151, 150, 153, 148, 152, 151, 149, 146, 149]
    assert np.bincount(dataset.test.y).tolist() == [27, 31, 27, 30, 33, 30, 30, 30, 28, 31]
    assert dataset.train.y[:10].tolist() == list(range(10))
    assert dataset.train.x[0, 0, :, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]  # 0 0 5 13 9 1 0 0 of 16
    assert nearest_mean(dataset) > 0.8


def test_digits_grow_by_repeated_pixels_on_black():
    small, large = digits.load(None), digits.load(None, size=28, channels=3)
    assert large.train.x.shape == (1500, 28, 28, 3)
    np.testing.assert_array_equal(large.train.x[:, 3:26:3, 3:26:3, 2], small.train.x[..., 0])
    np.testing.assert_array_equal(
        large.train.x[:, 2:26, 2:26], large.train.x[:, 2:26, 2:26].max(-1, keepdims=True).repeat(3, -1)
    )
    assert int(large.train.x.sum()) == 27 * int(small.train.x.sum())
    np.testing.assert_array_equal(digits.load(None, size=32).test.x[:, ::4, 3::4], small.test.x)
    assert digits.load(None, size=9).test.x[:, 8:].max() == 0
    for options in ({"size": 7}, {"channels": 2}):
        message = refusal(digits.load, None, **options)
        assert message.startswith("`size` must be in 8..256, and `channels` 1 or 3. Received: ")


def test_pydoc_is_the_pinned_text_with_its_licence():
    # CPython 3.11.7 pydoc_data.topics, made as embedded/LICENCES.md says; another version would be another set.
    unpacked = gzip.decompress(pydoc.FILE.read_bytes())
    assert hashlib.sha256(unpacked).hexdigest() == "683b7fb52c66aba7ba5e1de294f79b5d98fc0855ea48e11834bd324cda09fd69"
    dataset = pydoc.load(None)
    assert (dataset.train.x.shape, dataset.test.x.shape) == ((100, 1068), (10, 1187))
    assert dataset.classes == len(dataset.codec.vocabulary) == 2000
    assert dataset.codec.vocabulary[:6] == ("<ukn>", "<eos>", "The", '"', "assert", "statement")
    assert max((dataset.train.x == 0).mean(), (dataset.test.x == 0).mean()) < 0.03
    licences = (pydoc.FILE.parent / "LICENCES.md").read_text(encoding="utf-8")
    assert "CC BY 4.0" in licences and "PSF-2.0" in licences


def test_synthetic_images_can_be_learnt_depend_on_the_seed_only_and_have_cyclic_owners_on_request():
    dataset = synthetic.load(None)
    assert np.bincount(dataset.train.y).tolist() == [20] * 10
    assert nearest_mean(dataset) > 0.95
    assert dataset.sha256 == synthetic.load(None).sha256 != synthetic.load(None, seed=1).sha256
    other = synthetic.load(None, examples=30, test_examples=7, size=5, channels=3, classes=4)
    assert other.test.x.shape == (7, 5, 5, 3)
    dataset, plain = synthetic.load(None, examples=30, test_examples=7, owners=4), synthetic.load(None, examples=30)
    assert dataset.train.owners.tolist() == [number % 4 for number in range(30)]
    assert dataset.test.owners.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert plain.train.owners is None and (plain.train.x == dataset.train.x).all()
    for name in ("classes", "owners"):
        assert f"{name}=201" in refusal(synthetic.load, None, **{name: 201})


def test_synthetic_text_can_be_learnt_from_the_word_before():
    dataset = synthetic.load(None, kind="text", length=500)
    assert dataset.train.x.shape == (10, 500)
    assert dataset.codec.vocabulary[:3] == ("<ukn>", "<eos>", "word2")
    pairs = np.zeros((50, 50))
    np.add.at(pairs, (dataset.train.x[:, :-1], dataset.train.x[:, 1:]), 1)
    guessed = pairs.argmax(1)[dataset.test.x[:, :-1]] == dataset.test.x[:, 1:]
    # Two successors share 80 %: the better guess is right in 0.4 to 0.8; chance is 1 / 49.
    assert 0.35 < guessed.mean() < 0.8
    assert len(np.unique(dataset.train.x)) > 40
