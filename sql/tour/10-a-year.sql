-- 10 Real lateness: a year of departures.
--
-- Run it where flights-2013.parquet lies (336,776 rows; see sql/data/README.md). Of the rows, 8,255 are filtered, 289,148 on
-- time, 28,228 late and 11,145 expired. There are 19,424 results holding 317,376 flights; 11,545 of them have a version of
-- reason late_data: 11,511 after an initial one, and 34 hours were first seen late.

CREATE SOURCE flights (
  carrier VARCHAR, flight BIGINT, tailnum VARCHAR, origin VARCHAR, dest VARCHAR,
  scheduled TIMESTAMP, reported TIMESTAMP, status VARCHAR, delay_min BIGINT, distance BIGINT,
  WATERMARK FOR scheduled AS scheduled - INTERVAL '15 minutes'
) WITH (connector = 'file', path = 'flights-2013.parquet', format = 'parquet');

CREATE MATERIALIZED VIEW hourly_departures AS
SELECT window_start, origin, count(*) AS departures, avg(delay_min) AS avg_delay
FROM TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1 hour')
WHERE status = 'departed'
GROUP BY window_start, window_end, origin
ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE ON EXPIRED SIDE OUTPUT
EMIT ON WINDOW CLOSE;

SELECT count(*) AS results, sum(departures) AS flights FROM hourly_departures;

SHOW LATENESS;

SELECT count(*) AS expired FROM hourly_departures$late;

-- Results that have a version made by late rows, and of these the ones that had none before.
SELECT count(*) AS corrected, count(*) FILTER (WHERE first_reason = 'late_data') AS first_seen_late
FROM (
  SELECT _window_start, origin, bool_or(_reason = 'late_data') AS late, min(_reason) FILTER (WHERE _version = 1) AS first_reason
  FROM hourly_departures$history
  GROUP BY _window_start, origin
)
WHERE late;
