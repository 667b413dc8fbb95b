"""WikiText-2, the word-level corpus of Wikipedia articles (Merity et al. 2016, CC BY-SA 3.0)."""

import contextlib
import hashlib
import os
import zipfile
from pathlib import Path

from hetero_tf.base.constraints import Count
from hetero_tf.base.errors import InputError, UserError
from hetero_tf.base.files import disk, opened, remove, write_atomic
from hetero_tf.data.dataset import Dataset, NotAvailable
from hetero_tf.data.fetch import Published, Unreachable, fetch
from hetero_tf.data.words import read_words, text_dataset

CACHE = "~/.cache/hetero_tf"
# Words with one <eos> per line, and the digest of all words joined by blanks; measured on the files whose git
# blob ids are those of pytorch/examples. Of the words, not the bytes: line ends and packing do not matter.
TRAIN = (2_088_628, "44cf9c78d1150937")
TEST = (245_569, "61455d0fbed01253")
# Folders within the data folder in which archives, and other programs, leave the files.
FOLDERS = ("wikitext-2", "wikitext-2/wikitext-2", "wikitext-2-v1", "wikitext-2-v1/wikitext-2", "WikiText2/wikitext-2")
NAMES = ("{}.txt", "{}.txt.gz", "wiki.{}.tokens", "wiki.{}.tokens.gz")
# Bytes and SHA-256 of what the archive holds; the same as pytorch/examples' train.txt and test.txt.
MEMBERS = {
    "train": (10_797_148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
    "test": (1_256_449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
}
# The archive at the author's address, at a mirror, and where it was published first.
ARCHIVE = Published(
    "wikitext-2-v1.zip",
    (
        "https://wikitext.smerity.com/wikitext-2-v1.zip",
        "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/gluon/dataset/wikitext-2/wikitext-2-v1.zip",
        "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
    ),
    "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
    2**24,
)
# Where the files lie one by one; asked if no archive can be had.
SINGLE = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/{}.txt"


def load(
    data_dir: Path | None, *, rows: Count = 100, test_rows: Count = 10, verify: bool = True, download: bool = True
) -> Dataset:
    """Loads the corpus as rows of words, and fetches it if it is not there.

    Words are split at white space with one `<eos>` per line; the vocabulary is `<ukn>`, `<eos>`, then the
    words of the training text in order of first appearance: 33,279. The validation text is not used.

    Args:
        data_dir: Folder with `wikitext-2/` (or another of `FOLDERS`), which holds train and test as `.txt` or
            `wiki.train.tokens`, `.gz` or not; None: `~/.cache/hetero_tf`.
        rows: equal parts of the training text; each is one example to the partition
        test_rows: equal parts of the test text
        verify: refuse files whose words are not exactly the published ones
        download: fetch the corpus if it is not there

    Raises:
        NotAvailable: A file is missing and cannot be fetched.
        InputError: A file is damaged, or it is another text.
    """
    root = Path(data_dir or os.path.expanduser(CACHE))
    published = {"train": TRAIN, "test": TEST} if verify else {}
    files = _found(root)
    if files is None:
        _check_single(root, published)
        files = _fetched(root, data_dir is None, download)
    train, test = (_read(path, published.get(split)) for split, path in zip(MEMBERS, files))
    return text_dataset(train, test, f"WikiText-2 ({files[0].parent})", rows=rows, test_rows=test_rows)


def _found(root):
    """Paths of the training and the test text that lie in one folder; None if there are none."""
    for name in FOLDERS:
        paths = [_named(root / name, split) for split in MEMBERS]
        if None not in paths:
            return paths
    return None


def _check_single(root, published):
    """Refuses another text that lies there alone: what is wrong is never replaced."""
    for name in FOLDERS:
        for split in MEMBERS:
            path = _named(root / name, split)
            if path is not None:
                _read(path, published.get(split))


def _named(folder, split):
    names = [name.format(split) for name in NAMES]
    return next((folder / name for name in names if os.path.exists(folder / name)), None)


def _fetched(root, own, download):
    """Fetches the corpus into the data folder, which is made only if it is the program's `own`."""
    folder, reason = root / FOLDERS[0], "fetching is switched off (download: false)"
    if download:
        try:
            if not own and not os.path.isdir(root):
                raise NotAvailable(f"there is no folder {root}")
            with disk(folder, "make"):
                folder.mkdir(parents=own, exist_ok=True)
            return _unpacked(folder)
        except (Unreachable, UserError) as error:
            reason = str(error).replace(";", ",")
        # Nothing came, so nothing stays.
        with contextlib.suppress(OSError):
            folder.rmdir()
    missing = " and ".join(f"{split}.txt or wiki.{split}.tokens" for split in MEMBERS if _named(folder, split) is None)
    raise NotAvailable(
        f"WikiText-2 was not found in {folder} and could not be fetched: {reason}; put {missing} of the tokenised (not "
        "raw) release there, name another folder by --data_dir or HETERO_TF_DATA, or let the recipe name a stand-in: "
        "data: {name: wikitext2, fallback: pydoc}"
    )


def _unpacked(folder):
    """Paths of the two texts, out of the archive or one by one."""
    try:
        archive = fetch(ARCHIVE, folder)
    except Unreachable as error:
        try:
            return [
                fetch(Published(f"{split}.txt", (SINGLE.format(split),), sha256, size), folder)
                for split, (size, sha256) in MEMBERS.items()
            ]
        except Unreachable as other:
            both = {reason: error.reasons.get(reason, []) for reason in {**error.reasons, **other.reasons}}
            raise Unreachable({reason: [*both[reason], *other.reasons.get(reason, [])] for reason in both}) from other
    # All of them are looked at before one is written.
    texts = {folder / f"wiki.{split}.tokens": _member(archive, split) for split in MEMBERS}
    for path, content in texts.items():
        write_atomic(path, content)
    remove(archive)
    return list(texts)


def _member(archive, split):
    """The bytes of one text of the archive, if it is the published one."""
    (size, sha256), name = MEMBERS[split], f"wiki.{split}.tokens"
    with opened(archive) as file, zipfile.ZipFile(file) as members, members.open(f"wikitext-2/{name}") as member:
        # No more than it may have: an archive can claim less than it unpacks to.
        content = member.read(size + 1)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"{archive}: does not hold the published {name}")
    return content


def _read(path, published):
    words = read_words(path)
    if published is None:
        return words
    count, digest = published
    received = hashlib.sha256(" ".join(words).encode()).hexdigest()[: len(digest)]
    if (len(words), received) != published:
        raise InputError(
            f"{path}: not the published text: expected {count} words with sha256 {digest}... "
            f"Received: {len(words)} words with sha256 {received}...; fetch the tokenised (not raw) release "
            "again, or use `name: text` for a text of your own"
        )
    return words
