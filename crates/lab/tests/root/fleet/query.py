"""query.py DIRECTORY SQL: prints the rows of a DuckDB query as JSON. Paths in the query are relative to DIRECTORY."""

import os
import sys

import duckdb

os.chdir(sys.argv[1])
# DuckDB writes the JSON, because Python would need another package for timestamps.
rows = duckdb.sql(f"SELECT to_json(answer) FROM ({sys.argv[2]}) AS answer").fetchall()
print("[" + ",".join(row[0] for row in rows) + "]")
