//! Connector 'nexmark' (also 'generator'): rows made up as they are read, the same ones every time.
//!
//! | option | default | meaning |
//! | --- | --- | --- |
//! | `table` | `bid` | `bid`, `auction`, `person` or `event` |
//! | `rows` | endless | rows of the table; with it the source is bounded |
//! | `rate` | 10000 | events of all kinds per second of event time; 46 of 50 are bids, 3 auctions, 1 a person |
//! | `realtime` | `false` | `true` to hand out rows no faster than `rate` by the machine's clock |
//! | `start_time` | 2026-01-01 | arrival of the first event, a time, or `now` |
//! | `seed` | 42 | another one gives other rows |
//! | `splits` | 1 | rows are dealt out in turn |
//! | `disorder` | `2 s` | each event's time lags behind its arrival by up to this, evenly |
//! | `late_fraction` | 0 | share of events that lag further |
//! | `late_lag` | `uniform` | `uniform`, `exponential` or `pareto`, between `late_min` (`5 s`) and `late_max` (`60 s`) |
//! | `bidders`, `auctions`, `channels` | 100000, 1000, 1000 | how many there are; of auctions, how many take bids at a time |
//! | `hot_bidders`, `hot_auctions`, `hot_channels` | 0, 0.1, 0.5 | share of bids by one bidder, on one auction, through four channels |
//!
//! Columns are declared with any of the table's names, whatever the case, and underscores may be left out (`dateTime`);
//! with none declared the source has them all. The n-th row of a table is the same whatever is asked for beside it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::{can_cast_types, cast};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use jiff::tz::TimeZone;
use tokio::time::Instant;

use super::definition::{OptionReader, instant_type};
use super::formats::Wanted;
use super::pipeline::{Pipeline, Place, Produced, Producer, Shape, Stretch};
use super::{
    Boundedness, ColumnDefinition, Notes, Offsets, Position, ReadOptions, Source, SourceBatch, SourceDefinition, Split,
    SplitReader,
};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result, nearest};
use crate::time::parse_time;

mod nexmark;
mod random;

use nexmark::{Model, Table};
use random::{Lag, LagShape};

/// Rows made by one job.
const STRETCH_ROWS: u64 = 1 << 15;
/// How long a reader that is paced waits before it says that it has nothing.
const PATIENCE: Duration = Duration::from_millis(100);

/// Nexmark rows, made up deterministically.
#[derive(Debug)]
pub struct GeneratorSource {
    columns: Vec<ColumnDefinition>,
    schema: SchemaRef,
    model: Arc<Model>,
    table: Table,
    rows: Option<u64>,
    splits: u64,
    realtime: bool,
    starts_now: bool,
}

impl GeneratorSource {
    /// The source that `definition` describes.
    ///
    /// # Errors
    /// `Invalid` for an unknown option, table or column, or a value out of its range.
    pub fn try_new(definition: &SourceDefinition) -> Result<Self> {
        let mut options = definition.option_reader();
        let tables =
            [("bid", Table::Bid), ("auction", Table::Auction), ("person", Table::Person), ("event", Table::Event)];
        let table = options.choice(&["table"], &tables)?.unwrap_or(Table::Bid);
        let rows = options.number(&["rows", "number-of-rows", "events.num"])?;
        let splits = options.number(&["splits"])?.unwrap_or(1);
        let realtime = options.flag(&["realtime"], false)?;
        let start = options.text(&["start_time"])?;
        let starts_now = start.is_some_and(|text| text.eq_ignore_ascii_case("now"));
        let start_us = match start {
            _ if starts_now => SystemClock.now_us(),
            Some(text) => parse_time(text, &definition.zone)?,
            None => parse_time("2026-01-01", &TimeZone::UTC)?,
        };
        let model = Arc::new(model(&mut options, start_us)?);
        options.finish()?;
        if !(1..=1024).contains(&splits) {
            return Err(Error::invalid(format!("option 'splits' is {splits}, expected 1 to 1024")));
        }
        let columns = columns(definition, table)?;
        let schema = SourceDefinition { columns: columns.clone(), ..definition.clone() }.schema();
        Ok(Self { columns, schema, model, table, rows, splits, realtime, starts_now })
    }
}

