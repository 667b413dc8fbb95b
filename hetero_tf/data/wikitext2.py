"""WikiText-2, the word-level corpus of Wikipedia articles (Merity et al. 2016, CC BY-SA 3.0)."""

import hashlib
import os
from pathlib import Path

from hetero_tf.base.constraints import Count
from hetero_tf.base.errors import BadInput
from hetero_tf.data.dataset import Dataset, NotAvailable
from hetero_tf.data.words import read_words, text_dataset

CACHE = "~/.cache/hetero_tf"
# Words with one <eos> per line, and the digest of all words joined by blanks; measured on the files whose git
# blob ids are those of pytorch/examples. Of the words, not the bytes: line ends and packing do not matter.
TRAIN = (2_088_628, "44cf9c78d1150937")
TEST = (245_569, "61455d0fbed01253")


def load(data_dir: Path | None, *, rows: Count = 100, test_rows: Count = 10, verify: bool = True) -> Dataset:
    """Loads the corpus as rows of words.

    Words are split at white space with one `<eos>` per line; the vocabulary is `<ukn>`, `<eos>`, then the
    words of the training text in order of first appearance: 33,279. The validation text is not used.

    Args:
        data_dir: Folder with `wikitext-2/`, which holds train and test as `.txt`, `.txt.gz` or
            `wiki.train.tokens`; None: `~/.cache/hetero_tf`.
        rows: equal parts of the training text; each is one example to the partition
        test_rows: equal parts of the test text
        verify: refuse files whose words are not exactly the published ones

    Raises:
        NotAvailable: A file is missing.
        BadInput: A file is damaged, or it is another text.
    """
    folder = Path(data_dir or os.path.expanduser(CACHE)) / "wikitext-2"
    train = _read(folder, "train", TRAIN if verify else None)
    test = _read(folder, "test", TEST if verify else None)
    return text_dataset(train, test, f"WikiText-2 ({folder})", rows=rows, test_rows=test_rows)


def _read(folder, split, published):
    names = (f"{split}.txt", f"{split}.txt.gz", f"wiki.{split}.tokens")
    for name in names:
        if os.path.exists(folder / name):
            words = read_words(folder / name)
            _verify(folder / name, words, published)
            return words
    raise NotAvailable(
        f"WikiText-2 was not found in {folder}; put {' or '.join(names)} of the tokenised (not raw) "
        "release there, name another folder by --data_dir or HETERO_TF_DATA, or let the recipe name "
        "a stand-in: data: {name: wikitext2, fallback: pydoc}"
    )


def _verify(path, words, published):
    if published is None:
        return
    count, digest = published
    received = hashlib.sha256(" ".join(words).encode()).hexdigest()[: len(digest)]
    if (len(words), received) != published:
        raise BadInput(
            f"{path}: not the published text: expected {count} words with sha256 {digest}... "
            f"Received: {len(words)} words with sha256 {received}...; fetch the tokenised (not raw) release "
            "again, or use `name: text` for a text of your own"
        )
