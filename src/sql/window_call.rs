//! A window as a query writes it, in any of the three spellings.
//!
//! | spelling | where |
//! | --- | --- |
//! | `TUMBLE(TABLE t, DESCRIPTOR(ts), size)`, with `name => value`, and with `TABLE( … )` around it | FROM |
//! | `TUMBLE(t, ts, size)` | FROM |
//! | `tumble(ts, size)`, `tumble(size)` | GROUP BY, SELECT |
//!
//! [`WindowCall`] is what all of them say. Whether the table and the column exist, and which lengths make a window, is
//! decided where it is used; only what can be seen in the text is checked here.

use datafusion::sql::sqlparser::ast::{
    self, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Spanned as _, TableAlias,
    TableFactor, Value, WindowType,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::diagnostics::list;
use super::interval::interval_from_expr;
use super::statement::{Interval, Spanned};
use super::text::position_of;
use crate::error::{Error, Position, Result, nearest};

/// Which window function is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowFunction {
    /// `TUMBLE`.
    Tumble,
    /// `HOP`.
    Hop,
    /// `CUMULATE`.
    Cumulate,
    /// `SESSION`.
    Session,
}

/// Their names, upper case.
pub(super) const WINDOW_FUNCTIONS: [(&str, WindowFunction); 4] = [
    ("TUMBLE", WindowFunction::Tumble),
    ("HOP", WindowFunction::Hop),
    ("CUMULATE", WindowFunction::Cumulate),
    ("SESSION", WindowFunction::Session),
];

impl WindowFunction {
    /// The function called `name`: one part, in any case.
    pub fn from_name(name: &ObjectName) -> Option<Self> {
        let [part] = name.0.as_slice() else { return None };
        let ident = part.as_ident()?;
        WINDOW_FUNCTIONS.iter().find(|(f, _)| f.eq_ignore_ascii_case(&ident.value)).map(|(_, function)| *function)
    }

    /// The name, upper case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tumble => "TUMBLE",
            Self::Hop => "HOP",
            Self::Cumulate => "CUMULATE",
            Self::Session => "SESSION",
        }
    }

    /// The parameters behind the table and the time column, in order; the first ones, which are lengths, must be given.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::Tumble => &["SIZE", "OFFSET", "TIME_ZONE"],
            Self::Hop => &["SLIDE", "SIZE", "OFFSET", "TIME_ZONE"],
            Self::Cumulate => &["STEP", "SIZE", "OFFSET", "TIME_ZONE"],
            Self::Session => &["GAP"],
        }
    }

    fn example(self, in_from: bool) -> &'static str {
        match (self, in_from) {
            (Self::Tumble, true) => "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1 hour')",
            (Self::Hop, true) => {
                "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5 minutes', INTERVAL '1 hour'), slide before size"
            }
            (Self::Cumulate, true) => {
                "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1 hour', INTERVAL '1 day'), step before size"
            }
            (Self::Session, true) => "SESSION(TABLE t PARTITION BY (k, l), DESCRIPTOR(ts), INTERVAL '10 minutes')",
            (Self::Tumble, false) => "tumble(ts, INTERVAL '1 hour')",
            (Self::Hop, false) => "hop(ts, INTERVAL '5 minutes', INTERVAL '1 hour'), slide before size",
            (Self::Cumulate, false) => "cumulate(ts, INTERVAL '1 hour', INTERVAL '1 day'), step before size",
            (Self::Session, false) => "session(ts, INTERVAL '10 minutes')",
        }
    }
}

/// The rows a window function in FROM reads.
#[derive(Debug, Clone, PartialEq)]
pub enum WindowInput {
    /// `TABLE t`, or `t`.
    Table(ObjectName),
    /// `(SELECT …)`, or `TABLE (SELECT …)`.
    Query(Box<ast::Query>),
}

/// The lengths of a window, each above zero.
#[derive(Debug, Clone, PartialEq)]
pub enum WindowLengths {
    /// `TUMBLE`.
    Tumble {
        /// Length of a window.
        size: Spanned<Interval>,
    },
    /// `HOP`.
    Hop {
        /// From one window's start to the next.
        slide: Spanned<Interval>,
        /// Length of a window.
        size: Spanned<Interval>,
    },
    /// `CUMULATE`.
    Cumulate {
        /// What each window is longer than the one before.
        step: Spanned<Interval>,
        /// Length of the longest.
        size: Spanned<Interval>,
    },
    /// `SESSION`.
    Session {
        /// The silence that ends a session.
        gap: Spanned<Interval>,
    },
}

