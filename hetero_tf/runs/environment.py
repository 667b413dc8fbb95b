"""The environment that bit-equal results depend on: versions, processor, threads; no host, user or path."""

import hashlib
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from hetero_tf.base import files, registry, typed_json
from hetero_tf.base.errors import UserError, shorten_repr

PACKAGES = {
    "tensorflow": "tensorflow",
    "keras": "keras",
    "numpy": "numpy",
    "tensorflow_datasets": "tensorflow-datasets",
    "hetero_tf": "hetero_tf",
}
# Other flags depend on kernel and microcode and do not affect results.
VECTOR = re.compile(r"s?sse|avx|fma|f16c|amx|asimd|sve|neon|fphp|bf16|i8mm")
# Packages whose versions can change results; the others are only recorded.
ARITHMETIC = ("tensorflow", "keras", "numpy")
PACKAGE = Path(__file__).resolve().parents[1]
MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}(\.[A-Za-z_][A-Za-z0-9_]{0,99}){0,9}")


@dataclass(frozen=True)
class Environment:
    """The entries of `environment.json` that are read, see `environment`."""

    versions: dict[str, Any]
    cpu: dict[str, Any]
    threads: dict[str, int]
    settings: dict[str, Any]
    cores: int | None = None
    plugins: tuple[str, ...] = ()


def environment(threads: dict[str, int], extra: dict, plugins: Sequence[str] = ()) -> dict:
    """Return the content of `environment.json`, without importing the packages that it names.

    Args:
        threads: `{"intra_op": 1, "inter_op": 2, ...}`, 0: chosen by TensorFlow.
        extra: Further settings that results depend on, such as `{"determinism": True, "device": "cpu"}`; plain JSON.
    """
    model, flags = processor(Path("/proc/cpuinfo"))
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()} {' '.join(platform.libc_ver())}".strip(),
        "versions": {name: version(package) for name, package in PACKAGES.items()},
        "source": source_digest(),
        "cpu": {"model": model, "flags": flags},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": dict(threads),
        "settings": dict(extra),
        "plugins": list(plugins),
    }


def version(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def source_digest(folder: Path = PACKAGE) -> str:
    """Return a digest of the Python files of a folder: between two releases, different programs have one version."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def processor(cpuinfo: Path) -> tuple[str, str | None]:
    """Return the model name and a hash of the vector instruction flags from a file like /proc/cpuinfo.

    The hash is None if the file is missing.
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
    """Write `environment.json` atomically."""
    files.write_atomic(path, typed_json.dump(facts, "the environment"))


def load(path: Path) -> Environment | None:
    """Return the content of an `environment.json` for display; None if it cannot be read."""
    try:
        return typed_json.read(Environment, path)
    except UserError:
        return None


def missing_plugins(path: Path) -> tuple[str, ...]:
    """Return the plug-in modules that an `environment.json` names and that are not registered.

    The names are only displayed: a module named by a run folder is never imported.
    """
    names, known = () if (stored := load(path)) is None else stored.plugins, registry.plugin_modules()
    return tuple(name for name in names if MODULE.fullmatch(name) and name not in known)


def decisive(facts: dict) -> dict:
    """Return the entries of an environment that affect results, flat: `{"threads.intra_op": 1, ...}`."""
    flat = {name: facts["versions"].get(name) for name in ARITHMETIC}
    # The CPU model matters too: Eigen chooses block sizes, and so the order of sums, by cache sizes.
    for section in ("cpu", "threads", "settings"):
        flat |= {f"{section}.{name}": value for name, value in facts[section].items()}
    if 0 in facts["threads"].values():
        flat["cores"] = facts.get("cores")
    return flat


def fingerprint(facts: dict) -> str:
    """Return a hex digest; a run continues bit for bit in environments of equal digests."""
    return hashlib.sha256(typed_json.dump(decisive(facts), "the environment")).hexdigest()


def differences(before: dict, now: dict) -> list[str]:
    """List the entries that differ between two results of `decisive`: "numpy was '2.3.0', is '2.4.1'"."""
    names = sorted(before.keys() | now.keys())
    return [
        f"{name} was {shorten_repr(before.get(name))}, is {shorten_repr(now.get(name))}"
        for name in names
        if before.get(name) != now.get(name)
    ]
