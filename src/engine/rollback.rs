//! ROLLBACK: versions that repeat older ones.

use std::collections::BTreeMap;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, col, lit};
use jiff::tz::TimeZone;

use super::catalog::ViewEntry;
use super::{Engine, Outcome};
use crate::error::{Error, ErrorKind, Result};
use crate::finalize::{range, values};
use crate::operators::graph::{Operator, OperatorGraph};
use crate::plan::from_datafusion;
use crate::results::{Epoch, Read, RollbackTo, ViewReader, roll_back};
use crate::sql::statement::{OnLate, Rollback, RollbackTarget, Spanned};
use crate::time::{format_us, parse_time};

impl Engine {
    pub(super) async fn rollback(&self, rollback: Rollback) -> Result<Outcome> {
        let view = &rollback.view;
        self.must_hold("ROLLBACK").await?;
        let entry = self.inner.catalog.view_entry(&view.node);
        let entry = entry.ok_or_else(|| self.unknown("view", &view.node).at(view.position))?;
        let to = target(&rollback.target, &zone_of(&entry.graph))?;
        let w = entry.job.as_ref().filter(|job| job.outcome().is_none()).map(|job| job.progress().watermark_us);
        // From here on nobody else publishes, so the numbers stay in order.
        let mut writer = entry.writer.lock().await?;
        if let RollbackTo::Time(t_us) = to {
            entry.reader.provider(Read::AsOf(t_us)).map_err(|e| e.at(rollback.target.position))?;
        }
        let window = window_filter(&rollback, &zone_of(&entry.graph))?;
        let versions = self.versions_of(&entry, &rollback, &window).await?;
        if versions.iter().all(|batch| batch.num_rows() == 0) {
            let what = if rollback.keys.is_empty() { "" } else { " and key" };
            return Err(Error::invalid(format!("view `{}` has no row of this window{what}", view.node))
                .at(rollback.start.position)
                .with_hint(format!("SELECT * FROM {}$windows shows its windows", view.node)));
        }
        self.refuse_live(&entry, &window).await.map_err(|e| e.at(rollback.start.position))?;
        if let Some(w) = w.filter(|_| values::windows(&entry.graph).len() > 1) {
            refuse_unsettled(&versions, &entry, w).map_err(|e| e.at(rollback.start.position))?;
        }
        let reason = rollback.reason.as_ref().map_or("rollback", |reason| reason.node.as_str());
        let place = rollback.target.position;
        let rolled = roll_back(&entry.reader, &versions, to, reason).map_err(|e| e.at(place))?;
        let rows = rolled.versions.num_rows();
        if rows > 0 {
            let epoch = writer.next_beside_job();
            writer.commit(Epoch { versions: vec![rolled.versions], ..epoch }).await?;
        }
        let notices = vec![format!("rolled back: {rows}, so already: {}", rolled.unchanged)];
        Ok(Outcome::Done { tag: "ROLLBACK".into(), notices })
    }

    /// All versions of the rows a rollback is about, by identity and number.
    async fn versions_of(&self, entry: &ViewEntry, rollback: &Rollback, window: &Expr) -> Result<Vec<RecordBatch>> {
        let provider = entry.reader.provider(Read::All)?;
        let mut frame = self.inner.context.read_table(provider).map_err(from_datafusion)?;
        frame = frame.filter(window.clone()).map_err(from_datafusion)?;
        let schema = frame.schema().clone();
        for (name, value) in &rollback.keys {
            let filter = self.key_filter(&entry.reader, &schema, name, &value.node.to_string());
            let filter = filter.map_err(|e| if e.position().is_some() { e } else { e.at(value.position) })?;
            frame = frame.filter(filter).map_err(from_datafusion)?;
        }
        let keys = entry.reader.table().keys.iter().map(|key| key.field.name().as_str());
        let order = ["_window_start", "_window_end"].into_iter().chain(keys).chain(["_version"]);
        let order = order.map(|name| Expr::Column(name.into()).sort(true, true)).collect();
        frame.sort(order).map_err(from_datafusion)?.collect().await.map_err(from_datafusion)
    }

    fn key_filter(&self, reader: &ViewReader, schema: &DFSchema, name: &Spanned<String>, value: &str) -> Result<Expr> {
        let keys: Vec<&str> = reader.table().keys.iter().map(|key| key.field.name().as_str()).collect();
        let stored = format!("_key_{}", name.node);
        let Some(key) = keys.iter().find(|key| **key == name.node || **key == stored) else {
            let error = Error::invalid(format!("`{}` is no key of the view", name.node)).at(name.position);
            return Err(match keys.is_empty() {
                true => error.with_hint("the view has one row per window: leave KEY out"),
                false => error.with_hint(format!("its keys are {}", keys.join(", "))),
            });
        };
        let text = format!("\"{}\" IS NOT DISTINCT FROM ({value})", key.replace('"', "\"\""));
        self.inner.context.parse_sql_expr(&text, schema).map_err(from_datafusion)
    }

