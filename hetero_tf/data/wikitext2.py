"""WikiText-2, the word-level corpus of Wikipedia articles (Merity et al. 2016, CC BY-SA 3.0)."""

import hashlib
import os
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Literal

from hetero_tf.base.constraints import Count
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import disk_errors, write_atomic
from hetero_tf.data.dataset import Dataset, NotAvailable
from hetero_tf.data.words import TokenOptions, read_words, text_dataset

CACHE = "~/.cache/hetero_tf"
# Number of words with one <eos> per line, and the digest of all words joined by spaces, measured on the files with the
# git blob ids of pytorch/examples. A digest of words does not depend on line ends or compression.
TRAIN = (2_088_628, "44cf9c78d1150937")
TEST = (245_569, "61455d0fbed01253")
# Subfolders of the data folder into which archives and other programs write the files.
FOLDERS = ("wikitext-2", "wikitext-2/wikitext-2", "wikitext-2-v1", "wikitext-2-v1/wikitext-2", "WikiText2/wikitext-2")
NAMES = ("{}.txt", "{}.txt.gz", "wiki.{}.tokens", "wiki.{}.tokens.gz")
# Size and SHA-256 of train.txt and test.txt at the source.
MEMBERS = {
    "train": (10_797_148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
    "test": (1_256_449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
}
SOURCE = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/{}.txt"
# Time limit of each step of a download.
SECONDS = 10


def load(
    data_dir: Path | None,
    *,
    rows: Count = 100,
    test_rows: Count = 10,
    tokenizer: Literal["words", "characters"] = "words",
    verify: bool = True,
    download: bool = True,
    validation=None,
) -> Dataset:
    """Load the corpus as rows of words, and download it if it is missing.

    Words are split at white space with one `<eos>` per line. The vocabulary has 33,279 words: `<ukn>`, `<eos>`, then
    the words of the training text in order of first appearance. The validation text is not used.

    Args:
        data_dir: Folder with `wikitext-2/` (or another of `FOLDERS`), which contains train and test as `.txt` or
            `wiki.train.tokens`, optionally with `.gz`; None: `~/.cache/hetero_tf`.
        rows: equal parts of the training text; each is one example to the partition
        test_rows: equal parts of the test text
        tokenizer: words (separated by white space) or characters (`▁` for white space)
        verify: reject files whose words differ from the published corpus
        download: download the corpus if it is missing
        validation: Rows of which no words are learned, see `data.load`.
    """
    root = Path(data_dir or os.path.expanduser(CACHE))
    published = {"train": TRAIN, "test": TEST} if verify else {}
    reason = "" if data_dir is None or root.is_dir() else f"the folder {root} does not exist"
    reason = reason if download else "downloads are disabled (download: false)"
    names = {split: [root / folder / name.format(split) for folder in FOLDERS for name in NAMES] for split in MEMBERS}
    files: dict = {split: next(filter(os.path.exists, paths), None) for split, paths in names.items()}
    # A file that is there is verified before the other one is downloaded.
    words = {split: _read_verified(path, published.get(split)) for split, path in files.items() if path}
    for split in [split for split, path in files.items() if path is None]:
        files[split] = _download(root / FOLDERS[0], split, reason)
        words[split] = _read_verified(files[split], published.get(split))
    source = f"WikiText-2 ({files['train'].parent})"
    options = TokenOptions(tokenizer, None, validation=validation)
    return text_dataset(words["train"], words["test"], source, options, rows=rows, test_rows=test_rows)


def _download(folder, split, reason):
    """Download a text into a folder and return its path; `NotAvailable` if there is a reason not to, or it fails."""
    try:
        if reason:
            raise ValueError(reason)
        size, sha256 = MEMBERS[split]
        with urllib.request.urlopen(SOURCE.format(split), timeout=SECONDS) as response:
            content = response.read(size + 1)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(f"{SOURCE.split('/')[2]} sent a file that differs from the published one")
    except (OSError, HTTPException, ValueError) as error:
        cause = str(getattr(error, "reason", error)).replace(";", ",")
        raise NotAvailable(
            f"WikiText-2 was not found in {folder} and could not be downloaded: {cause}; put {split}.txt or "
            f"wiki.{split}.tokens of the tokenised (not raw) release there, set --data_dir or HETERO_TF_DATA to "
            "another folder, or set a fallback in the recipe: data: {name: wikitext2, fallback: pydoc}"
        ) from error
    with disk_errors(folder, "make"):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / f"{split}.txt", content)
    return folder / f"{split}.txt"


def _read_verified(path, published):
    words = read_words(path)
    if published is None:
        return words
    count, digest = published
    received = hashlib.sha256(" ".join(words).encode()).hexdigest()[: len(digest)]
    if (len(words), received) != published:
        raise InputError(
            f"{path}: differs from the published text: expected {count} words with sha256 {digest}... "
            f"Received: {len(words)} words with sha256 {received}...; download the tokenised (not raw) release "
            "again, or use `data: text` for another text"
        )
    return words
