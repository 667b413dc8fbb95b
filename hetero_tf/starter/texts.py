"""Texts: labelled texts in a table or JSON lines, and running text in a file or a column."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.columns import RawTable, TextColumn
from hetero_tf.data.inspection import ColumnSummary
from hetero_tf.data.tokenizers import check_spaces
from hetero_tf.data.words import split_text
from hetero_tf.starter.choices import LABEL_TASKS, Choice, DataDraft, Request, requested_task
from hetero_tf.starter.tables import LABEL_NAMES, choose_label, find_owner
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
    lengths = {name: _mean_length(table.columns[name]) for name in texts if summaries[name].type != "category"}
    features = [s for s in summaries.values() if s.type in ("number", "category", "date") and s.distinct > 1]
    # One of them is the label.
    if max(lengths.values(), default=0) < 1 or len(features) - 1 > MOST_OTHER_FEATURES:
        return None
    return max(lengths, key=lengths.__getitem__)


def _has_words(column):
    """Return whether most texts have several words, or differ."""
    sample = column.texts[:SAMPLED_TEXTS]
    return 2 * sum(" " in text for text in sample) > len(sample) or len(column.texts) > len(column) // 4


def _mean_length(column):
    """Return the mean length of texts, where 1 is the length of a short sentence."""
    sample = column.texts[:SAMPLED_TEXTS]
    # Ids in ASCII have no spaces either.
    if not "".join(sample).isascii() and _is_unspaced(" ".join(sample).split()):
        return np.mean(list(map(len, sample))) / LEAST_CHARACTERS
    return np.mean([len(text.split()) for text in sample]) / LEAST_WORDS


def _is_unspaced(words: Sequence[str]) -> bool:
    try:
        check_spaces("", list(words))
    except InputError:
        return True
    return False


def _choose_tokenizer(words):
    if _is_unspaced(words):
        return Choice("characters", "the text has no spaces between words")
    return Choice("words", "the text has spaces between words")


def draft_labelled(
    table: RawTable, text: str, summaries: Mapping[str, ColumnSummary], request: Request, loader: Mapping[str, Choice]
) -> DataDraft:
    """Draft how a recipe reads a table with a column of texts; `loader` has the options that name the file."""
    others = {name: summary for name, summary in summaries.items() if name != text}
    label, _ = choose_label(table, others, replace(request, task="classification"))
    name = str(label.value)
    reason = f"{others[name].distinct:,} distinct values in {table.rows:,} rows"
    task = requested_task(request, LABEL_TASKS) or Choice("classification", reason)
    options = {**loader, "text": Choice(text, "its values are sentences"), "label": label}
    if (owner := find_owner(others, (name,))) is not None:
        options["owner"] = Choice(owner, f"{others[owner].distinct:,} distinct values: clients", True)
    if missing := np.count_nonzero(table.missing_rows(text) | table.missing_rows(name)):
        options["missing"] = Choice("drop", f"{missing:,} rows without a text or a label are left out", True)
    sample = [each for each in table.columns[text].texts[:SAMPLED_TEXTS] if each.strip()]
    tokenizer = _choose_tokenizer([word for each in sample for word in each.split()])
    lengths = np.array([len(split_text(each, tokenizer.value)) for each in sample])
    # Most texts fit into a row, whose length is a multiple of 8.
    fitting = max(-(-int(np.quantile(lengths, FITTING_SHARE)) // 8) * 8, LEAST_LENGTH)
    length = min(fitting, LONGEST_LENGTHS[tokenizer.value])
    cut = (lengths > length).mean()
    options |= {
        "tokenizer": tokenizer,
        "length": Choice(length, f"{cut:.0%} of the texts are longer and cut", cut > MOST_CUT),
        "vocabulary": Choice(LARGEST_VOCABULARY, "at most; the most frequent ones are used"),
    }
    unused = [each for each in others if each not in (name, owner)]
    note = f"columns {', '.join(unused)} are not used: the model reads {text} alone; `data: csv` reads other columns"
    return DataDraft(options, task, (note,) if unused else ())


def draft_running(words: Sequence[str], request: Request, loader: Mapping[str, Choice]) -> DataDraft:
    """Draft how a recipe reads running text of some words; `loader` has the options of `data` that name the files."""
    task = requested_task(request, ["classification"])
    tokenizer, tokens = _choose_tokenizer(words), len(words)
    if tokenizer.value == "words" and tokens < FEW_WORDS:
        reason = f"{tokens:,} words are few; characters are learned from less text than words"
        tokenizer = Choice("characters", reason, True)
    if tokenizer.value == "characters":
        tokens = sum(len(word) + 1 for word in words)
    if tokens < LEAST_TOKENS:
        raise InputError(f"{request.path}: a text must have at least {LEAST_TOKENS} words. Received: {tokens}")
    rows = ROWS_PER_CLIENT * min(max(tokens // WORDS_PER_CLIENT, 2), MOST_CLIENTS)
    parts = f"parts of the text with about {tokens // rows:,} {tokenizer.value}, {ROWS_PER_CLIENT} for each client"
    vocabulary = min(max(tokens // TOKENS_PER_WORD, 100), LARGEST_VOCABULARY)
    options = {
        "tokenizer": tokenizer,
        "rows": Choice(rows, parts),
        "test_rows": Choice(min(max(tokens // (10 * 200), 1), 10)),
        "vocabulary": Choice(vocabulary, "at most; the most frequent ones are used"),
    }
    return DataDraft({**loader, **options}, task or Choice("classification", "the next word of a text"))
