"""Numbers with three digits and a prefix; names of users in the languages of the output, read by their readers."""

import subprocess

import pytest

from hetero_tf.base import formatting

COUNTS = {0: "0", 7: "7", 450: "450", 65.25: "65.2", 999.7: "1 K", 1234: "1.23 K", 19_658: "19.7 K", 646_400: "646 K"}
COUNTS |= {999_999: "1 M", 1_234_567: "1.23 M", 2.5e9: "2.5 G", 1.5e12: "1.5 T", 7e15: "7,000 T"}
BYTES = {0: "0 B", 700: "700 B", 999: "999 B", 1000: "1 KB", 79_000: "79 KB", 2**20: "1.05 MB", 3e9: "3 GB"}
MEMORY = {
    0: "0 B",
    717: "717 B",
    1023: "1023 B",
    1023.9: "1 KiB",
    79_000: "77.1 KiB",
    2**20: "1 MiB",
    3 * 2**30: "3 GiB",
}


@pytest.mark.parametrize(
    ("form", "texts"),
    [(formatting.format_count, COUNTS), (formatting.format_bytes, BYTES), (formatting.format_memory, MEMORY)],
)
def test_values_have_three_digits_and_a_prefix(form, texts):
    assert {value: form(value) for value in texts} == texts


HOSTILE = [
    "A'; touch PWNED; echo '",
    "O'Fallon",
    "$(touch PWNED)`touch PWNED`",
    "two\nlines",
    "\x1b[2J\r",
    "",
    "-n",
    "\\",
]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain, \u00e9 \u6f22 \U0001f600", "plain, \u00e9 \u6f22 \U0001f600"),
        ("run\nhetero_tf: all is well\r\t", r"run\nhetero_tf: all is well\r\t"),
        ("\u202etxt.exe\u2028\udcff\x85", r"\u202etxt.exe\u2028\udcff\x85"),
    ],
)
def test_a_line_has_no_line_ends_and_no_control_characters(text, line):
    assert formatting.escape_line(text) == line
    assert formatting.escape_unprintable(f"{text}\n{text}").split("\n")[-1] == line.rpartition("\n")[2].split(r"\n")[-1]


@pytest.mark.parametrize("word", [*HOSTILE, b"name-\xff".decode(errors="surrogateescape")])
def test_a_shell_reads_a_quoted_word_as_it_was(tmp_path, word):
    line = formatting.join_shell(["printf", "%s", word])
    assert line.isprintable()
    shell = ["sh", "-c"] if word.isprintable() else ["bash", "-c"]
    result = subprocess.run([*shell, line], capture_output=True, cwd=tmp_path, timeout=60, check=True)
    assert result.stdout == word.encode(errors="surrogateescape") and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("<img src=x onerror=alert(1)>", r"\<img src=x onerror=alert(1)\>"),
        ("a|b\n# [c](d)", r"a\|b\\n# \[c\](d)"),
        ("&lt; *b* _c_ ~d~ $e$", r"\&lt; \*b\* \_c\_ \~d\~ \$e\$"),
        ("local_accuracy", "local_accuracy"),
    ],
)
def test_markdown_shows_a_name_as_text(name, text):
    assert formatting.escape_markdown(name) == text


@pytest.mark.parametrize(
    ("name", "code"), [("age", "`age`"), ("a`b\n", r"``a`b\n``"), ("`", "`` ` ``"), ("", "`  `"), (" a", "`  a `")]
)
def test_inline_code_of_markdown_ends_after_the_name(name, code):
    assert formatting.quote_markdown(name) == code
