//! Joins rows with a table that was read once and does not change: enrichment.
//!
//! ```text
//!  stream        table          INNER               LEFT
//!  k  v          k  name        k  v  name  origin  k  v  name  origin
//!  a  1          a  Ann         a  1  Ann   0       a  1  Ann   0
//!  b  2          a  Abe         a  1  Abe   0       a  1  Abe   0
//!  a  3                         a  3  Ann   2       b  2  NULL  1
//!                               a  3  Abe   2       a  3  Ann   2  …
//! ```
//!
//! Rows come out in the stream's order, matches of one row in the table's order, so that everything that follows is a
//! function of arrival order (T5). **Counting** (L3): a row that matches several table rows is still one source row. Its
//! copies stand side by side and share their `origin`; it was filtered if no copy is left after the last row operator,
//! accepted if a window took any copy, and each (copy, window) is a pair of its own.
//!
//! The table is held in memory, with its keys in arrow's row format behind a hash table.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, take, take_record_batch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::row::{RowConverter, Rows, SortField};
use hashbrown::{DefaultHashBuilder, HashTable};

use super::eval::{
    FailedRow, Sorted, batch_of, evaluate, evaluate_all, evaluate_condition, failure, set_failures_aside,
};
use super::graph::{StaticJoinKind, StaticJoinSpec};
use crate::error::{Error, ErrorKind, Result};

/// No further row with this key.
const LAST: u32 = u32::MAX;

/// A join with a static table. Does not change after it was built: any number of workers may use one.
#[derive(Debug)]
pub struct StaticJoin {
    spec: Arc<StaticJoinSpec>,
    /// Output columns.
    schema: SchemaRef,
    /// Stream columns, then table columns: what the residual filter sees.
    pairs: SchemaRef,
    table: RecordBatch,
    converter: RowConverter,
    keys: Rows,
    /// First table row of each key. No entry for keys that match nothing (NULL).
    first: HashTable<u32>,
    /// For each table row the next one with the same key, or [`LAST`].
    next: Vec<u32>,
    hasher: DefaultHashBuilder,
}

/// What became of the rows of one batch.
#[derive(Debug)]
pub struct JoinedRows {
    /// Joined rows.
    pub rows: RecordBatch,
    /// For each joined row the index of its stream row in the input, never descending. `None`: row `i` is stream row `i`.
    pub origin: Option<Vec<u32>>,
    /// Stream rows whose keys or condition could not be computed.
    pub failed: Vec<FailedRow>,
}

/// Stream row and table row; the latter is `None` for a left row without a match.
#[derive(Default)]
struct Pairs {
    stream: Vec<u32>,
    table: Vec<Option<u32>>,
}

impl StaticJoin {
    /// A join of rows of `stream` with `table`, into rows of `schema`, the schema of its node.
    ///
    /// # Errors
    /// `Unsupported` for a table of more than 2³² − 2 rows or a key type without a row format; `Data` if a key of the
    /// table cannot be computed.
    pub fn try_new(spec: Arc<StaticJoinSpec>, table: RecordBatch, stream: &Schema, schema: SchemaRef) -> Result<Self> {
        if table.num_rows() >= LAST as usize {
            let text = format!("a static table is limited to 4294967294 rows: table=`{}`", spec.table_name);
            return Err(Error::unsupported(text));
        }
        let right: Vec<_> = spec.on.iter().map(|(_, table)| Arc::clone(table)).collect();
        let columns = evaluate_all(&right, &table)?;
        let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
        let converter = RowConverter::new(fields).map_err(|e| failure(e.into()))?;
        let keys = key_rows(&converter, &columns, table.num_rows())?;
        let hasher = DefaultHashBuilder::default();
        let (first, next) = index(&keys, unmatchable(&columns, spec.null_equals_null).as_ref(), &hasher);
        let fields: Vec<_> = stream.fields().iter().cloned().chain(nullable(table.schema().fields())).collect();
        let pairs = Arc::new(Schema::new(fields));
        Ok(Self { spec, schema, pairs, table, converter, keys, first, next, hasher })
    }

    /// Joins the rows of `batch`.
    ///
    /// # Errors
    /// Only what is no single row's fault.
    pub fn on_rows(&self, batch: &RecordBatch) -> Result<JoinedRows> {
        match self.join(batch) {
            Err(error) if error.kind() == ErrorKind::Data => self.isolate(batch),
            done => done,
        }
    }

