"""Files of everyday life: `new` reads each as a person would, says what it left out, or refuses it with the remedy."""

import bz2
import datetime
import gzip
import io
import json
import lzma
import re
import sys
import unicodedata
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from hetero_tf import starter
from hetero_tf.base.errors import InputError

N = 120
RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(2, N)).round(3)
Y = np.where(X + Z > 0, "yes", "no")
TABLE = pd.DataFrame({"x": X, "z": Z, "y": Y})
TEXT = TABLE.to_csv(index=False)
ROWS = TEXT.splitlines()
READ = ["y label 2 distinct", "label: y   # the column named y", "task: classification"]
TAGS = ["red", "large", "new", "used"]
SETS = [[tag for tag in TAGS if RNG.random() < 0.5] for _ in range(N)]
WORDS = [" ".join(RNG.choice(["good", "bad", "fine", "awful", "great"], 12)) for _ in range(N)]
HOURS = pd.date_range("2024-01-01", periods=N, freq="h")
DAYS = pd.date_range("2023-01-01", periods=N)
SERIES = ["name: series", "label: v", "time: time"]
SETS_OF_TAGS = ["task: multi_label", "labels: "]


def table(**columns):
    """The table with further columns before its label, as text."""
    return TABLE[["x", "z"]].assign(**columns, y=Y).to_csv(index=False)


def changed(values, row, text):
    """Values with another one in a row."""
    return [text if index == row else value for index, value in enumerate(values)]


def sets(join):
    return TABLE[["x", "z"]].assign(tags=[join(each) for each in SETS]).to_csv(index=False)


def series(times, **columns):
    wave = np.sin(np.arange(len(times)) / 3).round(3)
    return pd.DataFrame({"time": list(times), "v": wave, **columns}).to_csv(index=False)


def zipped(text):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("inside.csv", text)
    return buffer.getvalue()


def file_of(write, data=TABLE, **options):
    """The bytes of a file that pandas writes."""
    buffer = io.BytesIO()
    getattr(data, write)(buffer, **options)
    return buffer.getvalue()


def zstd(text):
    return pa.compress(text.encode(), "zstd", asbytes=True)


