//! `FROM TUMBLE(…)`, `HOP(…)`, `CUMULATE(…)`, `SESSION(…)`: a table factor becomes a [`WindowAssign`].

use datafusion::common::Result as DfResult;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::sql::sqlparser::ast::{ObjectName, TableFactor};

use super::error::{external, from_datafusion};
use super::group_window::event_time;
use super::window_node::{WindowAssign, WindowColumn};
use crate::error::{Error, Result};
use crate::sql::statement::{Interval, Spanned};
use crate::sql::{WindowCall, WindowInput, WindowLengths};
use crate::window::{Argument, Span, WindowKind, WindowSpec};

/// The relation a window function in FROM reads, if `factor` is one and reads a named relation.
pub(super) fn input_name(factor: &TableFactor) -> Option<ObjectName> {
    match WindowCall::from_table_factor(factor)?.ok()?.input? {
        WindowInput::Table(name) => Some(name),
        WindowInput::Query(_) => None,
    }
}

/// Plans window functions in FROM.
#[derive(Debug)]
pub(super) struct WindowPlanner;

impl RelationPlanner for WindowPlanner {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> DfResult<RelationPlanning> {
        let Some(call) = WindowCall::from_table_factor(&relation) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let call = call.map_err(external)?;
        let spec = spec_of(&call).map_err(external)?;
        let (Some(data), Some(time)) = (call.input, call.time) else {
            return Err(external(Error::internal("window function in FROM without its table or its time")));
        };
        let input = context.plan(factor(data))?;
        if let Some(taken) =
            WindowColumn::ALL.iter().find(|c| input.schema().has_column_with_unqualified_name(c.name()))
        {
            return Err(external(
                Error::invalid(format!(
                    "the input of {} already has a column `{}`",
                    call.function.as_str(),
                    taken.name()
                ))
                .with_hint("give the inner window's columns other names with AS")
                .at(call.position),
            ));
        }
        let time =
            context.sql_to_expr(time.node.clone(), input.schema()).map_err(|error| match event_time(&input) {
                Some(known) => {
                    let hint = format!("the event time is `{0}`: write DESCRIPTOR({0})", known.name);
                    external(from_datafusion(error).or_at(Some(time.position)).with_hint(hint))
                }
                None => error,
            })?;
        let partition_by = call
            .partition_by
            .into_iter()
            .map(|key| context.sql_to_expr(key, input.schema()))
            .collect::<DfResult<Vec<_>>>()?;
        let plan = WindowAssign::try_new(input, spec, time, partition_by)?.into_plan();
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, call.alias))))
    }
}

fn factor(input: WindowInput) -> TableFactor {
    match input {
        WindowInput::Query(subquery) => TableFactor::Derived { lateral: false, subquery, alias: None, sample: None },
        WindowInput::Table(name) => TableFactor::Table {
            name,
            alias: None,
            args: None,
            with_hints: Vec::new(),
            version: None,
            with_ordinality: false,
            partitions: Vec::new(),
            json_path: None,
            sample: None,
            index_hints: Vec::new(),
        },
    }
}

/// The windows a call declares.
pub(super) fn spec_of(call: &WindowCall) -> Result<WindowSpec> {
    let (kind, position) = match &call.lengths {
        WindowLengths::Tumble { size } => (WindowKind::Tumble { size: span(Argument::Size, size)? }, size.position),
        WindowLengths::Hop { slide, size } => (
            WindowKind::Hop { slide: span(Argument::Slide, slide)?, size: span(Argument::Size, size)? },
            slide.position,
        ),
        WindowLengths::Cumulate { step, size } => (
            WindowKind::Cumulate { step: span(Argument::Step, step)?, size: span(Argument::Size, size)? },
            step.position,
        ),
        WindowLengths::Session { gap } => {
            let gap_us = super::policy::micros(gap.node).ok_or_else(|| {
                Error::invalid("gap of a session in months").with_hint("use days, hours or less").at(gap.position)
            })?;
            (WindowKind::Session { gap_us }, gap.position)
        }
    };
    let offset = match &call.offset {
        Some(offset) => span(Argument::Offset, offset)?,
        None => Span::ZERO,
    };
    let zone = call.time_zone.as_ref().map(zone).transpose()?;
    WindowSpec::try_new(kind, offset, zone).map_err(|e| Error::from(e).at(position))
}

fn zone(name: &Spanned<String>) -> Result<jiff::tz::TimeZone> {
    jiff::tz::TimeZone::get(&name.node).map_err(|e| {
        Error::invalid(format!("no time zone `{}`", name.node))
            .with_hint("use a name such as 'Europe/Berlin'")
            .at(name.position)
            .with_source(e)
    })
}

fn span(argument: Argument, interval: &Spanned<Interval>) -> Result<Span> {
    let Interval { months, days, micros } = interval.node;
    Span::try_from_parts(argument, months, days, micros).map_err(|e| Error::from(e).at(interval.position))
}
