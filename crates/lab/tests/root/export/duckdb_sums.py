# Sums of columns, as JSON: the table as after FROM, then the names of the columns.
import json
import sys

import duckdb

table, *columns = sys.argv[1:]
sums = ", ".join(f"coalesce(sum({column}), 0)" for column in columns)
row = duckdb.sql(f"SELECT {sums} FROM {table}").fetchall()[0]
print(json.dumps(dict(zip(columns, map(int, row)))))
