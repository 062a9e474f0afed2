//! Walks over sqlparser's trees, through two visitors that everyone shares.
//!
//! sqlparser's `visit` is generic over its visitor and reaches the whole grammar from anywhere, so the compiler makes all of
//! it anew for each visitor type: half a minute of a build for one that looks at table names. Here the type is one,
//! and what differs is behind a `dyn`. Do not implement `Visitor` elsewhere, and leave `visit_expressions` and its kin alone.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, Select, TableFactor, Visit, VisitMut, Visitor, VisitorMut};

use crate::error::{Error, Result};

/// Whether to go on.
pub type Step = ControlFlow<Box<Error>>;

/// Looks at parts of a tree on the way down.
pub trait Look {
    /// At each query, the outer before the inner.
    fn query(&mut self, _query: &Query) -> Step {
        Step::Continue(())
    }

    /// At each relation of a FROM.
    fn table_factor(&mut self, _factor: &TableFactor) -> Step {
        Step::Continue(())
    }

    /// At each expression, the outer before the inner.
    fn expr(&mut self, _expr: &Expr) -> Step {
        Step::Continue(())
    }
}

/// Changes parts of a tree.
pub trait Change {
    /// Each query, before what is in it.
    fn query(&mut self, _query: &mut Query) -> Step {
        Step::Continue(())
    }

    /// Each SELECT, before what is in it.
    fn select(&mut self, _select: &mut Select) -> Step {
        Step::Continue(())
    }

    /// Each expression, after what is in it.
    fn expr(&mut self, _expr: &mut Expr) -> Step {
        Step::Continue(())
    }
}

/// Shows all of `tree` to `look`.
///
/// # Errors
/// The one that `look` breaks off with.
pub fn look(tree: &impl Visit, look: &mut dyn Look) -> Result<()> {
    match tree.visit(&mut Looking(look)) {
        Step::Continue(()) => Ok(()),
        Step::Break(error) => Err(*error),
    }
}

/// Has `change` go through all of `tree`.
pub fn change(tree: &mut impl VisitMut, change: &mut dyn Change) -> Step {
    tree.visit(&mut Changing(change))
}

struct Looking<'a>(&'a mut dyn Look);

impl Visitor for Looking<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &Query) -> Step {
        self.0.query(query)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Step {
        self.0.table_factor(factor)
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Step {
        self.0.expr(expr)
    }
}

struct Changing<'a>(&'a mut dyn Change);

impl VisitorMut for Changing<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> Step {
        self.0.query(query)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Step {
        self.0.select(select)
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Step {
        self.0.expr(expr)
    }
}
