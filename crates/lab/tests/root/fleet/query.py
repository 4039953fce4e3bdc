"""The rows of a query of DuckDB as JSON: query.py DIRECTORY SQL; paths in it are as from DIRECTORY."""

import os
import sys

import duckdb

os.chdir(sys.argv[1])
# DuckDB writes the JSON: for Python, timestamps would need a package more.
rows = duckdb.sql(f"SELECT to_json(answer) FROM ({sys.argv[2]}) AS answer").fetchall()
print("[" + ",".join(row[0] for row in rows) + "]")
