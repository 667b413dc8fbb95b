"""The stored times of the clients of the first rounds."""

import json

import pytest

from hetero_tf.base.files import Damaged
from hetero_tf.runs import metrics_file
from hetero_tf.runs.metrics_file import ClientSpan, RoundSpan


def span(round, clients=1, **values):
    """A round of ten seconds."""
    defaults = {"device": "phone", "level": "a", "download": 1.0, "compute": 5.0, "upload": 2.0, "status": "returned"}
    began = 10.0 * (round - 1)
    times = defaults | {"start": began} | values
    return RoundSpan(round, began, began + 10, [ClientSpan(client=client, **times) for client in range(clients)])


def test_first_rounds_are_stored_and_the_last_repetition_counts(tmp_path):
    path, spans = tmp_path / "timeline.jsonl", [span(round) for round in range(1, metrics_file.MOST_ROUNDS + 3)]
    assert metrics_file.read_spans(path) == []
    metrics_file.append_spans(path, [spans[0], span(2, level="b")])
    # A resumed run repeats rounds.
    metrics_file.append_spans(path, spans[1:])
    assert metrics_file.read_spans(path) == spans[: metrics_file.MOST_ROUNDS]
    assert spans[1].clients[0].end == 18.0


@pytest.mark.parametrize("changes", [{"began": -1}, {"ended": 1e99}, {"clients": [{}]}])
def test_other_content_is_refused(tmp_path, changes):
    path = tmp_path / "timeline.jsonl"
    metrics_file.append_spans(path, [span(1)])
    path.write_text(json.dumps(json.loads(path.read_text()) | changes) + "\n")
    with pytest.raises(
        Damaged, match=r"timeline.jsonl: (began|ended|clients).* (must be|is missing).*; delete the file$"
    ):
        metrics_file.read_spans(path)
