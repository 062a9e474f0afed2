-- 07 When to publish.
--
-- EMIT ON WINDOW CLOSE (the default) publishes at the close and on corrections. EMIT CHANGES also publishes while the window
-- is open. EMIT ON EXPIRY publishes once, when nothing can change any more; only then does lateness delay the first result.

CREATE SOURCE flights (
  carrier VARCHAR, flight BIGINT, tailnum VARCHAR, origin VARCHAR, dest VARCHAR,
  scheduled TIMESTAMP, reported TIMESTAMP, status VARCHAR, delay_min BIGINT, distance BIGINT,
  WATERMARK FOR scheduled AS scheduled - INTERVAL '15 minutes'
) WITH (connector = 'file', path = 'sql/data/flights-2013-01-01_03.jsonl', format = 'json');

CREATE MATERIALIZED VIEW live_board AS
SELECT window_start, origin, count(*) AS departures
FROM TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1 hour')
WHERE status = 'departed'
GROUP BY window_start, window_end, origin
ALLOWED LATENESS INTERVAL '1 hour'
EMIT CHANGES;

CREATE MATERIALIZED VIEW settled_board AS
SELECT window_start, origin, count(*) AS departures
FROM TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1 hour')
WHERE status = 'departed'
GROUP BY window_start, window_end, origin
ALLOWED LATENESS INTERVAL '1 hour'
EMIT ON EXPIRY;

-- Same rows, same final values, another number of versions. (How many early ones there are depends on speed.)
SELECT 'live' AS board, count(*) AS results, sum(departures) AS flights FROM live_board
UNION ALL
SELECT 'settled', count(*), sum(departures) FROM settled_board
ORDER BY board;

SELECT _version, _reason, count(*) AS versions FROM settled_board$history GROUP BY _version, _reason;

-- The plan says which it is, with every default filled in.
EXPLAIN SELECT window_start, count(*) FROM TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1 hour')
GROUP BY window_start, window_end
EMIT ON WINDOW CLOSE;
