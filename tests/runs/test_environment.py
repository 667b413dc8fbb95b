"""Environment: what is recorded, what decides about bit-equality, and that nothing personal is in it."""

import copy
import getpass
import hashlib
import json
import os
import platform
import sys
from pathlib import Path

import numpy as np
import pytest

from hetero_tf.runs import environment as module
from hetero_tf.runs.environment import decisive, differences, environment, fingerprint, processor, save, version

THREADS, EXTRA = {"intra_op": 1, "inter_op": 2}, {"determinism": True}


@pytest.fixture
def facts():
    return environment(THREADS, EXTRA)


def test_contents_of_the_facts_and_their_file(facts, tmp_path):
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["python"] == platform.python_version()
    assert (facts["threads"], facts["settings"]) == (THREADS, EXTRA)
    assert version("no-such-package-here") is None
    save(tmp_path / "e.json", facts)
    assert json.loads((tmp_path / "e.json").read_text()) == facts


def test_nothing_personal(facts):
    text = json.dumps(facts)
    private = [platform.node(), str(Path.home()), os.getcwd(), sys.prefix, "/usr", "/home"]
    assert [word for word in private if word and word in text] == []
    assert getpass.getuser() not in json.dumps(facts).replace(facts["platform"], "").split('"')


@pytest.mark.parametrize(
    "section, name, value, message",
    [
        ("versions", "tensorflow", "9.9", "tensorflow was {!r}, is '9.9'"),
        ("cpu", "model", "Z80", "cpu.model was {!r}, is 'Z80'"),
        ("settings", "determinism", False, "settings.determinism was {!r}, is False"),
        ("settings", "clients_at_once", {"a": 1}, "settings.clients_at_once was {!r}, is {{'a': 1}}"),
        ("threads", "inter_op", 4, "threads.inter_op was {!r}, is 4"),
    ],
)
def test_fingerprint_depends_on_decisive_facts(facts, section, name, value, message):
    other = copy.deepcopy(facts)
    other[section][name] = value
    assert fingerprint(other) != fingerprint(facts)
    assert differences(decisive(facts), decisive(other)) == [message.format(facts[section].get(name))]


@pytest.mark.parametrize("change", [{"python": "3.99"}, {"platform": "Plan 9"}, {"cores": 999}])
def test_fingerprint_ignores_other_facts(facts, change):
    assert fingerprint(facts | change) == fingerprint(facts)
    assert differences(decisive(facts), decisive(facts | change)) == []


def test_cores_decide_when_tensorflow_chooses_the_threads():
    facts = environment({"intra_op": 0}, {})
    assert differences(decisive(facts), decisive(facts | {"cores": 999})) == [f"cores was {facts['cores']}, is 999"]


def test_processor_file(tmp_path):
    """Only vector flags count; a microcode update that adds `md_clear` must not stop a run."""

    def described(flags):
        (tmp_path / "cpuinfo").write_text(
            f"processor\t: 0\nmodel name\t: Chip 5\nflags\t\t: {flags}\n\nprocessor\t: 1\nmodel name\t: other\nflags\t\t: none\n"
        )
        return processor(tmp_path / "cpuinfo")

    expected = hashlib.sha256(b"avx2 fma sse4_2 ssse3").hexdigest()[:16]
    assert described("fpu sse4_2 avx2 fma ssse3") == ("Chip 5", expected)
    assert described("ssse3 sse4_2 avx2 fma md_clear ibrs") == ("Chip 5", expected)
    assert described("sse4_2 avx2 fma ssse3 avx512f")[1] != expected
    assert processor(tmp_path / "missing")[1] is None


def test_the_digest_of_the_source_depends_on_names_and_contents(tmp_path):
    (tmp_path / "part").mkdir()
    digests = set()
    for name, text in (("a.py", "1"), ("a.py", "2"), ("b.py", "2"), ("part/c.py", "2")):
        (tmp_path / name).write_text(text)
        digests.add(module.source_digest(tmp_path))
    assert len(digests) == 4
    (tmp_path / "notes.txt").write_text("not a part of the program")
    assert module.source_digest(tmp_path) in digests
    assert environment({}, {})["source"] == module.source_digest()
