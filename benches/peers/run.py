#!/usr/bin/env python3
"""Highwater and the engines people would use instead, on the same files, in turn.

usage: run.py [--binary target/debug/highwater] [--rows 10000000] [--rounds 5] [--format parquet|csv|json]
              [--queries T1,T2,H1,S1,D1] [--engines highwater,view,batch,datafusion,duckdb,polars,flink,flink-tuned]
              [--flink-python /path/to/python] [--folder DIR] [--out FILE.md]

Needs `pip install duckdb polars pyarrow` for those two peers; an engine that is not there is left out and said so. Flink needs a
Python of its own with `pip install apache-flink` and Java 17, and reads CSV and JSON only.

engine      | is
highwater   | an ad-hoc streaming SELECT ... EMIT ON WINDOW CLOSE, watermark 4 s behind, its rows counted and not kept
view        | the same as a materialized view, stored on local disk, epochs of 1 s
batch       | the same statement without EMIT: Highwater's batch lowering
datafusion  | the same binary, plain SQL by hand over the file (date_bin, unnest, gaps and islands): no source, no window function
duckdb      | the same SQL in DuckDB
polars      | the same question in polars, streaming engine
flink       | Flink SQL, streaming mode, window functions, parallelism 2, rows into a blackhole; flink-tuned with mini-batches,
            | two phases, object reuse and split distinct counts

Each run is a process of its own with two threads. Rounds go through all engines, so that a slow minute hits all. A time is
the median of the rounds less the engine's median over a file of 1,000 rows. On a machine that does other things too look at
the processor time instead. "highwater is" says how many times as long the engine took. The streaming engines refuse rows that come
after their window has closed (about 0.5 % of the bids); `rows` says how many the results hold.
"""
import argparse, datetime, os, platform, re, shutil, statistics, subprocess, sys, tempfile, time

COLUMNS = "auction BIGINT, bidder BIGINT, channel VARCHAR, url VARCHAR, price BIGINT, date_time TIMESTAMP"
TUMBLE = "TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10 seconds')"
HOP = "HOP(TABLE bids, DESCRIPTOR(date_time), INTERVAL '2 seconds', INTERVAL '10 seconds')"
SESSION = "SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10 seconds')"
WINDOW = "GROUP BY window_start, window_end"

OURS = {
    "T1": f"SELECT window_start, channel, count(*) AS c, sum(price) AS s, avg(price) AS a, max(price) AS m FROM {TUMBLE} {WINDOW}, channel",
    "T2": f"SELECT window_start, bidder, count(*) AS c, sum(price) AS s FROM {TUMBLE} {WINDOW}, bidder",
    "H1": f"SELECT window_start, auction, count(*) AS c FROM {HOP} {WINDOW}, auction",
    "S1": f"SELECT window_start, window_end, bidder, count(*) AS c FROM {SESSION} {WINDOW}, bidder",
    "D1": f"SELECT window_start, channel, count(DISTINCT bidder) AS c FROM {TUMBLE} {WINDOW}, channel",
}


def plain(query, bids, bucket, array):
    """The question by hand. `bucket(s)` truncates date_time to s seconds."""
    panes = array(["p"] + [f"p - INTERVAL '{k} seconds'" for k in (2, 4, 6, 8)])
    return {
        "T1": f"SELECT {bucket(10)} AS w, channel, count(*) AS c, sum(price) AS s, avg(price) AS a, max(price) AS m FROM {bids} GROUP BY 1, 2",
        "T2": f"SELECT {bucket(10)} AS w, bidder, count(*) AS c, sum(price) AS s FROM {bids} GROUP BY 1, 2",
        "H1": f"SELECT w, auction, sum(n) AS c FROM (SELECT auction, n, unnest({panes}) AS w FROM"
              f" (SELECT auction, {bucket(2)} AS p, count(*) AS n FROM {bids} GROUP BY 1, 2)) GROUP BY 1, 2",
        "S1": "SELECT bidder, min(date_time) AS f, max(date_time) AS l, count(*) AS c FROM (SELECT bidder, date_time, sum(b) OVER"
              " (PARTITION BY bidder ORDER BY date_time ROWS UNBOUNDED PRECEDING) AS n FROM (SELECT bidder, date_time, CASE WHEN"
              " date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) < INTERVAL '10 seconds' THEN 0 ELSE 1 END AS b"
              f" FROM {bids})) GROUP BY bidder, n",
        "D1": f"SELECT {bucket(10)} AS w, channel, count(DISTINCT bidder) AS c FROM {bids} GROUP BY 1, 2",
    }[query]