/// One call of a window function.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowCall {
    /// Which function.
    pub function: WindowFunction,
    /// Where the call is written.
    pub position: Position,
    /// What it reads; `None` for the GROUP BY spelling, which reads the query's FROM.
    pub input: Option<WindowInput>,
    /// `PARTITION BY`, for `SESSION` only; empty if not given.
    pub partition_by: Vec<Expr>,
    /// The time column, a name of one or more parts. `None` only for `tumble(size)` and its like: the source's own.
    pub time: Option<Spanned<Expr>>,
    /// The lengths.
    pub lengths: WindowLengths,
    /// `OFFSET`; may be negative.
    pub offset: Option<Spanned<Interval>>,
    /// `TIME_ZONE`.
    pub time_zone: Option<Spanned<String>>,
    /// The alias of the table factor.
    pub alias: Option<TableAlias>,
}

impl WindowCall {
    /// The call a table factor is; `None` if it is another factor.
    ///
    /// # Errors
    ///
    /// `Syntax` if an argument is missing, unknown, given twice or of the wrong form; `Invalid` for a length that is zero
    /// or negative, naming the argument.
    pub fn from_table_factor(factor: &TableFactor) -> Option<Result<Self>> {
        let (name, args, alias) = match factor {
            TableFactor::Table { name, args: Some(args), alias, .. } => (name, args.args.as_slice(), alias),
            TableFactor::Function { name, args, alias, .. } => (name, args.as_slice(), alias),
            TableFactor::TableFunction { expr: Expr::Function(f), alias } => {
                let FunctionArguments::List(args) = &f.args else { return None };
                (&f.name, args.args.as_slice(), alias)
            }
            _ => return None,
        };
        let function = WindowFunction::from_name(name)?;
        let call = Arguments::read(function, name, args, true).and_then(Arguments::into_call);
        Some(call.map(|call| Self { alias: alias.clone(), ..call }))
    }

    /// The call a function in GROUP BY or SELECT is; `None` if it is another function. A table function's inner call is no
    /// such function: decode FROM with [`WindowCall::from_table_factor`] only.
    ///
    /// # Errors
    ///
    /// As [`WindowCall::from_table_factor`].
    pub fn from_function(f: &Function) -> Option<Result<Self>> {
        let function = WindowFunction::from_name(&f.name)?;
        let FunctionArguments::List(args) = &f.args else { return None };
        let plain = f.filter.is_none() && f.over.is_none() && f.null_treatment.is_none() && f.within_group.is_empty();
        if !plain || args.duplicate_treatment.is_some() || !args.clauses.is_empty() {
            let name = function.as_str();
            let error =
                Error::syntax(format!("{name} is no aggregate: it takes no OVER, FILTER, DISTINCT or ORDER BY"));
            return Some(Err(error.at(start(f.name.span()))));
        }
        Some(Arguments::read(function, &f.name, &args.args, false).and_then(Arguments::into_call))
    }
}

/// Arguments by parameter, while they are read.
struct Arguments<'a> {
    function: WindowFunction,
    position: Position,
    /// Whether this is a table function, with an input.
    in_from: bool,
    data: Option<&'a Expr>,
    time: Option<&'a Expr>,
    /// In the order of [`WindowFunction::parameters`].
    rest: Vec<Option<&'a Expr>>,
}

