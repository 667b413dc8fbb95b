"""Files of everyday life: `new` reads each as a person would, says what it left out, or refuses it with the remedy."""

import datetime
import gzip
import io
import json
import sys
import unicodedata

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
from PIL import Image
from refusals import refusal

from hetero_tf import starter

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
FLAGS = {tag: [int(tag in each) for each in SETS] for tag in TAGS}
WORDS = [" ".join(RNG.choice(["good", "bad", "fine", "awful", "great"], 12)) for _ in range(N)]
HOURS = pd.date_range("2024-01-01", periods=N, freq="h")
DAYS = pd.date_range("2023-01-01", periods=N)
SERIES = ["name: series", "label: v", "time: time"]
YEARS = [*range(1900, 2020)]
NS, RECORDS = range(N), [*TABLE.itertuples(index=False)]
TITLE = [*READ, "# check: {path}: the title above the names of the columns is left out: 'Report 2024'"]
LABELLED = ["name: labelled_text", "label: label"]
SETS_OF_TAGS = ["task: multi_label", "labels: "]


def frame(columns, **more):
    """Some columns of the table and further ones, as text."""
    return TABLE[list(columns)].assign(**more).to_csv(index=False)


def table(**columns):
    """The table with further columns before its label, as text."""
    return frame("xz", **columns, y=Y)


def changed(values, row, text):
    """Values with another one in a row."""
    return [text if index == row else value for index, value in enumerate(values)]


def parquet(**columns):
    """The bytes of a Parquet file of the table with further columns."""
    return file_of("to_parquet", TABLE.assign(**columns))


def sets(join):
    return frame("xz", tags=[join(each) for each in SETS])


def series(times, **columns):
    wave = np.sin(np.arange(len(times)) / 3).round(3)
    return pd.DataFrame({"time": list(times), "v": wave, **columns}).to_csv(index=False)


def file_of(write, data=TABLE, **options):
    buffer = io.BytesIO()
    getattr(data, write)(buffer, **options)
    return buffer.getvalue()


def pictures(*folders, **files):
    return {**{f"{folder}/{n}.png": PNG for folder in folders for n in range(5)}, **files}