def duckdb_program(query, path, fmt):
    types = {"auction": "BIGINT", "bidder": "BIGINT", "channel": "VARCHAR", "url": "VARCHAR", "price": "BIGINT", "date_time": "TIMESTAMP"}
    read = {"parquet": f"read_parquet('{path}')", "csv": f"read_csv('{path}', header=false, columns={types})",
            "json": f"read_json('{path}', format='newline_delimited', columns={types})"}[fmt]
    sql = plain(query, read, lambda s: f"time_bucket(INTERVAL '{s} seconds', date_time)", lambda xs: f"[{', '.join(xs)}]")
    return ("import duckdb\ncon = duckdb.connect()\ncon.execute('SET threads=2; SET preserve_insertion_order=false')\n"
            f"t = con.sql({sql!r}).to_arrow_table()\nimport pyarrow.compute as pc\nprint(t.num_rows, pc.sum(t['c']).as_py())")


def polars_program(query, path, fmt):
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    scan = {"parquet": f"pl.scan_parquet({path!r})",
            "csv": f"pl.scan_csv({path!r}, has_header=False, new_columns={names!r}, try_parse_dates=True)",
            "json": f"pl.scan_ndjson({path!r}).with_columns(pl.col('date_time').str.to_datetime(time_unit='us'))"}[fmt]
    ask = {
        "T1": "lf.group_by(w('10s').alias('w'), 'channel').agg(c=pl.len(), s=C('price').sum(), a=C('price').mean(), m=C('price').max())",
        "T2": "lf.group_by(w('10s').alias('w'), 'bidder').agg(c=pl.len(), s=C('price').sum())",
        "H1": "lf.group_by('auction', w('2s').alias('p')).agg(n=pl.len()).with_columns(w=pl.concat_list(*[C('p') - pl.duration(seconds=k)"
              " for k in (0, 2, 4, 6, 8)])).explode('w').group_by('w', 'auction').agg(c=C('n').sum())",
        "S1": "lf.select('bidder', 'date_time').sort('bidder', 'date_time').with_columns(n=((C('bidder') != C('bidder').shift()) |"
              " (C('date_time') - C('date_time').shift() >= pl.duration(seconds=10))).fill_null(True).cum_sum())"
              ".group_by('n').agg(b=C('bidder').first(), f=C('date_time').min(), l=C('date_time').max(), c=pl.len())",
        "D1": "lf.group_by(w('10s').alias('w'), 'channel').agg(c=C('bidder').n_unique())",
    }[query]
    return (f"import polars as pl\nC = pl.col\nw = lambda s: C('date_time').dt.truncate(s)\nlf = {scan}\n"
            f"t = ({ask}).collect(engine='streaming')\nprint(t.height, int(t['c'].cast(pl.Int64).sum()))")


FLINK_TUNED = {
    "pipeline.object-reuse": "true", "table.exec.mini-batch.enabled": "true", "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "20000", "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "table.optimizer.distinct-agg.split.enabled": "true", "taskmanager.memory.managed.size": "1gb",
    "taskmanager.memory.network.max": "256mb", "pipeline.generic-types": "false",
}


