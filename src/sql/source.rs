//! `CREATE SOURCE`, `CREATE STREAM`, and Flink's `CREATE TABLE … WITH ('connector' = …)`, which mean the same.

use datafusion::sql::sqlparser::ast::{
    self, ArrayElemTypeDef, BinaryOperator, DataType, Expr, StructField, TimezoneInfo,
};
use datafusion::sql::sqlparser::tokenizer::{Location, Token};

use super::cursor::Cursor;
use super::interval::{HINT, interval_from_expr};
use super::statement::{
    ColumnKind, CreateSource, Interval, SourceColumn, Spanned, Statement, Watermark, WatermarkStrategy,
};
use super::view::{if_not_exists, restart};
use crate::connectors::Options;
use crate::error::{Error, Position, Result, nearest};

/// Whether `CREATE TABLE` here declares a source: a list of columns with a watermark in it, or with `WITH (` behind it.
pub(super) fn is_table_with_connector(cursor: &Cursor<'_, '_>) -> bool {
    let mut n = if cursor.is_at("CREATE OR REPLACE") { 3 } else { 1 };
    n += usize::from(cursor.is_word(n, "TEMPORARY"));
    if !cursor.is_word(n, "TABLE") {
        return false;
    }
    let mut depth = 0_usize;
    while !cursor.ends_at(n) {
        match cursor.peek(n).token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ if depth == 0 && cursor.is_word(n, "AS") => return false,
            _ if depth == 0 && cursor.is_word(n, "WITH") => return cursor.peek(n + 1).token == Token::LParen,
            _ if depth == 1 && cursor.is_word(n, "WATERMARK") && cursor.is_word(n + 1, "FOR") => return true,
            _ => {}
        }
        n += 1;
    }
    false
}

/// `CREATE [OR REPLACE] SOURCE [IF NOT EXISTS] name ( columns, watermark ) WITH ( options ) [RESTART]`.
pub(super) fn create(cursor: &mut Cursor<'_, '_>, start: Location) -> Result<Statement> {
    cursor.expect("CREATE")?;
    let or_replace = cursor.eat("OR REPLACE");
    if cursor.is_at("TEMPORARY") {
        return Err(Error::unsupported("sources are not temporary")
            .at(cursor.position())
            .with_hint("leave out TEMPORARY, and DROP SOURCE when done"));
    }
    cursor.choose("CREATE", &[("SOURCE", ()), ("STREAM", ()), ("TABLE", ())])?;
    let if_not_exists = if_not_exists(cursor, or_replace)?;
    let name = cursor.name("a name for the source")?;
    let mut elements = Elements::default();
    if cursor.peek(0).token == Token::LParen {
        elements.read(cursor)?;
    }
    if cursor.is_at("PARTITIONED BY") || cursor.is_at("COMMENT") {
        return Err(Error::unsupported("a source takes no PARTITIONED BY and no COMMENT")
            .at(cursor.position())
            .with_hint("write a comment as -- text"));
    }
    let options = options(cursor)?;
    if cursor.is_at("FORMAT") || cursor.is_at("ENCODE") {
        return Err(cursor
            .unexpected("the end of the statement")
            .with_hint("the format is an option: WITH (…, format = 'json')"));
    }
    let restart = restart(cursor, or_replace)?;
    let text = cursor.text_since(start).to_owned();
    let Elements { columns, watermark } = elements;
    Ok(Statement::CreateSource(CreateSource {
        name,
        or_replace,
        if_not_exists,
        columns,
        watermark,
        options,
        restart,
        text,
    }))
}

/// What stands between the parentheses.
#[derive(Default)]
struct Elements {
    columns: Vec<SourceColumn>,
    watermark: Option<Watermark>,
}

impl Elements {
    fn read(&mut self, cursor: &mut Cursor<'_, '_>) -> Result<()> {
        cursor.expect_token(&Token::LParen, "(")?;
        loop {
            self.element(cursor)?;
            if !cursor.eat_token(&Token::Comma) {
                break;
            }
        }
        match cursor.eat_token(&Token::RParen) {
            true => Ok(()),
            false => Err(cursor.unexpected_word("`,` or `)`", &["WATERMARK", "METADATA", "NOT NULL", "COMMENT"])),
        }
    }