fn model(options: &mut OptionReader<'_>, start_us: i64) -> Result<Model> {
    let mut us = |name: &'static str, default_us: i64| -> Result<i64> {
        let given = options.duration(&[name])?;
        Ok(given.map_or(default_us, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX)))
    };
    let disorder_us = us("disorder", 2_000_000)?;
    let (min_us, max_us) = (us("late_min", 5_000_000)?, us("late_max", 60_000_000)?);
    if max_us < min_us {
        return Err(Error::invalid("option 'late_max' is less than 'late_min'"));
    }
    let shapes = [("uniform", LagShape::Uniform), ("exponential", LagShape::Exponential), ("pareto", LagShape::Pareto)];
    let shape = options.choice(&["late_lag"], &shapes)?.unwrap_or(LagShape::Uniform);
    let mut share = |name: &'static str, default: f64| -> Result<f64> {
        let share = options.number(&[name])?.unwrap_or(default);
        let valid = (0.0..=1.0).contains(&share);
        valid.then_some(share).ok_or_else(|| Error::invalid(format!("option '{name}' is {share}, expected 0 to 1")))
    };
    let late_fraction = share("late_fraction", 0.0)?;
    let hot_bidders = share("hot_bidders", 0.0)?;
    let hot_auctions = share("hot_auctions", 0.1)?;
    let hot_channels = share("hot_channels", 0.5)?;
    let mut count = |names: &[&'static str], default: u64| -> Result<u64> {
        let count = options.number(names)?.unwrap_or(default);
        let valid = (1..=1_000_000_000).contains(&count);
        let refused = || Error::invalid(format!("option '{}' is {count}, expected 1 to 1,000,000,000", names[0]));
        valid.then_some(count).ok_or_else(refused)
    };
    Ok(Model {
        start_us,
        rate: count(&["rate", "rows-per-second", "first-event.rate"], 10_000)?,
        bidders: count(&["bidders"], 100_000)?,
        auctions: count(&["auctions"], 1_000)?,
        channels: count(&["channels"], 1_000)?.min(1 << 20),
        seed: options.number(&["seed"])?.unwrap_or(42),
        disorder_us,
        late_fraction,
        late: Lag { shape, min_us, max_us },
        hot_bidders,
        hot_auctions,
        hot_channels,
    })
}

/// The declared columns, checked against the table's; all of the table's if none is declared.
fn columns(definition: &SourceDefinition, table: Table) -> Result<Vec<ColumnDefinition>> {
    Shape::check_metadata(&definition.columns)?;
    let fields = table.fields();
    let physical: Vec<_> = definition.columns.iter().filter(|c| c.metadata.is_none()).collect();
    if physical.is_empty() {
        let all = fields.iter().map(|f| ColumnDefinition::new(f.name(), f.data_type().clone()));
        return Ok(all.chain(definition.columns.iter().cloned()).collect());
    }
    for column in physical {
        let Some(field) = fields.iter().find(|f| same_name(f.name(), &column.name)) else {
            let names: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
            let error = Error::invalid(format!("the table has no column `{}`", column.name));
            return Err(match nearest(&column.name, &names) {
                Some(near) => error.with_hint(format!("did you mean '{near}'?")),
                None => error.with_hint(format!("it has {}", names.join(", "))),
            });
        };
        let declared = instant_type(&column.data_type);
        if !can_cast_types(field.data_type(), &declared) {
            let message = format!("column `{}` cannot be {declared}: it is {}", column.name, field.data_type());
            return Err(Error::invalid(message));
        }
    }
    Ok(definition.columns.clone())
}

fn same_name(a: &str, b: &str) -> bool {
    let plain = |s: &str| s.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect::<String>();
    plain(a) == plain(b)
}

#[async_trait]
impl Source for GeneratorSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn boundedness(&self) -> Boundedness {
        if self.rows.is_some() { Boundedness::Bounded } else { Boundedness::Live }
    }

    fn replayable(&self) -> bool {
        !self.starts_now
    }

    async fn splits(&self) -> Result<Vec<Split>> {
        // As many digits as the last one has, so that name order is number order.
        let width = (self.splits - 1).to_string().len();
        Ok((0..self.splits).map(|split| Split { name: format!("{split:0width$}").into() }).collect())
    }

    async fn open(&self, split: &Split, from: Option<&Position>, options: ReadOptions) -> Result<Box<dyn SplitReader>> {
        let number = split.name.parse().ok().filter(|number: &u64| *number < self.splits);
        let number = number.ok_or_else(|| Error::invalid(format!("the source has no split `{}`", split.name)))?;
        let shape = Shape::new(&self.columns, &options.projection, &TimeZone::UTC);
        let maker = Maker {
            model: Arc::clone(&self.model),
            table: self.table,
            names: column_names(&shape.wanted, self.table),
            wanted: shape.wanted.clone(),
            split: number,
            splits: self.splits,
        };
        let row = from.map(Place::of).transpose()?.map_or(0, |place| place.row);
        let end = self.rows.map(|rows| (rows + self.splits - 1 - number) / self.splits);
        let producer = RowProducer {
            maker: Arc::new(maker),
            row,
            end: end.unwrap_or(u64::MAX),
            pace: self.realtime.then_some(Pace { first_row: row, began: None }),
        };
        Ok(Box::new(Pipeline::try_new(producer, Arc::clone(&split.name), shape, options, from)?))
    }
}