def flink_program(query, path, fmt, tuned):
    """Our SELECT is Flink's too, but for the words of intervals and names of its columns; it writes into nothing."""
    sql = re.sub(r"INTERVAL '(\d+) seconds'", r"INTERVAL '\1' SECOND", OURS[query])
    sql = re.sub(r"FROM (.*) GROUP", r"FROM TABLE(\1) GROUP", sql)
    settings = {"parallelism.default": "2", "taskmanager.numberOfTaskSlots": "2", "table.local-time-zone": "UTC", "rest.port": "0"}
    settings |= FLINK_TUNED if tuned else {}
    types = {"window_start": "TIMESTAMP(3)", "window_end": "TIMESTAMP(3)", "channel": "VARCHAR"}
    selected = [part.split(" AS ")[-1].strip() for part in sql[len("SELECT "):sql.index(" FROM")].split(", ")]
    sink = ", ".join(f"{name} {types.get(name, 'BIGINT')}" for name in selected)
    return ("from pyflink.common import Configuration\nfrom pyflink.table import EnvironmentSettings, TableEnvironment\n"
            f"conf = Configuration()\nfor k, v in {settings!r}.items(): conf.set_string(k, v)\n"
            "env = TableEnvironment.create(EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf).build())\n"
            f"env.execute_sql({f'CREATE TABLE bids ({FLINK_COLUMNS}) WITH ({FLINK_FILE.format(path, fmt)})'!r})\n"
            f"env.execute_sql({f'CREATE TABLE sink ({sink}) WITH ({FLINK_SINK})'!r})\n"
            f"env.execute_sql({f'INSERT INTO sink {sql}'!r}).wait()")


FLINK_COLUMNS = COLUMNS.replace("TIMESTAMP", "TIMESTAMP(3)") + ", WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"
FLINK_FILE = "'connector' = 'filesystem', 'path' = '{}', 'format' = '{}'"
FLINK_SINK = "'connector' = 'blackhole'"


def command(engine, query, path, fmt, binary, folder, flink_python=None):
    """The process to time."""
    start = [binary, "--quiet", "--no-progress", "--format", "null", "--workers", "2"]
    options = "connector = 'file', format = '{}', path = '{}'{}".format(fmt, path, ", header = 'false'" if fmt == "csv" else "")
    source = f"CREATE SOURCE bids ({COLUMNS}, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds') WITH ({options});"
    if engine == "highwater":
        return start + ["--in-memory", "-c", f"{source} {OURS[query]} EMIT ON WINDOW CLOSE;"]
    if engine == "view":
        data = os.path.join(folder, "data")
        shutil.rmtree(data, ignore_errors=True)
        return start + ["--data-dir", data, "-c", f"{source} CREATE MATERIALIZED VIEW v AS {OURS[query]} EMIT ON WINDOW CLOSE;"]
    if engine == "batch":
        return start + ["--in-memory", "-c", f"{source} {OURS[query]};"]
    if engine == "datafusion":
        if fmt != "parquet":
            return None
        sql = plain(query, f"'{path}'", lambda s: f"date_bin(INTERVAL '{s} seconds', date_time)", lambda xs: f"make_array({', '.join(xs)})")
        return start + ["--in-memory", "-c", f"{sql};"]
    if engine.startswith("flink"):
        return None if fmt == "parquet" else [flink_python, "-c", flink_program(query, path, fmt, engine == "flink-tuned")]
    program = {"duckdb": duckdb_program, "polars": polars_program}[engine](query, path, fmt)
    return [sys.executable, "-c", program]


def counted(cmd, engine):
    """Result rows and the sum of their counts, where the engine is ours: the same run with its rows as CSV."""
    if engine in ("duckdb", "polars", "view", "flink", "flink-tuned"):
        return None
    cmd = [("csv" if part == "null" else part) for part in cmd]
    rows = total = 0
    with subprocess.Popen(cmd, stdout=subprocess.PIPE, text=True) as process:
        column = None
        for line in process.stdout:
            cells = line.rstrip("\n").split(",")
            if column is None:
                column = cells.index("c") if "c" in cells else None
                continue
            rows += 1
            total += int(cells[column])
    return rows, total


