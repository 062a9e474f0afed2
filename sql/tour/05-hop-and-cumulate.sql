-- 05 Windows that overlap.
--
-- HOP asks the same question again every half hour about the last three hours; CUMULATE grows from the start of the day in
-- steps of an hour. However many windows a row belongs to, it is added up once: windows share slices.

CREATE SOURCE flights (
  carrier VARCHAR, flight BIGINT, tailnum VARCHAR, origin VARCHAR, dest VARCHAR,
  scheduled TIMESTAMP, reported TIMESTAMP, status VARCHAR, delay_min BIGINT, distance BIGINT,
  WATERMARK FOR scheduled AS scheduled - INTERVAL '15 minutes'
) WITH (connector = 'file', path = 'sql/data/flights-2013-01-01_03.jsonl', format = 'json');

CREATE MATERIALIZED VIEW last_three_hours AS
SELECT window_start, window_end, origin, count(*) AS departures, max(delay_min) AS worst_delay
FROM HOP(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '30 minutes', INTERVAL '3 hours')
WHERE status = 'departed'
GROUP BY window_start, window_end, origin
ALLOWED LATENESS INTERVAL '1 hour';

SELECT window_start, window_end, origin, departures, worst_delay
FROM last_three_hours
WHERE origin = 'JFK'
ORDER BY window_end
LIMIT 10;

CREATE MATERIALIZED VIEW so_far_today AS
SELECT window_start, window_end, count(*) AS departures
FROM CUMULATE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1 hour', INTERVAL '1 day', TIME_ZONE => 'America/New_York')
WHERE status = 'departed'
GROUP BY window_start, window_end
ALLOWED LATENESS INTERVAL '1 hour';

SELECT window_start, window_end, departures FROM so_far_today WHERE window_start = TIMESTAMP '2013-01-02 05:00:00' ORDER BY window_end;
