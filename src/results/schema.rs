//! The columns of a stored view, and how SELECT types become types that Delta Lake holds.
//!
//! ```text
//!  SELECT columns │ _key_<name>… │ _window_start _window_end _version _computed_at _event_count
//!                 │              │ _is_final _deleted _reason _supersedes _epoch     (│ _window_date, in Delta only)
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};

use datafusion::common::Column as DfColumn;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::expressions::Column;

use crate::error::{Error, Result};
use crate::operators::graph::{Operator, OperatorGraph};

/// Names of the columns the store adds.
pub mod column {
    /// First instant of the window, timestamp µs UTC.
    pub const WINDOW_START: &str = "_window_start";
    /// First instant after the window, timestamp µs UTC.
    pub const WINDOW_END: &str = "_window_end";
    /// Number of the version, from 1 without gaps per (window, key).
    pub const VERSION: &str = "_version";
    /// When it was published, timestamp µs UTC.
    pub const COMPUTED_AT: &str = "_computed_at";
    /// Rows behind the value.
    pub const EVENT_COUNT: &str = "_event_count";
    /// Whether FINALIZE made it.
    pub const IS_FINAL: &str = "_is_final";
    /// Whether it says that the row no longer holds.
    pub const DELETED: &str = "_deleted";
    /// Why it was published.
    pub const REASON: &str = "_reason";
    /// A session's former windows, as text.
    pub const SUPERSEDES: &str = "_supersedes";
    /// Epoch that published it.
    pub const EPOCH: &str = "_epoch";
    /// Which of the epoch's versions of its identity it is, from 0. Handed in, not stored.
    pub const NTH: &str = "_nth";
    /// UTC date of the window's start. Delta's partition column; our readers leave it out.
    pub const WINDOW_DATE: &str = "_window_date";
}

/// What the store has to know of a view.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewTable {
    /// The view's name; also its folder's.
    pub name: String,
    /// The SELECT columns, as readers see them.
    pub select: SchemaRef,
    /// Identity columns besides the window.
    pub keys: Vec<IdentityColumn>,
    /// SELECT columns, by index, that are the window's start or end, with the stored column they equal. A filter on one
    /// is then as good as one on the window itself.
    pub window_columns: Vec<(usize, &'static str)>,
    /// Columns of a refused row, those of the source.
    pub source: SchemaRef,
}

/// A column that, with the window, identifies a result row.
#[derive(Debug, Clone, PartialEq)]
pub struct IdentityColumn {
    /// Name and type under which it is stored: a SELECT column's, or `_key_<name>`.
    pub field: FieldRef,
    /// Whether it is one of the SELECT columns.
    pub selected: bool,
}

impl ViewTable {
    /// The table of view `name` planned as `graph`, whose refused rows have the columns `source`.
    pub fn from_graph(name: impl Into<String>, graph: &OperatorGraph, source: SchemaRef) -> Self {
        let last = graph.nodes.last().map(|node| Arc::clone(&node.schema)).unwrap_or_else(|| Arc::new(Schema::empty()));
        let keys = graph.keys.iter().map(|key| IdentityColumn {
            field: Arc::new(last.field(key.index).clone().with_name(&key.stored_as)),
            selected: key.selected,
        });
        let window_columns = window_columns(graph);
        Self { name: name.into(), select: Arc::clone(&graph.select), keys: keys.collect(), window_columns, source }
    }
}

/// SELECT columns that the last projection makes of the very column it makes the window's start or end of.
fn window_columns(graph: &OperatorGraph) -> Vec<(usize, &'static str)> {
    let Some(node) = graph.nodes.last() else { return Vec::new() };
    let (Operator::Rows(spec) | Operator::Versions(spec)) = &node.operator else { return Vec::new() };
    let Some(project) = &spec.project else { return Vec::new() };
    let input = |i: usize| project.get(i)?.downcast_ref::<Column>().map(Column::index);
    let mut found = Vec::new();
    for edge in [column::WINDOW_START, column::WINDOW_END] {
        let Some(of) = node.schema.index_of(edge).ok().and_then(input) else { continue };
        let same = (0..graph.select.fields().len()).filter(|i| input(*i) == Some(of));
        found.extend(same.map(|i| (i, edge)));
    }
    found
}

