"""Trials with a new clone, whose first start installs the program's requirements."""

import io
import os
import shutil
import signal
import subprocess
import time
import zipfile

import programs

from campaign.world import Failed

PARTS = ("bin", "hetero_tf", "recipes", "setup.py", "README.md")


def installed_at_once(world, rng):
    """Two to ten starts on a new clone, some of them killed: one installs, and all survivors train."""
    contents, clone = world.unbroken("heterofl")[0], world.folder / "a clone"
    shutil.rmtree(clone, ignore_errors=True)
    clone.mkdir()
    for name in PARTS:
        source, ignored = programs.ROOT / name, shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, clone / name, ignore=ignored) if source.is_dir() else shutil.copy(source, clone)
    starts = [Start(world, clone) for _ in range(rng.randint(2, 10))]
    killed = rng.sample(starts, rng.randint(0, min(2, len(starts) - 1)))
    for start in killed:
        time.sleep(rng.choice((1, 10, 30)) * rng.random())
        # Kill the whole session, like a closed terminal, or only the shell, whose children continue.
        send = rng.choice((os.killpg, os.kill))
        send(start.process.pid, rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
    for start in starts:
        start.process.wait(1800)
    alive = [start for start in starts if start not in killed]
    if any("No matching distribution" in start.output() for start in alive):
        return "no packages to install"
    for start in [*alive, Start(world, clone)]:
        if start.process.wait(600) or unpacked(programs.contents(start.folder)) != unpacked(contents):
            raise Failed(f"exit code {start.process.returncode}, or other results: {start.output()[-400:]}")
    if "install" in start.output():
        raise Failed(f"installs again: {start.output()}")
    shutil.rmtree(clone)
    return f"{len(starts)} starts, {len(killed)} killed"


def unpacked(contents):
    """Contents of a run folder with the members of its `.npz` files; zip headers depend on the Python version."""
    members = dict(contents)
    for name, data in contents.items():
        if zipfile.is_zipfile(io.BytesIO(data)):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members[name] = {member: archive.read(member) for member in archive.namelist()}
    return members


class Start:
    """A start of the clone's program, with the Python of the system.

    Attributes:
        folder: The run folder.
        process: Of the program.
    """

    def __init__(self, world, clone):
        self.folder, self.log = world.fresh(), world.folder / f"start {world.count}.log"
        unwanted = ("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")
        environment = {name: value for name, value in os.environ.items() if name not in unwanted}
        environment["PATH"] = "/usr/local/bin:/usr/bin:/bin"
        command = [clone / "bin" / "hetero_tf", "--recipe", world.recipes["heterofl"], "--run_dir", self.folder]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, cwd=world.here, env=environment, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, start_new_session=True)  # fmt: skip

    def output(self):
        """Printed output."""
        return self.log.read_text()


TRIALS = (installed_at_once,)