    fn element(&mut self, cursor: &mut Cursor<'_, '_>) -> Result<()> {
        let position = cursor.position();
        if cursor.is_at("WATERMARK FOR") {
            let watermark = watermark(cursor)?;
            if let Some(first) = &self.watermark {
                return Err(Error::syntax("WATERMARK is given twice").at(position).with_hint(format!(
                    "the first one, for `{}`, is at {}",
                    first.column.node, first.column.position
                )));
            }
            self.watermark = Some(watermark);
            return Ok(());
        }
        if ["PRIMARY KEY", "CONSTRAINT", "UNIQUE"].iter().any(|w| cursor.is_at(w)) {
            return Err(no_keys(position));
        }
        let column = column(cursor)?;
        if let Some(first) = self.columns.iter().find(|c| c.name.node == column.name.node) {
            return Err(Error::syntax(format!("column `{}` is given twice", column.name.node))
                .at(column.name.position)
                .with_hint(format!("the first one is at {}", first.name.position)));
        }
        self.columns.push(column);
        Ok(())
    }
}

fn no_keys(position: Position) -> Error {
    Error::unsupported("a source has no keys: it is a log, and every row of it counts")
        .at(position)
        .with_hint("leave the key out; to count each row once, use count(DISTINCT id)")
}

/// `name TYPE [METADATA [FROM 'key']] [NOT NULL]`, or `name AS expr`.
fn column(cursor: &mut Cursor<'_, '_>) -> Result<SourceColumn> {
    let name = cursor.name("a column's name")?;
    if cursor.eat("AS") {
        let kind = ColumnKind::Computed(Box::new(cursor.expr()?.node));
        return Ok(SourceColumn { name, kind, not_null: false });
    }
    let position = cursor.position();
    if matches!(cursor.peek(0).token, Token::Comma | Token::RParen) {
        return Err(cursor.unexpected(&format!("a type for column `{}`", name.node)));
    }
    let data_type = known_type(cursor.data_type()?, position)?;
    let mut metadata = None;
    let mut not_null = false;
    loop {
        if cursor.eat("METADATA") {
            let key = match cursor.eat("FROM") {
                true => cursor.string("the key of the metadata in quotes")?.node,
                false => name.node.clone(),
            };
            cursor.eat("VIRTUAL");
            metadata = Some(key);
        } else if cursor.eat("NOT NULL") {
            not_null = true;
        } else if cursor.is_at("PRIMARY KEY") || cursor.is_at("UNIQUE") {
            return Err(no_keys(cursor.position()));
        } else if !cursor.eat("NULL") {
            break;
        }
    }
    if let Some(word) = ["COMMENT", "DEFAULT", "CHECK", "GENERATED"].iter().find(|w| cursor.is_at(w)) {
        return Err(Error::unsupported(format!("a source's column takes no {word}"))
            .at(cursor.position())
            .with_hint("a computed column is written `name AS expression`"));
    }
    let kind = match metadata {
        Some(key) => ColumnKind::Metadata { data_type, key },
        None => ColumnKind::Physical(data_type),
    };
    Ok(SourceColumn { name, kind, not_null })
}

/// Names of types, for guessing.
const TYPES: &[&str] = &[
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "INTEGER",
    "BIGINT",
    "REAL",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
    "VARCHAR",
    "STRING",
    "TEXT",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "STRUCT",
    "ARRAY",
    "MAP",
    "BYTES",
];

