# Prints sums of columns as JSON. Arguments: the text after FROM in the query, then the names of the columns.
import json
import sys

import duckdb

table, *columns = sys.argv[1:]
sums = ", ".join(f"coalesce(sum({column}), 0)" for column in columns)
row = duckdb.sql(f"SELECT {sums} FROM {table}").fetchall()[0]
print(json.dumps(dict(zip(columns, map(int, row)))))
