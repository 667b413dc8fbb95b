"""Texts: labelled texts in a table or JSON lines, and running text in a file or a column."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.inspection import ColumnSummary
from hetero_tf.data.raw_table import RawTable, TextColumn
from hetero_tf.data.tokenizers import check_spaces
from hetero_tf.data.words import split_lines, split_text
from hetero_tf.starter.choices import LABEL_TASKS, Choice, DataDraft, Request, requested_task
from hetero_tf.starter.labels import LABEL_NAMES, choose_label
from hetero_tf.starter.tables import find_owner, summarize
from hetero_tf.starter.training import ROWS_PER_CLIENT

# Mean words or, without spaces, characters of a text from which a column has sentences.
LEAST_WORDS, LEAST_CHARACTERS = 5, 12
# A table with more columns of numbers, categories or dates is trained on those.
MOST_OTHER_FEATURES = 2
SAMPLED_TEXTS = 2000
# Usual names of columns of texts.
TEXT_NAMES = ("text", "texts", "sentence", "review", "comment", "message", "content", "body", "tweet", "document")
# A larger share of cut texts is worth a check.
MOST_CUT = 0.1
# Share of the texts that fit into a row without being cut, and its least length.
FITTING_SHARE, LEAST_LENGTH = 0.95, 8
# Longest rows: an LSTM learns little more from more tokens of a few thousand texts, and takes longer.
LONGEST_LENGTHS = {"words": 32, "characters": 64}
# Largest vocabulary of labelled texts, and tokens of running text for each of its words.
LARGEST_VOCABULARY, TOKENS_PER_WORD = 5000, 10
WORDS_PER_CLIENT, MOST_CLIENTS = 2000, 50
# Words of the shortest text that has a training and a test part, and of the shortest one that is learned by words.
LEAST_TOKENS, FEW_WORDS = 200, 30_000


def find_sentences(table: RawTable, summaries: Mapping[str, ColumnSummary], request: Request) -> str | None:
    """Return the column of texts that a model should read; None: the table is trained on its other columns.

    A column with the name of a text beside the name of a label wins over the lengths of its texts.
    """
    texts = [name for name, column in table.columns.items() if isinstance(column, TextColumn)]
    texts = [name for name in texts if name not in request.label and summaries[name].type in ("text", "id", "category")]
    named = [name for name in texts if name.strip().lower() in TEXT_NAMES and _has_words(table.columns[name])]
    if named and len(summaries) > 1 and (request.label or any(each.lower() in LABEL_NAMES for each in summaries)):
        return named[0]
    likely = {name: _mean_length(table.columns[name]) for name in texts if summaries[name].type != "category"}
    likely = {name: length for name, length in likely.items() if length >= 1}
    features = [s for s in summaries.values() if s.type in ("number", "category", "date") and s.distinct > 1]
    # One of them is the label.
    if not likely or len(features) - 1 > MOST_OTHER_FEATURES:
        return None
    return max(likely, key=likely.__getitem__)


def _has_words(column):
    """Return whether most texts have several words, or differ."""
    sample = column.texts[:SAMPLED_TEXTS]
    return 2 * sum(" " in text for text in sample) > len(sample) or len(column.texts) > len(column) // 4


def _mean_length(column):
    """Return the mean length of texts, where 1 is the length of a short sentence."""
    sample = column.texts[:SAMPLED_TEXTS]
    words = np.mean([len(text.split()) for text in sample])
    characters = np.mean([len(text) for text in sample])
    text = " ".join(sample)
    # Ids in ASCII have no spaces either.
    is_unspaced = not text.isascii() and _is_unspaced(text.split())
    return characters / LEAST_CHARACTERS if is_unspaced else words / LEAST_WORDS


def _is_unspaced(words: Sequence[str]) -> bool:
    try:
        check_spaces("", list(words))
    except InputError:
        return True
    return False


def draft_labelled(table: RawTable, text: str, request: Request, loader: Mapping[str, Choice]) -> DataDraft:
    """Draft how a recipe reads labelled texts.

    Args:
        table: The table as read.
        text: The column of texts.
        request: Choices of the user.
        loader: Options of `data` that name the loader and the file.
    """
    summaries = summarize(table)
    others = {name: summary for name, summary in summaries.items() if name != text}
    task = requested_task(request, LABEL_TASKS) or Choice("classification", "texts with one label each")
    label = choose_label(table, others, replace(request, task="classification"))
    owner = find_owner(others, label.names)
    words, tokenizer = _tokenize(table.columns[text])
    length = _length(words, LONGEST_LENGTHS[tokenizer.value])
    options = {**loader, "text": Choice(text, "its values are sentences"), "label": label.columns}
    if owner is not None:
        options["owner"] = Choice(owner, f"{others[owner].distinct:,} distinct values: clients", True)
    cut = sum(len(each) > length for each in words) / len(words)
    if missing := np.count_nonzero(table.missing_rows(text) | table.missing_rows(label.names[0])):
        options["missing"] = Choice("drop", f"{missing:,} rows without a text or a label are left out", True)
    options |= {
        "tokenizer": tokenizer,
        "length": Choice(length, f"{cut:.0%} of the texts are longer and cut", cut > MOST_CUT),
        "vocabulary": Choice(LARGEST_VOCABULARY, "at most; the most frequent ones are used"),
    }
    reason = f"{others[label.names[0]].distinct:,} distinct values in {table.rows:,} rows"
    unused = [name for name in others if name not in (*label.names, owner)]
    note = f"columns {', '.join(unused)} are not used: the model reads {text} alone; `data: csv` reads other columns"
    task = Choice(task.value, reason) if request.task is None else task
    return DataDraft(options, task, (note,) if unused else ())


def _tokenize(column):
    """Return the tokens of a sample of texts and the tokenizer that made them."""
    sample = [text for text in islice(column.texts, SAMPLED_TEXTS) if text.strip()]
    if _is_unspaced([word for text in sample for word in text.split()]):
        return [split_text(text, "characters") for text in sample], _tokenizer(True)
    return [split_text(text, "words") for text in sample], _tokenizer(False)


def _tokenizer(is_unspaced):
    if is_unspaced:
        return Choice("characters", "the text has no spaces between words")
    return Choice("words", "the text has spaces between words")


def _length(texts, longest):
    """Return a row length that most texts fit into, a multiple of 8."""
    fitting = int(np.quantile([len(each) for each in texts], FITTING_SHARE))
    return min(max(-(-fitting // 8) * 8, LEAST_LENGTH), longest)


def draft_running(words: Sequence[str], request: Request, loader: Mapping[str, Choice], test: str | None) -> DataDraft:
    """Draft how a recipe reads running text.

    Args:
        words: The words of the training text.
        request: Choices of the user.
        loader: Options of `data` that name the loader and the file.
        test: Path of the test text; None: the last part of the training text.
    """
    task = requested_task(request, ["classification"])
    is_unspaced = _is_unspaced(words)
    has_few_words = not is_unspaced and len(words) < FEW_WORDS
    tokens = sum(len(word) + 1 for word in words) if is_unspaced or has_few_words else len(words)
    if tokens < LEAST_TOKENS:
        raise InputError(f"{request.path}: a text must have at least {LEAST_TOKENS} words. Received: {tokens}")
    rows = ROWS_PER_CLIENT * min(max(tokens // WORDS_PER_CLIENT, 2), MOST_CLIENTS)
    tokenizer = _tokenizer(is_unspaced)
    if has_few_words:
        reason = f"{len(words):,} words are few; characters are learned from less text than words"
        tokenizer = Choice("characters", reason, True)
    options = {
        **loader,
        **({} if test is None else {"test": Choice(test, "the text of the test file")}),
        "tokenizer": tokenizer,
        "rows": Choice(
            rows,
            f"parts of the text with about {tokens // rows:,} {tokenizer.value}, {ROWS_PER_CLIENT} for each client",
        ),
        "test_rows": Choice(min(max(tokens // (10 * 200), 1), 10)),
        "vocabulary": Choice(
            min(max(tokens // TOKENS_PER_WORD, 100), LARGEST_VOCABULARY), "at most; the most frequent ones are used"
        ),
    }
    return DataDraft(options, task or Choice("classification", "the next word of a text"))


def words_of_column(table: RawTable, name: str) -> list[str]:
    """Return the words of a column of running text."""
    column = table.columns[name]
    return split_lines(column.texts[code] for code in column.codes)
