-- 11 The official number, and why it differs from the live one.
--
-- The hour of tour 03 once more: 50,000 from 500 orders at the close, 52,500 from 525 after late orders. Seven orders more come
-- when the hour has expired: they are refused, kept in `$late`, and not forgotten.

CREATE SOURCE orders (
  order_id BIGINT, event_type VARCHAR, event_time TIMESTAMP, user_id VARCHAR,
  payload STRUCT<total DOUBLE, item_count BIGINT>,
  WATERMARK FOR event_time AS event_time - INTERVAL '5 minutes'
) WITH (connector = 'file', path = 'sql/data/orders*.jsonl', format = 'json');

CREATE MATERIALIZED VIEW hourly_revenue AS
SELECT window_start, window_end, sum(payload.total) AS revenue, count(*) AS orders
FROM TUMBLE(TABLE orders, DESCRIPTOR(event_time), INTERVAL '1 hour')
WHERE event_type = 'order.placed'
GROUP BY window_start, window_end
ALLOWED LATENESS INTERVAL '1 hour' ON LATE UPDATE MAX 10 UPDATES ON EXPIRED SIDE OUTPUT
EMIT ON WINDOW CLOSE;

-- What the live number lacks, and why.
VERIFY hourly_revenue;

-- The same SELECT over all that is stored.
FINALIZE hourly_revenue FOR DATE '2024-01-15' REASON 'daily_finalization';

-- Every number the hour ever had: 50,000, then 52,500, then 53,200 from 532 orders, which is final.
SELECT _version, revenue, orders, revenue_change['diff'] AS by, revenue_change['pct_change'] AS percent, _reason, _is_final
FROM hourly_revenue$history
WHERE window_start = TIMESTAMP '2024-01-15 10:00:00'
ORDER BY _version;

SELECT window_start, revenue, orders, _is_final FROM hourly_revenue$final ORDER BY window_start;

-- Again: the input is the same, so nothing is published.
FINALIZE hourly_revenue FOR DATE '2024-01-15';

SHOW JOBS;
