//! `v$windows`: what the job knows of each window, and what batch runs have made of it.
//!
//! The two are tables of their own, because they have writers of their own: the job goes on counting refused rows after a
//! window is final, and a run does not wait for the job. A flag says what the two say together:
//!
//! | flag | holds when |
//! | --- | --- |
//! | `newer_input` | a run has made the window, and more rows were taken or refused since |
//! | `needs_recompute` | a refused row queued it and no run has made it since; or a run met it alive and left it |

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::functions::expr_fn::{coalesce, greatest};
use datafusion::logical_expr::{Expr, JoinType, LogicalPlanBuilder, lit, when};

use crate::error::{Error, Result};

/// The rows of `windows`, each with what the newest run made of it.
pub(super) fn windows_with_runs(
    windows: Arc<dyn TableProvider>,
    runs: Arc<dyn TableProvider>,
) -> Result<Arc<dyn TableProvider>> {
    let of = |relation: &str, name: &str| Expr::Column(datafusion::common::Column::new(Some(relation), name));
    let window = |name: &str| of("w", name);
    let run = |name: &str| of("r", name);
    let either = |name: &str| coalesce(vec![window(name), run(name)]);
    let count = |name: &str| coalesce(vec![window(name), lit(0_i64)]);
    let flag = |expr: Expr| coalesce(vec![expr, lit(false)]);
    let taken = count("on_time") + count("late");
    let refused = count("refused_late") + count("refused_expired");
    let newer = flag(taken.gt(run("taken")).or(refused.gt(run("refused"))));
    let unmade = run("coverage").is_null();
    let left_alive = run("window_end").is_not_null().and(unmade.clone());
    let needs_recompute = flag(window("needs_recompute")).and(unmade.or(newer.clone())).or(left_alive);
    let build = || {
        let state =
            when(flag(run("is_final")), lit("final")).otherwise(coalesce(vec![window("state"), lit("expired")]))?;
        let columns = [
            (either("window_start"), "window_start"),
            (either("window_end"), "window_end"),
            (state, "state"),
            (flag(window("dirty")), "dirty"),
            (run("coverage").is_not_null().and(newer), "newer_input"),
            (needs_recompute, "needs_recompute"),
            (flag(window("incomplete")), "incomplete"),
            (count("on_time"), "on_time"),
            (count("late"), "late"),
            (count("refused_late"), "refused_late"),
            (count("refused_expired"), "refused_expired"),
            (window("w_at_close"), "w_at_close"),
            (run("coverage"), "coverage"),
            (greatest(vec![window("_epoch"), run("_epoch")]), "_epoch"),
        ];
        let keys =
            |relation| ["window_start", "window_end"].map(|name| datafusion::common::Column::new(Some(relation), name));
        LogicalPlanBuilder::scan("w", provider_as_source(windows), None)?
            .join(
                LogicalPlanBuilder::scan("r", provider_as_source(runs), None)?.build()?,
                JoinType::Full,
                (keys("w").to_vec(), keys("r").to_vec()),
                None,
            )?
            .project(columns.map(|(expr, name)| expr.alias(name)))?
            .build()
    };
    let plan = build().map_err(|e: datafusion::error::DataFusionError| {
        Error::internal("cannot join the windows of a view with its runs").with_source(e)
    })?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}
