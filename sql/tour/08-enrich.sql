-- 08 Names for codes: joining with a table that stands still.
--
-- The table is read when the view's job starts. HAVING and expressions are applied to each version, so a carrier that drops
-- below the bar through a correction leaves the result again.

CREATE SOURCE flights (
  carrier VARCHAR, flight BIGINT, tailnum VARCHAR, origin VARCHAR, dest VARCHAR,
  scheduled TIMESTAMP, reported TIMESTAMP, status VARCHAR, delay_min BIGINT, distance BIGINT,
  WATERMARK FOR scheduled AS scheduled - INTERVAL '15 minutes'
) WITH (connector = 'file', path = 'sql/data/flights-2013-01-01_03.jsonl', format = 'json');

CREATE EXTERNAL TABLE carriers STORED AS CSV LOCATION 'sql/data/carriers.csv' OPTIONS ('format.has_header' 'true');

CREATE MATERIALIZED VIEW slow_carriers AS
SELECT f.window_start, c.name, count(*) AS departures, avg(f.delay_min) AS avg_delay,
       CASE WHEN avg(f.delay_min) > 60 THEN 'bad' ELSE 'slow' END AS verdict
FROM TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '6 hours') AS f
JOIN carriers AS c ON c.carrier = f.carrier
WHERE f.status = 'departed'
GROUP BY f.window_start, f.window_end, c.name
HAVING count(*) >= 5 AND avg(f.delay_min) > 15
ALLOWED LATENESS INTERVAL '3 hours';

SELECT window_start, name, departures, round(avg_delay, 1) AS avg_delay, verdict
FROM slow_carriers
ORDER BY avg_delay DESC
LIMIT 10;
