"""WikiText-2, the word-level corpus of Wikipedia articles (Merity et al. 2016, CC BY-SA 3.0)."""

import contextlib
import hashlib
import io
import os
import sys
import urllib.request
import zipfile
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Literal

from hetero_tf.base.console import Console
from hetero_tf.base.constraints import Count
from hetero_tf.base.errors import InputError, UserError
from hetero_tf.base.files import discard, disk_errors, hold_lock, remove, write_atomic
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
# Size and SHA-256 of the archive members; identical to train.txt and test.txt of pytorch/examples.
MEMBERS = {
    "train": (10_797_148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
    "test": (1_256_449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
}
# URLs of the archive: the author's site, a mirror, and its first location; largest size and SHA-256.
ARCHIVE = (
    (
        "https://wikitext.smerity.com/wikitext-2-v1.zip",
        "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/gluon/dataset/wikitext-2/wikitext-2-v1.zip",
        "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
    ),
    2**24,
    "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
)
# URL of the single files, used if no archive can be downloaded.
SINGLE = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/{}.txt"

# Time limit of each step of a download.
SECONDS = 10


class Unreachable(Exception):
    """No address delivered the published bytes.

    Args:
        failures: Pairs `(server, reason)`.
    """

    def __init__(self, failures: Sequence[tuple[str, str]]):
        servers: dict[str, list[str]] = {}
        for server, reason in failures:
            servers.setdefault(reason, []).append(server)
        super().__init__(", ".join(f"{', '.join(names)}: {reason}" for reason, names in servers.items()))
        self.failures = failures


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
    """Loads the corpus as rows of words, and downloads it if it is missing.

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
    files = _find_files(root)
    if files is None:
        _check_single(root, published)
        try:
            if not download:
                raise NotAvailable("downloads are disabled (download: false)")
            files = _download(root, data_dir is None)
        except (Unreachable, UserError) as error:
            raise _not_available(root / FOLDERS[0], str(error).replace(";", ",")) from error
    train, test = (_read_verified(path, published.get(split)) for split, path in zip(MEMBERS, files))
    source = f"WikiText-2 ({files[0].parent})"
    return text_dataset(
        train, test, source, TokenOptions(tokenizer, None, validation=validation), rows=rows, test_rows=test_rows
    )


def _find_files(root):
    """Returns the paths of the training and the test text in one folder; None if no folder has both."""
    for name in FOLDERS:
        paths = [_find_file(root / name, split) for split in MEMBERS]
        if None not in paths:
            return paths
    return None


def _check_single(root, published):
    """Checks a file without its counterpart, so that a wrong text is reported and never replaced."""
    for name in FOLDERS:
        for split in MEMBERS:
            path = _find_file(root / name, split)
            if path is not None:
                _read_verified(path, published.get(split))


def _find_file(folder, split):
    names = [name.format(split) for name in NAMES]
    return next((folder / name for name in names if os.path.exists(folder / name)), None)


def _not_available(folder, reason):
    missing = " and ".join(
        f"{split}.txt or wiki.{split}.tokens" for split in MEMBERS if _find_file(folder, split) is None
    )
    return NotAvailable(
        f"WikiText-2 was not found in {folder} and could not be downloaded: {reason}; put {missing} of the tokenised "
        "(not raw) release there, set --data_dir or HETERO_TF_DATA to another folder, or set a fallback in the recipe: "
        "data: {name: wikitext2, fallback: pydoc}"
    )


def _download(root, is_default):
    """Downloads the corpus into the data folder and returns its paths; only the default cache folder is created."""
    folder = root / FOLDERS[0]
    if not is_default and not os.path.isdir(root):
        raise NotAvailable(f"the folder {root} does not exist")
    with disk_errors(folder, "make"):
        folder.mkdir(parents=is_default, exist_ok=True)
    lock = folder / ".lock"
    try:
        with hold_lock(lock, Console(sys.stderr).say):
            # Another process may have downloaded it in the meantime.
            if _find_files(root) is None:
                for path, content in _fetch_texts(folder).items():
                    write_atomic(path, content)
            remove(lock)
        return _find_files(root)
    except (Unreachable, UserError):
        discard(lock)
        # Remove the folder if it is empty.
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


def fetch(addresses: Sequence[str], size: int, sha256: str) -> bytes:
    """Return the bytes of a published file from the first address that delivers them.

    Args:
        addresses: URLs, tried in order.
        size: Size of the file, or an upper bound.
        sha256: Hex digest of its bytes.

    Raises:
        Unreachable: No address delivered the file.
    """
    failures = []
    for address in addresses:
        try:
            with urllib.request.urlopen(address, timeout=SECONDS) as response:
                content = response.read(size)
            if hashlib.sha256(content).hexdigest() == sha256:
                return content
            reason = "it sent a file that differs from the published one"
        except (OSError, HTTPException, ValueError) as error:
            cause = getattr(error, "reason", error)
            reason = str(getattr(cause, "strerror", None) or cause)
        failures.append((address.split("/")[2], reason))
    raise Unreachable(failures)


def _fetch_texts(folder):
    """Returns `{path: content}` of the two texts, from the archive or as single files."""
    try:
        archive = fetch(*ARCHIVE)
    except Unreachable as error:
        try:
            return {
                folder / f"{split}.txt": fetch([SINGLE.format(split)], *published)
                for split, published in MEMBERS.items()
            }
        except Unreachable as single_error:
            raise Unreachable([*error.failures, *single_error.failures]) from single_error
    return {folder / f"wiki.{split}.tokens": _read_member(archive, split) for split in MEMBERS}


def _read_member(archive, split):
    """Reads one text of the archive; `InputError` unless it is the published one."""
    (size, sha256), name = MEMBERS[split], f"wiki.{split}.tokens"
    with zipfile.ZipFile(io.BytesIO(archive)) as members, members.open(f"wikitext-2/{name}") as member:
        # Limit the read: an archive may unpack to more than its header claims.
        content = member.read(size + 1)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"{ARCHIVE[0][0]}: does not contain the published {name}")
    return content


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
