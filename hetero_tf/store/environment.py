"""Records what the bits of a run depend on: versions, processor, threads; but no host, user or path."""

import hashlib
import os
import platform
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import UserError, short
from hetero_tf.store import plain_json

PACKAGES = {
    "tensorflow": "tensorflow",
    "keras": "keras",
    "numpy": "numpy",
    "tensorflow_datasets": "tensorflow-datasets",
    "hetero_tf": "hetero_tf",
}
# Other flags come and go with kernels and microcode and change no number.
VECTOR = re.compile(r"s?sse|avx|fma|f16c|amx|asimd|sve|neon|fphp|bf16|i8mm")
# Versions that can change a number; the others are only recorded.
ARITHMETIC = ("tensorflow", "keras", "numpy")
MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}(\.[A-Za-z_][A-Za-z0-9_]{0,99}){0,9}")
SECTIONS = ("versions", "cpu", "threads", "settings")


def environment(threads: dict[str, int], extra: dict, plugins: Sequence[str] = ()) -> dict:
    """Returns the facts that are written to `environment.json`. Imports none of the packages it names.

    Args:
        threads: `{"intra_op": 1, "inter_op": 2, ...}`, 0 where TensorFlow decides.
        plugins: Names of a person's own modules.
        extra: Further settings that bits depend on, e.g. `{"determinism": True, "device": "cpu"}`; plain JSON.
    """
    model, flags = processor(Path("/proc/cpuinfo"))
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()} {' '.join(platform.libc_ver())}".strip(),
        "versions": {name: version(package) for name, package in PACKAGES.items()},
        "cpu": {"model": model, "flags": flags},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": dict(threads),
        "settings": dict(extra),
        "plugins": list(plugins),
    }


def version(package: str) -> str | None:
    """Returns the installed version, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def processor(cpuinfo: Path) -> tuple[str, str | None]:
    """Returns model name and hash of the vector instruction flags, read from a file like /proc/cpuinfo.

    Where there is no such file the hash is None.
    """
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine(), None
    facts: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    listed = (facts.get("flags") or facts.get("Features") or "").split()
    flags = " ".join(sorted(filter(VECTOR.match, listed)))
    return facts.get("model name", platform.machine()), hashlib.sha256(flags.encode()).hexdigest()[:16]


def save(path: Path, facts: dict) -> None:
    """Writes `environment.json` in one step."""
    files.write_atomic(path, plain_json.dump(facts, "the environment"))


def plugins(path: Path) -> tuple[str, ...]:
    """Returns the modules of a person's own that an `environment.json` names; none where it cannot be read.

    They are only names to show: what a file of a run folder says is never imported.
    """
    try:
        facts = plain_json.parse(files.read_bytes(path, plain_json.LIMIT), path)
    except UserError:
        return ()
    named = facts.get("plugins") if isinstance(facts, dict) else None
    return tuple(name for name in named or () if isinstance(name, str) and MODULE.fullmatch(name))


def decisive(facts: dict) -> dict:
    """Returns the part of an environment that bits depend on, flat: `{"threads.intra_op": 1, ...}`."""
    flat = {name: facts["versions"].get(name) for name in ARITHMETIC}
    # The model counts beside the flags: Eigen chooses its block sizes, so its sums, by cache sizes.
    for section in ("cpu", "threads", "settings"):
        flat |= {f"{section}.{name}": value for name, value in facts[section].items()}
    if 0 in facts["threads"].values():
        flat["cores"] = facts.get("cores")
    return flat


def fingerprint(facts: dict) -> str:
    """Returns a hex digest that is equal where a run can be continued bit for bit."""
    return hashlib.sha256(plain_json.dump(decisive(facts), "the environment")).hexdigest()


def differences(old: dict, new: dict) -> list[str]:
    """Lists the differences of two environments that change bits: "numpy was '2.3.0', is '2.4.1'"."""
    before, now = decisive(old), decisive(new)
    names = sorted(before.keys() | now.keys())
    return [
        f"{name} was {short(before.get(name))}, is {short(now.get(name))}"
        for name in names
        if before.get(name) != now.get(name)
    ]