TEXTS = pd.DataFrame({"id": range(N), "text": WORDS, "stars": np.arange(N) % 5 + 1, "label": Y})
GAPS = [*HOURS[:40], *(HOURS[40:] + pd.Timedelta(days=3))]
PNG = file_of("save", Image.new("P", (8, 8)), format="PNG")
PNG_12 = tf.io.encode_png(np.full((8, 8, 1), 4095, np.uint16)).numpy()
PACKED = {"gz": "gzip", "bz2": "bz2", "xz": "xz", "zip": "zip"}
# Name of the file: (content, lines of the recipe, or the refusal).
FILES = {
    **{f"a.csv.{ending}": (file_of("to_csv", index=False, compression=name), READ) for ending, name in PACKED.items()},
    "a.csv.zst": (pa.compress(TEXT.encode(), "zstd", asbytes=True), READ),
    "a.data": (TEXT, READ),
    "noext": (TEXT, READ),
    "a.tsv": (TEXT.replace(",", "\t"), READ),
    "pipe.txt": (TEXT.replace(",", "|"), READ),
    "spaces.dat": (TEXT.replace(",", "  ").replace("\n", " \n").partition("\n")[2], ["header: false   # check", "label: column_2"]),
    "a.json": (TABLE.to_json(orient="records"), READ),
    "columns.json": (TABLE.to_json(), READ),
    "a.jsonl": (TABLE.to_json(orient="records", lines=True), READ),
    "a.feather": (file_of("to_feather"), READ),
    "a.parquet": (file_of("to_parquet"), READ),
    "windows.csv": (TEXT.replace("\n", "\r\n").encode("utf-16"), READ),
    "mark.csv": ("\ufeff" + TEXT, READ),
    "latin.csv": (TEXT.replace("yes", "süß").encode("latin-1"), [*READ, "encoding: cp1252   # check"]),
    "russian.csv": (TEXT.replace("yes", "да").encode("cp1251"), [*READ, "encoding: cp1251   # check: the text is not UTF-8; set another encoding if да has wrong letters", "classes: no"]),
    "russian_texts.csv": (TEXTS.assign(text="это письмо " + TEXTS["text"].str.replace("good", "хорошо"), label=np.where(Y == "no", "нет", "да")).to_csv().encode("cp1251"), [*LABELLED, "encoding: cp1251", "classes: нет"]),
    "chinese.csv": (TEXT.replace("yes", "北京").encode("gbk"), ":2: is not UTF-8 text; save it as UTF-8, or set `encoding` (cp"),
    "no_mark.csv": (TEXT.encode("utf-16-le"), ":1: is not UTF-8 text"),
    "german.csv": (TEXT.replace(",", ";").replace(".", ","), [*READ, "numbers: comma   # check: x has numbers such"]),
    # Percentages have no decimal sign, so the prices decide.
    "percent.csv": (pd.DataFrame({"off": ["5 %", "0 %"] * (N // 2), "price": [f"€ {n},5{n % 9}" for n in NS], "y": Y}).to_csv(sep=";"), ["numbers: comma   # check: price has numbers such as "]),
    "declared.csv": ("sep=;\n" + TEXT.replace(",", ";"), READ),
    "comments.csv": ("# of a sensor\n# 2024\n" + TEXT, READ),
    "title.csv": ("Report 2024,,\n" + TEXT, TITLE),
    "preamble.csv": ("Report 2024\nAt: 48.1, 11.5\n\n" + TEXT, TITLE),
    "no_header.csv": (TEXT.partition("\n")[2], ["header: false   # check: the first line has values like the lines"]),
    "label_first.csv": (TABLE[["y", "x", "z"]].to_csv(index=False, header=False), ["# check: the first column that can be a label", "label: column_0"]),
    "letters.csv": (pd.DataFrame(RNG.choice([*"abc"], (N, 5))).to_csv(index=False, header=False), ["header: false", "label: column_4"]),
    "index.csv": (TABLE.to_csv(), ['ignore: ["Unnamed: 0"]   # check: Unnamed: 0: an index written by pandas']),
    "twice.csv": (TEXT.replace("x,z", "x,x", 1), ":1: column names must be unique. Received: 'x' twice; rename"),
    "short_row.csv": (TEXT + "1,2\n", f":{N + 2}: must have 3 values separated by ',', like the first line. Receiv"),
    "long_row.csv": (TEXT + "1,2,3,4\n", f":{N + 2}: must have 3 values separated by ',', like the first line"),
    "quote.csv": (TEXT + '"1,2,yes\n', f":{N + 2}: cannot be parsed as CSV"),
    "quotes.tsv": ("y\ttext\n" + "".join(f'{y}\t"so {text}\n' for y, text in zip(Y, WORDS)), ["name: labelled_text", "text: text"]),
    "joined.csv": (TEXT + TEXT, [*READ, "# check: {path}: 1 lines of comments or repeated names are left out, such as: 'x z y'"]),
    "comment.csv": ("\n".join([*ROWS[:9], "# a, b, c, d", *ROWS[9:]]), [*READ, "names are left out, such as: '# a b c d'"]),
    "packed_parquet.csv": (file_of("to_parquet"), "is JSON, Parquet or Arrow with another ending; save it as CSV"),
    "decimals.csv": ("a;b;y\n" + "".join(f"{1 + n % 9},{100 + n};{n},5;{Y[n]}\n" for n in NS), ["numbers: comma", "a number 1.1 to "]),
    "points.csv": (pd.DataFrame({"p": [f"{n},5 €" for n in NS], "lat": 48 + np.arange(N) / 1000, "y": Y}).to_csv(sep=";"), ["lat number 48 to 48.119"]),
    "currencies.csv": (table(mixed=[f"{'$€'[n % 2]}{n}.5" for n in NS], b=[f"${n},042.5" for n in NS]), ["ignore: [mixed]", "numbers: point"]),
    "one_hot.csv": (frame("xz", **{f"class_{k}": [int(n % 3 == k) for n in NS] for k in range(3)}), ["task: multi_label", "one for each label; each row has exactly one 1: if these are classes"]),
    "lists.csv": (TEXTS.assign(label=[";".join(each) or "red" for each in SETS]).to_csv(), ["# check: label has lists such as", "list is one class"]),
    "scores.csv": (TEXTS[["text"]].assign(score=X).to_csv(index=False), "a label has two or more values, but few beside a text."),
    "empty.csv": ("", "expected at least one row of data. Received: none"),
    "header_only.csv": ("x,z,y\n", "expected at least one row of data. Received: none"),
    "few_rows.csv": ("x,z,y\n1,2,yes\n", "expected at least 5 rows to train and test. Received: 1"),
    "one_class.csv": (TEXT.replace("no", "yes"), "the label 'y' has the single value yes; add rows of another class"),
    "repeated.csv": (TEXT + TEXT.split("\n")[1] + "\n", ["# check: 1 of 121 rows repeat another row"]),
    "no_label.csv": (frame("xz", y=changed(Y, 4, "")), ["missing: drop   # check: the label y has no value in 1 rows"]),
    "notes.csv": (frame("xz", y=changed(Y, 4, ""), note=["call"] * 20 + [""] * (N - 20)), ["rows with any missing value are left out, 100 by note; `ignore` it to keep them"]),
    "rare.csv": (TABLE.assign(y=np.arange(N) < 3).to_csv(index=False), ["# check: always predicting False has an acc"]),
    "stars.csv": (frame("x", stars=np.arange(N) % 5 + 1), ["# check: 5 distinct numbers in 120 rows; ordinal if they"]),
    "grades.csv": (frame("x", **{"class": np.arange(N) % 6 + 3}, z=Z), ["label: class   # the column named class", "# check: 6 distinct numbers in 120 rows; regression if they are am"]),
    "price.csv": (frame("x", price=np.arange(N) ** 2, kind=Y), ["label: price   # the column named price", "task: regression   # 120 distinct numbers in 120 rows"]),
    "amount.csv": (frame("xz"), ["task: regression"]),
    "sets_semicolon.csv": (sets(";".join), SETS_OF_TAGS),
    "sets_bar.csv": (sets("|".join), SETS_OF_TAGS),
    "sets_comma.csv": (sets(", ".join), SETS_OF_TAGS),
    "sets_space.csv": (sets(" ".join), SETS_OF_TAGS),
    "sets_python.csv": (sets(str), SETS_OF_TAGS),
    "sets_json.csv": (sets(json.dumps), SETS_OF_TAGS),
    "sets.parquet": (file_of("to_parquet", TABLE[["x", "z"]].assign(tags=SETS)), SETS_OF_TAGS),
    "sets_columns.csv": (frame("xz", **{f"is_{tag}": flags for tag, flags in FLAGS.items()}), ["label: [is_red, is_large, is_new, is_used]   # check: the last 4 columns have 0 and 1", "task: multi_label"]),
    "targets.csv": (TABLE.assign(k=Y, target_0=X, target_1=Z).to_csv(index=False), ["label: [target_0, target_1]   # 2 columns of numbers named target", "task: regression"]),
    "flags.csv": (frame("xz", **FLAGS), ["# check: columns red, large, new, used have 0 and 1; `--label red,large,ne"]),
    "texts.jsonl": (TEXTS.to_json(orient="records", lines=True), [*LABELLED, "length: 16   # 0% of the texts are longer and cut"]),
    "texts.parquet": (file_of("to_parquet", TEXTS), [*LABELLED, "length: 16   # 0% of the texts are longer and cut"]),
    "few_words.txt": ("the cat sat on the mat and then it ran\n" * 500, ["tokenizer: characters   # check: 5,500 words are few; characters are learned from less text than words"]),
    "no_spaces.txt": ("今天天气很好我们去公园散步然后回家吃饭\n" * 300, ["tokenizer: characters   # the text has no spaces between words"]),
    "texts.csv": (TEXTS.to_csv(index=False), [*LABELLED, "# check: columns id, stars are not used: the model reads"]),
    "texts_without_header.csv": (TEXTS[["text", "label"]].to_csv(index=False, header=False), ["name: labelled_text", "header: false   # check", "text: column_0", "label: column_1"]),
    "short_texts.csv": ("text,label\n" + "".join(f"good {n},{Y[n]}\n" for n in range(N)), ["name: labelled_text"]),
    "texts_missing.csv": (TEXTS.assign(label=changed(Y, 2, ""), text=changed(WORDS, 3, "")).to_csv(index=False), ["missing: drop   # check: 2 rows without a text or a label are left out"]),
    "t_iso.csv": (series(HOURS), SERIES),
    "t_cet.csv": (series([f"{t:%Y-%m-%d %H:%M} {('CET', 'CEST')[n > 60]}" for n, t in enumerate([*HOURS[:61], *HOURS[62:]])]), SERIES),
    "t_unix_date.csv": (series(HOURS.strftime("%a %b %d %H:%M:%S EST %Y")), SERIES),
    "t_apache.csv": (series(HOURS.strftime("[%d/%b/%Y:%H:%M:%S -0700]")), SERIES),
    "t_browser.csv": (series(HOURS.strftime("%a %b %d %Y %H:%M:%S GMT+0100 (Central European Time)")), SERIES),
    "t_exif.csv": (series(HOURS.strftime("%Y:%m:%d %H:%M:%S")), SERIES),
    "t_utc.csv": (series(HOURS.strftime("%Y-%m-%dT%H:%M:%SZ")), SERIES),
    "t_german.csv": (series(HOURS.strftime("%d.%m.%Y %H:%M")).replace(",", ";").replace(";0.", ";0,"), SERIES[:1]),
    "t_us.csv": (series(pd.date_range("2024-01-11", periods=N, freq="h").strftime("%m/%d/%Y %I:%M %p")), SERIES),
    "t_dmy.csv": (series(DAYS.strftime("%d/%m/%Y")), SERIES),
    "t_unix.csv": (series(1_700_000_000 + 60 * np.arange(N)).replace("time", "ts"), ["name: series", "time: ts"]),
    "t_volume.csv": (series(HOURS, volume=changed([200_000_000 + 1000 * n for n in NS], 5, 200_006_001)), SERIES[:1]),
    "t_parts.csv": (series(HOURS.strftime("%H:%M"), day=HOURS.strftime("%Y-%m-%d")), "day and time are parts of one time; join them in one"),
    "t_sensors.csv": (series([*HOURS[:60]] * 2, s=["a", "b"] * 60, room=["c", "d"] * 60), ["not used as time, since other columns have texts: s, room"]),
    "t_range.csv": (series([f"{time} - {time}" for time in HOURS]), "no column can be a feature of the label v"),
    "t_short_year.csv": (series(DAYS.strftime("%d.%m.%y")), SERIES),
    "t_month.csv": (series([f"{2000 + n // 12}-{n % 12 + 1:02}" for n in range(N)]), SERIES),
    "t_quarter.csv": (series([f"Q{n % 4 + 1} {n // 4:02}" for n in range(N)]), SERIES),
    "t_words.csv": (series(DAYS.strftime("%d %b %Y")), SERIES),
    "t_seconds.csv": (series(1_700_000_000 + 3600 * np.arange(N)), SERIES),
    "t_milliseconds.csv": (series(1_700_000_000_000 + 3_600_000 * np.arange(N)), SERIES),
    "t_kind.csv": (series(range(1900, 2020), kind=Y), ["data: name: csv", "ignore: [time]   # check: time: row numbers or ids task"]),
    "t_shops.csv": (series(YEARS[:60] * 2, shop=["a"] * 60 + ["b"] * 60), [*SERIES, "series: shop", "window: 15   # check: rows of an input; as many as matter for the next one task"]),
    "t_slope.csv": (series(YEARS, v=np.sin(YEARS) + YEARS), [*SERIES, "window: 24", "relative: true"]),
    "t_slow.csv": (series(YEARS, v=np.sin(np.array(YEARS) / 9)), [*SERIES, "window: 24", "relative: true"]),
    "t_year.csv": (series(np.arange(1900, 1900 + N)), SERIES),
    "t_ambiguous.csv": (series([f"01/{1 + n % 12:02}/{1990 + n // 12}" for n in range(N)]), "must say which number is the day"),
    "t_short.csv": (series(DAYS[:12]), "12 rows with different time are too few for forecasts; at least 48 rows are n"),
    "t_weekdays.csv": (series(pd.bdate_range("2023-01-02", periods=N)), SERIES),
    "t_missing.csv": (series(HOURS, w=changed(Z, 0, "")), ["missing: previous   # check: missing values of w (1) "]),
    "t_hours.csv": (series(np.repeat(DAYS[:5], 24), hr=[*range(24)] * 5), ["name: csv", ":3: column 'time' repeats a time"]),
    "t_hour.csv": (series(np.repeat(DAYS[:5], 24), hour=[*range(24)] * 5), ["name: csv", ":3: column 'time' repeats a time"]),
    "t_repeated.csv": (series([*HOURS[:-1], HOURS[-2]]), ["# check: {path}:121: column 'time' repeats a time"]),
    "end_of_rows.csv": (ROWS[0] + "\n" + "".join(f"{row},\n" for row in ROWS[1:]), READ),
    "end_of_lines.csv": ("".join(f"{row.replace(',', ';')};\n" for row in ROWS), READ),
    "records.txt": (TABLE.to_json(orient="records", lines=True), "is JSON, Parquet or Arrow with another ending; save it as"),
    "mysql.txt": ("\n".join(f"|{row.replace(',', '|')}|" for row in [ROWS[0], "---+---,---", *ROWS[1:]]), READ),
    "unnamed.csv": (TEXT.replace("z", "", 1), ["Unnamed: 1 number"]),
    "ends.csv": ("".join(f"{row};\n" for row in ROWS), ["columns: 3 of 120 rows"]),
    "years.csv": (pd.DataFrame({"k": Y, "2020": X, "2021": Z}).to_csv(index=False), ["2020 number", 'label: "2021"']),
    "apostrophes.csv": ("\n".join(",".join(f"'{cell}'" for cell in row.split(",")) for row in ROWS), READ),
    "commented_names.csv": ("# of a sensor\n# " + TEXT, READ),
    "markdown.txt": ("\n".join(f"|{row.replace(',', '|')}|" for row in [ROWS[0], "---,:--,---", *ROWS[1:]]), READ),
    "carets.csv": (TEXT.replace(",", "^"), "Received: the single column 'x^z^y'"),
    "units.csv": ("\n".join([ROWS[0], "[m],[kg],[-]", *ROWS[1:]]), ['missing_values: ["[m]", "[kg]", "[-]"]', "missing: drop"]),
    "unknown_label.csv": (frame("xz", y=["unknown" if n % 6 == 0 else n % 2 for n in NS]), ["missing_values: [unknown]   # check: no numbers: y is unknown in 20 rows, first in unknown_label.csv:2"]),
    "single.csv": ("text\n" + "\n".join(WORDS), "must have a label and at least one other column; for a model of"),
    "nested.json": (json.dumps([{"m": {"x": x, "n": {"z": z}}, "y": y} for x, z, y in RECORDS]), ["m.n.z number", *READ]),
    "nested.jsonl": ("\n".join(json.dumps({"u": {"x": x, "z": z}, "y": y}) for x, z, y in RECORDS), ["u.x number", *READ]),
    "features.json": (json.dumps({"count": N, "features": TABLE.to_dict("records")}), READ),
    "index.json": (TABLE.to_json(orient="index"), READ),
    "split.json": (TABLE.to_json(orient="split"), READ),
    "schema.json": (TABLE.to_json(orient="table", index=False), READ),
    "account.json": (json.dumps([{"account": None if n == 5 else 2**60 + n, "x": x, "y": y} for n, (x, y) in enumerate(zip(X, Y))]), ["ignore: [account]   # check: account: row numbers or ids"]),
    "null.parquet": (parquet(i=pd.array([n % 7 or None for n in NS], "Int64")), ["# check: missing values of i (18)"]),
    "zone.parquet": (parquet(t=HOURS.tz_localize("UTC")), ["columns: {t: date}"]),
    "lists.parquet": (parquet(name=[f"N {n} x" for n in NS], parts=[[1, 2]] * N), ["ignore: [name, parts]", "parts: neither numbers nor texts task"]),
    "timedelta.parquet": (parquet(d=pd.to_timedelta(np.arange(N), "h")), ["d: neither numbers nor texts"]),
    "packed.csv": (gzip.compress(TEXT.encode()), READ),
    "days.json": (pd.DataFrame({"v": np.sin(np.arange(N)), "w": Z}, index=DAYS.strftime("%Y-%m-%d")).to_json(orient="index"), ["name: series", "time: index"]),
    "price_unknown.csv": (frame("x", price=["on request" if n % 12 == 0 else n + X[n] for n in NS]), ["task: regression", "missing: drop   # check: the label price has no value in 10 rows"]),
    "price_sentinel.csv": (frame("x", price=np.where(np.arange(N) % 12, 100 + X, -999)), ["# check: price: -999 in 10 of 120 rows looks like a missing value"]),
    "binary.parquet": (parquet(s=[text.encode() for text in Y]), ["ignore: [s]   # check: s: neither numbers nor tex"]),
    "t_week.csv": (series([f"2{n // 52:03}-W{1 + n % 52:02}" for n in range(N)]), SERIES),
    "t_compact.csv": (series(HOURS.strftime("%Y%m%d%H%M%S")), SERIES),
    "t_basic.csv": (series(HOURS.strftime("%Y%m%dT%H%M%S")), SERIES),
    "t_uhr.csv": (series(HOURS.strftime("%d.%m.%Y, %H:%M Uhr")), SERIES),
    "t_dash.csv": (series(HOURS.strftime("%Y/%m/%d-%H:%M:%S")), SERIES),
    "t_points.csv": (series(HOURS.strftime("%d.%m.%Y %H.%M")), SERIES),
    "t_quartal.csv": (series([f"{n % 4 + 1}. Quartal {1990 + n // 4}" for n in range(N)]), SERIES),
    "page.html": (TABLE.to_html(), "page.html: is HTML or XML; save it as CSV or Parquet, for example with pandas"),
    "page.txt": ("<?xml version='1.0'?>\n" + TABLE.to_html(), "is HTML or XML; save it as CSV or Parquet"),
    "a.arff": ("@relation r\n@attribute x numeric\n@data\n1\n", "is an ARFF file; save it as CSV or Parquet"),
    "svm.txt": ("".join(f"{n % 2} 1:{x} 2:{x}\n" for n, x in enumerate(X)), "is a LibSVM file; save it as CSV"),
    "fast.txt": ("".join(map("__label__{} {}\n".format, Y, WORDS)), "is a file of fastText; save it as CSV"),
    "a.pkl": (file_of("to_pickle"), "is a file of Python or HDF5; save it as CSV or Parquet"),
    "a.db": (b"SQLite format 3\0", "is a database; save it as CSV or Parquet"),
    "a.tar.gz": (gzip.compress(b"a"), "is an archive; save it as CSV or Parquet"),
    "readme": (pictures("a", "b", **{"README.md": "a " * 900}), ["name: folder", "# check: README.md is not read: folders are the classes"]),
    "labels": (pictures(".", **{"labels.csv": TEXT}), "has pictures and labels.csv; move the pictures of each class into a folder"),
    "inner": (pictures("a/c", "b/d"), ["folders inside of classes, such as d, are not read as classes"]),
    "masked": (pictures("image", "mask"), "image/ and mask/ are pictures with masks, not two classes; name them images and"),
    "both": (pictures("a", "b", **{f"{c}/{n}_mask.png": PNG for c in "ab" for n in range(5)}), ["8 examples", "check: {path}: 10 masks such as {path}/a/0_mask.png are left out"]),
    "inner_masks": (pictures("a/images", "a/masks", "b/images", "b/masks"), ["8 examples", "10 masks such as {path}/a/masks/0.png"]),
    "three": (pictures(*(f"{split}/{c}" for split in ("train", "val", "test") for c in "ab")), ["check: val is not read, since test is the test split"]),
    "trains": (pictures("train", "plane", "car"), ["classes: car 33.3 %, plane 33.3 %, train 33.3 % of 12 examples"]),
    "kaggle": (pictures("train", "test1", "other"), "kaggle/train: expected one folder of pictures per class"),
    "dark": (dict.fromkeys(pictures("a", "b"), PNG_12), ["pixels are at most 15 of 255: scale values of 12 bits by 16"]),
    "splits": ({f"my_{each}.parquet": file_of("to_parquet") for each in ("train", "test")}, ["columns: 3 of 120 rows"]),
    "tables": ({"Train.csv": TEXT, "my_test.csv": "\n".join(ROWS[:81])}, ['test: "{path}/my_test.csv"', "of 120 examples"]),
    "unknown": ({"Train.one": TEXT, "my_test.one": TEXT}, "with Train.one, my_test.one; join text files into one file; data: npz reads .npz files"),
    "scans": ({"a/1.tif": "", "b/1.tif": ""}, ".tif files are not supported; convert it to PNG"),
    "stories": ({**{f"{y}/{n}.txt": WORDS[n] for n, y in enumerate(Y)}, "README.txt": "a " * 900}, ["name: labelled_text", "classes: no 52.1 %, yes 47.9 %"]),
    "arrays": ({"X_train.csv": TEXT, "X_test.csv": TEXT, "y_train.csv": TEXT}, "expected data of a loader. Received: a folder with X_t"),
    "rain.ts": ("@classLabel true no yes\n@data\n" + "".join(f"{n},1,{x}:{Y[n]}\n" for n, x in enumerate(X)), ["name: ts", "task: classification", "input: series"]),
    "amounts.ts": ("@targetLabel true\n@data\n" + "".join(f"{n},1,{x}:{n}\n" for n, x in enumerate(X)), ["name: ts", "task: regression", "input: series"]),
    "a.ods": (b"PK", "is a spreadsheet or zip file other than .xlsx; save it as CSV or Parquet"),
}  # fmt: skip
# Name of a file of a series: (content, a further line of the recipe).
FORECASTS = {
    "t_zone.csv": (series([f"{t:%Y-%m-%d %H:%M}+0{1 + (n < 60)}:00" for n, t in enumerate(HOURS)]), "# check: 1 gaps"),
    "t_newest.csv": (series(DAYS[::-1]), "# check: rows are sorted by time, the oldest first"),
    "t_gap.csv": (series(GAPS), "# check: 1 gaps where times of time are missing, such as before {path}:42; no window"),
    "t_gaps.csv": (series([t for n, t in enumerate(HOURS) if n % 7]), "window: 5   # check: times are missing, usuall"),
    "t_constant.csv": (series(HOURS, w=7), "# check: column w has a single value, 7"),
    "t_numbers.csv": (
        series([*HOURS[:60]] * 2, id=[17] * 60 + [23] * 60),
        "series: id   # check: 2 series with different",
    ),
    "t_series.csv": (series([*HOURS[:60]] * 2, s=["a"] * 60 + ["b"] * 60), "series: s   # check: 2 series with differ"),
}
# Name of a further column: (its values, a line of the recipe).
COLUMNS = {
    "money": ([f"{1 + n}.042,5 €" for n in NS], "numbers: comma   # check: money has numbers such as 1.042,5 €"),
    "dollars": ([f"${n + 1},042.5" for n in NS], "numbers: point   # check: dollars has numbers such as $1"),
    "lakh": ([f"{1 + n % 9},23,{100 + n}" for n in NS], "numbers: point"),
    "minus": ([f"{'−–'[n % 2]}{n}.5" for n in NS], "minus number -119.5 to -0.5"),
    "mixed": ([f"{'$€'[n % 2]}{n}.5" for n in NS], "ignore: [mixed]   # check: mixed: amounts in several currencies"),
    "bad": (changed(Z, 7, "two"), "missing_values: [two]   # check: no numbers: bad is two in 1 rows, first in bad.cs"),
    "infinite": (changed(Z, 3, np.inf), "missing_values: [inf]   # check: no numbers: infinite is inf in 1 rows"),
    "asked": (["?", "-", "#N/A", *Z[3:]], "missing: median   # check: missing values of asked (3); numbers become"),
    "nines": (np.where(np.arange(N) % 10, Z, -999), "# check: nines: -999 in 12 of 120 rows looks like a missing valu"),
    "age": ([-1 if n % 9 == 0 else 18 + n % 50 for n in NS], "# check: age: -1 in 14 of 120"),
    "co": (np.where(np.arange(N) % 10, Z, -200), "# check: co: -200 in 12 of 120 rows looks like a missing valu"),
    "zip": ([f"0{n * 7:04}" for n in NS], "ignore: [zip]   # check: zip: row numbers or ids"),
    "invoice": ([10**17 + 7919 * n for n in NS], "ignore: [invoice]   # check: invoice: row numbers or ids"),
    "key": ([f"{n * 7919:08x}-11-{n * 104729:012x}" for n in NS], "ignore: [key]   # check: key: row numbers or ids"),
    "url": ([f"http://h/{n}" for n in NS], "ignore: [url]   # check: url: row numbers or ids"),
    "const": ([1] * N, "ignore: [const]   # check: const: the single value 1"),
    "unix": (1_700_000_000 + np.arange(N) ** 2 // 2, "unix: numbers whose differences are too small for float32"),
    "huge": ([f"{x}e300" for x in X], "ignore: [huge]   # check: huge: numbers beyond the range of float32"),
    "large": ([f"{x}e20" for x in X], "large number"),
    "children": ([("0", "1", "3+")[n % 3] for n in NS], "columns: {children: category}   # check: children: few numbe"),
    "code": ([f"0{n % 4}" for n in NS], "columns: {code: category}   # check: code: numbers with leading zeros such a"),
    "garage": (["None", "new", "old"] * 40, "columns: {garage: category}   # check: garage: None or NA is a category"),
    "country": (["DE", "NA", "FR", "US"] * 30, "columns: {country: category}   # check: country: None or NA"),
    "sex": (["male", "female", "NA"] * 40, "missing: median   # check: missing values of sex"),
    "patient": (np.arange(N) // 3, "group: patient   # check: rows of one patient stay together"),
    "account": ([str(2**60 + n % 50) for n in NS], "group: account   # check: rows of one account"),
    "user": (np.arange(N) % 8, "check: 8 distinct values, about 15 rows each: clients; their rows are in training and"),
    "german": (DAYS.strftime("%d.%m.%Y"), "weekday; `data: series` uses the order of time columns: {german: date}"),
    "pointed": ([f"0{1 + n % 9}.0{1 + n // 40}.2024" for n in NS], "pointed date 2024-01-01 to 2024-03-09"),
    "less": (
        [f"< {n % 4}" if n % 3 else f"{n / 8}" for n in NS],
        "columns: {less: category}   # check: less: numbers, and",
    ),
    "words": (DAYS.strftime("%b %d, %Y"), "# words: dates such as 'Jan 01, 2023'; they become year, month, day and"),
    "french": ([f"{1 + n % 28} {('mars', 'août', 'mai')[n % 3]} 2020" for n in NS], "columns: {french: date}"),
    "zero": (["0000-00-00", *DAYS[1:].strftime("%Y-%m-%d")], "no dates: zero is 0000-00-00 in 1 rows, first in"),
    "two": ([f"{day:%d.%m.%Y}" if day.day % 2 else f"{day.date()}" for day in DAYS], "two date 2023-01-01 to 2023-04"),
    "unclear": ([f"{1 + n % 12}/{1 + n % 11}/2024" for n in NS], "# check: unclear: ambiguous dates: day or month fir"),
    "shop": (["ab"[n % 2] for n in range(N - 1)] + ["Total"], "# check: the last row, Total, looks like a total of th"),
    "smoker": (["Yes", "yes", "no"] * 40, "# check: smoker: Yes and yes differ only in case; are they the same?"),
    "weight": ([f"{50 + n % 40} kg" for n in NS], "# check: weight: numbers with a unit such as 50 kg; remove the uni"),
    "hours": ([f"{n % 24:02}:30" for n in NS], "ignore: [hours]   # check: hours: times of day, which are"),
    "when": (HOURS, "since other columns have texts: y # check: column 'when' has times of day, which the features of"),
    "city": ([unicodedata.normalize(("NFC", "NFD")[n % 2], "Café") for n in NS], "city: the single value Café"),
    "note": ([f"line\nof {n % 3}" for n in NS], "note category 3 distinct"),
}
FILES |= {name: (content, [*SERIES, line]) for name, (content, line) in FORECASTS.items()}
FILES |= {f"{name}.csv": (table(**{name: values}), [line]) for name, (values, line) in COLUMNS.items()}


def plain(text):
    """A text without the signs and line ends of comments, which may be wrapped."""
    return " ".join(word for word in text.split() if word != "#")


def read(path):
    """The draft of a file and the text of its recipe, which is valid."""
    made = starter.draft_recipe(starter.Request(str(path), None, None, ()))
    text = starter.render(made, ())
    starter.check(text, "mine.yaml", made)
    return made, text


@pytest.mark.parametrize("name", FILES)
def test_file_is_read_as_a_person_would(name, tmp_path):
    content, expected = FILES[name]
    path = tmp_path / name
    for part, each in (content if isinstance(content, dict) else {"": content}).items():
        (path / part).parent.mkdir(parents=True, exist_ok=True)
        (path / part).write_bytes(each if isinstance(each, bytes) else each.encode())
    if isinstance(expected, str):
        assert expected in refusal(read, path)
        return
    _, text = read(path)
    for line in expected:
        assert plain(line.replace("{path}", str(path))) in plain(text), text


def test_excel_is_read_with_its_extra(tmp_path, monkeypatch):
    pytest.importorskip("openpyxl")
    path = tmp_path / "a.xlsx"
    with pd.ExcelWriter(path) as writer:
        TABLE[["x"]].to_excel(writer, sheet_name="notes", index=False)
        TEXTS.to_excel(writer, sheet_name="texts", index=False)
        TABLE.to_excel(writer, sheet_name="b", index=False)
    _, text = read(path)
    assert "name: labelled_text" in text and "has 3 sheets; 'texts' is read" in plain(text)
    TABLE.assign(y=Y, d=DAYS).to_excel(path, index=False)
    _, text = read(path)
    assert all(plain(line) in plain(text) for line in (*READ, "columns: {d: date}"))
    above = pd.DataFrame([["Report 2024", None, None], [None] * 3, list(TABLE), *TABLE.values.tolist()])
    above.to_excel(path, index=False, header=False)
    _, text = read(path)
    title = "the title above the names of the columns is left out: 'Report 2024'"
    assert all(plain(line) in plain(text) for line in (*READ, title))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert "Excel files need the extra `excel`; pip install 'hetero_tf[excel]'" in refusal(read, path)


def test_times_keep_their_order_across_a_change_of_clocks(tmp_path):
    zone = datetime.timezone(datetime.timedelta(hours=2)), datetime.timezone(datetime.timedelta(hours=1))
    start = datetime.datetime(2024, 10, 26, tzinfo=datetime.timezone.utc)
    times = [(start + datetime.timedelta(hours=n)).astimezone(zone[n > 24]).isoformat(" ") for n in range(N)]
    (tmp_path / "t.csv").write_text(series(times))
    made, _ = read(tmp_path / "t.csv")
    assert made.data.options["name"].value == "series" and not made.warnings