    /// The table's name, for messages.
    pub fn table_name(&self) -> &str {
        &self.spec.table_name
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.table.get_array_memory_size() + self.keys.size() + self.next.len() * 4 + self.first.allocation_size()
    }

    fn isolate(&self, batch: &RecordBatch) -> Result<JoinedRows> {
        let Sorted { good, failed } = set_failures_aside(batch, |part| self.join(part).map(|_| ()))?;
        let joined = self.join(&take_record_batch(batch, &good).map_err(|e| failure(e.into()))?)?;
        let origin = match joined.origin {
            Some(origin) => origin.iter().map(|row| good.value(*row as usize)).collect(),
            None => good.values().to_vec(),
        };
        Ok(JoinedRows { rows: joined.rows, origin: Some(origin), failed })
    }

    fn join(&self, batch: &RecordBatch) -> Result<JoinedRows> {
        let pairs = self.held(batch, self.candidates(batch)?)?;
        let rows = batch.num_rows();
        match self.spec.kind {
            StaticJoinKind::Inner => self.output(batch, pairs),
            StaticJoinKind::Left => self.output(batch, with_unmatched(pairs, rows)),
            StaticJoinKind::Semi => self.output(batch, existence(&pairs, rows, true)),
            StaticJoinKind::Anti => self.output(batch, existence(&pairs, rows, false)),
        }
    }

    /// Pairs with equal keys.
    fn candidates(&self, batch: &RecordBatch) -> Result<Pairs> {
        let mut columns = Vec::with_capacity(self.spec.on.len());
        for (stream, table) in &self.spec.on {
            let column = evaluate(stream, batch)?;
            let wanted = table.data_type(&self.table.schema()).map_err(failure)?;
            let same = *column.data_type() == wanted;
            columns.push(if same { column } else { cast(&column, &wanted).map_err(|e| failure(e.into()))? });
        }
        let keys = key_rows(&self.converter, &columns, batch.num_rows())?;
        let skip = unmatchable(&columns, self.spec.null_equals_null);
        let mut pairs = Pairs::default();
        for row in 0..batch.num_rows() {
            if skip.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            let key = keys.row(row);
            let hash = self.hasher.hash_one(key.data());
            let mut found = self.first.find(hash, |r| self.keys.row(*r as usize) == key).copied().unwrap_or(LAST);
            while found != LAST {
                pairs.stream.push(row as u32);
                pairs.table.push(Some(found));
                found = self.next[found as usize];
            }
        }
        Ok(pairs)
    }

    /// Those of `pairs` for which the residual filter holds.
    fn held(&self, batch: &RecordBatch, pairs: Pairs) -> Result<Pairs> {
        let Some(filter) = &self.spec.filter else { return Ok(pairs) };
        let (stream, table) = pairs.indices();
        let left = batch.columns().iter().map(|c| gather(c, &stream));
        let right = self.table.columns().iter().map(|c| gather(c, &table));
        let columns = left.chain(right).collect::<Result<Vec<_>>>()?;
        let mask = evaluate_condition(filter, &batch_of(&self.pairs, columns, stream.len())?)?;
        let held = mask.values().set_indices();
        Ok(held.fold(Pairs::default(), |mut out, i| {
            out.stream.push(pairs.stream[i]);
            out.table.push(pairs.table[i]);
            out
        }))
    }

    fn output(&self, batch: &RecordBatch, pairs: Pairs) -> Result<JoinedRows> {
        let (stream, table) = pairs.indices();
        let in_place = stream.len() == batch.num_rows() && stream.values().iter().zip(0..).all(|(row, i)| *row == i);
        let width = batch.num_columns();
        let columns = self.spec.projection.iter().map(|index| match index.checked_sub(width) {
            None if in_place => Ok(Arc::clone(batch.column(*index))),
            None => gather(batch.column(*index), &stream),
            Some(index) => gather(self.table.column(index), &table),
        });
        let rows = batch_of(&self.schema, columns.collect::<Result<_>>()?, stream.len())?;
        Ok(JoinedRows { rows, origin: (!in_place).then_some(pairs.stream), failed: vec![] })
    }
}

impl Pairs {
    fn indices(&self) -> (UInt32Array, UInt32Array) {
        (UInt32Array::from(self.stream.clone()), UInt32Array::from(self.table.clone()))
    }
}

