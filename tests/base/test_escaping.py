"""Names of strangers in the languages of the output: each test reads the text with a reader of that language."""

import subprocess

import pytest

from hetero_tf.base import escaping

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
    assert escaping.escape_line(text) == line
    assert escaping.escape_unprintable(f"{text}\n{text}").split("\n")[-1] == line.rpartition("\n")[2].split(r"\n")[-1]


@pytest.mark.parametrize("word", [*HOSTILE, b"name-\xff".decode(errors="surrogateescape")])
def test_a_shell_reads_a_quoted_word_as_it_was(tmp_path, word):
    line = escaping.join_shell(["printf", "%s", word])
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
    assert escaping.escape_markdown(name) == text


@pytest.mark.parametrize(
    ("name", "code"), [("age", "`age`"), ("a`b\n", r"``a`b\n``"), ("`", "`` ` ``"), ("", "`  `"), (" a", "`  a `")]
)
def test_inline_code_of_markdown_ends_after_the_name(name, code):
    assert escaping.quote_markdown(name) == code
