"""The process that logs a run: the last logged round, and new rows of metrics."""

from refusals import refusal

from hetero_tf.runs import tracker_process


def test_damaged_id_of_a_logged_run_is_reported(tmp_path):
    path = tmp_path / "wandb.json"
    path.write_text('{"id": "../x", "round": 1}')
    assert refusal(tracker_process.read_progress, path) == (
        f"{path}: must have the id and the last round of a logged run; delete it"
    )


def test_reader_waits_for_the_end_of_a_line(tmp_path):
    path, reader = tmp_path / "metrics.jsonl", tracker_process.MetricsReader(tmp_path / "metrics.jsonl")
    assert reader.read_new(0) == []
    path.write_bytes(b'{"round": 1, "loss": 2}\n{"round": 2, "lo')
    assert reader.read_new(0) == [(1, {"loss": 2.0})]
    with path.open("ab") as file:
        file.write(b'ss": null, "global_loss": 1}\n')
    assert reader.read_new(1) == [(2, {"global_loss": 1.0})] and reader.read_new(2) == []