/// `pairs` and a pair without a table row for each of `rows` stream rows that has none.
fn with_unmatched(pairs: Pairs, rows: usize) -> Pairs {
    let mut out = Pairs::default();
    let mut at = 0;
    for row in 0..rows as u32 {
        let from = at;
        while at < pairs.stream.len() && pairs.stream[at] == row {
            out.stream.push(row);
            out.table.push(pairs.table[at]);
            at += 1;
        }
        if from == at {
            out.stream.push(row);
            out.table.push(None);
        }
    }
    out
}

/// Each of `rows` stream rows that has a pair (`wanted`) or has none, once.
fn existence(pairs: &Pairs, rows: usize, wanted: bool) -> Pairs {
    let mut matched = vec![false; rows];
    for row in &pairs.stream {
        matched[*row as usize] = true;
    }
    let stream: Vec<u32> = (0..rows as u32).filter(|row| matched[*row as usize] == wanted).collect();
    Pairs { table: vec![None; stream.len()], stream }
}

/// The keys in row format. A join without keys pairs everything: each row then has the empty key.
fn key_rows(converter: &RowConverter, columns: &[ArrayRef], rows: usize) -> Result<Rows> {
    if columns.is_empty() {
        let mut empty = converter.empty_rows(rows, 0);
        let parser = converter.parser();
        (0..rows).for_each(|_| empty.push(parser.parse(&[])));
        return Ok(empty);
    }
    converter.convert_columns(columns).map_err(|e| failure(e.into()))
}

/// Rows with a NULL among their keys, as nulls, unless NULL equals NULL.
fn unmatchable(columns: &[ArrayRef], null_equals_null: bool) -> Option<NullBuffer> {
    if null_equals_null {
        return None;
    }
    columns.iter().fold(None, |all, column| NullBuffer::union(all.as_ref(), column.logical_nulls().as_ref()))
}

/// Chains the rows of each key in ascending order.
fn index(keys: &Rows, skip: Option<&NullBuffer>, hasher: &DefaultHashBuilder) -> (HashTable<u32>, Vec<u32>) {
    let rows = keys.num_rows();
    let mut first = HashTable::with_capacity(rows);
    let mut next = vec![LAST; rows];
    for row in (0..rows).rev().filter(|row| skip.is_none_or(|nulls| nulls.is_valid(*row))) {
        let key = keys.row(row);
        let hash = hasher.hash_one(key.data());
        let rehash = |r: &u32| hasher.hash_one(keys.row(*r as usize).data());
        match first.entry(hash, |r: &u32| keys.row(*r as usize) == key, rehash) {
            hashbrown::hash_table::Entry::Occupied(mut entry) => {
                next[row] = *entry.get();
                *entry.get_mut() = row as u32;
            }
            hashbrown::hash_table::Entry::Vacant(entry) => {
                entry.insert(row as u32);
            }
        }
    }
    (first, next)
}

fn gather(column: &ArrayRef, index: &UInt32Array) -> Result<ArrayRef> {
    take(column, index, None).map_err(|e| failure(e.into()))
}

