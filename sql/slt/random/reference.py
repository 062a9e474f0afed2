#!/usr/bin/env python3
"""Writes the files beside it: random rows, and what rules T2, T4 and T5 of docs/semantics.md make of them.

    python3 sql/slt/random/reference.py

It is as naive as it can be and shares no code with the engine: it lists the windows of each row, looks at the watermark made
by the rows before it, and keeps every accepted row in a list.
"""
import datetime, os, random

HERE = os.path.dirname(os.path.abspath(__file__))
S = 1_000_000  # microseconds


def instant(us):
    t = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=us)
    return t.strftime("%Y-%m-%dT%H:%M:%S") + (f".{us % S // 1000:03d}" if us % S else "") + "Z"


def grid(slide, size, offset=0):
    """All windows [k*slide+offset, +size) that hold t, ascending."""
    def windows(t):
        first = (t - offset - size) // slide + 1
        starts = [k * slide + offset for k in range(first, (t - offset) // slide + 1)]
        return [(s, s + size) for s in starts if s <= t < s + size]
    return windows


def cumulate(step, size):
    def windows(t):
        start = t // size * size
        return [(start, start + n * step) for n in range((t - start) // step + 1, size // step + 1)]
    return windows


def fate(w, end, lateness):
    if w < end:
        return "on time"
    return "late" if lateness > 0 and w <= end + lateness else "expired"


def run_grid(rows, windows, delay, lateness, late_is_kept):
    """(latest values by (window, key), refused rows)"""
    w, values, refused = None, {}, []
    for t, key, v in rows:
        now = {}
        for start, end in windows(t):
            f = "on time" if w is None else fate(w, end, lateness)
            if f == "on time" or (f == "late" and late_is_kept):
                values.setdefault((start, end, key), []).append(v)
            else:
                now.setdefault(f, []).append(start)
        for f, starts in sorted(now.items()):
            refused.append((t, key, f, starts[-1], len(starts), w - t))
        w = max(t - delay, w if w is not None else t - delay)
    return values, refused


def run_sessions(rows, gap, delay, lateness):
    w, sessions, refused = None, {}, []

    def expired(end):
        return w is not None and fate(w, end, lateness) == "expired"

    for t, key, v in rows:
        mine = sessions.setdefault(key, [])
        hit = [s for s in mine if s[0] < t + gap and t < s[1]]
        if any(expired(s[1]) for s in hit) or (not hit and expired(t + gap)):
            refused.append((t, key, w - t))
        else:
            merged = [min([t] + [s[0] for s in hit]), max([t + gap] + [s[1] for s in hit]), sum([s[2] for s in hit], []) + [v]]
            sessions[key] = [s for s in mine if s not in hit] + [merged]
        w = max(t - delay, w if w is not None else t - delay)
    return {(s[0], s[1], key): s[2] for key, mine in sessions.items() for s in mine}, refused


def random_rows(seed, count, span, back):
    r = random.Random(seed)
    now, rows = -30 * S, []
    for i in range(count):
        now += r.choice([0, 100_000, 500_000, S, span])
        late = r.random()
        t = now - (0 if late < 0.5 else r.randrange(0, back) if late < 0.9 else r.randrange(0, 6 * back))
        rows.append((t // 100_000 * 100_000, r.choice("abc"), r.randrange(-5, 100)))
    return rows


def write(name, title, call, clauses, rows, delay, results, refused_columns, refused, keys="window_start, window_end, k"):
    r = random.Random(name)
    lines = []
    for t, key, v in rows:
        lines.append(f'{t / S:g}, "{key}", {v}' if t % S else f'{t // S}, "{key}", {v}')
        if r.random() < 0.15:
            lines.append("|")
    body = [
        f"# {title}", "# Written by reference.py; change that, not this.", "",
        "statement ok",
        f"CREATE SOURCE s (ts TIMESTAMP, k VARCHAR, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '{delay // S} seconds')",
        "WITH (connector = 'script')", "",
        "statement ok", "CREATE MATERIALIZED VIEW v AS",
        "SELECT window_start, window_end, k, count(*) AS n, sum(v) AS total, min(v) AS low",
        f"FROM {call}", f"GROUP BY {keys}", *clauses, "",
        "statement ok", "\\push s", *lines, "",
        "statement ok", "\\end s", "",
        "query TTTIII", "SELECT window_start, window_end, k, n, total, low FROM v ORDER BY window_start, window_end, k", "----",
        *[f"{instant(s)} {instant(e)} {k} {len(v)} {sum(v)} {min(v)}" for (s, e, k), v in sorted(results.items())], "",
        f"query {'T' * refused_columns.count(',')}T rowsort", f"SELECT {refused_columns} FROM v$late", "----",
        *sorted(refused), "",
    ]
    with open(os.path.join(HERE, name + ".slt"), "w") as f:
        f.write("\n".join(body))


def grid_file(name, title, call, windows, seed, delay, lateness, on_late="UPDATE"):
    rows = random_rows(seed, 150, 4 * S, 8 * S)
    values, refused = run_grid(rows, windows, delay, lateness, on_late == "UPDATE")
    clauses = [f"ALLOWED LATENESS INTERVAL '{lateness // S} seconds' ON LATE {on_late}"] if lateness else []
    write(name, title, call, clauses, rows, delay, values, "ts, k, _reason, _window_start, _pairs, _late_by_us",
          [f"{instant(t)} {k} {f} {instant(s)} {n} {by}" for t, k, f, s, n, by in refused])


def session_file(name, title, seed, gap, delay, lateness):
    rows = random_rows(seed, 150, 4 * S, 8 * S)
    values, refused = run_sessions(rows, gap, delay, lateness)
    clauses = [f"ALLOWED LATENESS INTERVAL '{lateness // S} seconds'"] if lateness else []
    call = f"SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '{gap / S:g} seconds')"
    write(name, title, call, clauses, rows, delay, values, "ts, k, _late_by_us",
          [f"{instant(t)} {k} {by}" for t, k, by in refused])


SOURCE = "TABLE s, DESCRIPTOR(ts)"
grid_file("tumble", "Tumbling, with lateness", f"TUMBLE({SOURCE}, INTERVAL '10 seconds')", grid(10 * S, 10 * S), 1, 2 * S, 5 * S)
grid_file("tumble-strict", "Tumbling, without lateness, with an offset", f"TUMBLE({SOURCE}, INTERVAL '7 seconds', INTERVAL '3 seconds')",
          grid(7 * S, 7 * S, 3 * S), 2, 3 * S, 0)
grid_file("tumble-aside", "Tumbling, late rows set aside: both fates are in $late", f"TUMBLE({SOURCE}, INTERVAL '5 seconds')",
          grid(5 * S, 5 * S), 3, S, 6 * S, "SIDE OUTPUT")
grid_file("hop", "A hop whose size is no multiple of its slide: rows late in one window and on time in the next",
          f"HOP({SOURCE}, INTERVAL '3 seconds', INTERVAL '10 seconds')", grid(3 * S, 10 * S), 4, 2 * S, 4 * S)
grid_file("hop-strict", "A hop without lateness", f"HOP({SOURCE}, INTERVAL '1500 milliseconds', INTERVAL '6 seconds')",
          grid(1_500_000, 6 * S), 5, 0, 0)
grid_file("hop-gaps", "A hop with gaps", f"HOP({SOURCE}, INTERVAL '10 seconds', INTERVAL '4 seconds')", grid(10 * S, 4 * S), 6, S, 3 * S)
grid_file("cumulate", "Cumulating windows", f"CUMULATE({SOURCE}, INTERVAL '4 seconds', INTERVAL '20 seconds')",
          cumulate(4 * S, 20 * S), 7, 2 * S, 3 * S)
session_file("session", "Sessions, with lateness", 8, 3 * S, 2 * S, 6 * S)
session_file("session-strict", "Sessions, without lateness", 9, 2_500_000, S, 0)
session_file("session-patient", "Sessions, with much lateness", 10, 4 * S, 0, 60 * S)
