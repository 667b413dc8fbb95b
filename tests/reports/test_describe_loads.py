"""Tables of the training loads of levels under budgets, from plain numbers; tests/models computes them."""

from hetero_tf.reports.describe.loads import to_text

MIB = 2**20


def stage(units, amount):
    return {"units": units, "amount": amount}


def level(budget, trains, skipped, parts, of_budget, over=False):
    share = {"of_budget": of_budget, "over": over, "estimate": max(part["amount"] for part in parts)}
    return {"budget": budget, "trains": trains, "skipped": skipped, "parts": parts, **share}


PARTS = [stage(("1", "2"), 3 * MIB), stage(("3",), 2.5 * MIB)]
STAGED = level("1/4", "2 stages", ("0",), PARTS, 1.0)
JOINT = level("2", "2 models", (), [stage(("0", "1", "2", "3"), 24 * MIB)], 1.06, over=True)
FREE = level(None, "width 0.5", (), [stage(("0",), 6 * MIB)], None)
TOTALS = {"clients": 4.0, "bytes_down": 252.0, "bytes_up": 237.0, "train_flops": 3520.0}


def described(**levels):
    settings = {"whole": 12 * MIB, "batch": 32, "measure": "memory", "tolerance": 0.05}
    return {**settings, "levels": levels, "round": TOTALS}


def test_text_shows_levels_stages_and_totals():
    levels, stages, notes = to_text(described(e=STAGED, a=JOINT, b=FREE)).split("\n\n")
    assert levels.splitlines() == [
        "level  budget  budget MiB     trains  left out  estimate MiB     of budget",
        "e         1/4        3.00   2 stages         0          3.00       100.0 %",
        "a           2       24.00   2 models         -         24.00  106.0 % OVER",
        "b           -           -  width 0.5         -          6.00             -",
    ]
    assert to_text(described(e=STAGED, a=JOINT, b=FREE), complete=False) == levels
    assert stages.splitlines() == [
        "level  stage   units   MiB",
        "e          1  1 to 2  3.00",
        "e          2       3  2.50",
    ]
    assert notes == (
        "full model: 12.00 MiB of training memory (FeDepth's convention, batches of 32). Budgets are shares of it; 5 % "
        "more is allowed.\n"
        "a round of 4 clients: 252 bytes down, 237 bytes up, 3520 FLOPs of training, expected."
    )


def test_measure_is_that_of_the_recipe():
    text = to_text(described(a=JOINT) | {"measure": "multiply_adds"})
    assert text.count("\n\n") == 1 and "budget million multiply-adds" in text.splitlines()[0]
    assert "full model: 12.58 million multiply-adds for one example, forward. Budgets are shares of it;" in text
