"""Words that identifiers must not have: they say what happened to a value, not what it is."""

import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = "found|place|places|own|held|given|told|kept|said|asked|answers|takes|hands|anew"
REJECTED = frozenset(WORDS.split("|"))
# Most files have none of them, also in texts and comments.
CANDIDATE = re.compile(rf"(?<![a-z])({WORDS})(?![a-z])", re.IGNORECASE)


def test_identifiers_say_what_a_value_is():
    paths = [path for folder in ("hetero_tf", "tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    names = {}
    for path in paths:
        source = path.read_text(encoding="utf-8")
        for token in tokenize.generate_tokens(io.StringIO(source).readline) if CANDIDATE.search(source) else ():
            words = token.string.lower().replace("held_out", "").split("_") if token.type == tokenize.NAME else ()
            # Hypothesis calls its decorator `given`.
            if not REJECTED.isdisjoint(words) and "hypothesis" not in token.line:
                names.setdefault(token.string, f"{path.relative_to(ROOT)}:{token.start[0]}")
    assert len(paths) > 500 and names == {}
