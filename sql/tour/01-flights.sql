-- 01 Departures per hour, corrected as late reports come in.
--
-- A flight is reported when it leaves, and counted in the hour in which it was to leave. So a flight that is two hours
-- behind schedule arrives here two hours late. The watermark says how long we wait before an hour is closed (15 minutes);
-- ALLOWED LATENESS says how long a closed hour may still be corrected (1 hour). What comes later still is kept aside.

CREATE SOURCE flights (
  carrier VARCHAR, flight BIGINT, tailnum VARCHAR, origin VARCHAR, dest VARCHAR,
  scheduled TIMESTAMP, reported TIMESTAMP, status VARCHAR, delay_min BIGINT, distance BIGINT,
  WATERMARK FOR scheduled AS scheduled - INTERVAL '15 minutes'
) WITH (connector = 'file', path = 'sql/data/flights-2013-01-01_03.jsonl', format = 'json');

CREATE MATERIALIZED VIEW hourly_departures AS
SELECT window_start, origin, count(*) AS departures, avg(delay_min) AS avg_delay
FROM TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1 hour')
WHERE status = 'departed'
GROUP BY window_start, window_end, origin
ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE ON EXPIRED SIDE OUTPUT
EMIT ON WINDOW CLOSE;

-- The newest value of each hour and airport, with the version it is at.
SELECT window_start, origin, departures, round(avg_delay, 1) AS avg_delay, _version, _reason
FROM hourly_departures
ORDER BY window_start, origin
LIMIT 12;

-- How much of it was corrected after it had been published?
SELECT _reason, count(*) AS results, sum(departures) AS flights
FROM hourly_departures
GROUP BY _reason
ORDER BY _reason;

-- Where every row went: rows read = filtered + accepted + refused.
SHOW LATENESS;
