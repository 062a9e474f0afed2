-- 02 Late rows are not lost.
--
-- A row that comes after its window has expired is refused, and kept in `hourly$late`, with the window that refused it and
-- how far behind the watermark it was. In a shell write the name in single quotes, or `$late` becomes a shell variable.

CREATE SOURCE flights (
  carrier VARCHAR, flight BIGINT, tailnum VARCHAR, origin VARCHAR, dest VARCHAR,
  scheduled TIMESTAMP, reported TIMESTAMP, status VARCHAR, delay_min BIGINT, distance BIGINT,
  WATERMARK FOR scheduled AS scheduled - INTERVAL '15 minutes'
) WITH (connector = 'file', path = 'sql/data/flights-2013-01-01_03.jsonl', format = 'json');

CREATE MATERIALIZED VIEW hourly AS
SELECT window_start, origin, count(*) AS departures, avg(delay_min) AS avg_delay
FROM TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1 hour')
WHERE status = 'departed'
GROUP BY window_start, window_end, origin
ALLOWED LATENESS INTERVAL '1 hour';

-- The most delayed of them. A refused row is kept whole, with the window that refused it.
SELECT origin, scheduled, delay_min, _window_start, _late_by_us / 60000000 AS minutes_behind
FROM hourly$late
ORDER BY delay_min DESC, scheduled
LIMIT 10;

-- Which airport loses most to lateness?
SELECT origin, count(*) AS refused, round(avg(delay_min)) AS avg_delay
FROM hourly$late
GROUP BY origin
ORDER BY origin;

-- With one more hour of lateness, fewer are refused, and each hour stays correctable for longer.
CREATE MATERIALIZED VIEW hourly_patient AS
SELECT window_start, origin, count(*) AS departures
FROM TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1 hour')
WHERE status = 'departed'
GROUP BY window_start, window_end, origin
ALLOWED LATENESS INTERVAL '2 hours';

SELECT (SELECT count(*) FROM hourly$late) AS refused_with_one_hour,
       (SELECT count(*) FROM hourly_patient$late) AS refused_with_two;