impl<'a> Arguments<'a> {
    fn read(function: WindowFunction, name: &ObjectName, args: &'a [FunctionArg], in_from: bool) -> Result<Self> {
        let position = start(name.span());
        let rest = vec![None; function.parameters().len()];
        let mut read = Self { function, position, in_from, data: None, time: None, rest };
        let mut next = if in_from { 0 } else { 1 };
        for arg in args {
            match arg {
                FunctionArg::Named { name, arg, .. } => {
                    let place = read.place_named(name)?;
                    read.put(place, value(arg, position)?, &name.value)?;
                }
                FunctionArg::Unnamed(arg) => {
                    let value = value(arg, position)?;
                    if let Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, right } = value
                        && let Expr::Identifier(name) = left.as_ref()
                    {
                        return Err(Error::syntax(format!("a named argument is written with =>, found `{value}`"))
                            .at(start_or(name.span, position))
                            .with_hint(format!("write {name} => {right}")));
                    }
                    next = read.place_positional(next, value);
                    read.put(next, value, &format!("argument {}", next + usize::from(in_from)))?;
                    next += 1;
                }
                FunctionArg::ExprNamed { name, .. } => {
                    return Err(Error::syntax("an argument's name is one word").at(start_or(name.span(), position)));
                }
            }
        }
        Ok(read)
    }

    /// Where a positional argument belongs if it is not before `next`. In GROUP BY the time column may be left out, and a
    /// string is always the zone.
    fn place_positional(&self, next: usize, value: &Expr) -> usize {
        let zone = self.function.parameters().iter().position(|p| *p == "TIME_ZONE").map(|i| i + 2);
        match zone {
            Some(zone) if next > 2 && next < zone && text(value).is_some() => zone,
            _ if next == 1 && !self.in_from && is_length(value) => 2,
            _ => next,
        }
    }

    fn place_named(&self, name: &ast::Ident) -> Result<usize> {
        let mut names = if self.in_from { vec!["DATA", "TIMECOL"] } else { vec!["", "TIMECOL"] };
        names.extend(self.function.parameters());
        let found = names.iter().position(|n| n.eq_ignore_ascii_case(&name.value));
        found.ok_or_else(|| {
            names.retain(|n| !n.is_empty());
            let message = format!("{} has no argument `{}`", self.function.as_str(), name.value);
            let error = Error::syntax(message).at(start_or(name.span, self.position));
            match nearest(&name.value, &names) {
                Some(near) => error.with_hint(format!("did you mean {near}?")),
                None => error.with_hint(format!("its arguments are {}", list(&names, "and"))),
            }
        })
    }

    fn put(&mut self, place: usize, value: &'a Expr, called: &str) -> Result<()> {
        let place_of = match place {
            0 => &mut self.data,
            1 => &mut self.time,
            n => match self.rest.get_mut(n - 2) {
                Some(slot) => slot,
                None => {
                    return Err(Error::syntax(format!("{} has too many arguments", self.function.as_str()))
                        .at(start_or(value.span(), self.position))
                        .with_hint(self.hint()));
                }
            },
        };
        match place_of.replace(value) {
            None => Ok(()),
            Some(_) => Err(Error::syntax(format!("{} is given {called} twice", self.function.as_str()))
                .at(start_or(value.span(), self.position))),
        }
    }

    fn into_call(self) -> Result<WindowCall> {
        let (input, partition_by) = match (self.in_from, self.data) {
            (false, _) => (None, vec![]),
            (true, None) => return Err(self.missing("table")),
            (true, Some(data)) => {
                let (input, partition_by) = self.input(data)?;
                (Some(input), partition_by)
            }
        };
        let time = match self.time {
            None if self.in_from => return Err(self.missing("time column")),
            None => None,
            Some(time) => Some(self.time_column(time)?),
        };
        let lengths = match self.function {
            WindowFunction::Tumble => WindowLengths::Tumble { size: self.length("SIZE")? },
            WindowFunction::Hop => WindowLengths::Hop { slide: self.length("SLIDE")?, size: self.length("SIZE")? },
            WindowFunction::Cumulate => {
                WindowLengths::Cumulate { step: self.length("STEP")?, size: self.length("SIZE")? }
            }
            WindowFunction::Session => WindowLengths::Session { gap: self.length("GAP")? },
        };
        let offset = self.argument("OFFSET").map(|expr| self.interval("OFFSET", expr)).transpose()?;
        let time_zone = self.argument("TIME_ZONE").map(|expr| self.zone(expr)).transpose()?;
        let Self { function, position, .. } = self;
        Ok(WindowCall { function, position, input, partition_by, time, lengths, offset, time_zone, alias: None })
    }

    /// The rows read, and the keys of `TABLE t PARTITION BY k`.
    fn input(&self, data: &Expr) -> Result<(WindowInput, Vec<Expr>)> {
        if let Expr::Function(f) = data
            && f.name.to_string().eq_ignore_ascii_case("TABLE")
            && let FunctionArguments::List(args) = &f.args
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(table))] = args.args.as_slice()
        {
            let keys = match &f.over {
                Some(WindowType::WindowSpec(spec)) => spec.partition_by.clone(),
                _ => vec![],
            };
            if self.function != WindowFunction::Session && !keys.is_empty() {
                let error = Error::syntax(format!("{} takes no PARTITION BY", self.function.as_str()));
                return Err(error
                    .at(start_or(keys[0].span(), self.position))
                    .with_hint("group by the keys instead; only SESSION needs them beforehand"));
            }
            return Ok((self.table(table)?, keys));
        }
        Ok((self.table(data)?, vec![]))
    }

    fn table(&self, expr: &Expr) -> Result<WindowInput> {
        match expr {
            Expr::Identifier(ident) => Ok(WindowInput::Table(ObjectName::from(vec![ident.clone()]))),
            Expr::CompoundIdentifier(parts) => Ok(WindowInput::Table(ObjectName::from(parts.clone()))),
            Expr::Subquery(query) => Ok(WindowInput::Query(query.clone())),
            other => Err(Error::syntax(format!("{} expects a table first, found `{other}`", self.function.as_str()))
                .at(start_or(other.span(), self.position))
                .with_hint(self.hint())),
        }
    }

    fn time_column(&self, expr: &Expr) -> Result<Spanned<Expr>> {
        let position = start_or(expr.span(), self.position);
        let column = match expr {
            Expr::Function(f) if f.name.to_string().eq_ignore_ascii_case("DESCRIPTOR") => match &f.args {
                FunctionArguments::List(args) => match args.args.as_slice() {
                    [FunctionArg::Unnamed(FunctionArgExpr::Expr(column))] => column,
                    _ => expr,
                },
                _ => expr,
            },
            other => other,
        };
        match column {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => Ok(Spanned { node: column.clone(), position }),
            other => {
                let message = format!("{} expects its time column here, found `{other}`", self.function.as_str());
                Err(Error::syntax(message).at(position).with_hint(self.hint()))
            }
        }
    }

    fn argument(&self, parameter: &str) -> Option<&'a Expr> {
        let place = self.function.parameters().iter().position(|p| *p == parameter)?;
        self.rest[place]
    }

    fn length(&self, parameter: &str) -> Result<Spanned<Interval>> {
        let expr = self.argument(parameter).ok_or_else(|| self.missing(&parameter.to_lowercase()))?;
        let interval = self.interval(parameter, expr)?;
        match interval.node.is_positive() {
            true => Ok(interval),
            false => {
                let name = self.function.as_str();
                let message =
                    format!("{name}'s {} must be above zero, is `{}`", parameter.to_lowercase(), interval.node);
                Err(Error::invalid(message).at(interval.position))
            }
        }
    }

    fn interval(&self, parameter: &str, expr: &Expr) -> Result<Spanned<Interval>> {
        let position = start_or(expr.span(), self.position);
        match interval_from_expr(expr) {
            Ok(node) => Ok(Spanned { node, position }),
            Err(error) => {
                let message = format!("{}'s {}: {}", self.function.as_str(), parameter.to_lowercase(), error.message());
                let hint = error.hint().map_or_else(|| self.hint(), str::to_owned);
                Err(Error::new(error.kind(), message).at(position).with_hint(hint))
            }
        }
    }

    fn zone(&self, expr: &Expr) -> Result<Spanned<String>> {
        let position = start_or(expr.span(), self.position);
        match text(expr) {
            Some(zone) => Ok(Spanned { node: zone.to_owned(), position }),
            None => Err(Error::syntax(format!("expected a time zone in quotes, found `{expr}`"))
                .at(position)
                .with_hint("write TIME_ZONE => 'Europe/Berlin'")),
        }
    }

    fn missing(&self, what: &str) -> Error {
        Error::syntax(format!("{} needs a {what}", self.function.as_str())).at(self.position).with_hint(self.hint())
    }

    fn hint(&self) -> String {
        format!("write {}", self.function.example(self.in_from))
    }
}