/// The table's own names of the wanted columns.
fn column_names(wanted: &Wanted, table: Table) -> Vec<String> {
    let fields = table.fields();
    let own = |name: &str| fields.iter().find(|f| same_name(f.name(), name)).map_or(name, |f| f.name()).to_string();
    wanted.columns.iter().map(|c| own(&c.name)).collect()
}

/// Makes rows of one split.
#[derive(Debug)]
struct Maker {
    model: Arc<Model>,
    table: Table,
    wanted: Wanted,
    names: Vec<String>,
    split: u64,
    splits: u64,
}

impl Maker {
    /// Number of the event that is row `row` of the split.
    fn event(&self, row: u64) -> u64 {
        self.table.event(row * self.splits + self.split)
    }

    fn make(&self, rows: Range<u64>) -> Result<SourceBatch> {
        let count = rows.end - rows.start;
        let events: Vec<u64> = rows.map(|row| self.event(row)).collect();
        let schema = self.wanted.schema();
        let mut columns = Vec::with_capacity(self.names.len());
        for (name, field) in self.names.iter().zip(schema.fields()) {
            let column = self.model.column(self.table, name, &events);
            let column = column.ok_or_else(|| Error::internal(format!("no generated column `{name}`")))?;
            columns.push(if column.data_type() == field.data_type() {
                Ok(column)
            } else {
                cast(&column, field.data_type())
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(events.len()));
        let batch = columns
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .and_then(|columns| RecordBatch::try_new_with_options(schema, columns, &options))
            .map_err(|e| Error::invalid("a generated value does not fit its column's type").with_source(e))?;
        Ok(SourceBatch {
            bytes: batch.get_array_memory_size() as u64,
            rows: batch,
            offsets: Offsets::From(0),
            rejects: vec![],
            notes: Notes::default(),
            next: Position { offset: count as i64, token: String::new() },
        })
    }
}

/// Deals out the rows of one split.
struct RowProducer {
    maker: Arc<Maker>,
    row: u64,
    end: u64,
    pace: Option<Pace>,
}

/// Rows by the machine's clock: the first one at once, each later one as long after it as its arrival says.
struct Pace {
    first_row: u64,
    began: Option<Instant>,
}

impl RowProducer {
    /// How many rows may be made now, or how long to wait for the next.
    fn due(&mut self) -> Result<u64, Duration> {
        let left = (self.end - self.row).min(STRETCH_ROWS);
        let Some(pace) = &mut self.pace else { return Ok(left) };
        let elapsed = pace.began.get_or_insert_with(Instant::now).elapsed();
        let (maker, first) = (&self.maker, pace.first_row);
        let after = |row: u64| {
            let us = maker.model.arrival_us(maker.event(row)) - maker.model.arrival_us(maker.event(first));
            Duration::from_micros(u64::try_from(us).unwrap_or(0))
        };
        let (mut due, mut not_due) = (0, left + 1);
        while due + 1 < not_due {
            let middle = due + (not_due - due) / 2;
            if after(self.row + middle - 1) <= elapsed { due = middle } else { not_due = middle }
        }
        if due == 0 { Err(after(self.row) - elapsed) } else { Ok(due) }
    }

    fn place(&self) -> Place {
        Place { row: self.row, ..Place::default() }
    }
}

#[async_trait]
impl Producer for RowProducer {
    async fn produce(&mut self) -> Result<Produced> {
        if self.row >= self.end {
            return Ok(Produced::End);
        }
        let rows = loop {
            match self.due() {
                Ok(rows) => break rows,
                Err(wait) if wait > PATIENCE => {
                    tokio::time::sleep(PATIENCE).await;
                    return Ok(Produced::Nothing);
                }
                Err(wait) => tokio::time::sleep(wait).await,
            }
        };
        let start = self.place();
        let range = self.row..self.row + rows;
        self.row = range.end;
        let maker = Arc::clone(&self.maker);
        Ok(Produced::Stretch(Box::new(Stretch {
            job: Box::new(move || maker.make(range).map(|batch| vec![batch])),
            start,
            end: self.place(),
            path: "".into(),
        })))
    }
}

#[cfg(test)]
mod tests;
