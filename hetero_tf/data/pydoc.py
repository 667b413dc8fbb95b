"""Real English prose that ships with the package, for a quick start and as a fallback for text sets.

A fixed copy of the help topics of CPython 3.11 (PSF licence, see embedded/LICENCES.md); they vary between versions.
"""

from pathlib import Path

from hetero_tf.base.constraints import Count, TestShare, Tokenizer, Vocabulary
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.words import TokenOptions, read_words, split_end, text_dataset

FILE = Path(__file__).parent / "embedded" / "pydoc.txt.gz"
UNUSED = {"the data are always available": {"data.fallback": True}}


def load(
    data_dir: Path | None,
    *,
    rows: Count = 100,
    test_rows: Count = 10,
    tokenizer: Tokenizer = "words",
    vocabulary: Vocabulary = 2000,
    test_share: TestShare = 0.1,
    validation=None,
) -> Dataset:
    """Load the text as rows of words, characters or subwords; those outside the vocabulary become `<ukn>`.

    Args:
        rows: equal parts of the training text; each is one example to the partition
        test_rows: equal parts of the test text
        tokenizer: words (separated by white space), characters (`▁` for white space) or subwords (byte-pair encoding)
        vocabulary: largest vocabulary size, including `<ukn>` and `<eos>`
        test_share: share at the end of the text that becomes the test split
        validation: Rows of which no words are learned, see `data.load`.
    """
    train, test = split_end(read_words(FILE), test_share)
    options = TokenOptions(tokenizer, vocabulary, validation=validation)
    source = "help topics of CPython 3.11 (embedded)"
    return text_dataset(train, test, source, options, rows=rows, test_rows=test_rows)
