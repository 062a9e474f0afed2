-- 04 Sessions: a day in the life of an aircraft.
--
-- Departures of one aircraft belong together while less than six hours lie between them. A session has no size of its own:
-- it grows, and a row that arrives late may join two sessions into one.

CREATE SOURCE flights (
  carrier VARCHAR, flight BIGINT, tailnum VARCHAR, origin VARCHAR, dest VARCHAR,
  scheduled TIMESTAMP, reported TIMESTAMP, status VARCHAR, delay_min BIGINT, distance BIGINT,
  WATERMARK FOR scheduled AS scheduled - INTERVAL '15 minutes'
) WITH (connector = 'file', path = 'sql/data/flights-2013-01-01_03.jsonl', format = 'json');

CREATE MATERIALIZED VIEW aircraft_days AS
SELECT tailnum, window_start, window_end, count(*) AS departures, sum(distance) AS miles,
       array_agg(dest ORDER BY scheduled) AS itinerary
FROM SESSION(TABLE flights PARTITION BY tailnum, DESCRIPTOR(scheduled), INTERVAL '6 hours')
WHERE status = 'departed' AND tailnum IS NOT NULL
GROUP BY tailnum, window_start, window_end
ALLOWED LATENESS INTERVAL '12 hours';

-- The busiest.
SELECT tailnum, window_start, window_end, departures, miles, itinerary FROM aircraft_days ORDER BY departures DESC, miles DESC, tailnum LIMIT 10;

-- Sessions that were published and then merged away, with what took their place.
SELECT tailnum, window_start, window_end, _version, _reason, _deleted
FROM aircraft_days$history
WHERE _deleted
ORDER BY window_start, tailnum, window_end
LIMIT 10;
