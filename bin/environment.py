"""Makes `.venv` in a checkout and installs hetero_tf and its dependencies there, once, with progress.

Run by environment.sh: `python environment.py CHECKOUT`. Standard library only: nothing is installed yet.
In `.venv` it keeps three files of its own:
    setup.lock    held while somebody installs; its presence also says that we made this `.venv`
    install.log   what pip said
    ready         a copy of the setup.py that was installed, written last: without it the rest is not trusted
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

SIZE = "TensorFlow and what it needs: a download of about 600 MB, 2.5 GB on disk"
VENV_ADVICE = "install them (Debian and Ubuntu: `apt install python3-venv python3-pip`) or put another Python on PATH"


class Failed(Exception):
    """The set-up cannot go on; the text is one sentence for a person."""


def say(text):
    """Writes progress to stderr: stdout belongs to the command that was asked for."""
    print(f"hetero_tf: {text}", file=sys.stderr, flush=True)


def is_ready(venv, wanted):
    """True if `venv` holds an installation that was finished with the setup.py text `wanted`."""
    mark = venv / "ready"
    return (venv / "bin" / "python").exists() and mark.is_file() and mark.read_text(encoding="utf-8") == wanted


def take_lock(venv):
    """Waits until nobody else installs into `venv`; the open file that is returned is the lock.

    Raises:
        Failed: `venv` is a file or has content that this program did not make.
    """
    if venv.exists() and not venv.is_dir():
        raise Failed(f"{venv} is a file, not a folder; move it away and run this command again.")
    if venv.exists() and any(venv.iterdir()) and not (venv / "setup.lock").exists():
        raise Failed(
            f"{venv} exists but was not made by this command; activate it and run `pip install -e '.[test]'` "
            "in the checkout, or move it away."
        )
    venv.mkdir(exist_ok=True)
    lock = open(venv / "setup.lock", "a")  # noqa: SIM115 (the caller closes it)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another command is installing into {venv}; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def clear(venv):
    """Removes what an interrupted set-up left; the lock stays, others may wait for that very file."""
    for entry in venv.iterdir():
        if entry.name == "setup.lock":
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def commands(python, venv, has_ensurepip, has_pip):
    """The two commands that make `venv` and install into it, as lists of words.

    Some systems split `ensurepip` off; there the pip of the base interpreter installs into the new environment.
    """
    if not find_spec("venv") or not (has_ensurepip or has_pip):
        raise Failed(f"Python at {python} lacks its venv module or pip; {VENV_ADVICE}.")
    inside = str(venv / "bin" / "python")
    pip = [inside, "-m", "pip"] if has_ensurepip else [python, "-m", "pip", "--python", inside]
    options = ["--use-pep517", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    make = [python, "-m", "venv", *([] if has_ensurepip else ["--without-pip"]), str(venv)]
    return make, [*pip, "install", *options, "-e", ".[test]"]


def pip_environment(environ):
    """`environ` without the settings that would send the packages to another place than `.venv`."""
    unwanted = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__")
    return {name: value for name, value in environ.items() if name not in unwanted}


def tail(path, lines):
    """The last `lines` lines of a text file, indented."""
    return "\n".join("    " + line for line in path.read_text(errors="replace").splitlines()[-lines:])


def show(log, elapsed, live):
    """One line of progress: the time, and what pip does at the moment."""
    text = f"hetero_tf: {elapsed:4.0f} s  {tail(log, 1).strip()[:60]}"
    print(f"\r\033[K{text}" if live else text, end="" if live else "\n", file=sys.stderr, flush=True)


def run(command, cwd, log, lock):
    """Runs `command` with its output in the file `log`, showing progress; returns its exit status.

    The child inherits the lock: if this process is killed, nobody else starts before pip has ended too.
    """
    live = sys.stderr.isatty()
    start = time.monotonic()
    with open(log, "ab") as out:
        child = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            env=pip_environment(os.environ), pass_fds=[lock.fileno()],
        )  # fmt: skip
    try:
        while True:
            try:
                return child.wait(timeout=1 if live else 20)
            except subprocess.TimeoutExpired:
                show(log, time.monotonic() - start, live)
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()
        if live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def make(root, run=run, has_ensurepip=None, has_pip=None):
    """Makes `root/.venv` ready, unless another process did it in the meantime.

    Args:
        root: Path of the checkout.
        run: `(command, cwd, log, lock) -> exit status`.
        has_ensurepip, has_pip: What the base interpreter has; None: look.

    Raises:
        Failed: with a sentence for a person.
        OSError: the folder cannot be written.
    """
    venv, wanted = root / ".venv", (root / "setup.py").read_text(encoding="utf-8")
    with take_lock(venv) as lock:
        if is_ready(venv, wanted):
            return
        if not (venv / "ready").exists() or not (venv / "bin" / "python").exists():
            clear(venv)
        has_ensurepip = bool(find_spec("ensurepip")) if has_ensurepip is None else has_ensurepip
        has_pip = bool(find_spec("pip")) if has_pip is None else has_pip
        steps = commands(sys.executable, venv, has_ensurepip, has_pip)
        version = ".".join(map(str, sys.version_info[:3]))
        texts = (f"step 1 of 2: making {venv} with Python {version}", f"step 2 of 2: installing {SIZE}")
        (venv / "ready").unlink(missing_ok=True)
        start, log = time.monotonic(), venv / "install.log"
        log.write_text("")
        for text, command in zip(texts, steps):
            say(text)
            status = run(command, root, log, lock)
            if status:
                raise Failed(f"the installation failed (exit status {status}); the end of {log}:\n{tail(log, 12)}")
        finished = venv / "ready.new"
        finished.write_text(wanted, encoding="utf-8")
        finished.replace(venv / "ready")
        say(f"ready after {time.monotonic() - start:.0f} s")


def main(root):
    """Makes the environment of the checkout `root`; returns an exit status."""
    try:
        make(Path(root))
    except Failed as problem:
        say(str(problem))
        return 1
    except OSError as problem:
        say(f"could not set up {Path(root) / '.venv'}: {problem}")
        return 3
    except KeyboardInterrupt:
        say("interrupted; the next start begins the installation again")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
