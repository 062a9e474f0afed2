-- 06 Days and months as people live them.
--
-- With a time zone, whole-day windows run from local midnight to local midnight: 23, 24 or 25 hours. Months are always
-- calendar months. New York's midnight is 05:00 UTC in winter.

CREATE SOURCE flights (
  carrier VARCHAR, flight BIGINT, tailnum VARCHAR, origin VARCHAR, dest VARCHAR,
  scheduled TIMESTAMP, reported TIMESTAMP, status VARCHAR, delay_min BIGINT, distance BIGINT,
  WATERMARK FOR scheduled AS scheduled - INTERVAL '15 minutes'
) WITH (connector = 'file', path = 'sql/data/flights-2013-01.parquet', format = 'parquet');

CREATE MATERIALIZED VIEW daily AS
SELECT window_start, window_end, count(*) AS departures, round(avg(delay_min), 1) AS avg_delay
FROM TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1 day', TIME_ZONE => 'America/New_York')
WHERE status = 'departed'
GROUP BY window_start, window_end
ALLOWED LATENESS INTERVAL '6 hours';

SELECT window_start, window_end, departures, avg_delay FROM daily ORDER BY window_start LIMIT 7;

-- Seven days with a zone are ISO weeks, Monday to Monday.
CREATE MATERIALIZED VIEW weekly AS
SELECT window_start, window_end, count(*) AS departures
FROM TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '7 days', TIME_ZONE => 'America/New_York')
WHERE status = 'departed'
GROUP BY window_start, window_end
ALLOWED LATENESS INTERVAL '6 hours';

SELECT window_start, window_end, departures FROM weekly ORDER BY window_start;

CREATE MATERIALIZED VIEW monthly AS
SELECT window_start, window_end, count(*) AS departures
FROM TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1 month', TIME_ZONE => 'America/New_York')
WHERE status = 'departed'
GROUP BY window_start, window_end
ALLOWED LATENESS INTERVAL '6 hours';

SELECT window_start, window_end, departures FROM monthly ORDER BY window_start;
