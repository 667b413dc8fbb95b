"""Time series: a table whose rows have different dates, from which windows forecast the next values."""

from collections.abc import Mapping
from dataclasses import replace

from hetero_tf.data.inspection import ColumnSummary
from hetero_tf.data.raw_table import RawTable
from hetero_tf.starter.choices import Choice, DataDraft, Request
from hetero_tf.starter.labels import choose_label

# Rows of an input, and the rows of the shortest series that is divided into such windows.
WINDOW, LEAST_ROWS = 24, 120


def find_time(summaries: Mapping[str, ColumnSummary], request: Request) -> str | None:
    """Return the column of times if all other columns have numbers and no date occurs twice; None for other tables."""
    dates = [summary for summary in summaries.values() if summary.type == "date"]
    others = [summary for summary in summaries.values() if summary.type != "date"]
    if len(dates) != 1 or request.task not in (None, "regression") or not others:
        return None
    is_series = dates[0].distinct == dates[0].rows >= LEAST_ROWS and len(dates[0].date_orders) == 1
    are_numbers = all(summary.type == "number" and summary.notation == "plain" for summary in others)
    return dates[0].name if is_series and are_numbers else None


def draft_series(
    table: RawTable, time: str, summaries: Mapping[str, ColumnSummary], request: Request, loader: Mapping[str, Choice]
) -> DataDraft:
    """Draft how a recipe reads a table as one time series.

    Args:
        table: The table as read.
        time: The column of times.
        summaries: Summaries of all columns.
        request: Choices of the user.
        loader: Options of `data` that name the file and its layout.
    """
    others = {name: summary for name, summary in summaries.items() if name != time}
    label = choose_label(table, others, replace(request, task="regression"))
    reason = f"each row has another {time}: windows of rows forecast the next one; csv trains single rows"
    options = {"name": Choice("series", reason, True), **loader, "label": label.columns}
    options |= {
        "time": Choice(time, "the only column of dates"),
        "window": Choice(WINDOW, "rows of an input; as many as matter for the next one", True),
    }
    if missing := [name for name, summary in others.items() if summary.missing]:
        options["missing"] = Choice("previous", f"missing values of {', '.join(missing)}", True)
    return DataDraft(options, Choice("regression", "a forecast of the next value"))