/// Flink's `TIMESTAMP_LTZ` and `BYTES` by the names DataFusion knows them under, at any depth. A name that is no type is
/// refused.
fn known_type(data_type: DataType, position: Position) -> Result<DataType> {
    let inner = |boxed: Box<DataType>| known_type(*boxed, position).map(Box::new);
    match data_type {
        DataType::Bytes(None) | DataType::Varbinary(None) | DataType::Binary(None) => Ok(DataType::Bytea),
        DataType::Custom(name, modifiers) if name.to_string().eq_ignore_ascii_case("TIMESTAMP_LTZ") => {
            let precision = modifiers.first().and_then(|p| p.parse().ok());
            Ok(DataType::Timestamp(precision, TimezoneInfo::WithTimeZone))
        }
        DataType::Custom(name, _) => {
            let name = name.to_string();
            let error = Error::syntax(format!("`{name}` is no type")).at(position);
            Err(match nearest(&name, TYPES) {
                Some(near) => error.with_hint(format!("did you mean {near}?")),
                None => error.with_hint("types are BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), VARCHAR, DATE, TIMESTAMP, STRUCT<…> and the like"),
            })
        }
        DataType::Struct(fields, brackets) => {
            let known =
                |field: StructField| Ok(StructField { field_type: known_type(field.field_type, position)?, ..field });
            Ok(DataType::Struct(fields.into_iter().map(known).collect::<Result<_>>()?, brackets))
        }
        DataType::Array(ArrayElemTypeDef::AngleBracket(element)) => {
            Ok(DataType::Array(ArrayElemTypeDef::AngleBracket(inner(element)?)))
        }
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, size)) => {
            Ok(DataType::Array(ArrayElemTypeDef::SquareBracket(inner(element)?, size)))
        }
        DataType::Map(key, value) => Ok(DataType::Map(inner(key)?, inner(value)?)),
        other => Ok(other),
    }
}

// Watermarks.

/// `WATERMARK FOR column strategy [IDLE TIMEOUT i] [IDLE CLOSE AFTER i]`.
fn watermark(cursor: &mut Cursor<'_, '_>) -> Result<Watermark> {
    cursor.expect("WATERMARK FOR")?;
    let column = cursor.name("the event-time column")?;
    let strategy = strategy(cursor, &column)?;
    let mut watermark = Watermark { column, strategy, idle_timeout: None, idle_close_after: None };
    loop {
        let position = cursor.position();
        let (slot, clause) = if cursor.eat("IDLE TIMEOUT") {
            (&mut watermark.idle_timeout, "IDLE TIMEOUT")
        } else if cursor.eat("IDLE CLOSE AFTER") {
            (&mut watermark.idle_close_after, "IDLE CLOSE AFTER")
        } else if cursor.is_at("IDLE") {
            return Err(cursor.no_choice("", &["IDLE TIMEOUT", "IDLE CLOSE AFTER"]));
        } else {
            break;
        };
        if slot.is_some() {
            return Err(Error::syntax(format!("{clause} is given twice")).at(position));
        }
        *slot = Some(positive_interval(cursor, clause)?);
    }
    match cursor.peek(0).token {
        Token::Comma | Token::RParen => Ok(watermark),
        _ => {
            let words = ["IDLE TIMEOUT", "IDLE CLOSE AFTER", "PER KEY", "PUNCTUATED WHEN"];
            let first: Vec<&str> = words.iter().filter_map(|w| w.split(' ').next()).collect();
            Err(cursor.unexpected_word("`,`, `)`, IDLE TIMEOUT, IDLE CLOSE AFTER, PER KEY or PUNCTUATED WHEN", &first))
        }
    }
}

fn strategy(cursor: &mut Cursor<'_, '_>, column: &Spanned<String>) -> Result<WatermarkStrategy> {
    if cursor.eat("PUNCTUATED WHEN") {
        let ident = ast::Ident::with_quote('"', column.node.clone());
        let expr = Spanned { node: Expr::Identifier(ident), position: column.position };
        return Ok(WatermarkStrategy::Punctuated { expr, when: cursor.expr()? });
    }
    if !cursor.eat("AS") {
        return Err(cursor.unexpected_word("AS or PUNCTUATED WHEN", &["AS", "PUNCTUATED"]).with_hint(format!(
            "write WATERMARK FOR {column} AS {column} - INTERVAL '5 minutes'",
            column = column.node
        )));
    }
    let expr = cursor.expr()?;
    if let Some(delay) = processing_time(&expr) {
        let delay = delay?;
        return match delay.is_not_negative() {
            true => Ok(WatermarkStrategy::ProcessingTime { delay }),
            false => Err(Error::invalid(format!("the delay must not be negative, is `{delay}`")).at(expr.position)),
        };
    }
    if cursor.eat("PER KEY") {
        let keys = cursor.names_in_parentheses("a column's name")?;
        if !cursor.eat("TIMEOUT") {
            return Err(cursor.unexpected_word("TIMEOUT", &["TIMEOUT"]).with_hint(
                "a key that falls silent would hold the watermark for ever: PER KEY (k) TIMEOUT INTERVAL '10 minutes'",
            ));
        }
        let timeout = positive_interval(cursor, "TIMEOUT")?;
        return Ok(WatermarkStrategy::PerKey { expr, keys, timeout });
    }
    if cursor.eat("PUNCTUATED WHEN") {
        return Ok(WatermarkStrategy::Punctuated { expr, when: cursor.expr()? });
    }
    Ok(WatermarkStrategy::Expression(expr))
}

