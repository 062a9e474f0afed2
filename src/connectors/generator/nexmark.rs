//! The events of an online auction, after the Nexmark benchmark: people register, open auctions, and bid.
//!
//! Events are numbered. Of every 50 the first is a person, the next three are auctions, the rest are bids. The n-th event
//! arrives at `start + n / rate`; its event time is that less a lag, so rows are out of order as they are in life: late
//! ones come among punctual ones of a later time. Where Nexmark sorts, pads and sizes rows, this does not.

use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, Int32Array, Int64Array, StringArray, StructArray, TimestampMicrosecondArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};

use super::random::{Dice, Lag};
use crate::connectors::definition::instant;

/// Events of a cycle, and how many of them are of which kind, in that order.
const CYCLE: u64 = 50;
const PEOPLE: u64 = 1;
const AUCTIONS: u64 = 3;
const BIDS: u64 = CYCLE - PEOPLE - AUCTIONS;

/// First identifiers, as Nexmark has them.
const FIRST_PERSON: i64 = 1000;
const FIRST_AUCTION: i64 = 10_000;
/// Bids of a hot auction go to the newest multiple of this.
const HOT_AUCTION_EVERY: i64 = 100;
const URLS: u64 = 50_000;
const HOT_CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];
const FIRST_NAMES: [&str; 8] = ["Ana", "Bo", "Chidi", "Dina", "Emre", "Fay", "Goran", "Hana"];
const LAST_NAMES: [&str; 8] = ["Abe", "Berg", "Costa", "Diaz", "Eze", "Fox", "Gupta", "Holm"];
const PLACES: [(&str, &str); 6] = [
    ("Boise", "ID"),
    ("Portland", "OR"),
    ("Seattle", "WA"),
    ("Phoenix", "AZ"),
    ("San Francisco", "CA"),
    ("Cheyenne", "WY"),
];

/// Which events a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// Bids.
    Bid,
    /// Auctions.
    Auction,
    /// People.
    Person,
    /// All of them, one STRUCT column per kind.
    Event,
}

impl Table {
    /// Number of the event that is row `row` of the table.
    pub(super) fn event(self, row: u64) -> u64 {
        match self {
            Self::Bid => row / BIDS * CYCLE + PEOPLE + AUCTIONS + row % BIDS,
            Self::Auction => row / AUCTIONS * CYCLE + PEOPLE + row % AUCTIONS,
            Self::Person => row * CYCLE,
            Self::Event => row,
        }
    }

    /// The table's columns, times as instants.
    pub(super) fn fields(self) -> Fields {
        let of = |columns: &[(&str, DataType)]| -> Fields {
            columns.iter().map(|(name, t)| Field::new(*name, t.clone(), true)).collect()
        };
        let (number, text) = (DataType::Int64, DataType::Utf8);
        match self {
            Self::Bid => of(&[
                ("auction", number.clone()),
                ("bidder", number.clone()),
                ("price", number),
                ("channel", text.clone()),
                ("url", text.clone()),
                ("date_time", instant()),
                ("extra", text),
            ]),
            Self::Auction => of(&[
                ("id", number.clone()),
                ("item_name", text.clone()),
                ("description", text.clone()),
                ("initial_bid", number.clone()),
                ("reserve", number.clone()),
                ("date_time", instant()),
                ("expires", instant()),
                ("seller", number.clone()),
                ("category", number),
                ("extra", text),
            ]),
            Self::Person => of(&[
                ("id", number),
                ("name", text.clone()),
                ("email_address", text.clone()),
                ("credit_card", text.clone()),
                ("city", text.clone()),
                ("state", text.clone()),
                ("date_time", instant()),
                ("extra", text),
            ]),
            Self::Event => of(&[
                ("event_type", DataType::Int32),
                ("person", DataType::Struct(Self::Person.fields())),
                ("auction", DataType::Struct(Self::Auction.fields())),
                ("bid", DataType::Struct(Self::Bid.fields())),
                ("date_time", instant()),
            ]),
        }
    }
}

/// What the events are like.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) seed: u64,
    pub(super) start_us: i64,
    /// Events, of all kinds, per second of event time.
    pub(super) rate: u64,
    /// Every event's lag is uniform from 0 to this.
    pub(super) disorder_us: i64,
    /// Share of events that lag further, and how far.
    pub(super) late_fraction: f64,
    pub(super) late: Lag,
    pub(super) bidders: u64,
    /// How many of the newest auctions take bids.
    pub(super) auctions: u64,
    pub(super) channels: u64,
    /// Shares of bids by one bidder, on one auction, through four channels.
    pub(super) hot_bidders: f64,
    pub(super) hot_auctions: f64,
    pub(super) hot_channels: f64,
}

