"""One-line forms of what Spark's clients raise."""

import pytest

from xorack.core.masking import masked
from xorack.spark.messages import one_line
from xorack.spark.missing.telling import units_in_words

PY4J = """An error occurred while calling o60.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file \
file:///a.csv.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(Query.scala:920)
Caused by: org.apache.spark.SparkException: [MALFORMED_RECORD] Malformed records: [1,2].
Parse Mode: FAILFAST.  SQLSTATE: 22023
\t... 1 more
Caused by: org.apache.spark.SparkRuntimeException: [MALFORMED_CSV_RECORD] Malformed CSV record: \
1,2,3 SQLSTATE: KD000
\t... 28 more
"""
SPARK_3 = """An error occurred while calling o60.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 \
times, most recent failure: Lost task 0.0 in stage 2.0 (TID 2) (host executor driver): \
java.io.IOException: file:/x is not a Parquet file
"""


PYTHON = """
  An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "job.py", line 3, in <lambda>
    F.udf(lambda x: int(x), "int")
                    ~~~^^^
ValueError: no number of ahab

"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (PYTHON, "a Python function raised ValueError: no number of ahab"),
        (PY4J, "Encountered error while reading file file:///a.csv: Malformed CSV record: 1,2,3"),
        (SPARK_3, "file:/x is not a Parquet file"),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `idx` cannot be resolved. "
            "SQLSTATE: 42703; line 1 pos 0;\n'Filter ('idx = 3)\n",
            "A column with name `idx` cannot be resolved.",
        ),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near '='. SQLSTATE: 42601 (line 1, pos 5)\n",
            "Syntax error at or near '='.",
        ),
        ("", "ValueError"),
        ("x" * 500, "x" * 400 + "..."),
    ],
)
def test_one_line(text, line):
    assert one_line(ValueError(text)) == line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (PY4J, "1,2,3"),
        ("[CAST_INVALID_INPUT] The value 'a/b' of the type \"STRING\" cannot be cast", "'a/b'"),
        ("[CAST_OVERFLOW] The value 40000 of the type INT cannot be cast", "40000"),
        ("Text 'ahab' could not be parsed at index 0", "'ahab'"),
    ],
)
def test_one_line_has_no_value_of_a_row_if_columns_are_masked(text, value):
    line = one_line(ValueError(text))
    assert value in line
    assert one_line(ValueError(text), {"email"}) == line.replace(value, masked(value))


def test_the_text_of_an_error_of_python_is_hidden_if_columns_are_masked():
    assert one_line(ValueError(PYTHON), {"email"}) == "a Python function raised ValueError"


@pytest.mark.parametrize(
    ("there", "of", "words"),
    [
        (0, 0, "0 of 0 units of 'a' are"),
        (0, 1, "0 of 1 unit of 'a' is"),
        (1, 9, "1 of 9 units of 'a' is"),
        (2, 9, "2 of 9 units of 'a' are"),
    ],
)
def test_the_verb_of_a_part_of_the_units(there, of, words):
    assert units_in_words(there, of, "a") == f"{words} in the output"