    /// # Errors
    /// `Conflict` if the job may still publish for one of the windows.
    async fn refuse_live(&self, entry: &ViewEntry, window: &Expr) -> Result<()> {
        let provider = entry.reader.provider(Read::Windows)?;
        let names = BTreeMap::from([("_window_start", "window_start"), ("_window_end", "window_end")]);
        let window = renamed(window.clone(), &names)?;
        let frame = self.inner.context.read_table(provider).and_then(|frame| frame.filter(window));
        let states = frame.map_err(from_datafusion)?.collect().await.map_err(from_datafusion)?;
        let policy = &entry.graph.policy;
        let takes_late = policy.allowed_lateness_us > 0 && matches!(policy.on_late, OnLate::Update { .. });
        for batch in &states {
            let state = batch.column_by_name("state").map(|state| state.as_string::<i32>());
            let end = batch.column_by_name("window_end").map(|end| end.as_primitive::<TimestampMicrosecondType>());
            let (Some(state), Some(end)) = (state, end) else { return Err(Error::internal("window status columns")) };
            for (state, end) in state.iter().zip(end) {
                if state == Some("open") || (state == Some("closed") && takes_late) {
                    return Err(is_live(&end.map_or_else(String::new, format_us)));
                }
            }
        }
        Ok(())
    }
}

/// Refuses what the job of a view with windows over windows may still publish for, at W `w`: `$windows` tells of the inner ones alone.
fn refuse_unsettled(versions: &[RecordBatch], entry: &ViewEntry, w: i64) -> Result<()> {
    let settled = range::last_settled_end(&entry.graph.policy, w);
    for batch in versions {
        let ends =
            batch.column_by_name("_window_end").and_then(|end| end.as_primitive_opt::<TimestampMicrosecondType>());
        let ends = ends.ok_or_else(|| Error::internal("versions without their windows"))?;
        if let Some(end) = ends.values().iter().find(|end| **end > settled) {
            return Err(is_live(&format_us(*end)));
        }
    }
    Ok(())
}

fn is_live(end: &str) -> Error {
    let message = format!("the window is live, and its job may publish for it: end=`{end}`");
    Error::new(ErrorKind::Conflict, message).with_hint("wait until it has expired; v$windows shows its state")
}

/// The zone that a view's windows are declared in, else UTC.
fn zone_of(graph: &OperatorGraph) -> TimeZone {
    let zone = graph.nodes.iter().find_map(|node| match &node.operator {
        Operator::Window(spec) => spec.window.zone().cloned(),
        _ => None,
    });
    zone.unwrap_or(TimeZone::UTC)
}

fn instant(text: &Spanned<String>, zone: &TimeZone) -> Result<i64> {
    parse_time(&text.node, zone).map_err(|e| Error::invalid(e.to_string()).at(text.position))
}

fn target(target: &Spanned<RollbackTarget>, zone: &TimeZone) -> Result<RollbackTo> {
    Ok(match &target.node {
        RollbackTarget::Version(number) => RollbackTo::Version(i64::try_from(*number).unwrap_or(i64::MAX)),
        RollbackTarget::Timestamp(text) => {
            RollbackTo::Time(instant(&Spanned { node: text.clone(), position: target.position }, zone)?)
        }
    })
}

fn window_filter(rollback: &Rollback, zone: &TimeZone) -> Result<Expr> {
    let at = |us| lit(ScalarValue::TimestampMicrosecond(Some(us), Some("UTC".into())));
    let start = col("_window_start").eq(at(instant(&rollback.start, zone)?));
    Ok(match &rollback.end {
        None => start,
        Some(end) => start.and(col("_window_end").eq(at(instant(end, zone)?))),
    })
}

/// `filter` over columns of other names.
fn renamed(filter: Expr, names: &BTreeMap<&str, &str>) -> Result<Expr> {
    use datafusion::common::tree_node::{Transformed, TreeNode};
    let rename = |expr| match expr {
        Expr::Column(column) => match names.get(column.name.as_str()) {
            Some(name) => Ok(Transformed::yes(col(*name))),
            None => Ok(Transformed::no(Expr::Column(column))),
        },
        other => Ok(Transformed::no(other)),
    };
    filter.transform(rename).map(|done| done.data).map_err(from_datafusion)
}
