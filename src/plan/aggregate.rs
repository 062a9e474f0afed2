//! Windowed aggregates: keys, aggregate calls, and what a window's results carry.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::Column;
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::LoweredAggregateBuilder;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;

use super::batch::source_of;
use super::chain::{Chain, PendingWindow, Role, Slot, Stage, bound, without_alias};
use super::error::from_datafusion;
use super::source_table::compile;
use super::stream::{Lowering, unique};
use super::window_node::{WINDOW_END, WINDOW_START, WindowColumn, instant_type};
use crate::error::{Error, Result};
use crate::operators::graph::{AggregateCall, AggregateInput, AggregateSpec, Node, Operator, RowsSpec};
use crate::window::WindowSpec;

/// Rows of a result: the last column of a window's output, before `_supersedes`.
pub(super) const EVENT_COUNT: &str = "_event_count";
/// Windows a session replaced: the last column of a session's output.
pub(super) const SUPERSEDES: &str = "_supersedes";

impl Lowering<'_> {
    /// Lowers an aggregate over the rows of a window.
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate) -> Result<Chain> {
        let mut chain = self.lower(&aggregate.input)?;
        let Some(window) = chain.window.take() else { return self.without_window(aggregate, &chain) };
        let groups = Groups::of(aggregate, &chain)?;
        groups.check(&window.spec, &chain)?;

        let event_time = chain.carried(Role::EventTime).ok_or_else(|| Error::internal("event time was lost"))?;
        let aggregates = calls(aggregate, &chain)?;
        let schema = output_schema(&groups.keys, &aggregates, &window.spec);
        let input = match chain.stage {
            Stage::Rows => AggregateInput::Rows,
            Stage::Results => AggregateInput::Changes { identity: chain.identity() },
        };
        let spec = AggregateSpec {
            window: window.spec.clone(),
            event_time,
            keys: groups.keys.iter().map(|key| (Arc::clone(&key.expr), key.field.name().clone())).collect(),
            aggregates,
            input,
        };
        self.nodes.push(Node {
            inputs: vec![chain.node],
            operator: Operator::Window(Arc::new(spec)),
            schema: Arc::clone(&schema),
        });
        let node = self.nodes.len() - 1;

        let mut slots = groups.slots;
        slots.extend((0..aggregate.aggr_expr.len()).map(|i| Slot::At(2 + groups.keys.len() + i)));
        let mut result = Chain::new(node, Stage::Results, Arc::clone(chain.logical()), schema)
            .with_slots(Arc::clone(&aggregate.schema), slots);
        result.results_of = Some(window.spec.clone());
        result.key_names = groups.keys.iter().map(|key| key.field.name().clone()).collect();
        result.carry(Role::WindowStart, 0);
        result.carry(Role::WindowEnd, 1);
        for i in 0..groups.keys.len() {
            result.carry(Role::Key(i), 2 + i);
        }
        let event_count = 2 + groups.keys.len() + aggregate.aggr_expr.len();
        result.carry(Role::EventCount, event_count);
        if window.spec.is_session() {
            result.carry(Role::Supersedes, event_count + 1);
        }
        self.over_results(&mut result, window)?;
        Ok(result)
    }

    /// Applies predicates over the window's bounds, and computes `window_time` where it is asked for.
    fn over_results(&mut self, chain: &mut Chain, window: PendingWindow) -> Result<()> {
        let bounds = datafusion::common::DFSchema::try_from(Schema::new(vec![
            Field::new(WINDOW_START, instant_type(), false),
            Field::new(WINDOW_END, instant_type(), false),
        ]))
        .map_err(from_datafusion)?;
        let output = Arc::clone(chain.output());
        if let Some(predicate) = conjunction(window.filters) {
            let filter = Some(compile(&predicate, &bounds)?);
            chain.push_rows(RowsSpec { filter, project: None }, Arc::clone(&output), &mut self.nodes);
        }
        if chain.slots().contains(&Slot::Window(WindowColumn::Time)) {
            let mut project: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
            for (i, field) in output.fields().iter().enumerate() {
                project.push(Arc::new(PhysicalColumn::new(field.name(), i)));
            }
            project.push(compile(&bound(WindowColumn::Time), &bounds)?);
            let time = Arc::new(Field::new(WindowColumn::Time.name(), instant_type(), false));
            let fields: Vec<FieldRef> = output.fields().iter().cloned().chain([time]).collect();
            let at = fields.len() - 1;
            let slots = chain
                .slots()
                .iter()
                .map(|s| if *s == Slot::Window(WindowColumn::Time) { Slot::At(at) } else { *s })
                .collect();
            chain.push_rows(
                RowsSpec { filter: None, project: Some(project) },
                Arc::new(Schema::new(fields)),
                &mut self.nodes,
            );
            let logical = Arc::clone(chain.logical());
            *chain = chain.clone().with_slots(logical, slots);
            chain.carry(Role::WindowTime, at);
        }
        Ok(())
    }

    fn without_window(&mut self, aggregate: &Aggregate, chain: &Chain) -> Result<Chain> {
        match chain.stage {
            Stage::Rows => {
                let (source, time) = read_below(&aggregate.input).unwrap_or(("source".into(), "ts".into()));
                let hint = format!(
                    "read FROM TUMBLE(TABLE {source}, DESCRIPTOR({time}), INTERVAL '1 minute') and add window_start, \
                     window_end to GROUP BY"
                );
                let message = "aggregate over a stream without a window: it would never be complete";
                Err(Error::unsupported(message).with_hint(hint))
            }
            Stage::Results => Err(Error::unsupported(format!(
                "aggregate `{}` over the results of a window",
                aggregate.aggr_expr.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            ))
            .with_hint("put a second window over the results, or compute it when reading the view")),
        }
    }
}

