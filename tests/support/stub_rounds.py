"""A stand-in for the compiled round, for tests of files, resuming, callbacks, progress and messages.

Planning, costs and rows are those of the simulated rounds, but no client trains, so no graph is traced.
"""

import dataclasses
import functools
import time

import numpy as np
import tensorflow as tf

from hetero_tf.base.metrics import find_metric
from hetero_tf.rounds.cohort import record_types
from hetero_tf.run import experiment
from hetero_tf.run.learning_process import LearningProcess
from hetero_tf.run.simulated_rounds import SimulatedRounds

# At such a learning rate all clients diverge.
HOPELESS = 1e3
# Seconds of each round after the second one, in processes that `install` the stub.
pause = 0.0


class StubRounds(SimulatedRounds):
    """The `RoundRunner` that adds 0.01 and a share for the cohort to all values in each round.

    States and losses depend on the plans, so that runs with other cohorts differ. All metrics improve in each round.
    """

    def prepare(self) -> None:
        """Trace nothing."""

    def _train(self, state, planned, rates):
        time.sleep(pause if state.round >= 2 else 0)
        values, records = self.federation.state_layout.values_of(state), []
        for round, (plan, rate) in enumerate(zip(planned, rates), state.round + 1):
            rise = 0.01 + 0.001 * float(plan.clients.mean()) if rate < HOPELESS else 0.0
            values = tf.nest.map_structure(lambda value, rise=rise: tf.convert_to_tensor(value) + rise, values)
            records.append(self._records(round, plan) | {"finite": np.full(len(plan.clients), rate < HOPELESS)})
            self._report_progress(plan)
        return values, records, np.ones(len(planned), bool)

    def _records(self, round, plan):
        """The records of a cohort; the losses of clients differ."""
        values, types = 2 / round + 0.001 * plan.clients, record_types(self.federation.setup)
        return {name: values.astype(tf.as_dtype(kind).as_numpy_dtype) for name, kind in types.items()}

    def _report_progress(self, plan):
        """Report the steps of each client that finishes."""
        on_progress = self.federation.setup.on_progress
        for steps in plan.steps[plan.steps > 0].tolist() if on_progress else ():
            on_progress(steps, 1)

    def evaluate(self, state, levels=None):
        metrics, statistics = self._first_evaluation(state, levels)
        filled = tf.nest.map_structure(lambda value: tf.ones_like(value) / (1 + state.round), statistics)
        return {name: stub_metric(name, state.round) for name in metrics}, filled

    def _first_evaluation(self, state, levels):
        """The metrics and statistics of the first state, for their names and shapes; computed without a graph."""
        if levels not in self._evaluations:
            run_eagerly = tf.config.functions_run_eagerly()
            tf.config.run_functions_eagerly(True)
            try:
                self._evaluations[levels] = super().evaluate(state, levels)
            finally:
                tf.config.run_functions_eagerly(run_eagerly)
        return self._evaluations[levels]

    @functools.cached_property
    def _evaluations(self):
        return {}


def stub_metric(name, round):
    """The value of a metric after a round: in each round better than before, and different for each name."""
    share = (round + 0.001 * len(name)) / (round + 10)
    return 100 * share if find_metric(name).better == "higher" else 1 / (1 + share)


def stubbed(process: LearningProcess) -> LearningProcess:
    """The same process with the rounds of the stub."""
    return dataclasses.replace(process, build_runner=StubRounds)


def install(seconds=0.0):
    """Make all runs of this process use the stub, with this `pause`; for processes that only start the program."""
    global pause
    build, pause = experiment.learning_process, seconds
    experiment.learning_process = lambda *arguments, **options: stubbed(build(*arguments, **options))