TEXTS = pd.DataFrame({"id": range(N), "text": WORDS, "stars": np.arange(N) % 5 + 1, "label": Y})
GAPS = [*HOURS[:40], *(HOURS[40:] + pd.Timedelta(days=3))]
# Name of the file: (content, lines of the recipe, or the refusal).
FILES = {
    "a.csv.gz": (gzip.compress(TEXT.encode()), READ),
    "a.csv.bz2": (bz2.compress(TEXT.encode()), READ),
    "a.csv.xz": (lzma.compress(TEXT.encode()), READ),
    "a.csv.zst": (zstd(TEXT), READ),
    "a.csv.zip": (zipped(TEXT), READ),
    "a.data": (TEXT, READ),
    "noext": (TEXT, READ),
    "a.tsv": (TEXT.replace(",", "\t"), READ),
    "pipe.txt": (TEXT.replace(",", "|"), READ),
    "spaces.dat": (TEXT.replace(",", "  ").partition("\n")[2], ["header: false   # check", "label: column_2"]),
    "a.json": (TABLE.to_json(orient="records"), READ),
    "columns.json": (TABLE.to_json(), READ),
    "a.jsonl": (TABLE.to_json(orient="records", lines=True), READ),
    "a.feather": (file_of("to_feather"), READ),
    "a.parquet": (file_of("to_parquet"), READ),
    "windows.csv": (TEXT.replace("\n", "\r\n").encode("utf-16"), READ),
    "mark.csv": ("\ufeff" + TEXT, READ),
    "latin.csv": (TEXT.replace("yes", "süß").encode("latin-1"), [*READ, "encoding: cp1252   # check"]),
    "no_mark.csv": (TEXT.encode("utf-16-le"), ":1: is not UTF-8 text"),
    "german.csv": (TEXT.replace(",", ";").replace(".", ","), [*READ, "numbers: comma   # check: x has numbers such"]),
    "declared.csv": ("sep=;\n" + TEXT.replace(",", ";"), READ),
    "comments.csv": ("# of a sensor\n# 2024\n" + TEXT, READ),
    "title.csv": ("Report 2024,,\n" + TEXT, [*READ, "skip: 1   # check: lines above the names"]),
    "title_line.csv": ("Report 2024\n\n" + TEXT, [*READ, "skip: 2   # check: lines above the names"]),
    "no_header.csv": (TEXT.partition("\n")[2], ["header: false   # check: the first line has values like the lines"]),
    "index.csv": (TABLE.to_csv(), ['ignore: ["Unnamed: 0"]   # check: Unnamed: 0: an index written by pandas']),
    "twice.csv": (TEXT.replace("x,z", "x,x", 1), ":1: column names must be unique. Received: 'x' twice; rename"),
    "short_row.csv": (
        TEXT + "1,2\n",
        f":{N + 2}: must have 3 values separated by ',', like the first line. Received: 2",
    ),
    "long_row.csv": (TEXT + "1,2,3,4\n", f":{N + 2}: must have 3 values separated by ',', like the first line"),
    "quote.csv": (TEXT + '"1,2,yes\n', f":{N + 2}: cannot be parsed as CSV"),
    "empty.csv": ("", "expected at least one row of data. Received: none"),
    "header_only.csv": ("x,z,y\n", "expected at least one row of data. Received: none"),
    "few_rows.csv": ("x,z,y\n1,2,yes\n", "expected at least 5 rows to train and test. Received: 1"),
    "one_class.csv": (TEXT.replace("no", "yes"), "the label 'y' has the single value yes; add rows of another class"),
    "money.csv": (table(p=[f"{1 + n}.042,5 €" for n in range(N)]).replace(",y\n", ",y\n"), ["numbers: comma"]),
    "dollars.csv": (
        table(p=[f"${n + 1},042.5" for n in range(N)]),
        ["numbers: point   # check: p has numbers such as $1"],
    ),
    "currencies.csv": (
        table(p=[f"{'$€'[n % 2]}{n}.5" for n in range(N)]),
        ["ignore: [p]   # check: p: amounts in several currencies"],
    ),
    "bad_cell.csv": (
        table(w=changed(Z, 7, "two")),
        ["missing_values: [two]   # check: no numbers: w is two in 1 rows, first in bad_cell.csv:9", "missing: median"],
    ),
    "infinite.csv": (
        table(w=changed(Z, 3, np.inf)),
        ["missing_values: [inf]   # check: no numbers: w is inf in 1 rows"],
    ),
    "missing.csv": (
        table(w=changed(Z, 3, "?"), v=changed(X, 5, "-"), u=changed(X, 6, "#N/A")),
        ["missing: median   # check: missing values of w (1), v (1), u (1); numbers become the median"],
    ),
    "sentinel.csv": (
        table(w=np.where(np.arange(N) % 10, Z, -999)),
        ['# check: w: -999 in 12 of 120 rows looks like a missing value; set `missing_values: ["-999"]` and `missing`'],
    ),
    "minus_one.csv": (
        table(age=[-1 if n % 9 == 0 else 18 + n % 50 for n in range(N)]),
        ["# check: age: -1 in 14 of 120"],
    ),
    "ids.csv": (
        table(
            zip=[f"0{n * 7:04}" for n in range(N)],
            account=[10**17 + 7919 * n for n in range(N)],
            const=1,
            url=[f"http://h/{n}" for n in range(N)],
            seconds=1_700_000_000 + np.arange(N) ** 2 // 2,
        ),
        [
            "check: zip: row numbers or ids; account: row numbers or ids; const: all values are 1; url: row numbers or "
            "ids; seconds: numbers whose differences are too small for float32 ignore: [zip, account, const, url, seconds]"
        ],
    ),
    "codes.csv": (
        table(zip=[f"0{n % 4}" for n in range(N)]),
        ["columns: {zip: category}   # check: numbers with leading"],
    ),
    "none.csv": (
        table(garage=["None", "new", "old"] * (N // 3)),
        ["columns: {garage: category}   # check: None or NA is a category of garage"],
    ),
    "namibia.csv": (
        table(country=["DE", "NA", "FR", "US"] * (N // 4)),
        ["columns: {country: category}   # check: None"],
    ),
    "unknown_sex.csv": (
        table(sex=["male", "female", "NA"] * (N // 3)),
        ["missing: median   # check: missing values of sex"],
    ),
    "patients.csv": (table(patient=np.arange(N) // 3), ["group: patient   # check: rows of one patient stay together"]),
    "users.csv": (
        table(user=np.arange(N) % 8),
        ["check: 8 distinct values, about 15 rows each: clients; their rows are in training and test, unless"],
    ),
    "repeated.csv": (TEXT + TEXT.split("\n")[1] + "\n", ["# check: 1 of 121 rows repeat another row"]),
    "no_label.csv": (
        TABLE.assign(y=changed(Y, 4, "")).to_csv(index=False),
        ["missing: drop   # check: the label y has no value in 1 rows, which are left out"],
    ),
    "rare.csv": (TABLE.assign(y=np.arange(N) < 3).to_csv(index=False), ["# check: always predicting False has an acc"]),
    "stars.csv": (
        TABLE[["x"]].assign(stars=np.arange(N) % 5 + 1).to_csv(index=False),
        ["# check: 5 distinct numbers in 120 rows; ordinal if they are ranks, regression if they are amounts"],
    ),
    "grades.csv": (
        TABLE[["x"]].assign(**{"class": np.arange(N) % 6 + 3}, z=Z).to_csv(index=False),
        [
            "label: class   # the column named class",
            "# check: 6 distinct numbers in 120 rows; regression if they are am",
        ],
    ),
    "price.csv": (
        TABLE[["x"]].assign(price=np.arange(N) ** 2, kind=Y).to_csv(index=False),
        ["label: price   # the column named price", "task: regression   # 120 distinct numbers in 120 rows"],
    ),
    "amount.csv": (TABLE[["x", "z"]].to_csv(index=False), ["task: regression"]),
    "dates.csv": (
        table(d=DAYS.strftime("%d.%m.%Y")),
        ["columns: {d: date}   # dates become year, month, day and weekday; `data: series` uses"],
    ),
    "words_of_dates.csv": (
        table(d=DAYS.strftime("%b %d, %Y")),
        ["columns: {d: date}   # dates become year, month, day and weekday; `data: series` uses"],
    ),
    "ambiguous.csv": (
        table(d=[f"{1 + n % 12}/{1 + n % 11}/2024" for n in range(N)]),
        ["ignore: [d]   # check: d: ambiguous dates: day or month first"],
    ),
    "sets_semicolon.csv": (sets(";".join), SETS_OF_TAGS),
    "sets_bar.csv": (sets("|".join), SETS_OF_TAGS),
    "sets_comma.csv": (sets(", ".join), SETS_OF_TAGS),
    "sets_space.csv": (sets(" ".join), SETS_OF_TAGS),
    "sets_python.csv": (sets(str), SETS_OF_TAGS),
    "sets_json.csv": (sets(json.dumps), SETS_OF_TAGS),
    "sets.parquet": (file_of("to_parquet", TABLE[["x", "z"]].assign(tags=SETS)), SETS_OF_TAGS),
    "sets_columns.csv": (
        TABLE[["x", "z"]]
        .assign(**{f"is_{tag}": [int(tag in each) for each in SETS] for tag in TAGS})
        .to_csv(index=False),
        ["label: [is_red, is_large, is_new, is_used]   # check: the last 4 columns have 0 and 1", "task: multi_label"],
    ),
    "flags.csv": (
        TABLE[["x", "z"]].assign(**{tag: [int(tag in each) for each in SETS] for tag in TAGS}).to_csv(index=False),
        ["# check: columns red, large, new, used have 0 and 1; `--label red,large,new,used` trains all as labels"],
    ),
    "texts.csv": (
        TEXTS.to_csv(index=False),
        ["name: labelled_text", "# check: columns id, stars are not used: the model reads text alone", "label: label"],
    ),
    "texts_without_header.csv": (
        TEXTS[["text", "label"]].to_csv(index=False, header=False),
        ["name: labelled_text", "header: false   # check", "text: column_0", "label: column_1"],
    ),
    "short_texts.csv": ("text,label\n" + "".join(f"good {n},{Y[n]}\n" for n in range(N)), ["name: labelled_text"]),
    "texts_missing.csv": (
        TEXTS.assign(label=changed(Y, 2, ""), text=changed(WORDS, 3, "")).to_csv(index=False),
        ["missing: drop   # check: 2 rows without a text or a label are left out"],
    ),
    "t_iso.csv": (series(HOURS), SERIES),
    "t_zone.csv": (
        series([f"{t:%Y-%m-%d %H:%M}+0{1 + (n < 60)}:00" for n, t in enumerate(HOURS)]),
        [*SERIES, "# check: 1 gaps where times of time are missing"],
    ),
    "t_utc.csv": (series(HOURS.strftime("%Y-%m-%dT%H:%M:%SZ")), SERIES),
    "t_german.csv": (series(HOURS.strftime("%d.%m.%Y %H:%M")).replace(",", ";").replace(";0.", ";0,"), SERIES[:1]),
    "t_us.csv": (series(HOURS.strftime("%m/%d/%Y %I:%M %p")), SERIES)
    if HOURS[-1].day > 12
    else (series(HOURS), SERIES),
    "t_dmy.csv": (series(DAYS.strftime("%d/%m/%Y")), SERIES),
    "t_short_year.csv": (series(DAYS.strftime("%d.%m.%y")), SERIES),
    "t_month.csv": (series([f"{2000 + n // 12}-{n % 12 + 1:02}" for n in range(N)]), SERIES),
    "t_quarter.csv": (series([f"Q{n % 4 + 1} {1990 + n // 4}" for n in range(N)]), SERIES),
    "t_words.csv": (series(DAYS.strftime("%d %b %Y")), SERIES),
    "t_seconds.csv": (series(1_700_000_000 + 3600 * np.arange(N)), SERIES),
    "t_milliseconds.csv": (series(1_700_000_000_000 + 3_600_000 * np.arange(N)), SERIES),
    "t_year.csv": (series(np.arange(1900, 1900 + N)), SERIES),
    "t_newest.csv": (
        series(DAYS[::-1].strftime("%Y-%m-%d")),
        [*SERIES, "# check: rows are sorted by time, the oldest first"],
    ),
    "t_ambiguous.csv": (
        series([f"01/{1 + n % 12:02}/{1990 + n // 12}" for n in range(N)]),
        "must say which number is the day",
    ),
    "t_short.csv": (
        series(DAYS[:12]),
        "12 rows with different time are too few for forecasts; at least 48 rows are needed",
    ),
    "t_weekdays.csv": (series(pd.bdate_range("2023-01-02", periods=N)), SERIES),
    "t_gap.csv": (
        series(GAPS),
        [*SERIES, "# check: 1 gaps where times of time are missing, such as before {path}:42; no window"],
    ),
    "t_gaps.csv": (
        series([t for n, t in enumerate(HOURS) if n % 7]),
        [*SERIES, "window: 5   # check: times are missing, usually after 6 rows; `gaps: join` allows"],
    ),
    "t_missing.csv": (
        series(HOURS, w=changed(Z, 0, "")),
        ["missing: previous   # check: missing values of w (1) become the value before"],
    ),
    "t_constant.csv": (series(HOURS, w=7), [*SERIES, "# check: column w has a single value, 7"]),
    "t_series.csv": (
        series([*HOURS[:60], *HOURS[:60]], sensor=["a"] * 60 + ["b"] * 60),
        [*SERIES, "series: sensor   # check: 2 series with different time, at least 60 rows each: clients"],
    ),
    "t_repeated.csv": (series([*HOURS[:-1], HOURS[-2]]), ["# check: {path}:121: column 'time' repeats a time"]),
    "end_of_rows.csv": (ROWS[0] + "\n" + "".join(f"{row},\n" for row in ROWS[1:]), READ),
    "end_of_lines.csv": ("".join(f"{row.replace(',', ';')};\n" for row in ROWS), READ),
    "apostrophes.csv": ("\n".join(",".join(f"'{cell}'" for cell in row.split(",")) for row in ROWS), READ),
    "commented_names.csv": ("# of a sensor\n# " + TEXT, READ),
    "markdown.txt": ("\n".join(f"|{row.replace(',', '|')}|" for row in [ROWS[0], "---,:--,---", *ROWS[1:]]), READ),
    "carets.csv": (TEXT.replace(",", "^"), "separates values by '^'; save it with commas"),
    "units.csv": (
        "\n".join([ROWS[0], "[m],[kg],[-]", *ROWS[1:]]),
        ['missing_values: ["[m]", "[kg]", "[-]"]', "missing: drop"],
    ),
    "total.csv": (
        table(shop=["ab"[n % 2] for n in range(N - 1)] + ["Total"]),
        ["# check: the last row, Total, looks like a total of the others; remove it"],
    ),
    "unknown_label.csv": (
        TABLE.assign(y=[("unknown", 0, 1)[n % 3 if n % 6 == 0 else 1 + n % 2] for n in range(N)]).to_csv(index=False),
        ["missing_values: [unknown]   # check: no numbers: y is unknown in 20 rows, first in unknown_label.csv:2"],
    ),
    "spellings.csv": (
        table(smoker=["Yes", "yes", "no"] * (N // 3)),
        ["# check: smoker: Yes and yes differ only in case; are they the same?"],
    ),
    "quoted_lines.csv": (table(note=[f'"line\nof {n % 3}"' for n in range(N)]).replace('"""', '"'), READ),
    "units_in_cells.csv": (
        table(w=[f"{50 + n % 40} kg" for n in range(N)]),
        ["ignore: [w]   # check: w: numbers with a unit such as 50 kg; remove the unit"],
    ),
    "hours.csv": (
        table(t=[f"{n % 24:02}:30" for n in range(N)]),
        ["ignore: [t]   # check: t: times of day, which are"],
    ),
    "huge.csv": (table(w=[f"{x}e300" for x in X]), ["ignore: [w]   # check: w: numbers beyond the range of float32"]),
    "large.csv": (table(w=[f"{x}e20" for x in X]), READ),
    "account.csv": (
        table(account=[str(2**60 + n % 50) for n in range(N)]),
        ["group: account   # check: rows of one account"],
    ),
    "uuid.csv": (
        table(key=[f"{n * 7919:08x}-11-{n * 104729:012x}" for n in range(N)]),
        ["ignore: [key]   # check: key: row numbers or ids"],
    ),
    "lakh.csv": (table(p=[f'"{1 + n % 9},23,{100 + n}"' for n in range(N)]).replace('"""', '"'), ["numbers: point"]),
    "minus.csv": (table(p=[f"\u2212{n}.5" for n in range(N)]), ["numbers: point"]),
    "single.csv": (
        "text\n" + "\n".join(WORDS),
        "must have a label and at least one other column; for a model of running",
    ),
    "nested.json": (
        json.dumps([{"m": {"x": x, "deep": {"z": z}}, "y": y} for x, z, y in TABLE.itertuples(index=False)]),
        ["m.deep.z number", *READ],
    ),
    "nested.jsonl": (
        "\n".join(json.dumps({"u": {"x": x, "z": z}, "y": y}) for x, z, y in TABLE.itertuples(index=False)),
        ["u.x number", *READ],
    ),
    "features.json": (json.dumps({"count": N, "features": TABLE.to_dict("records")}), READ),
    "index.json": (TABLE.to_json(orient="index"), READ),
    "split.json": (TABLE.to_json(orient="split"), READ),
    "schema.json": (TABLE.to_json(orient="table", index=False), READ),
    "account.json": (
        json.dumps([{"account": None if n == 5 else 2**60 + n, "x": x, "y": y} for n, (x, y) in enumerate(zip(X, Y))]),
        ["ignore: [account]   # check: account: row numbers or ids"],
    ),
    "nullable.parquet": (
        file_of("to_parquet", TABLE.assign(i=pd.array([None if n % 9 == 0 else n % 7 for n in range(N)], "Int64"))),
        ["missing: median   # check: missing values of i (14)"],
    ),
    "zone.parquet": (
        file_of("to_parquet", TABLE.assign(t=HOURS.tz_localize("UTC"), d=pd.to_timedelta(np.arange(N), "h"))),
        ["ignore: [d]   # check: d: neither numbers nor texts", "columns: {t: date}"],
    ),
    "nfd.csv": (
        table(city=[unicodedata.normalize(("NFC", "NFD")[n % 2], "Café") for n in range(N)]),
        ["all values are Café"],
    ),
    "french.csv": (
        table(d=[f"{1 + n % 28} {('mars', 'août', 'mai')[n % 3]} 2020" for n in range(N)]),
        ["columns: {d: date}"],
    ),
    "packed.csv": (gzip.compress(TEXT.encode()), READ),
    "days.json": (
        pd.DataFrame({"v": np.sin(np.arange(N)), "w": Z}, index=DAYS.strftime("%Y-%m-%d")).to_json(orient="index"),
        ["name: series", "time: index"],
    ),
    "date_0.csv": (
        table(d=["0000-00-00" if n % 11 == 0 else f"2024-01-{1 + n % 28:02}" for n in range(N)]),
        ["columns: {d: date}", "# check: no dates: d is 0000-00-00 in 11 rows, first in date_0.csv:2"],
    ),
    "two_notations.csv": (
        table(d=[f"2024-01-{1 + n % 28:02}" if n % 2 else f"{1 + n % 28:02}.01.2024" for n in range(N)]),
        ["d date 2024-01-01 to 2024-01-28, 28 distinct", "columns: {d: date}"],
    ),
    "price_unknown.csv": (
        TABLE[["x"]].assign(price=["on request" if n % 12 == 0 else n + X[n] for n in range(N)]).to_csv(index=False),
        ["task: regression", "missing: drop   # check: the label price has no value in 10 rows"],
    ),
    "price_sentinel.csv": (
        TABLE[["x"]].assign(price=np.where(np.arange(N) % 12, 100 + X, -999)).to_csv(index=False),
        ["# check: price: -999 in 10 of 120 rows looks like a missing value"],
    ),
    "binary.parquet": (
        file_of("to_parquet", TABLE.assign(s=[text.encode() for text in Y])),
        ["ignore: [s]   # check: s: neither numbers nor texts", *READ],
    ),
    "t_week.csv": (series([f"2{n // 52:03}-W{1 + n % 52:02}" for n in range(N)]), SERIES),
    "t_compact.csv": (series(HOURS.strftime("%Y%m%d%H%M%S")), SERIES),
    "t_basic.csv": (series(HOURS.strftime("%Y%m%dT%H%M%S")), SERIES),
    "t_points.csv": (series(HOURS.strftime("%d.%m.%Y %H.%M")), SERIES),
    "t_quartal.csv": (series([f"{n % 4 + 1}. Quartal {1990 + n // 4}" for n in range(N)]), SERIES),
    "page.html": (TABLE.to_html(), "page.html: is HTML or XML; save it as CSV or Parquet, for example with pandas"),
    "page.txt": ("<?xml version='1.0'?>\n" + TABLE.to_html(), "is HTML or XML; save it as CSV or Parquet"),
    "a.arff": ("@relation r\n@attribute x numeric\n@data\n1\n", "is an ARFF file; save it as CSV or Parquet"),
    "svm.txt": ("".join(f"{n % 2} 1:{x} 2:{x}\n" for n, x in enumerate(X)), "is a LibSVM file; save it as CSV"),
    "fast.txt": (
        "".join(f"__label__{y} {text}\n" for y, text in zip(Y, WORDS)),
        "is a file of fastText; save it as CSV",
    ),
    "a.pkl": (file_of("to_pickle"), "is a file of Python or HDF5; save it as CSV or Parquet"),
    "a.db": (b"SQLite format 3\0", "is a database; save it as CSV or Parquet"),
    "a.tar.gz": (gzip.compress(b"a"), "is an archive; save it as CSV or Parquet"),
    "a.ods": (b"PK", "is a spreadsheet other than Excel; save it as CSV or Parquet"),
}


def plain(text):
    """A text without the signs and line ends of comments, which may be wrapped."""
    return " ".join(word for word in text.split() if word != "#")


def read(path):
    """The draft of a file and the text of its recipe, which is valid."""
    made = starter.draft_recipe(starter.Request(str(path), None, None, (), lambda likely, default: default))
    text = starter.render(made, ())
    starter.check(text, "mine.yaml", made)
    return made, text


@pytest.mark.parametrize("name", FILES)
def test_file_is_read_as_a_person_would(name, tmp_path):
    content, expected = FILES[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if isinstance(expected, str):
        with pytest.raises(InputError, match=re.escape(expected)):
            read(path)
        return
    _, text = read(path)
    for line in expected:
        assert plain(line.replace("{path}", str(path))) in plain(text), text


def test_excel_is_read_with_its_extra(tmp_path, monkeypatch):
    pytest.importorskip("openpyxl")
    path = tmp_path / "a.xlsx"
    with pd.ExcelWriter(path) as writer:
        TEXTS.to_excel(writer, sheet_name="texts", index=False)
        TABLE.to_excel(writer, sheet_name="b", index=False)
    _, text = read(path)
    assert "name: labelled_text" in text and "has 2 sheets; 'texts' is read" in plain(text)
    TABLE.assign(y=Y, d=DAYS).to_excel(path, index=False)
    _, text = read(path)
    assert all(plain(line) in plain(text) for line in (*READ, "columns: {d: date}"))
    above = pd.DataFrame([["Report 2024", None, None], [None] * 3, list(TABLE), *TABLE.values.tolist()])
    above.to_excel(path, index=False, header=False)
    _, text = read(path)
    assert all(plain(line) in plain(text) for line in (*READ, "skip: 2   # check: lines above the names"))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(InputError, match=r"Excel files need the extra `excel`; pip install 'hetero_tf\[excel\]'"):
        read(path)


def test_times_keep_their_order_across_a_change_of_clocks(tmp_path):
    zone = datetime.timezone(datetime.timedelta(hours=2)), datetime.timezone(datetime.timedelta(hours=1))
    start = datetime.datetime(2024, 10, 26, tzinfo=datetime.timezone.utc)
    times = [(start + datetime.timedelta(hours=n)).astimezone(zone[n > 24]).isoformat(" ") for n in range(N)]
    (tmp_path / "t.csv").write_text(series(times))
    made, _ = read(tmp_path / "t.csv")
    assert made.data.options["name"].value == "series" and not made.warnings