/// The name of a source that `plan` reads, and of its event time.
fn read_below(plan: &LogicalPlan) -> Option<(String, String)> {
    if let LogicalPlan::TableScan(scan) = plan {
        let source = source_of(scan)?;
        let time = source.columns()[source.watermark()?.column].field.name().clone();
        return Some((source.name().to_owned(), time));
    }
    plan.inputs().into_iter().find_map(read_below)
}

/// A group key that is no window column.
struct Key {
    expr: Arc<dyn PhysicalExpr>,
    field: FieldRef,
    /// The input column it is, if it is one.
    column: Option<usize>,
}

/// GROUP BY, taken apart.
struct Groups {
    keys: Vec<Key>,
    /// For each group expression where its value is in the window's output.
    slots: Vec<Slot>,
    bounds: Vec<WindowColumn>,
}

impl Groups {
    fn of(aggregate: &Aggregate, chain: &Chain) -> Result<Self> {
        let mut groups = Self { keys: Vec::new(), slots: Vec::new(), bounds: Vec::new() };
        let mut names: Vec<FieldRef> = vec![
            Arc::new(Field::new(WINDOW_START, instant_type(), false)),
            Arc::new(Field::new(WINDOW_END, instant_type(), false)),
        ];
        for (i, expr) in aggregate.group_expr.iter().enumerate() {
            let expr = without_alias(expr);
            if let Expr::GroupingSet(_) = expr {
                return Err(Error::unsupported("GROUPING SETS, CUBE and ROLLUP over a window")
                    .with_hint("declare one view per grouping, or aggregate the view when reading it"));
            }
            let mut column = None;
            if let Expr::Column(name) = expr {
                match chain.slot(name)? {
                    Slot::Window(window) => {
                        groups.bounds.push(window);
                        groups.slots.push(match window {
                            WindowColumn::Start => Slot::At(0),
                            WindowColumn::End => Slot::At(1),
                            WindowColumn::Time => Slot::Window(WindowColumn::Time),
                        });
                        continue;
                    }
                    Slot::At(at) => column = Some(at),
                }
            }
            let declared = aggregate.schema.field(i);
            let field = Arc::new(declared.as_ref().clone().with_name(unique(declared.name(), &names)));
            names.push(Arc::clone(&field));
            groups.slots.push(Slot::At(2 + groups.keys.len()));
            groups.keys.push(Key { expr: chain.compile(expr)?, field, column });
        }
        Ok(groups)
    }