fn value(arg: &FunctionArgExpr, position: Position) -> Result<&Expr> {
    match arg {
        FunctionArgExpr::Expr(expr) => Ok(expr),
        other => Err(Error::syntax(format!("a window function takes no `{other}`")).at(position)),
    }
}

/// Whether an argument is meant as a length of time.
fn is_length(expr: &Expr) -> bool {
    match expr {
        Expr::Interval(_) => true,
        Expr::UnaryOp { expr, .. } | Expr::Nested(expr) | Expr::Cast { expr, .. } => {
            is_length(expr) || text(expr).is_some()
        }
        other => text(other).is_some(),
    }
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn start_or(span: Span, otherwise: Position) -> Position {
    position_of(span).unwrap_or(otherwise)
}

fn start(span: Span) -> Position {
    start_or(span, Position { line: 1, column: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::walk::{Look, Step, look};
    use crate::sql::{Statement, parse_one};

    impl WindowInput {
        fn text(&self) -> String {
            match self {
                Self::Table(name) => name.to_string(),
                Self::Query(query) => format!("({query})"),
            }
        }
    }

    /// A call on one line: everything but positions.
    fn line(call: &WindowCall) -> String {
        let mut parts = vec![call.function.as_str().to_lowercase()];
        parts.extend(call.input.as_ref().map(WindowInput::text));
        if !call.partition_by.is_empty() {
            parts.push(format!(
                "by {}",
                call.partition_by.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
            ));
        }
        parts.extend(call.time.as_ref().map(|t| format!("on {}", t.node)));
        parts.push(match &call.lengths {
            WindowLengths::Tumble { size } => format!("size={}", size.node),
            WindowLengths::Hop { slide, size } => format!("slide={} size={}", slide.node, size.node),
            WindowLengths::Cumulate { step, size } => format!("step={} size={}", step.node, size.node),
            WindowLengths::Session { gap } => format!("gap={}", gap.node),
        });
        parts.extend(call.offset.as_ref().map(|o| format!("offset={}", o.node)));
        parts.extend(call.time_zone.as_ref().map(|z| format!("zone={}", z.node)));
        parts.extend(call.alias.as_ref().map(|a| format!("as {}", a.name)));
        parts.join(" ")
    }

    /// The first call in a FROM, or in an expression of a GROUP BY.
    fn first(sql: &str) -> Option<Result<WindowCall>> {
        struct First {
            in_group_by: bool,
            found: Option<Result<WindowCall>>,
        }
        impl Look for First {
            fn table_factor(&mut self, factor: &TableFactor) -> Step {
                self.found = self.found.take().or_else(|| WindowCall::from_table_factor(factor));
                Step::Continue(())
            }
            fn expr(&mut self, expr: &Expr) -> Step {
                if let Expr::Function(f) = expr
                    && self.in_group_by
                {
                    self.found = self.found.take().or_else(|| WindowCall::from_function(f));
                }
                Step::Continue(())
            }
        }
        let Statement::Select(select) = parse_one(sql).expect(sql) else { panic!("{sql} is no query") };
        let mut first = First { in_group_by: sql.contains("GROUP BY"), found: None };
        look(&select.query, &mut first).unwrap();
        first.found
    }

    #[test]
    fn all_spellings_say_the_same() {
        for (sql, expected) in [
            ("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1 hour')", "tumble t on ts size=1 hour"),
            ("tumble(table t, descriptor(ts), interval '1 hour') AS w", "tumble t on ts size=1 hour as w"),
            ("TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)) w", "tumble t on ts size=1 hour as w"),
            ("TUMBLE(t, ts, INTERVAL '1 hour')", "tumble t on ts size=1 hour"),
            ("TUMBLE(TABLE(t), ts, INTERVAL '1 hour')", "tumble t on ts size=1 hour"),
            ("TUMBLE(TABLE db.t, DESCRIPTOR(w.ts), INTERVAL '1 hour')", "tumble db.t on w.ts size=1 hour"),
            ("TUMBLE(TABLE \"T t\", DESCRIPTOR(\"Ts\"), INTERVAL '1 hour')", "tumble \"T t\" on \"Ts\" size=1 hour"),
            (
                "TUMBLE(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' MINUTES, OFFSET => INTERVAL '-5' MINUTE)",
                "tumble t on ts size=10 minutes offset=-5 minutes",
            ),
            ("TUMBLE(SIZE => INTERVAL '1 m', TIMECOL => ts, DATA => t)", "tumble t on ts size=1 minute"),
            (
                "TUMBLE(t, ts, INTERVAL '1 day', TIME_ZONE => 'Europe/Berlin')",
                "tumble t on ts size=1 day zone=Europe/Berlin",
            ),
            ("TUMBLE(t, ts, INTERVAL '1 day', 'Asia/Kolkata')", "tumble t on ts size=1 day zone=Asia/Kolkata"),
            (
                "TUMBLE(t, ts, INTERVAL '1 day', INTERVAL '1 hour', 'Asia/Kolkata')",
                "tumble t on ts size=1 day offset=1 hour zone=Asia/Kolkata",
            ),
            ("TUMBLE((SELECT a FROM x), ts, INTERVAL '1 m')", "tumble (SELECT a FROM x) on ts size=1 minute"),
            ("TUMBLE(TABLE (SELECT a FROM x), ts, INTERVAL '1 m')", "tumble (SELECT a FROM x) on ts size=1 minute"),
            (
                "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)",
                "hop t on ts slide=5 minutes size=10 minutes",
            ),
            (
                "HOP(TABLE t, DESCRIPTOR(ts), SIZE => INTERVAL '10 m', SLIDE => INTERVAL '5 m')",
                "hop t on ts slide=5 minutes size=10 minutes",
            ),
            (
                "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '2 m', INTERVAL '10 m')",
                "cumulate t on ts step=2 minutes size=10 minutes",
            ),
            (
                "CUMULATE(TABLE t, DESCRIPTOR(ts), STEP => INTERVAL '2 m', SIZE => INTERVAL '10 m')",
                "cumulate t on ts step=2 minutes size=10 minutes",
            ),
            ("SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '5 m')", "session t on ts gap=5 minutes"),
            ("SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5 m')", "session t by k on ts gap=5 minutes"),
            (
                "SESSION(TABLE t PARTITION BY (k, l), DESCRIPTOR(ts), GAP => INTERVAL '5 m')",
                "session t by k+l on ts gap=5 minutes",
            ),
            (
                "SESSION(TABLE t PARTITION BY k, l, DESCRIPTOR(ts), INTERVAL '5 m')",
                "session t by k+l on ts gap=5 minutes",
            ),
            (
                "SESSION(DATA => TABLE t PARTITION BY k, upper(l), TIMECOL => ts, GAP => INTERVAL '5 m')",
                "session t by k+upper(l) on ts gap=5 minutes",
            ),
            ("TABLE(SESSION(TABLE t PARTITION BY k, ts, INTERVAL '5 m'))", "session t by k on ts gap=5 minutes"),
        ] {
            let call = first(&format!("SELECT * FROM {sql}")).expect(sql).expect(sql);
            assert_eq!(line(&call), expected, "{sql}");
        }
        for (sql, expected) in [
            ("tumble(ts, INTERVAL '1 hour')", "tumble on ts size=1 hour"),
            ("tumble(interval '1 hour')", "tumble size=1 hour"),
            ("TUMBLE(t.ts, SIZE => INTERVAL '1 hour')", "tumble on t.ts size=1 hour"),
            ("tumble(ts, INTERVAL '1 day', TIME_ZONE => 'UTC')", "tumble on ts size=1 day zone=UTC"),
            ("tumble(INTERVAL '1 day', 'UTC')", "tumble size=1 day zone=UTC"),
            ("hop(ts, INTERVAL '1 m', INTERVAL '5 m')", "hop on ts slide=1 minute size=5 minutes"),
            ("hop(INTERVAL '1 m', INTERVAL '5 m')", "hop slide=1 minute size=5 minutes"),
            ("cumulate(ts, INTERVAL '1 m', INTERVAL '5 m')", "cumulate on ts step=1 minute size=5 minutes"),
            ("session(ts, INTERVAL '5 m')", "session on ts gap=5 minutes"),
            ("session(INTERVAL '5 m')", "session gap=5 minutes"),
        ] {
            let call = first(&format!("SELECT count(*) FROM t GROUP BY k, {sql}")).expect(sql).expect(sql);
            assert_eq!(line(&call), expected, "{sql}");
        }
    }

    #[test]
    fn other_functions_and_tables_are_left_alone() {
        for sql in ["SELECT * FROM tumble", "SELECT * FROM generate_series(1, 2)", "SELECT * FROM t GROUP BY abs(a)"] {
            assert!(first(sql).is_none(), "{sql}");
        }
    }

    /// Kind, place and text of what is wrong.
    fn error(sql: &str) -> String {
        let error = first(sql).expect(sql).expect_err(sql);
        let place = error.position().map_or_else(String::new, |p| p.column.to_string());
        format!("{} {place}: {} ({})", error.kind().as_str(), error.message(), error.hint().unwrap_or("-"))
    }

    #[test]
    fn c07_zero_or_negative_interval() {
        for (sql, expected) in [
            (
                "SELECT * FROM TUMBLE(t, ts, INTERVAL '0 s')",
                "invalid 38: TUMBLE's size must be above zero, is `0 seconds` (-)",
            ),
            (
                "SELECT * FROM HOP(t, ts, INTERVAL '1 s', INTERVAL '0 s')",
                "invalid 51: HOP's size must be above zero, is `0 seconds` (-)",
            ),
            (
                "SELECT * FROM HOP(t, ts, INTERVAL '-1 s', INTERVAL '-1 s')",
                "invalid 35: HOP's slide must be above zero, is `-1 second` (-)",
            ),
            (
                "SELECT 1 FROM t GROUP BY session(ts, - INTERVAL '1 s')",
                "invalid 49: SESSION's gap must be above zero, is `-1 second` (-)",
            ),
        ] {
            assert_eq!(error(sql), expected, "{sql}");
        }
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (sql, expected) in [
            (
                "SELECT * FROM HOP(t, ts, INTERVAL '1 s')",
                "syntax 15: HOP needs a size (write HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5 minutes', INTERVAL '1 hour'), slide before size)",
            ),
            (
                "SELECT * FROM TUMBLE(t, SIZE => INTERVAL '1 s')",
                "syntax 15: TUMBLE needs a time column (write TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1 hour'))",
            ),
            (
                "SELECT * FROM TUMBLE(t, ts, SIZ => INTERVAL '1 s')",
                "syntax 29: TUMBLE has no argument `SIZ` (did you mean SIZE?)",
            ),
            (
                "SELECT * FROM SESSION(t, ts, WIDTH => INTERVAL '1 s')",
                "syntax 30: SESSION has no argument `WIDTH` (its arguments are DATA, TIMECOL and GAP)",
            ),
            (
                "SELECT * FROM TUMBLE(t, ts, INTERVAL '1 s', SIZE => INTERVAL '1 s')",
                "syntax 62: TUMBLE is given SIZE twice (-)",
            ),
            (
                "SELECT * FROM TUMBLE(t, ts, '1 hour')",
                "syntax 29: TUMBLE's size: expected an interval, found `'1 hour'` (write INTERVAL '1 hour')",
            ),
            (
                "SELECT * FROM TUMBLE(1, ts, INTERVAL '1 s')",
                "syntax 22: TUMBLE expects a table first, found `1` (write TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1 hour'))",
            ),
            (
                "SELECT * FROM TUMBLE(t, ts, INTERVAL '1 s', TIME_ZONE => 5)",
                "syntax 58: expected a time zone in quotes, found `5` (write TIME_ZONE => 'Europe/Berlin')",
            ),
            (
                "SELECT * FROM TUMBLE(TABLE t PARTITION BY k, ts, INTERVAL '1 s')",
                "syntax 43: TUMBLE takes no PARTITION BY (group by the keys instead; only SESSION needs them beforehand)",
            ),
            (
                "SELECT * FROM SESSION(TABLE t PARTITION BY k, l, ts, INTERVAL '1 s')",
                "syntax 63: SESSION has too many arguments (write SESSION(TABLE t PARTITION BY (k, l), DESCRIPTOR(ts), INTERVAL '10 minutes'))",
            ),
            (
                "SELECT 1 FROM t GROUP BY tumble(ts, INTERVAL '1 s') OVER ()",
                "syntax 26: TUMBLE is no aggregate: it takes no OVER, FILTER, DISTINCT or ORDER BY (-)",
            ),
        ] {
            assert_eq!(error(sql), expected, "{sql}");
        }
    }

    /// The tree prints as SQL that reads back as the same tree, which `CREATE VIEW` macros rely on.
    #[test]
    fn the_encoding_prints_and_parses_as_itself() {
        for sql in [
            "SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1 hour')",
            "SELECT * FROM TABLE(SESSION(TABLE t PARTITION BY (k, l), DESCRIPTOR(ts), INTERVAL '1 hour'))",
            "SELECT * FROM TUMBLE(TABLE (SELECT a FROM x), DESCRIPTOR(ts), INTERVAL '1 hour')",
        ] {
            let Statement::Select(read) = parse_one(sql).expect(sql) else { panic!("{sql}") };
            let printed = read.query.to_string();
            let call = first(sql).expect(sql).expect(sql);
            let again = first(&printed).expect(&printed).expect(&printed);
            assert_eq!(line(&call), line(&again), "{printed}");
        }
    }
}