/// Timestamp µs UTC, the one type of instants.
pub fn instant() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The schemas of a view's tables, all types such that Delta holds them.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSchema {
    /// Columns of a version, see the module's documentation; without the partition column.
    pub results: SchemaRef,
    /// How many of them are SELECT columns; they come first.
    pub select_len: usize,
    /// Indices of the identity: `_window_start`, `_window_end`, then the keys.
    pub identity: Vec<usize>,
    /// SELECT columns that equal an identity column, with that column.
    pub same_as: Vec<(usize, usize)>,
    /// Columns of a refused row.
    pub late: SchemaRef,
}

impl StoredSchema {
    /// The schemas of `table`.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a column type Delta cannot hold, naming the column and the cast that helps. `Invalid` for two
    /// columns of one name (without regard to case), or a column named like one the store adds.
    pub fn try_new(table: &ViewTable) -> Result<Self> {
        let mut fields: Vec<FieldRef> = table.select.fields().iter().map(stored_field).collect::<Result<_>>()?;
        let select_len = fields.len();
        for key in table.keys.iter().filter(|key| !key.selected) {
            fields.push(stored_field(&key.field)?);
        }
        fields.extend(version_fields());
        check_names(&fields)?;
        let results = Arc::new(Schema::new(fields));
        let mut identity = vec![index_of(&results, column::WINDOW_START)?, index_of(&results, column::WINDOW_END)?];
        for key in &table.keys {
            identity.push(index_of(&results, key.field.name())?);
        }
        let mut late: Vec<FieldRef> = table.source.fields().iter().map(stored_field).collect::<Result<_>>()?;
        late.extend(late_fields());
        check_names(&late)?;
        let mut same_as = Vec::new();
        for (selected, edge) in &table.window_columns {
            let stored = index_of(&results, edge)?;
            if results.field(*selected).data_type() == results.field(stored).data_type() {
                same_as.push((*selected, stored));
            }
        }
        Ok(Self { results, select_len, identity, same_as, late: Arc::new(Schema::new(late)) })
    }

    /// Index of a column of a version by its name.
    ///
    /// # Panics
    ///
    /// If there is none; meant for the names in [`mod@column`].
    pub fn index(&self, name: &str) -> usize {
        self.results.index_of(name).expect("every stored schema has the version columns")
    }

    /// `filter` in terms of the identity alone, if it looks at nothing else: it then takes all versions of an identity or
    /// none of them.
    pub fn by_identity(&self, filter: &Expr) -> Option<Expr> {
        let name = |i: usize| self.results.field(i).name().as_str();
        let renamed = filter.clone().transform(|expr| match expr {
            Expr::Column(column) => {
                let stored = self.same_as.iter().find(|(selected, _)| name(*selected) == column.name);
                let found = stored.map(|(_, stored)| Expr::Column(name(*stored).into()));
                Ok(found.map_or_else(|| Transformed::no(Expr::Column(column)), Transformed::yes))
            }
            other => Ok(Transformed::no(other)),
        });
        let filter = renamed.ok()?.data;
        let known = |column: &&DfColumn| self.identity.iter().any(|i| name(*i) == column.name);
        (!filter.is_volatile() && filter.column_refs().iter().all(known)).then_some(filter)
    }

    /// Names and types, to recognise a changed definition.
    pub fn columns(&self) -> Vec<(String, String)> {
        self.results.fields().iter().map(|f| (f.name().clone(), f.data_type().to_string())).collect()
    }
}

/// Columns of a window's status row, without `_epoch`.
pub fn window_status_schema() -> SchemaRef {
    let count = |name: &str| Field::new(name, DataType::Int64, false);
    let flag = |name: &str| Field::new(name, DataType::Boolean, false);
    Arc::new(Schema::new(vec![
        Field::new("window_start", instant(), false),
        Field::new("window_end", instant(), false),
        Field::new("state", DataType::Utf8, false),
        flag("dirty"),
        flag("newer_input"),
        flag("needs_recompute"),
        flag("incomplete"),
        count("on_time"),
        count("late"),
        count("refused_late"),
        count("refused_expired"),
        Field::new("w_at_close", instant(), true),
        Field::new("coverage", DataType::Utf8, true),
    ]))
}

/// Columns of what a batch run made of a window, without `_epoch`. The counts are the window's when the run began: more
/// since then means that rows have come which it may not have seen.
pub fn window_runs_schema() -> SchemaRef {
    let count = |name: &str| Field::new(name, DataType::Int64, false);
    Arc::new(Schema::new(vec![
        Field::new("window_start", instant(), false),
        Field::new("window_end", instant(), false),
        // Whether a FINALIZE has made it final, this run or one before.
        Field::new("is_final", DataType::Boolean, false),
        // Fingerprint of the input the run covered (NULL: it met the window alive and left it), and of the newest FINALIZE.
        Field::new("coverage", DataType::Utf8, true),
        Field::new("final_coverage", DataType::Utf8, true),
        count("taken"),
        count("refused"),
    ]))
}