    /// Whether a group is one window of one key.
    fn check(&self, spec: &WindowSpec, chain: &Chain) -> Result<()> {
        if self.bounds.is_empty() {
            return Err(
                Error::invalid("GROUP BY leaves out the window").with_hint("add window_start, window_end to GROUP BY")
            );
        }
        if !spec.is_session() {
            return Ok(());
        }
        let partition: Vec<usize> = (0..).map_while(|i| chain.carried(Role::Partition(i))).collect();
        let keys: Option<Vec<usize>> = self.keys.iter().map(|key| key.column).collect();
        let same = keys.is_some_and(|keys| {
            keys.iter().all(|k| partition.contains(k)) && partition.iter().all(|p| keys.contains(p))
        });
        if same {
            return Ok(());
        }
        Err(Error::unsupported("SESSION whose PARTITION BY differs from the keys in GROUP BY")
            .with_hint("group by window_start, window_end and exactly the PARTITION BY columns"))
    }
}

fn calls(aggregate: &Aggregate, chain: &Chain) -> Result<Vec<AggregateCall>> {
    let logical = chain.physical_schema()?;
    aggregate
        .aggr_expr
        .iter()
        .map(|expr| {
            for column in expr.column_refs() {
                if let Slot::Window(window) = chain.slot(column)? {
                    return Err(Error::unsupported(format!("aggregate `{expr}` over `{}`", window.name()))
                        .with_hint("compute it from the aggregates in the SELECT list"));
                }
            }
            let lowered = LoweredAggregateBuilder::new(
                expr,
                &logical,
                logical.as_arrow(),
                &ExecutionProps::new(),
                &PhysicalPlanningContext::default(),
            )
            .with_name(expr.schema_name().to_string())
            .build()
            .map_err(from_datafusion)?;
            // Some functions find out only now that they have no accumulator for their types.
            if !lowered.aggregate.groups_accumulator_supported() {
                lowered.aggregate.create_accumulator().map_err(from_datafusion)?;
            }
            Ok(AggregateCall { function: lowered.aggregate, filter: lowered.filter })
        })
        .collect()
}

fn output_schema(keys: &[Key], aggregates: &[AggregateCall], spec: &WindowSpec) -> Arc<Schema> {
    let mut fields: Vec<FieldRef> = vec![
        Arc::new(Field::new(WINDOW_START, instant_type(), false)),
        Arc::new(Field::new(WINDOW_END, instant_type(), false)),
    ];
    fields.extend(keys.iter().map(|key| Arc::clone(&key.field)));
    for call in aggregates {
        let field = call.function.field();
        let name = unique(field.name(), &fields);
        fields.push(Arc::new(field.as_ref().clone().with_name(name)));
    }
    fields.push(Arc::new(Field::new(EVENT_COUNT, DataType::Int64, false)));
    if spec.is_session() {
        fields.push(Arc::new(Field::new(SUPERSEDES, DataType::Utf8, true)));
    }
    Arc::new(Schema::new(fields))
}

impl Lowering<'_> {
    /// Makes the end of the inner window the event time of a window over results. `column` must be its `window_time`: another
    /// time, a computed one above all, may change with the result, or come after its outer window has gone.
    pub(super) fn time_of_results(&mut self, chain: &mut Chain, slot: Slot, column: &Column) -> Result<()> {
        let Slot::At(at) = slot else { return Err(Error::internal("column of a window that has been aggregated")) };
        if chain.carried(Role::WindowTime) != Some(at) {
            let message = format!("window over `{}`, which is not the window_time of the inner window", column.name);
            return Err(Error::invalid(message)
                .with_hint("select window_time in the inner query, GROUP BY it too, and use that"));
        }
        let end = chain.carried(Role::WindowEnd).ok_or_else(|| Error::internal("a result without its window"))?;
        chain.carry(Role::EventTime, end);
        Ok(())
    }
}
