-- 03 Every number that was ever published is kept.
--
-- An hour closes at 50,000 from 500 orders. Then 25 orders of that hour arrive. The hour is published again, corrected, as
-- version 2; version 1 stays readable, and `$history` shows what changed.

CREATE SOURCE orders (
  order_id BIGINT, event_type VARCHAR, event_time TIMESTAMP, user_id VARCHAR,
  payload STRUCT<total DOUBLE, item_count BIGINT>,
  WATERMARK FOR event_time AS event_time - INTERVAL '5 minutes'
) WITH (connector = 'file', path = 'sql/data/orders.jsonl', format = 'json');

CREATE MATERIALIZED VIEW hourly_revenue AS
SELECT window_start, window_end, sum(payload.total) AS revenue, count(*) AS orders
FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour')
WHERE event_type = 'order.placed'
GROUP BY window_start, window_end
ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE MAX 10 UPDATES ON EXPIRED SIDE OUTPUT
EMIT ON WINDOW CLOSE;

-- What holds now.
SELECT window_start, revenue, orders, _version, _reason FROM hourly_revenue ORDER BY window_start;

-- What was published, and how each version differs from the one before.
SELECT * FROM hourly_revenue$history ORDER BY window_start, _version;

-- Nothing is final yet: a window is final when FINALIZE has produced its number from stored input.
SELECT window_start, revenue, _is_final FROM hourly_revenue$final ORDER BY window_start;