def once(cmd):
    """Seconds, peak MiB, output and processor seconds of one run."""
    env = dict(os.environ, POLARS_MAX_THREADS="2")
    with tempfile.TemporaryFile("w+") as out:
        began = time.perf_counter()
        process = subprocess.Popen(cmd, stdout=out, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        took = time.perf_counter() - began
        if process.returncode != 0:
            raise SystemExit(f"failed with {process.returncode}: {cmd}")
        out.seek(0)
        return took, usage.ru_maxrss / 1024, out.read().strip(), usage.ru_utime + usage.ru_stime


def make(binary, folder, rows, fmt):
    """The file of so many bids, made once."""
    path = os.path.join(folder, f"bids-{rows}.{fmt}")
    if not os.path.exists(path):
        partial = os.path.join(folder, f"partial.{fmt}")
        # Times as every engine reads them in text; row groups of a size that every engine decodes side by side.
        time = "date_time" if fmt == "parquet" else "to_char(date_time, '%Y-%m-%d %H:%M:%S%.3f') AS date_time"
        how = {"parquet": "max_row_group_size 131072, compression snappy", "csv": "format.has_header false", "json": ""}[fmt]
        sql = (f"CREATE SOURCE made ({COLUMNS}) WITH (connector = 'nexmark', rows = '{rows}', late_fraction = '0.005');"
               f"COPY (SELECT auction, bidder, channel, url, price, {time} FROM made) TO '{partial}' STORED AS {fmt.upper()}"
               + (f" OPTIONS ({how});" if how else ";"))
        subprocess.run([binary, "--in-memory", "--quiet", "-c", sql], check=True, stdout=subprocess.DEVNULL)
        os.rename(partial, path)
    return path


def available(engine, flink_python):
    if engine not in ("duckdb", "polars", "flink", "flink-tuned"):
        return True
    python, modules = (flink_python, "pyflink") if engine.startswith("flink") else (sys.executable, f"{engine}, pyarrow")
    found = subprocess.run([python, "-c", f"import {modules}"], stderr=subprocess.DEVNULL).returncode == 0
    if not found:
        print(f"{engine} is not installed and left out", file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/debug/highwater")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--format", default="parquet", choices=["parquet", "csv", "json"])
    parser.add_argument("--queries", default="T1,T2,H1,S1,D1")
    parser.add_argument("--engines", default="highwater,batch,datafusion,duckdb,polars")
    parser.add_argument("--flink-python", default=sys.executable)
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "highwater-peers"))
    parser.add_argument("--out")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    small, large = (make(args.binary, args.folder, n, args.format) for n in (1_000, args.rows))
    engines = [engine for engine in args.engines.split(",") if available(engine, args.flink_python)]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    lines = [f"{datetime.date.today()}, commit {commit}, {os.cpu_count()} × {cpu}, {args.rows:,} bids as {args.format}, {args.rounds} rounds,"
             f" load {os.getloadavg()[0]:.1f} at the start", "",
             "| query | engine | s less start-up | whole s (min–max) | M rows/s | highwater is | CPU s less start-up | by CPU | MiB | result rows | counted |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for query in args.queries.split(","):
        commands = {e: [command(e, query, path, args.format, args.binary, args.folder, args.flink_python) for path in (large, small)] for e in engines}
        commands = {e: both for e, both in commands.items() if both[0]}
        runs = {e: ([], []) for e in commands}
        for _ in range(args.rounds):
            for engine, both in commands.items():
                for size, cmd in enumerate(both):
                    if engine == "view":
                        shutil.rmtree(os.path.join(args.folder, "data"), ignore_errors=True)
                    runs[engine][size].append(once(cmd))
        less = lambda at: {e: max(statistics.median(r[at] for r in big) - statistics.median(r[at] for r in little), 1e-3)
                           for e, (big, little) in runs.items()}
        net, cpu = less(0), less(3)
        for engine, (big, _) in runs.items():
            rows, total = counted(commands[engine][0], engine) or (big[-1][2].splitlines()[-1].split() if big[-1][2] else ("", ""))
            times = [r[0] for r in big]
            lines.append(f"| {query} | {engine} | {net[engine]:.3f} | {statistics.median(times):.2f} ({min(times):.2f}–{max(times):.2f}) |"
                         f" {args.rows / net[engine] / 1e6:.1f} | {net[engine] / net.get('highwater', net[engine]):.2f} × |"
                         f" {cpu[engine]:.2f} | {cpu[engine] / cpu.get('highwater', cpu[engine]):.2f} × |"
                         f" {max(r[1] for r in big):.0f} | {rows} | {total} |")
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    if args.out:
        with open(args.out, "w") as file:
            file.write(text)
    print(text)


if __name__ == "__main__":
    main()
