"""The rows of a query of DuckDB as JSON: query.py DIRECTORY SQL; paths in it are as from DIRECTORY."""

import json
import os
import sys

import duckdb

os.chdir(sys.argv[1])
result = duckdb.sql(sys.argv[2])
rows = [dict(zip(result.columns, row)) for row in result.fetchall()]
json.dump(rows, sys.stdout, default=str)
