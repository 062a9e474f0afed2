"""What other tools read of a view is what we read.

Runs a view over the sample data into a fresh data dir, with two bad lines, compacts it, and reads its Delta tables with
`deltalake`, polars and DuckDB. Every version, the latest of each row, `$late` and the rejects must be the same rows, and the
same sums, as our SQL gives. Run by hand and before a release, from the repository's root:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install deltalake polars duckdb pyarrow
    cargo build && /tmp/venv/bin/python tests/other_readers.py target/debug/highwater
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import polars
from deltalake import DeltaTable

BINARY = Path(sys.argv[1]).resolve()
ROOT = Path(__file__).resolve().parent.parent
LATEST = """
    SELECT * EXCLUDE (place) FROM (
      SELECT *, row_number() OVER (PARTITION BY _window_start, _window_end, origin ORDER BY _version DESC) AS place
      FROM versions)
    WHERE place = 1 AND NOT _deleted"""


def run(data_dir, *arguments):
    command = [BINARY, "--data-dir", data_dir, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def ours(data_dir, sql):
    return json.loads(run(data_dir, "--format", "json", "-c", sql))[0]


def same(what, theirs, ours):
    theirs = {name: str(value) for name, value in theirs.items()}
    ours = {name: str(value) for name, value in ours.items()}
    print(f"{what}: {theirs}")
    if theirs != ours:
        sys.exit(f"{what} differs: we read {ours}")


def check(data_dir, view):
    folder = Path(data_dir, "views", view)
    tables = {
        "versions": DeltaTable(folder / "results"),
        "late": DeltaTable(folder / "late"),
        "rejects": DeltaTable(folder / "rejects" / "flights"),
    }
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, table in tables.items():
        connection.register(name, table.to_pyarrow_dataset() if hasattr(table, "to_pyarrow_dataset") else table)

    def theirs(sql):
        cursor = connection.execute(sql)
        names = [column[0] for column in cursor.description]
        return dict(zip(names, cursor.fetchone()))

    count = "count(*) AS n, sum(departures) AS departures, sum(_version) AS versions"
    pairs = [
        ("every version", f"SELECT {count} FROM versions", f"SELECT {count} FROM {view}$history"),
        ("latest", f"SELECT {count} FROM ({LATEST})", f"SELECT {count} FROM {view}"),
        ("late", "SELECT count(*) AS n, sum(_offset) AS o FROM late",
         f"SELECT count(*) AS n, sum(_offset) AS o FROM {view}$late"),
        ("rejects", "SELECT count(*) AS n, min(_offset) AS o FROM rejects",
         "SELECT count(*) AS n, min(_offset) AS o FROM flights$rejects"),
    ]
    for what, sql, our_sql in pairs:
        same(f"DuckDB, {what}", theirs(sql), ours(data_dir, our_sql))
    frame = polars.read_delta(str(folder / "results"))
    rows = {"n": frame.height, "departures": frame["departures"].sum(), "versions": frame["_version"].sum()}
    same("polars, every version", rows, ours(data_dir, f"SELECT {count} FROM {view}$history"))


def main():
    with tempfile.TemporaryDirectory() as folder:
        source = (ROOT / "sql/data/flights-2013-01-01_03.jsonl").read_text().splitlines()
        lines = [*source[:100], "no row", *source[100:200], '{"scheduled": "never"}', *source[200:]]
        Path(folder, "flights.jsonl").write_text("\n".join(lines) + "\n")
        tour = (ROOT / "sql/tour/01-flights.sql").read_text()
        tour = tour.replace("sql/data/flights-2013-01-01_03.jsonl", f"{folder}/flights.jsonl")
        Path(folder, "view.sql").write_text(tour)
        data_dir = str(Path(folder, "data"))
        run(data_dir, "-f", str(Path(folder, "view.sql")))
        check(data_dir, "hourly_departures")
        print(run(data_dir, "-c", "OPTIMIZE hourly_departures").strip())
        check(data_dir, "hourly_departures")
    print("the same rows everywhere")


main()
