"""Trials of identity and access: TF_CONFIG, modes of secret files, and the sockets of `launch --local`."""

import importlib.util
import json
import os
import shutil
import stat
import time
from pathlib import Path

from campaign.inputs import change, sentence
from campaign.world import Failed
from hetero_tf.base.errors import UserError
from hetero_tf.workers.cluster import read_cluster

HOSTS = ("a:1", "b:2222", "c_d:3", "[::1]:4", "10.0.0.1:5", "x-y.example.org:65535", "A:9", "localhost:80")
ODD_HOSTS = (
    "",
    "a",
    ":1",
    "a:0",
    "a:65536",
    "a:1:2",
    "http://a:1",
    "a b:1",
    "a:1\n",
    "\x1b[31m:1",
    "-a:1",
    "a:٣",
    "/tmp/x:1",
)
TYPES = ("worker", "chief", "evaluator", "WORKER", "Chief", "master", "ps", "", "worker ", None, 0, ["worker"])
INDICES = (0, 1, 2, -1, 99, "0", "1", 0.0, 0.9, True, None, "x", 10**30, [0])
JOBS = ("worker", "chief", "ps", "evaluator", "master", "Worker")


def cluster_config(rng):
    """Return a TF_CONFIG as a tree, valid or with odd jobs, hosts, types and indices."""
    hosts = rng.sample(HOSTS, rng.randint(2, 5))
    if rng.random() < 0.2:
        hosts[rng.randrange(len(hosts))] = rng.choice((*ODD_HOSTS, hosts[0], None, 5))
    cluster = {"worker": hosts}
    if rng.random() < 0.5:
        cluster = {"chief": hosts[:1], "worker": hosts[1:]}
    if rng.random() < 0.2:
        cluster[rng.choice(JOBS)] = rng.choice(([], hosts[:1], hosts, "a:1", None))
    kind, index = rng.choice(TYPES[:2]), rng.choice(INDICES[:2])
    if rng.random() < 0.5:
        kind, index = rng.choice(TYPES), rng.choice(INDICES)
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    if rng.random() < 0.2:
        change(config, rng)
    return config


def cluster_is_read(world, rng):
    """Tasks of one TF_CONFIG: each is a separate worker or is rejected; only the first address leads."""
    config = cluster_config(rng)
    tasks = [config["task"]] if isinstance(config.get("task"), dict) else [{}]
    tasks += [{"type": kind, "index": index} for kind in TYPES for index in INDICES[:3]]
    hosts = rng.sample(HOSTS, 3)
    for index in range(3):
        proper = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}}
        cluster = read_cluster((), None, {"TF_CONFIG": json.dumps(proper)})
        if cluster is None or cluster.index != index or list(cluster.addresses) != hosts:
            raise Failed(f"{proper}: became {cluster}")
    leaders, outcome = [], "refused"
    for task in tasks:
        try:
            cluster = read_cluster((), None, {"TF_CONFIG": json.dumps({**config, "task": task})})
        except UserError as problem:
            sentence(problem)
            continue
        if cluster is None:
            outcome = "alone"
            continue
        outcome = "a worker"
        job, index = config["cluster"].get(str(task.get("type"))), int(task["index"])
        if not isinstance(job, list) or [cluster.addresses[cluster.index]] != job[index : index + 1]:
            raise Failed(f"{config['cluster']}: {task} became worker {cluster.index} of {cluster.addresses}")
        if cluster.leads:
            leaders.append((task["type"], index))
    if len(set(leaders)) > 1:
        raise Failed(f"{config['cluster']}: two leaders: {leaders}")
    return outcome


def secrets_are_private(world, rng):
    """With any umask, other users can never read a key while `flower keys` writes it."""
    if importlib.util.find_spec("cryptography") is None:
        return "cryptography is not installed"
    from hetero_tf.devices import certificates

    folder, log = world.fresh(), []
    watched = {name: getattr(os, name) for name in ("open", "write", "replace", "rename", "link", "fsync", "chmod")}

    def watch(name):
        def call(*arguments, **options):
            result = watched[name](*arguments, **options)
            log.extend((path, stat.S_IMODE(path.lstat().st_mode)) for path in folder.rglob("*") if path.is_file())
            return result

        return call

    before = os.umask(rng.choice((0, 0o002, 0o022, 0o077, 0o277)))
    try:
        for name in watched:
            setattr(os, name, watch(name))
        certificates.make(folder, ["server.example.org", "127.0.0.1"], rng.randint(1, 4))
    finally:
        os.umask(before)
        for name, function in watched.items():
            setattr(os, name, function)
    opened = {(path.name, oct(mode)) for path, mode in log if mode & 0o077 and ".key" in path.name}
    if not log or opened:
        raise Failed(f"readable by others: {sorted(opened)}")
    shutil.rmtree(folder)
    return "private"


def local_workers_expose_no_port(world, rng):
    """While `launch --local` trains, none of its processes listens on any port."""
    folder = world.fresh()
    count = rng.randint(2, 3)
    arguments = ("launch", "--local", count, "--recipe", world.recipes["heterofl"], "--run_dir", folder)
    run = world.programs.start(*arguments, "--set", f"rounds={rng.randint(2, 6)}", cwd=world.here)
    sockets = set()

    def look():
        sockets.update(listening(family(run.pid)))
        time.sleep(0.05)
        return False

    run.until(look, 300)
    world.proper(run)
    if sockets:
        raise Failed(f"listens at {sorted(sockets)}")
    world.drop(folder)
    return f"{count} workers"


def family(pid):
    """Ids of a process and of all its descendants."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    members = {pid}
    while more := {child for child, parent in parents.items() if parent in members} - members:
        members |= more
    return members


def listening(pids):
    """`address:port` of TCP sockets on which processes listen, in the kernel's hexadecimal form."""
    inodes = set()
    for pid in pids:
        try:
            links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        inodes.update(link[8:-1] for link in links if link.startswith("socket:["))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A" and row[9] in inodes}


TRIALS = (cluster_is_read, secrets_are_private, local_workers_expose_no_port)