fn nullable(fields: &arrow::datatypes::Fields) -> impl Iterator<Item = Arc<Field>> {
    fields.iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true)))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::PhysicalExpr;
    use datafusion::physical_expr::expressions::{binary, col, lit};
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;
    use crate::testing::table::{lines, parse};

    fn schema(names: [&str; 2]) -> SchemaRef {
        let field = |name: &str, t| Field::new(name, t, true);
        Arc::new(Schema::new(vec![field(names[0], DataType::Utf8), field(names[1], DataType::Int64)]))
    }

    struct Join {
        kind: StaticJoinKind,
        keys: bool,
        filter: Option<Arc<dyn PhysicalExpr>>,
        null_equals_null: bool,
    }

    const JOIN: Join = Join { kind: StaticJoinKind::Inner, keys: true, filter: None, null_equals_null: false };

    /// Joins `stream (k, v)` with a table `(name, w)` of five rows; says joined rows and origins.
    fn check(join: Join, stream: &str, expected: &[&str], origin: Option<&[u32]>) {
        let (left, right) = (schema(["k", "v"]), schema(["name", "w"]));
        let table = parse(&right, "a | 1\n b | 2\n a | 3\n NULL | 4\n d | NULL");
        let width = if matches!(join.kind, StaticJoinKind::Semi | StaticJoinKind::Anti) { 2 } else { 4 };
        let all = Schema::new([left.fields().to_vec(), right.fields().to_vec()].concat());
        let out = all.project(&(0..width).collect::<Vec<_>>()).unwrap();
        let spec = StaticJoinSpec {
            kind: join.kind,
            on: if join.keys { vec![(col("k", &left).unwrap(), col("name", &right).unwrap())] } else { vec![] },
            filter: join.filter,
            table: Arc::new(EmptyExec::new(Arc::clone(&right))),
            table_name: "t".into(),
            null_equals_null: join.null_equals_null,
            projection: (0..width).collect(),
        };
        let join = StaticJoin::try_new(Arc::new(spec), table, &left, Arc::new(out)).unwrap();
        let joined = join.on_rows(&parse(&left, stream)).unwrap();
        assert_eq!(lines(&[joined.rows]), expected);
        assert_eq!(joined.origin.as_deref(), origin);
        assert!(join.memory_bytes() > 0 && joined.failed.is_empty());
    }

    fn v_greater_w() -> Option<Arc<dyn PhysicalExpr>> {
        let s = Schema::new([schema(["k", "v"]).fields().to_vec(), schema(["name", "w"]).fields().to_vec()].concat());
        Some(binary(col("v", &s).unwrap(), Operator::Gt, col("w", &s).unwrap(), &s).unwrap())
    }

    #[test]
    fn inner_keeps_the_order_of_stream_and_table() {
        let expected = ["a | 9 | a | 1", "a | 9 | a | 3", "b | 7 | b | 2"];
        check(JOIN, "a | 9\n x | 8\n b | 7", &expected, Some(&[0, 0, 2]));
    }

    #[test]
    fn one_match_each_needs_no_origin() {
        check(JOIN, "b | 9\n d | 8", &["b | 9 | b | 2", "d | 8 | d | NULL"], None);
    }

    #[test]
    fn null_matches_null_only_on_request() {
        check(JOIN, "NULL | 9", &[], Some(&[]));
        check(Join { null_equals_null: true, ..JOIN }, "NULL | 9", &["NULL | 9 | NULL | 4"], None);
    }

    #[test]
    fn left_keeps_rows_whose_matches_the_filter_refuses() {
        let join = Join { kind: StaticJoinKind::Left, filter: v_greater_w(), ..JOIN };
        let expected = ["a | 2 | a | 1", "a | 0 | NULL | NULL", "x | 5 | NULL | NULL"];
        check(join, "a | 2\n a | 0\n x | 5", &expected, None);
    }

    #[test]
    fn semi_and_anti_part_the_rows() {
        let stream = "a | 2\n a | 0\n x | 5\n NULL | 5";
        let semi = Join { kind: StaticJoinKind::Semi, filter: v_greater_w(), ..JOIN };
        check(semi, stream, &["a | 2"], Some(&[0]));
        let anti = Join { kind: StaticJoinKind::Anti, filter: v_greater_w(), ..JOIN };
        check(anti, stream, &["a | 0", "x | 5", "NULL | 5"], Some(&[1, 2, 3]));
    }

    #[test]
    fn without_keys_the_filter_alone_decides() {
        let join = Join { keys: false, filter: v_greater_w(), ..JOIN };
        check(join, "x | 2\n y | 3", &["x | 2 | a | 1", "y | 3 | a | 1", "y | 3 | b | 2"], Some(&[0, 1, 1]));
    }

    #[test]
    fn a_condition_that_fails_sets_its_row_aside() {
        let (left, right) = (schema(["k", "v"]), schema(["name", "w"]));
        let quotient = binary(lit(1_i64), Operator::Divide, col("v", &left).unwrap(), &left).unwrap();
        let spec = StaticJoinSpec {
            kind: StaticJoinKind::Inner,
            on: vec![(quotient, col("w", &right).unwrap())],
            filter: None,
            table: Arc::new(EmptyExec::new(Arc::clone(&right))),
            table_name: "t".into(),
            null_equals_null: false,
            projection: vec![0, 2],
        };
        let out = Arc::new(Schema::new(vec![left.field(0).clone(), right.field(0).clone()]));
        let join = StaticJoin::try_new(Arc::new(spec), parse(&right, "a | 1"), &left, out).unwrap();
        let joined = join.on_rows(&parse(&left, "p | 1\n q | 0\n r | 1")).unwrap();
        assert_eq!(lines(&[joined.rows]), ["p | a", "r | a"]);
        assert_eq!((joined.origin, joined.failed[0].row), (Some(vec![0, 2]), 1));
    }
}