/// One stream of random numbers for each thing decided.
#[derive(Debug, Clone, Copy)]
enum Salt {
    Disorder,
    IsLate,
    Late,
    Auction,
    HotAuction,
    Bidder,
    HotBidder,
    Channel,
    HotChannel,
    Url,
    Price,
    Extra,
    Name,
    Place,
    Card,
    Seller,
    Category,
    Reserve,
    Duration,
}

impl Model {
    fn dice(&self, salt: Salt) -> Dice {
        Dice::new(self.seed, salt as u64 + 1)
    }

    /// When `event` arrives, in µs after the start.
    pub(super) fn arrival_us(&self, event: u64) -> i64 {
        (event / self.rate * 1_000_000 + event % self.rate * 1_000_000 / self.rate) as i64
    }

    /// Column `name` of `table` for the events numbered `events`; None if the table has no such column.
    pub(super) fn column(&self, table: Table, name: &str, events: &[u64]) -> Option<ArrayRef> {
        if name == "date_time" {
            return Some(self.times(events, |_| 0));
        }
        if name == "extra" {
            let dice = self.dice(Salt::Extra);
            return Some(texts(events, |event, text| push_hex(dice.bits(event), text)));
        }
        match table {
            Table::Bid => self.bid(name, events),
            Table::Auction => self.auction(name, events),
            Table::Person => self.person(name, events),
            Table::Event => self.event(name, events),
        }
    }

    fn bid(&self, name: &str, events: &[u64]) -> Option<ArrayRef> {
        Some(match name {
            "auction" => {
                let (dice, hot) = (self.dice(Salt::Auction), self.dice(Salt::HotAuction));
                let spread = self.auctions as f64;
                integers(events, |event| {
                    let newest = newest_auction(event);
                    if hot.chance(event, self.hot_auctions) {
                        return newest / HOT_AUCTION_EVERY * HOT_AUCTION_EVERY;
                    }
                    let unit = dice.unit(event);
                    (newest - (spread * unit * unit * unit) as i64).max(FIRST_AUCTION)
                })
            }
            "bidder" => {
                let (dice, hot) = (self.dice(Salt::Bidder), self.dice(Salt::HotBidder));
                integers(events, |event| {
                    if hot.chance(event, self.hot_bidders) {
                        return FIRST_PERSON;
                    }
                    FIRST_PERSON + dice.below(event, self.bidders) as i64
                })
            }
            "price" => {
                let dice = self.dice(Salt::Price);
                integers(events, |event| price(dice.unit(event)))
            }
            "channel" => self.channel(events),
            "url" => {
                let (dice, urls) = (self.dice(Salt::Url), urls());
                let pick = |event: &u64| urls[dice.below(*event, URLS) as usize].as_str();
                Arc::new(StringArray::from_iter_values(events.iter().map(pick)))
            }
            _ => return None,
        })
    }

    fn channel(&self, events: &[u64]) -> ArrayRef {
        let (dice, hot) = (self.dice(Salt::Channel), self.dice(Salt::HotChannel));
        let first = HOT_CHANNELS.len() as u64;
        let others = self.channels.saturating_sub(first);
        let names: Vec<String> = (first..self.channels.max(first)).map(|k| format!("channel-{k}")).collect();
        let pick = |event: &u64| {
            if others == 0 || hot.chance(*event, self.hot_channels) {
                HOT_CHANNELS[dice.below(*event, first.min(self.channels.max(1))) as usize]
            } else {
                names[dice.below(*event, others) as usize].as_str()
            }
        };
        Arc::new(StringArray::from_iter_values(events.iter().map(pick)))
    }

    fn auction(&self, name: &str, events: &[u64]) -> Option<ArrayRef> {
        let first_bid = |event| price(self.dice(Salt::Price).unit(event));
        Some(match name {
            "id" => integers(events, newest_auction),
            "item_name" => texts(events, |event, text| {
                text.push_str("item-");
                push_hex(self.dice(Salt::Name).bits(event) & 0xffff, text);
            }),
            "description" => texts(events, |event, text| {
                text.push_str("as described, lot ");
                push_hex(self.dice(Salt::Name).bits(event), text);
            }),
            "initial_bid" => integers(events, first_bid),
            "reserve" => {
                let dice = self.dice(Salt::Reserve);
                integers(events, |event| first_bid(event) + price(dice.unit(event)))
            }
            "expires" => {
                let dice = self.dice(Salt::Duration);
                self.times(events, move |event| 1_000_000 + dice.below(event, 600_000_000) as i64)
            }
            "seller" => {
                let dice = self.dice(Salt::Seller);
                integers(events, |event| FIRST_PERSON + dice.below(event, event / CYCLE + 1) as i64)
            }
            "category" => {
                let dice = self.dice(Salt::Category);
                integers(events, |event| 10 + dice.below(event, 5) as i64)
            }
            _ => return None,
        })
    }