/// Columns of a rejected row.
pub fn rejects_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("_split", DataType::Utf8, false),
        Field::new("_offset", DataType::Int64, false),
        Field::new("reason", DataType::Utf8, false),
        Field::new("message", DataType::Utf8, true),
        Field::new("place", DataType::Utf8, true),
        Field::new("raw", DataType::Utf8, true),
        Field::new("seen_at", instant(), true),
    ]))
}

/// `schema` with `_epoch` appended: what the window status table holds.
pub(super) fn with_epoch(schema: &Schema) -> SchemaRef {
    let epoch = Arc::new(Field::new(column::EPOCH, DataType::Int64, false));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain([epoch]).collect::<Vec<_>>()))
}

fn version_fields() -> Vec<FieldRef> {
    let field = |name: &str, data_type, nullable| Arc::new(Field::new(name, data_type, nullable));
    vec![
        field(column::WINDOW_START, instant(), false),
        field(column::WINDOW_END, instant(), false),
        field(column::VERSION, DataType::Int64, false),
        field(column::COMPUTED_AT, instant(), false),
        field(column::EVENT_COUNT, DataType::Int64, true),
        field(column::IS_FINAL, DataType::Boolean, false),
        field(column::DELETED, DataType::Boolean, false),
        field(column::REASON, DataType::Utf8, false),
        field(column::SUPERSEDES, DataType::Utf8, true),
        field(column::EPOCH, DataType::Int64, false),
    ]
}

fn late_fields() -> Vec<FieldRef> {
    let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
    vec![
        field(column::WINDOW_START, instant()),
        field(column::WINDOW_END, instant()),
        field("_pairs", DataType::Int64),
        field("_late_by_us", DataType::Int64),
        field("_fate", DataType::Utf8),
        field(column::REASON, DataType::Utf8),
        field("_split", DataType::Utf8),
        field("_offset", DataType::Int64),
        field("_seq", DataType::Int64),
        field("_seen_at", instant()),
    ]
}

fn index_of(schema: &Schema, name: &str) -> Result<usize> {
    schema.index_of(name).map_err(|_| Error::internal(format!("an identity column is not stored: column=`{name}`")))
}

fn check_names(fields: &[FieldRef]) -> Result<()> {
    let mut seen = HashSet::from([column::WINDOW_DATE.to_owned()]);
    match fields.iter().find(|field| !seen.insert(field.name().to_lowercase())) {
        None => Ok(()),
        Some(field) => Err(Error::invalid(format!("two columns have one name: column=`{}`", field.name()))
            .with_hint("give one of them another name with AS; the store adds columns that begin with an underscore")),
    }
}

fn stored_field(field: &FieldRef) -> Result<FieldRef> {
    let data_type = stored_type(field.name(), field.data_type())?;
    // SELECT columns are nullable in the store: a deleted version may not know them.
    Ok(Arc::new(Field::new(field.name(), data_type, true)))
}

