"""Whether a text is one JSON object and nothing else, as an expression of Spark's.

`from_json` reads the first object of a text and does not look at what follows: of `{"n": 1}{"n": 2}` it would give one
half without an error. What follows an object shows when the text is put into brackets: the result is valid only if the
text is one value. Two kinds of brackets are needed, because a text may bring the closing one itself.

Most texts need no second look: where the first brace that closes is the last character, nothing follows. The others are
counted by functions that build no values. Only what fails there is parsed with the options of the source, which may
allow more than plain JSON (single quotes, comments).
"""

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as sql


def is_one_object(text: Column, options: Mapping[str, str]) -> Column:
    trimmed = sql.rtrim(text)
    is_flat = sql.locate("}", trimmed) == sql.length(trimmed)
    in_array = sql.concat(sql.lit("["), text, sql.lit("]"))
    in_object = sql.concat(sql.lit('{"value":'), text, sql.lit("}"))
    is_plain = (sql.json_array_length(in_array) == 1) & (sql.size(sql.json_object_keys(in_object)) == 1)
    is_valid = (sql.size(sql.from_json(in_array, "array<string>", dict(options))) == 1) & (
        sql.size(sql.from_json(in_object, "map<string, string>", dict(options))) == 1
    )
    return (
        sql.when(is_flat, sql.lit(True)).when(is_plain, sql.lit(True)).otherwise(sql.coalesce(is_valid, sql.lit(False)))
    )
