"""The benchmark scripts run and print what BUILD.md says they print; nothing here is timed."""

import json
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]


def test_round_benchmark_prints_one_json_line():
    command = [sys.executable, "benchmarks/round.py", "--recipe", "tiny/digits", "--levels", "a-c", "--repeats", "1",
               "--evaluate", "--json"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["traces"] == 1 and found["levels"] == "a-c" and found["steps"] > 0
    assert 0 < found["share_of_peak"] < 1
    assert found["examples_per_s"] > 0 and found["ms_per_step"] > 0 and found["peak_rss_mb"] > 100
    assert found["statistics_s"] <= found["evaluate_s"] * 2 and found["evaluate_first_s"] > 0
