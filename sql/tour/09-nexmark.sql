-- 09 A stream without a file: the Nexmark generator, and two sources as one.
--
-- The generator makes the same events for the same seed, on any machine, with as much disorder and lateness as asked for.
-- After UNION ALL the watermark is the smaller of the two.

CREATE SOURCE bids (
  auction BIGINT, bidder BIGINT, channel VARCHAR, url VARCHAR, price BIGINT, date_time TIMESTAMP,
  WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds'
) WITH (connector = 'nexmark', 'table' = 'bid', rows = '200000', seed = '1', late_fraction = '0.01');

CREATE SOURCE auctions (
  id BIGINT, seller BIGINT, category BIGINT, date_time TIMESTAMP,
  WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds'
) WITH (connector = 'nexmark', 'table' = 'auction', rows = '13000', seed = '1');

CREATE MATERIALIZED VIEW prices AS
SELECT window_start, channel, count(*) AS bids, max(price) AS highest
FROM TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10 seconds')
GROUP BY window_start, window_end, channel
ALLOWED LATENESS INTERVAL '10 seconds';

SELECT window_start, channel, bids, highest FROM prices ORDER BY bids DESC, channel LIMIT 5;

CREATE VIEW events AS
SELECT 'bid' AS kind, date_time FROM bids
UNION ALL
SELECT 'auction' AS kind, date_time FROM auctions;

CREATE MATERIALIZED VIEW activity AS
SELECT window_start, kind, count(*) AS events
FROM TUMBLE(TABLE events, DESCRIPTOR(date_time), INTERVAL '10 seconds')
GROUP BY window_start, window_end, kind;

SELECT window_start, kind, events FROM activity ORDER BY window_start, kind LIMIT 6;
