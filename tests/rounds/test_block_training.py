"""Progress of a running round: all steps and clients, from several threads, without any change of the result."""

import threading

import methods
import numpy as np
import pytest
import tiny

from hetero_tf.rounds import block_training

CASES = [("DENSE", "sequential"), ("DENSE", "stacked"), pytest.param("TEXT", "stacked", marks=pytest.mark.long)]


class Watch:
    """Records its calls."""

    def __init__(self):
        self.calls, self.threads = [], set()

    def __call__(self, steps, clients):
        self.calls.append((steps, clients))
        self.threads.add(threading.get_ident())


def totals(watch):
    return tuple(map(sum, zip(*watch.calls)))


def expected_totals(plans):
    return sum(int(plan.steps.sum()) for plan in plans), sum(int((plan.steps > 0).sum()) for plan in plans)


@pytest.mark.long
@pytest.mark.parametrize(("base", "engine"), CASES)
def test_progress_reports_every_step_and_client_once_without_changing_results(base, engine):
    plain = tiny.process(getattr(tiny, base), f"engine={engine}", "precision=float32", "levels.mix=c")
    watch = Watch()
    watched, plans = plain.with_progress(watch), tiny.plans(plain, 2)
    (first, rows), (second, others) = (process.run(process.initialize(), plans) for process in (plain, watched))
    assert rows == others and tiny.same(tiny.arrays(first), tiny.arrays(second))
    assert totals(watch) == expected_totals(plans) and len(watch.calls) > 2
    # No operation of the graph makes clients wait for each other.
    assert watched.runner.compiled_round.experimental_get_tracing_count() == 1


@pytest.mark.long
def test_long_training_reports_rarely_and_completely(monkeypatch):
    monkeypatch.setattr(block_training, "CALL_SECONDS", 1e6)
    process, watch = tiny.process(tiny.DENSE, "engine=sequential", "levels.mix=a-c", "client.epochs=4"), Watch()
    plan = process.plan(0)
    process.with_progress(watch).run(process.initialize(), [plan])
    assert totals(watch) == expected_totals([plan])
    assert len(watch.calls) <= 3 * len(plan.clients) and max(steps for steps, _ in watch.calls) > 1


@pytest.mark.long
def test_stages_and_ensembles_are_counted_too(eager):
    for name in ("fedepth_link", "splitmix"):
        process, watch = methods.built(name), Watch()
        plan = process.plan(0)
        process.with_progress(watch).run(process.initialize(), [plan])
        assert totals(watch) == expected_totals([plan]), name


def test_clients_do_not_wait_for_each_other():
    """Two clients meet in the callback, which is impossible if they run one after the other."""
    process = tiny.process(tiny.DENSE, "engine=sequential", "levels.mix=b1", "round.clients=2")
    meeting, met = threading.Barrier(2), []

    def watch(steps, clients):
        if not met:
            meeting.wait(60)
            met.append(threading.get_ident())

    plan = process.plan(0)
    assert len(plan.clients) == 2 and (plan.steps > 0).all()
    process.with_progress(watch).run(process.initialize(), [plan])
    assert met and np.isfinite(list(tiny.arrays(process.initialize()).values())[0]).all()
