#!/usr/bin/env python3
"""What Highwater costs as something grows: late rows, workers, keys, the length of windows.

usage: curves.py [--binary target/debug/highwater] [--rows 10000000] [--rounds 3] [--curves late,workers,keys,windows]
                 [--folder DIR] [--out FILE.md]

curve   | what is asked, and what changes
late    | T1 and T2 with a minute of allowed lateness; the share of rows that lag 5 s and more (Pareto, at most 60 s), by policy
workers | T1, T2, H1, S1 with 1 and with 2
keys    | T2 over 1 thousand to 10 million bidders
windows | T2 in windows of 1 second to 1 day

Everything is an ad-hoc streaming SELECT over Parquet whose rows are counted and not kept. Rounds go through all points of a
curve, so that a slow minute hits all; times are medians less the run over 1,000 rows, and "against" divides rows per second
by those of the curve's first point. Versions and how many of them correct another are counted in a run of its own.
"""
import argparse, datetime, os, platform, statistics, subprocess, tempfile

import run

SHARES = ["0", "0.001", "0.01", "0.05", "0.2", "0.5"]
POLICIES = {"update": "ON LATE UPDATE", "side output": "ON LATE SIDE OUTPUT", "drop": "ON LATE DROP ON EXPIRED DROP"}
LENGTHS = ["1 second", "10 seconds", "1 minute", "1 hour", "1 day"]
KEYS = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]


def make(args, rows, **options):
    """The file of so many bids with these options of the generator, made once."""
    name = "-".join([f"curve-{rows}", *(f"{key}{value}" for key, value in options.items())])
    path = os.path.join(args.folder, f"{name}.parquet")
    if not os.path.exists(path):
        given = "".join(f", {key} = '{value}'" for key, value in options.items())
        sql = (f"CREATE SOURCE made ({run.COLUMNS}) WITH (connector = 'nexmark', rows = '{rows}'{given});"
               f"COPY (SELECT * FROM made) TO '{path}.partial' STORED AS PARQUET;")
        subprocess.run([args.binary, "--in-memory", "--quiet", "-c", sql], check=True, stdout=subprocess.DEVNULL)
        os.rename(f"{path}.partial", path)
    return path


def command(args, select, path, clauses="", workers=2):
    sql = (f"CREATE SOURCE bids ({run.COLUMNS}, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')"
           f" WITH (connector = 'file', format = 'parquet', path = '{path}'); {select} {clauses} EMIT ON WINDOW CLOSE;")
    return [args.binary, "--quiet", "--no-progress", "--format", "null", "--workers", str(workers), "--in-memory", "-c", sql]


def points(args, curve):
    """Each point of a curve: to what it is compared, its label, and its commands over all rows and over 1,000."""
    def point(group, label, select, options, **more):
        files = [make(args, rows, **options) for rows in (args.rows, 1_000)]
        return group, label, [command(args, select, path, **more) for path in files]

    plain = {"late_fraction": "0.005"}
    if curve == "late":
        for query in ("T1", "T2"):
            for policy, clause in POLICIES.items():
                clauses = f"ALLOWED LATENESS INTERVAL '1 minute' {clause}"
                for share in SHARES:
                    yield point(f"{query}, {policy}", share, run.OURS[query], {"late_fraction": share, "late_lag": "pareto"}, clauses=clauses)
    elif curve == "workers":
        for query in ("T1", "T2", "H1", "S1"):
            for workers in (1, 2):
                yield point(query, str(workers), run.OURS[query], plain, workers=workers)
    elif curve == "keys":
        for keys in KEYS:
            yield point("T2", f"{keys:,} bidders", run.OURS["T2"], {"bidders": keys, **plain})
    elif curve == "windows":
        for length in LENGTHS:
            yield point("T2", length, run.OURS["T2"].replace("10 seconds", length), plain)
    else:
        raise SystemExit(f"no such curve: {curve}")


def versions(cmd):
    """Rows of the result, and how many of them correct an earlier one."""
    cmd = [("csv" if part == "null" else part) for part in cmd]
    rows = corrections = 0
    with subprocess.Popen(cmd, stdout=subprocess.PIPE, text=True) as process:
        next(process.stdout, None)
        for line in process.stdout:
            rows += 1
            corrections += "late_data" in line
    return rows, corrections


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/debug/highwater")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--curves", default="late,workers,keys,windows")
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "highwater-peers"))
    parser.add_argument("--out")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    lines = [f"{datetime.date.today()}, commit {commit}, {os.cpu_count()} × {cpu}, {args.rows:,} bids as Parquet, {args.rounds} rounds,"
             f" load {os.getloadavg()[0]:.1f} at the start", "",
             "| curve | query | at | s less start-up | M rows/s | against | CPU s less start-up | by CPU | MiB | versions | corrections |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for curve in args.curves.split(","):
        found = list(points(args, curve))
        runs = [([], []) for _ in found]
        for _ in range(args.rounds):
            for (_, _, both), seen in zip(found, runs):
                for cmd, of_size in zip(both, seen):
                    of_size.append(run.once(cmd))
        first = {}
        for (group, label, both), (big, little) in zip(found, runs):
            less = lambda at: max(statistics.median(r[at] for r in big) - statistics.median(r[at] for r in little), 1e-3)
            wall, cpu_s = less(0), less(3)
            base = first.setdefault(group, (wall, cpu_s))
            rows, corrections = versions(both[0])
            lines.append(f"| {curve} | {group} | {label} | {wall:.3f} | {args.rows / wall / 1e6:.1f} | {base[0] / wall:.2f} × |"
                         f" {cpu_s:.2f} | {base[1] / cpu_s:.2f} × | {max(r[1] for r in big):.0f} | {rows} | {corrections} |")
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    if args.out:
        with open(args.out, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