    fn person(&self, name: &str, events: &[u64]) -> Option<ArrayRef> {
        let names = |event| {
            let bits = self.dice(Salt::Name).bits(event);
            (FIRST_NAMES[(bits & 7) as usize], LAST_NAMES[(bits >> 3 & 7) as usize])
        };
        let place = |event| PLACES[self.dice(Salt::Place).below(event, PLACES.len() as u64) as usize];
        Some(match name {
            "id" => integers(events, |event| FIRST_PERSON + (event / CYCLE) as i64),
            "name" => texts(events, |event, text| {
                let (first, last) = names(event);
                text.push_str(first);
                text.push(' ');
                text.push_str(last);
            }),
            "email_address" => texts(events, |event, text| {
                let (first, last) = names(event);
                text.push_str(&format!("{first}.{last}{}@example.com", event / CYCLE).to_lowercase());
            }),
            "credit_card" => texts(events, |event, text| {
                let digits = format!("{:016}", self.dice(Salt::Card).below(event, 10_000_000_000_000_000));
                text.push_str(&[&digits[..4], &digits[4..8], &digits[8..12], &digits[12..]].join(" "));
            }),
            "city" => texts(events, |event, text| text.push_str(place(event).0)),
            "state" => texts(events, |event, text| text.push_str(place(event).1)),
            _ => return None,
        })
    }

    fn event(&self, name: &str, events: &[u64]) -> Option<ArrayRef> {
        let kind = |event: u64| match event % CYCLE {
            0 => Table::Person,
            1..=AUCTIONS => Table::Auction,
            _ => Table::Bid,
        };
        let table = match name {
            "event_type" => {
                let number = |event: &u64| match kind(*event) {
                    Table::Person => 0,
                    Table::Auction => 1,
                    Table::Bid | Table::Event => 2,
                };
                return Some(Arc::new(Int32Array::from_iter_values(events.iter().map(number))));
            }
            "person" => Table::Person,
            "auction" => Table::Auction,
            "bid" => Table::Bid,
            _ => return None,
        };
        let fields = table.fields();
        let columns = fields.iter().map(|f| self.column(table, f.name(), events)).collect::<Option<Vec<_>>>()?;
        let is_of_kind: NullBuffer = events.iter().map(|event| kind(*event) == table).collect::<Vec<bool>>().into();
        Some(Arc::new(StructArray::new(fields, columns, Some(is_of_kind))))
    }

    /// Event times, each `plus` µs later.
    fn times(&self, events: &[u64], plus: impl Fn(u64) -> i64) -> ArrayRef {
        let (disorder, is_late, late) = (self.dice(Salt::Disorder), self.dice(Salt::IsLate), self.dice(Salt::Late));
        let spread = u64::try_from(self.disorder_us).map_or(0, |us| us + 1);
        let time = |event: &u64| {
            let mut lag = disorder.below(*event, spread) as i64;
            if is_late.chance(*event, self.late_fraction) {
                lag += self.late.of(late.unit(*event));
            }
            self.start_us + self.arrival_us(*event) - lag + plus(*event)
        };
        let times = TimestampMicrosecondArray::from_iter_values(events.iter().map(time));
        Arc::new(times.with_timezone("UTC"))
    }
}

/// The newest auction when `event` happens; an auction's own identifier.
fn newest_auction(event: u64) -> i64 {
    let in_cycle = (event % CYCLE).clamp(PEOPLE, AUCTIONS) - PEOPLE;
    FIRST_AUCTION + (event / CYCLE * AUCTIONS + in_cycle) as i64
}

/// Nexmark's prices: 100 to 100,000,000, evenly over the orders of magnitude.
fn price(unit: f64) -> i64 {
    (10f64.powf(unit * 6.0) * 100.0) as i64
}

fn integers(events: &[u64], value: impl Fn(u64) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(events.iter().map(|event| value(*event))))
}

fn texts(events: &[u64], mut write: impl FnMut(u64, &mut String)) -> ArrayRef {
    let mut builder = arrow::array::StringBuilder::with_capacity(events.len(), events.len() * 16);
    let mut text = String::new();
    for event in events {
        text.clear();
        write(*event, &mut text);
        builder.append_value(&text);
    }
    Arc::new(builder.finish())
}

fn push_hex(bits: u64, text: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (64 - bits.leading_zeros()).div_ceil(4).max(1);
    (0..digits).rev().for_each(|at| text.push(char::from(DIGITS[(bits >> (4 * at) & 15) as usize])));
}

/// The pages bids come from; the same in every run.
fn urls() -> &'static [String] {
    static MADE: OnceLock<Vec<String>> = OnceLock::new();
    MADE.get_or_init(|| {
        let dice = Dice::new(0, 0);
        let word = |k: u64| -> String { (0..6).map(|i| char::from(b'a' + dice.below(k * 6 + i, 26) as u8)).collect() };
        (0..URLS).map(|k| format!("https://www.nexmark.com/{}/item.htm?q={k}", word(k))).collect()
    })
}