/// The delay of `PROCTIME() [- interval]`; `None` if the expression is another one.
fn processing_time(expr: &Spanned<Expr>) -> Option<Result<Interval>> {
    let is_proctime = |e: &Expr| matches!(e, Expr::Function(f) if f.name.to_string().eq_ignore_ascii_case("PROCTIME"));
    match &expr.node {
        e if is_proctime(e) => Some(Ok(Interval::default())),
        Expr::BinaryOp { left, op: BinaryOperator::Minus, right } if is_proctime(left) => {
            Some(interval_from_expr(right).map_err(|e| if e.position().is_some() { e } else { e.at(expr.position) }))
        }
        _ => None,
    }
}

fn positive_interval(cursor: &mut Cursor<'_, '_>, what: &str) -> Result<Interval> {
    let interval = cursor.interval()?;
    match interval.node.is_positive() {
        true => Ok(interval.node),
        false => Err(Error::invalid(format!("{what} must be above zero, is `{}`", interval.node))
            .at(interval.position)
            .with_hint(HINT)),
    }
}

// Options.

/// `WITH ( name = value, … )`. Names are words, with dots between them, or quoted; they are kept in lower case. Values
/// are strings, numbers, TRUE, FALSE and intervals; all are kept as text.
pub(super) fn options(cursor: &mut Cursor<'_, '_>) -> Result<Options> {
    if !cursor.eat("WITH") {
        return Err(cursor.unexpected_word("WITH", &["WITH"]).with_hint(
            "say where the rows come from: WITH (connector = 'file', path = 'orders.jsonl', format = 'json')",
        ));
    }
    cursor.expect_token(&Token::LParen, "(")?;
    let mut options = Options::new();
    loop {
        let position = cursor.position();
        let name = option_name(cursor)?;
        if !cursor.eat_token(&Token::Eq) {
            return Err(cursor.unexpected("`=`"));
        }
        let value = option_value(cursor)?;
        if options.insert(name.clone(), value).is_some() {
            return Err(Error::syntax(format!("option `{name}` is given twice")).at(position));
        }
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    match cursor.eat_token(&Token::RParen) {
        true => Ok(options),
        false => Err(cursor.unexpected("`,` or `)`")),
    }
}

fn option_name(cursor: &mut Cursor<'_, '_>) -> Result<String> {
    if let Token::SingleQuotedString(name) = &cursor.peek(0).token {
        let name = name.to_lowercase();
        cursor.skip(1);
        return Ok(name);
    }
    let mut name = cursor.ident("an option's name")?.value.to_lowercase();
    while cursor.eat_token(&Token::Period) {
        name.push('.');
        name.push_str(&cursor.ident("the rest of the option's name")?.value.to_lowercase());
    }
    Ok(name)
}

fn option_value(cursor: &mut Cursor<'_, '_>) -> Result<String> {
    if cursor.is_at("INTERVAL") {
        return Ok(cursor.interval()?.node.to_string());
    }
    let negative = cursor.eat_token(&Token::Minus);
    let value = match &cursor.peek(0).token {
        Token::Number(digits, false) => format!("{}{digits}", if negative { "-" } else { "" }),
        _ if negative => return Err(cursor.unexpected("a number")),
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
        Token::Word(w) if ["TRUE", "FALSE"].iter().any(|b| b.eq_ignore_ascii_case(&w.value)) => w.value.to_lowercase(),
        Token::Word(w) => {
            let hint = format!("put the value in single quotes: '{}'", w.value);
            return Err(cursor.unexpected("a value").with_hint(hint));
        }
        _ => return Err(cursor.unexpected("a value")),
    };
    cursor.skip(1);
    Ok(value)
}