/// The type under which a column of `data_type` is stored: the same, or one that holds every value of it.
fn stored_type(column: &str, data_type: &DataType) -> Result<DataType> {
    use DataType as T;
    let refuse = |cast: &str| {
        Err(Error::unsupported(format!("a result column cannot be of this type: column=`{column}` type=`{data_type}`"))
            .with_hint(format!("cast it: CAST({column} AS {cast})")))
    };
    Ok(match data_type {
        T::Boolean | T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::Float32 | T::Float64 => data_type.clone(),
        T::Utf8 | T::Binary | T::Date32 | T::Decimal128(_, 0..) => data_type.clone(),
        T::UInt8 => T::Int16,
        T::UInt16 => T::Int32,
        T::UInt32 => T::Int64,
        T::UInt64 => T::Decimal128(20, 0),
        T::Float16 => T::Float32,
        T::Null | T::LargeUtf8 | T::Utf8View => T::Utf8,
        T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => T::Binary,
        T::Date64 => T::Date32,
        T::Decimal32(p, s @ 0..) | T::Decimal64(p, s @ 0..) => T::Decimal128(*p, *s),
        T::Decimal256(p @ ..=38, s @ 0..) => T::Decimal128(*p, *s),
        T::Timestamp(TimeUnit::Nanosecond, _) => return refuse("TIMESTAMP(6)"),
        T::Timestamp(_, _) => instant(),
        T::Dictionary(_, value) => stored_type(column, value)?,
        T::RunEndEncoded(_, value) => stored_type(column, value.data_type())?,
        T::List(item) | T::LargeList(item) | T::FixedSizeList(item, _) | T::ListView(item) | T::LargeListView(item) => {
            T::List(nested(column, item)?)
        }
        T::Struct(fields) => T::Struct(fields.iter().map(|field| nested(column, field)).collect::<Result<Fields>>()?),
        T::Map(entries, sorted) => {
            let entries = entries.as_ref().clone().with_data_type(match entries.data_type() {
                T::Struct(fields) => {
                    T::Struct(fields.iter().map(|field| nested(column, field)).collect::<Result<Fields>>()?)
                }
                other => other.clone(),
            });
            T::Map(Arc::new(entries), *sorted)
        }
        T::Decimal128(..) | T::Decimal256(..) | T::Decimal32(..) | T::Decimal64(..) => return refuse("DECIMAL(38, 0)"),
        T::Duration(_) | T::Interval(_) => return refuse("BIGINT"),
        T::Time32(_) | T::Time64(_) | T::Union(..) => return refuse("VARCHAR"),
    })
}

fn nested(column: &str, field: &FieldRef) -> Result<FieldRef> {
    let data_type = stored_type(column, field.data_type())?;
    Ok(Arc::new(Field::new(field.name(), data_type, field.is_nullable())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn table(select: Vec<Field>, keys: Vec<(&str, DataType, bool)>) -> ViewTable {
        let keys = keys.into_iter().map(|(name, data_type, selected)| IdentityColumn {
            field: Arc::new(Field::new(name, data_type, true)),
            selected,
        });
        ViewTable {
            name: "v".into(),
            select: Arc::new(Schema::new(select)),
            keys: keys.collect(),
            window_columns: vec![],
            source: Arc::new(Schema::new(vec![Field::new("ts", instant(), true)])),
        }
    }

    #[test]
    fn select_columns_come_first_then_left_out_keys_then_the_version() {
        let select = vec![Field::new("origin", DataType::Utf8View, true), Field::new("n", DataType::UInt32, false)];
        let keys = vec![("origin", DataType::Utf8View, true), ("_key_carrier", DataType::Utf8, false)];
        let stored = StoredSchema::try_new(&table(select, keys)).unwrap();
        let names: Vec<&str> = stored.results.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names[..4], ["origin", "n", "_key_carrier", "_window_start"]);
        assert_eq!(stored.results.field(0).data_type(), &DataType::Utf8);
        assert_eq!(stored.results.field(1).data_type(), &DataType::Int64);
        assert_eq!((stored.select_len, &stored.identity[..]), (2, &[3, 4, 0, 2][..]));
    }

    #[test]
    fn a_type_delta_cannot_hold_is_refused_with_the_cast_that_helps() {
        for (data_type, cast) in [
            (DataType::Duration(TimeUnit::Second), "BIGINT"),
            (DataType::Time64(TimeUnit::Microsecond), "VARCHAR"),
            (DataType::Timestamp(TimeUnit::Nanosecond, None), "TIMESTAMP(6)"),
            (DataType::Decimal256(60, 2), "DECIMAL"),
        ] {
            let e = StoredSchema::try_new(&table(vec![Field::new("x", data_type, true)], vec![])).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Unsupported);
            assert!(e.message().contains("column=`x`") && e.hint().unwrap().contains(cast), "{e} {:?}", e.hint());
        }
    }

    #[test]
    fn a_type_inside_a_list_is_checked_too() {
        let item = Arc::new(Field::new(
            "item",
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            true,
        ));
        let stored =
            StoredSchema::try_new(&table(vec![Field::new("xs", DataType::LargeList(item), true)], vec![])).unwrap();
        assert_eq!(stored.results.field(0).data_type().to_string(), "List(Utf8)");
    }

    #[test]
    fn names_that_differ_in_case_only_or_are_ours_are_refused() {
        for (a, b) in [("n", "N"), ("_version", "x"), ("_WINDOW_date", "x")] {
            let select = vec![Field::new(a, DataType::Int64, true), Field::new(b, DataType::Int64, true)];
            assert_eq!(StoredSchema::try_new(&table(select, vec![])).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
