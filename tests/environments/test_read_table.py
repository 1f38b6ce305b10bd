"""Tables of plays: what is read, what is guessed, and what is said about a bad line."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwolfe.core.streams import stream
from fairwolfe.environments.plays import Plays
from fairwolfe.environments.read_table import choose, header_of, read_file, read_memory, read_pairs
from fairwolfe.errors import FairwolfeError, InvalidInput, MissingData

ROWS = [("bo", "x", 2.0), ("al", "y", 1.5), ("bo", "x", 3.0), ("al", "x", 0.0), ("cy", "z", 4.0)]
NOBODY = (None, None, None)


def written(folder: Path, text: str | bytes, name: str = "plays.csv") -> str:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(file)


def gzipped(data: bytes) -> bytes:
    """The same bytes at any time: they name tests."""
    return gzip.compress(data, mtime=0)


def zipped(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def plays_of(rows: Any) -> Plays:
    return read_memory(rows, NOBODY)


def csv_of(rows: list[Any], header: str = "user,item,count") -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows), ""])


def many(n: int, seed: int = 0) -> list[tuple[int, int, int]]:
    rng = stream(seed, "rows")
    columns = rng.integers(0, 40, n), rng.zipf(1.5, n) % 90, rng.integers(0, 50, n)
    return list(zip(*(c.tolist() for c in columns), strict=True))


# --- the same table in every form ---------------------------------------------------------------


@pytest.mark.needs("pyarrow")
def test_every_form_of_a_table_is_the_same_table(tmp_path: Path) -> None:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    frame = pd.DataFrame(ROWS, columns=["user", "item", "count"])
    wanted = plays_of(ROWS)
    assert repr(wanted) == (
        "[('al', 'x', 0.0), ('al', 'y', 1.5), ('bo', 'x', 5.0), ('cy', 'z', 4.0)]"
    )
    table = pa.Table.from_pandas(frame)
    pq.write_table(table, tmp_path / "plays.parquet")
    semicolons = csv_of(ROWS).replace(",", ";")
    tabs = csv_of(ROWS).replace(",", "\t")
    bars = csv_of(ROWS).replace(",", "|")
    extra = csv_of([("1999", *row, "x") for row in ROWS], "year,user,item,count,note")
    quoted = csv_of([(f'"{user}"', item, f'"{count}"') for user, item, count in ROWS])
    files = [
        csv_of(ROWS),
        csv_of(ROWS).rstrip("\n"),
        csv_of(ROWS).replace("\n", "\r\n"),
        csv_of(ROWS).replace("\n", "\r"),
        csv_of(ROWS).replace("\n", "\n\n"),
        "\ufeff" + csv_of(ROWS),
        csv_of(ROWS, "user , item, count"),
        *(semicolons, tabs, bars, extra, quoted),
    ]
    shuffled = frame.iloc[::-1]  # its index becomes a column of its own
    categories = frame.astype({"user": "category"})
    found = [
        read_file(str(tmp_path / "plays.parquet"), NOBODY),
        *(read_file(written(tmp_path, text), NOBODY) for text in files),
        *(read_memory(t, NOBODY) for t in (ROWS, frame, shuffled, categories, table)),
        read_memory(frame.to_dict("list"), NOBODY),
        read_memory(tuple(map(tuple, ROWS)), NOBODY),
    ]
    for one in found:
        assert one == wanted
        assert hash(one) == hash(wanted)
    copy = pickle.loads(pickle.dumps(wanted))
    assert copy == wanted
    assert plays_of(eval(repr(wanted))) == wanted
    assert wanted != plays_of(ROWS[1:])
    assert wanted != "plays"


@pytest.mark.needs("pyarrow")
def test_sums_are_those_of_pandas_whenever_they_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd

    from fairwolfe.environments import read_table

    rows = many(5000)
    frame = pd.DataFrame(rows, columns=["user", "item", "count"])
    summed = frame.groupby(["user", "item"], as_index=False)["count"].sum()
    wanted = [(u, i, float(c)) for u, i, c in summed.to_numpy().tolist()]
    path = written(tmp_path, csv_of(rows))
    frame.to_parquet(tmp_path / "plays.parquet")
    monkeypatch.setattr(read_table, "_BATCH", 60)
    for file in (path, str(tmp_path / "plays.parquet")):
        assert repr(read_file(file, NOBODY)) == repr(wanted)


@pytest.mark.needs("pyarrow")
def test_sums_are_added_in_the_order_of_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd

    from fairwolfe.environments import read_table

    rng = stream(0, "fractions")
    rows = [(f"u{u}", i, float(rng.lognormal(0.0, 5.0))) for u, i, _ in many(2000)]
    totals: dict[tuple[str, int], float] = {}
    for user, item, count in rows:
        totals[user, item] = totals.get((user, item), 0.0) + count
    wanted = [(*pair, total) for pair, total in sorted(totals.items())]
    assert repr(plays_of(rows)) == repr(wanted)
    frame = pd.DataFrame(rows, columns=["user", "item", "count"])
    frame.to_csv(tmp_path / "plays.csv", index=False)
    frame.to_parquet(tmp_path / "plays.parquet", row_group_size=170)
    for batch in (50, 10_000):
        monkeypatch.setattr(read_table, "_BATCH", batch)
        for name in ("plays.csv", "plays.parquet"):
            assert repr(read_file(str(tmp_path / name), NOBODY)) == repr(wanted)
        for table in (frame, frame.astype({"user": "category"})):
            assert repr(read_memory(table, NOBODY)) == repr(wanted)


@pytest.mark.needs("pyarrow")
def test_texts_of_polars_are_texts() -> None:
    import polars as pl

    frame = pl.DataFrame(ROWS, schema=["user", "item", "count"], orient="row")
    for table in (frame, frame.with_columns(pl.col("user").cast(pl.Categorical))):
        assert read_memory(table, NOBODY) == plays_of(ROWS)


# --- the users and items with the most ----------------------------------------------------------


@pytest.mark.parametrize("by", ["plays", "listeners"])
def test_the_most_are_those_of_pandas(by: str) -> None:
    import pandas as pd

    rows = many(3000, seed=1)
    frame: Any = pd.DataFrame(rows, columns=["user", "item", "count"])
    frame = frame.groupby(["user", "item"], as_index=False)["count"].sum()
    frame["listeners"] = (frame["count"] > 0).astype(int)
    chosen = plays_of(rows).top(7, 11, by)
    column = {"plays": "count", "listeners": "listeners"}[by]
    ids = {}
    for side, n in (("user", 7), ("item", 11)):
        totals = frame.groupby(side)[column].sum().reset_index()
        most = totals.sort_values([column, side], ascending=[False, True])
        ids[side] = most[side].tolist()[:n]
    assert (list(chosen.user_ids), list(chosen.item_ids)) == (ids["user"], ids["item"])
    wide = frame.pivot_table(index="user", columns="item", values="count", fill_value=0)
    wanted = wide.loc[ids["user"]][ids["item"]].to_numpy()
    np.testing.assert_array_equal(chosen.counts.toarray(), wanted)
    assert (chosen.counts.data > 0.0).all()


def test_ties_go_to_the_smaller_id_and_numbers_are_no_texts() -> None:
    numbers = plays_of([(10, "a", 1), (9, "b", 1), (100, "c", 1)])
    assert numbers.top(2, None, "plays").user_ids == (9, 10)
    texts = plays_of([("10", "a", 1), ("9", "b", 1), ("100", "c", 1)])
    assert texts.top(2, None, "plays").user_ids == ("10", "100")


@pytest.mark.needs("pyarrow")
def test_texts_of_a_file_are_numbers_if_all_of_them_are(tmp_path: Path) -> None:
    def ids(column: list[str]) -> tuple[Any, ...]:
        rows = [(one, "x", 1) for one in column]
        return read_file(written(tmp_path, csv_of(rows)), NOBODY).user_ids

    assert ids(["10", "9", "-3", "0"]) == (-3, 0, 9, 10)
    assert ids(["10", "9", "x"]) == ("10", "9", "x")
    assert ids(["1", "01"]) == ("01", "1")  # two ids, which must not become one
    assert ids(["9" * 30, "1"]) == ("1", "9" * 30)


def test_who_has_no_plays_left_is_said() -> None:
    rows = [(1, "a", 5), (1, "b", 4), (2, "c", 9), (3, "b", 0)]
    chosen = plays_of(rows).top(None, 2, "plays")
    assert chosen.item_ids == ("c", "a")
    assert chosen.notes == (
        "1 of the 3 users have no plays among the 2 items that are kept: their factors are 0",
    )
    alone = plays_of(rows).top(1, 2, "plays")
    assert alone.user_ids == (1,)
    assert "1 of the 2 items have no plays among the 1 users" in alone.notes[0]
    assert plays_of(rows).top(5, None, "plays").notes[0] == (
        "5 users were requested, and the table has 3: all are kept"
    )


# --- which column is which ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (["userID", "artistID", "weight"], (0, 1, 2)),
        (["plays", "Song", "Listener"], (2, 1, 0)),
        (["movie_id", "user_id", "rating", "timestamp"], (1, 0, 2)),
        (["user-id", "artist name", "artist id", "n"], (0, 2, 3)),
        (["customer", "product"], (0, 1, None)),
        (["user", "item", "when"], (0, 1, None)),
        (["a", "b", "c"], (0, 1, 2)),
        (["a", "b"], (0, 1, None)),
        (["user", "thing", "plays"], (0, 1, 2)),
        (["thing", "plays", "who"], (0, 2, 1)),
        (["when", "userID", "song"], (1, 2, None)),
    ],
)
def test_what_is_guessed(header: list[str], wanted: tuple[Any, ...]) -> None:
    found = choose("plays.csv", header, None, None, None)
    assert found[:3] == wanted
    note = found.notes[0]
    assert f"users are in column {header[wanted[0]]!r}" in note
    assert f"items are in column {header[wanted[1]]!r}" in note
    assert ("every row counts 1" in note) == (wanted[2] is None)
    assert "(guessed)" in note


def test_what_is_named_is_not_guessed() -> None:
    header = ["user", "item", "count", "who", "what"]
    found = choose("plays.csv", header, "who", "what", "count")
    assert found == (3, 4, 2, ())
    assert choose("t", header, "who", None, None)[:3] == (3, 1, 2)
    unused = choose("t", ["who", "what", "when"], "who", "what", None)
    assert unused[:3] == (0, 1, None)
    assert "every row counts 1, and none of the others (when) is used" in unused.notes[0]


@pytest.mark.parametrize(
    ("header", "names", "sentence"),
    [
        (["2", "51", "13883"], NOBODY, "has no header: its first line is '2, 51, 13883'; put the"),
        (["al", "x", "3.5"], NOBODY, "has no header"),
        (["user"], NOBODY, "has one column, 'user'; give a user, an item and a count"),
        (["a", "b", "c", "d"], NOBODY, "no column is known to hold the user or the item; the"),
        (["user", "b", "c", "d"], NOBODY, "hold the item; the columns are user, b, c, d, so name"),
        (["user", "item"], ("usr", None, None), "has no column 'usr'; did you mean 'user'?"),
        (["a", "a", "b"], ("a", "b", None), "has 2 columns 'a', so it is not clear which"),
        (["a", "b", "c"], ("a", "a", None), "'a' is named as user and item; give each its own"),
    ],
)
def test_what_cannot_be_guessed_is_asked_for(
    header: list[str], names: tuple[Any, Any, Any], sentence: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        choose("plays.csv", header, *names)
    assert sentence in str(refused.value)


# --- what is wrong is said with its line --------------------------------------------------------

GOOD = "user,item,count\nal,x,1\n"


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (GOOD + "bo,y,abc\n", ", line 3: the count is 'abc'; give a number >= 0"),
        (GOOD + "\n\nbo,y,abc\n", ", line 5: the count is 'abc'"),
        (GOOD + "bo,y,-1\n", ", line 3: the count is -1.0; give a number >= 0"),
        (GOOD + "bo,y,nan\n", ", line 3: the count is 'nan'; give a number >= 0"),
        (GOOD + "bo,y,inf\n", ", line 3: the count is 'inf'"),
        (GOOD + "bo,y,1e999\n", ", line 3: the count is inf; give a number up to 9007199254740992"),
        (GOOD + "bo,y,\n", ", line 3: the count is ''; give a number >= 0"),
        (GOOD + ",y,1\n", ", line 3: the user is empty; give an id in every row"),
        (GOOD + "bo,,1\n", ", line 3: the item is empty; give an id in every row"),
        (GOOD + "bo,y\n", ", line 3: the number of columns is 2, and that of the header 3; give"),
        (GOOD + "bo,y,1,2\n", ", line 3: the number of columns is 4"),
        (GOOD + '"bo\nby",y,1\ncy,z,x\n', ", line 5: the count is 'x'"),
        (GOOD + '"bo,y,1\ncy,z,1\n', ", line 3: the number of columns is 1"),
        (GOOD + '"bo,y,1\n' + "cy,z,1\n" * 30000, ", line 3: the line cannot be split into"),
        ("", " is empty; give a header and at least one row"),
        ("\nuser,item\n", ", line 1: the line is empty; put the names of the columns there"),
        ("user,item,count", " has no rows; give at least one"),
        ("user,item,count\n\n", " has no rows; give at least one"),
        ('"user,item\nal,x\n', ", line 1: a quote is opened and not closed"),
        ("1,2,3\n4,5,6\n", " has no header: its first line is '1, 2, 3'"),
        (b"user,item\nal,\xff\n", ", line 2: the text is not UTF-8; save the file as UTF-8"),
        (b"us\xffer,item\nal,x\n", ", line 1: the text is not UTF-8; save the file as UTF-8"),
        (GOOD.encode("utf-16"), ", line 1: the text is not UTF-8"),
        (gzipped(b"PAR1 and no more"), " is compressed Parquet; unpack it, and give the"),
        (gzipped(GOOD.encode() * 9)[:-12], " cannot be unpacked: "),
        (gzipped((GOOD + "bo,y,\n").encode()), ", line 3: the count is ''; give a number"),
        (zipped("plays.csv", GOOD.encode()), " is compressed; unpack it, and give the table"),
        (b"PAR1 and no more", " cannot be read as Parquet: "),
    ],
)
def test_the_line_is_named(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidInput) as refused:
        read_file(path, NOBODY)
    assert str(refused.value).startswith(path + sentence)


@pytest.mark.needs("pyarrow")
def test_a_packed_file_is_the_file(tmp_path: Path) -> None:
    rows = many(3000)
    plain = read_file(written(tmp_path, csv_of(rows)), NOBODY)
    packed = written(tmp_path, gzip.compress(csv_of(rows).encode()))
    assert read_file(packed, NOBODY) == plain
    assert header_of(packed) == ["user", "item", "count"]
    assert len(read_pairs(packed, "user", "item")) == len(plain.counts)


def sheet(folder: Path, *rows: tuple[Any, ...]) -> str:
    from openpyxl import Workbook  # type: ignore[import-untyped]

    book = Workbook()
    for row in rows:
        book.active.append(row)
    book.save(folder / "plays.xlsx")
    return str(folder / "plays.xlsx")


@pytest.mark.needs("openpyxl")
def test_a_sheet_is_a_table(tmp_path: Path) -> None:
    rows = [("listener", "song", "plays", "label"), ("al", 7, 2, "x"), ("bo", 7.0, 3.5, None)]
    path = sheet(tmp_path, *rows)
    plays = read_file(path, NOBODY)
    assert plays == plays_of([("al", 7, 2), ("bo", 7, 3.5)])
    assert header_of(path) == ["listener", "song", "plays", "label"]
    assert read_pairs(path, "song", "label") == {("7", "x"), ("7", "")}


@pytest.mark.needs("openpyxl")
@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([("user", "item", "count"), ("al", 1, "2")], ", row 2: the count is '2'; give a number"),
        ([("user", "item"), ("al", 1), (None, 2)], ", row 3: the user is empty"),
        ([("user", "item")], " has no rows; give a header and at least one row"),
    ],
)
def test_the_row_of_a_sheet_is_named(
    tmp_path: Path, rows: list[tuple[Any, ...]], sentence: str
) -> None:
    path = sheet(tmp_path, *rows)
    with pytest.raises(InvalidInput) as refused:
        read_file(path, NOBODY)
    assert str(refused.value).startswith(path + sentence)


@pytest.mark.needs("openpyxl")
def test_a_spoilt_sheet_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, zipped("xl/workbook.xml", b"<workbook/>"))
    with pytest.raises(InvalidInput, match="cannot be read as an Excel file"):
        read_file(path, NOBODY)


@pytest.mark.needs("pyarrow")
def test_pairs_of_columns_are_texts_in_every_file(tmp_path: Path) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    parquet.write_table(
        arrow.table({"item": [1, 2, 1], "label": ["x", None, "x"]}), tmp_path / "plays.parquet"
    )
    path = str(tmp_path / "plays.parquet")
    assert header_of(path) == ["item", "label"]
    with pytest.raises(InvalidInput, match="cannot be read as Parquet"):
        header_of(written(tmp_path, b"PAR1 and no more"))
    assert read_pairs(path, "item", "label") == {("1", "x"), ("2", "")}


@pytest.mark.needs("pyarrow")
def test_the_line_is_named_far_into_a_file(tmp_path: Path) -> None:
    rows: list[Any] = many(400_000)
    rows[345_678] = (1, 2, "many")
    path = written(tmp_path, csv_of(rows))
    with pytest.raises(InvalidInput, match=r", line 345680: the count is 'many'"):
        read_file(path, NOBODY)


@pytest.mark.needs("pyarrow")
def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"there is no file .*missing\.csv; give the path"):
        read_file(str(tmp_path / "missing.csv"), NOBODY)
    with pytest.raises(InvalidInput, match="cannot be read: Is a directory"):
        read_file(str(tmp_path), NOBODY)


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"user": [1, 2], "item": ["a", "b"], "count": [1.0, -2.0]}, ", row 2: the count is -2.0"),
        ({"user": [1, 2], "item": ["a", "b"], "count": [1, None]}, ", row 2: the count is None;"),
        ({"user": ["a", None], "item": [1, 2]}, ", row 2: the user is empty"),
        ({"user": ["a", "b"], "item": ["x", ""]}, ", row 2: the item is empty"),
        ({"user": [1, 2], "item": ["a", "b"], "count": ["3", "4"]}, ", row 1: the count is '3'"),
        ({"user": [1.5, 2.0], "item": ["a", "b"]}, ", row 1: the user is 1.5; give a whole"),
        ({"user": [], "item": []}, " has no rows"),
    ],
)
def test_rows_of_a_typed_table_are_named(
    tmp_path: Path, columns: dict[str, list[Any]], sentence: str
) -> None:
    import pandas as pd

    frame = pd.DataFrame(columns)
    path = str(tmp_path / "plays.parquet")
    frame.to_parquet(path)
    with pytest.raises(InvalidInput) as refused:
        read_file(path, NOBODY)
    assert str(refused.value).startswith(path + sentence)
    with pytest.raises(InvalidInput) as refused:
        read_memory(frame, NOBODY)
    assert str(refused.value).startswith("the table" + sentence)


@pytest.mark.needs("pyarrow")
def test_a_typed_table_without_rows_or_with_two_columns_of_a_name() -> None:
    import pyarrow as pa

    empty = pa.table({"user": pa.array([], pa.string()), "item": pa.array([], pa.string())})
    with pytest.raises(InvalidInput, match="the table has no rows"):
        read_memory(empty, NOBODY)
    twice = pa.Table.from_arrays(
        [pa.array([1]), pa.array([1]), pa.array([2])], ["user"] * 2 + ["b"]
    )
    with pytest.raises(InvalidInput, match="the table has several columns 'user'"):
        read_memory(twice, NOBODY)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ([], "the table has no rows"),
        ([(1, 2, 3), (1,)], "row 2 has 1 values; give (user, item, count)"),
        ([(1, 2, 3), "abc"], "row 2 is 'abc'; give (user, item, count)"),
        ([5], "row 1 is 5; give (user, item, count)"),
        ([(1, "", 3)], "row 1: the item is empty"),
        ([(None, 2)], "row 1: the user is empty"),
        ([(1.5, 2)], "row 1: the user is 1.5; give a whole number or a text"),
        ([(True, 2)], "row 1: the user is True; give a whole number or a text"),
        ([(1, 2, "3")], "row 1: the count is '3'; give a number >= 0"),
        ([(1, 2, float("nan"))], "row 1: the count is nan; give a number >= 0"),
        ([(1, 2, 1e300)], "row 1: the count is 1e+300; give a number up to"),
        ([(1, 2), ("a", 2)], "some ids of a user are numbers and some are texts, such as 1 and"),
        (5, "table is a int; give a path, rows (user, item, count), a mapping of columns"),
        (b"plays", "table is a bytes"),
        ({"user": [1]}, "the table has 1 columns"),
        ({"user": [1], "item": [2, 3]}, "the columns have [1, 2] values; give as many in each"),
        ({"a": [1], "b": [2], "c": [1], "d": [3]}, "no column is known to hold the user"),
    ],
)
def test_rows_in_memory_are_named(table: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_memory(table, NOBODY)
    assert sentence in str(refused.value)


def test_rows_have_no_column_names() -> None:
    with pytest.raises(InvalidInput, match="rows have no column names; leave out user="):
        read_memory(ROWS, ("user", None, None))


# --- anything at all ----------------------------------------------------------------------------

GIVEN = ["al", "7", "", " ", "1", "-1", "2.5", "nan", "1e5", "+3", "1_0", '"', '"a"', '"a,b"']
STRANGE = ["a\rb", "\ufeff", "é", "0x1", "٣", "1e999", '"\n"', "\t", "a;b", "\x00", "-0", ".", "e"]
FIELDS = st.sampled_from([*GIVEN, *STRANGE])
LINES = st.lists(st.lists(FIELDS, min_size=0, max_size=4).map(",".join), max_size=6)


@pytest.mark.needs("pyarrow")
@settings(max_examples=400)
@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.binary(max_size=3))
def test_any_text_is_a_table_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    newline: str,
    close: bool,
    rubbish: bytes,
) -> None:
    text = newline.join(["user,item,count", *lines]) + newline * close
    path = written(tmp_path_factory.getbasetemp(), text.encode() + rubbish, "any.csv")
    try:
        read = read_file(path, NOBODY)
    except FairwolfeError as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert f"{path}, line " in said or "has no rows" in said
        return
    # The plain parser of Python sees the same rows.
    import csv

    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file) if row][1:]
    assert sum(float(row[2]) for row in rows) == pytest.approx(float(read.counts.sum()))
    assert {row[0] for row in rows} == {str(u) for u in read.user_ids}
    assert {row[1] for row in rows} == {str(i) for i in read.item_ids}
