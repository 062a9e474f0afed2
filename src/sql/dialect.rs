//! The dialect: what sqlparser is told about our SQL.
//!
//! [`HighwaterDialect`] is sqlparser's `GenericDialect` with four differences. It keeps that dialect's `TypeId`, so
//! every place in sqlparser that asks "is this the generic dialect" still says yes.
//!
//! 1. `TABLE t [PARTITION BY k]` is an argument of `TUMBLE`, `HOP`, `CUMULATE` and `SESSION`. It becomes the function call
//!    `TABLE(t) [OVER (PARTITION BY k)]`, which prints and parses as itself; [`super::WindowCall`] decodes it.
//! 2. `FOR SYSTEM_TIME AS OF t` is read after a table's name.
//! 3. Words that start a clause of ours are no alias without `AS`.
//! 4. Syntax that DataFusion would drop without a word (`SETTINGS`, `FORMAT`, `PREWHERE`, `WITH FILL`, comments that
//!    MySQL executes, …) is left switched off, so that it is an error here.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::{self, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::keywords::{self, Keyword};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::window_call::WINDOW_FUNCTIONS;

/// The dialect of every SQL text Highwater reads. See the module's documentation.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct HighwaterDialect;

/// The one instance, for parsers that borrow their dialect.
pub(super) static DIALECT: HighwaterDialect = HighwaterDialect;

/// Words that start a clause, with the words one of which must come next if any.
const CLAUSE_STARTS: &[(&str, &[&str])] = &[
    ("ALLOWED", &["LATENESS"]),
    ("ALLOW", &["LATENESS"]),
    ("GRACE", &["PERIOD"]),
    ("EMIT", &["ON", "AFTER", "CHANGES", "FINAL"]),
    ("FINALIZE", &["AFTER"]),
    ("ON", &["LATE", "EXPIRED"]),
    ("RESTART", &[]),
];

/// Answers each of the methods named with what the generic dialect answers.
macro_rules! as_generic {
    ($($method:ident),* $(,)?) => {
        $(fn $method(&self) -> bool { GenericDialect.$method() })*
    };
}

impl Dialect for HighwaterDialect {
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_identifier_start(ch)
    }

    // `$` is a part of a name: `v$late` needs no quotes.
    fn is_identifier_part(&self, ch: char) -> bool {
        GenericDialect.is_identifier_part(ch)
    }

    as_generic!(
        allow_extract_custom,
        allow_extract_single_quotes,
        support_map_literal_syntax,
        supports_array_typedef_with_brackets,
        supports_asc_desc_in_column_definition,
        supports_bitwise_shift_operators,
        supports_comma_separated_set_assignments,
        supports_comma_separated_trim,
        supports_comment_on,
        supports_constraint_keyword_without_name,
        supports_create_index_with_clause,
        supports_create_view_comment_syntax,
        supports_cte_without_as,
        supports_data_type_signed_suffix,
        supports_dictionary_syntax,
        supports_empty_projections,
        supports_explain_with_utility_options,
        supports_extract_comma_syntax,
        supports_filter_during_aggregation,
        supports_from_first_select,
        supports_group_by_expr,
        supports_group_by_with_modifier,
        supports_interval_options,
        supports_key_column_option,
        supports_left_associative_joins_without_parens,
        supports_limit_comma,
        supports_named_fn_args_with_assignment_operator,
        supports_nested_comments,
        supports_parens_around_table_factor,
        supports_parenthesized_set_variables,
        supports_partition_by_after_order_by,
        supports_pipe_operator,
        supports_projection_trailing_commas,
        supports_select_item_multi_column_alias,
        supports_select_wildcard_except,
        supports_select_wildcard_exclude,
        supports_select_wildcard_ilike,
        supports_select_wildcard_rename,
        supports_select_wildcard_replace,
        supports_set_names,
        supports_start_transaction_modifier,
        supports_string_escape_constant,
        supports_struct_literal,
        supports_try_convert,
        supports_unicode_string_literal,
        supports_update_order_by,
        supports_values_as_table_factor,
        supports_window_clause_named_window_reference,
        supports_window_function_null_treatment_arg,
    );

    /// `FOR SYSTEM_TIME AS OF`.
    fn supports_table_versioning(&self) -> bool {
        true
    }

    /// Flink's `MAP<K, V>`.
    fn supports_map_literal_with_angle_brackets(&self) -> bool {
        true
    }

    fn is_table_alias(&self, kw: &Keyword, parser: &mut Parser) -> bool {
        !keywords::RESERVED_FOR_TABLE_ALIAS.contains(kw) && clause_start(parser).is_none()
    }

    fn is_column_alias(&self, kw: &Keyword, parser: &mut Parser) -> bool {
        // A column may be called `grace` or `emit`; only the whole clause start is kept from being an alias.
        let starts_clause = clause_start(parser).is_some_and(|seconds| {
            word(parser.peek_token_ref()).is_some_and(|next| seconds.iter().any(|s| s.eq_ignore_ascii_case(next)))
        });
        !keywords::RESERVED_FOR_COLUMN_ALIAS.contains(kw) && !starts_clause
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let [table, next] = parser.peek_tokens_ref();
        if !is_keyword(table, Keyword::TABLE) || !in_window_function(parser) {
            return None;
        }
        match &next.token {
            Token::Word(_) => Some(table_argument(parser)),
            Token::LParen => {
                let inner = parser.peek_nth_token_ref(2);
                let query = [Keyword::SELECT, Keyword::WITH, Keyword::VALUES].iter().any(|k| is_keyword(inner, *k));
                query.then(|| table_argument(parser))
            }
            _ => None,
        }
    }
}

/// The words that may follow the parser's current word if it starts a clause of ours.
fn clause_start(parser: &Parser) -> Option<&'static [&'static str]> {
    let word = word(parser.get_current_token())?;
    CLAUSE_STARTS.iter().find(|(first, _)| first.eq_ignore_ascii_case(word)).map(|(_, seconds)| *seconds)
}

/// The text of an unquoted word.
pub(super) fn word(token: &TokenWithSpan) -> Option<&str> {
    match &token.token {
        Token::Word(w) if w.quote_style.is_none() => Some(&w.value),
        _ => None,
    }
}

fn is_keyword(token: &TokenWithSpan, keyword: Keyword) -> bool {
    matches!(&token.token, Token::Word(w) if w.keyword == keyword)
}

/// Whether the parser stands directly inside the parentheses of a window function.
fn in_window_function(parser: &Parser) -> bool {
    let mut depth = 0usize;
    let mut before = (0..parser.index()).rev().map(|i| parser.token_at(i));
    while let Some(token) = before.next() {
        match token.token {
            Token::RParen => depth += 1,
            Token::LParen if depth > 0 => depth -= 1,
            Token::LParen => {
                let name = before.find(|t| !matches!(t.token, Token::Whitespace(_))).and_then(word);
                return name.is_some_and(|n| WINDOW_FUNCTIONS.iter().any(|(f, _)| f.eq_ignore_ascii_case(n)));
            }
            _ => {}
        }
    }
    false
}

/// Reads `TABLE t [PARTITION BY keys]` or `TABLE (SELECT …) […]` into its function call.
fn table_argument(parser: &mut Parser) -> Result<Expr, ParserError> {
    let table = parser.next_token();
    let Token::Word(keyword) = table.token else { return parser.expected("TABLE", table) };
    let input = if parser.consume_token(&Token::LParen) {
        let query = parser.parse_query()?;
        parser.expect_token(&Token::RParen)?;
        Expr::Subquery(query)
    } else {
        match multipart_name(parser)? {
            mut one if one.len() == 1 => Expr::Identifier(one.remove(0)),
            many => Expr::CompoundIdentifier(many),
        }
    };
    let partition_by = match parser.parse_keywords(&[Keyword::PARTITION, Keyword::BY]) {
        true => partition_keys(parser)?,
        false => vec![],
    };
    let over = (!partition_by.is_empty()).then(|| {
        ast::WindowType::WindowSpec(ast::WindowSpec {
            window_name: None,
            partition_by,
            order_by: vec![],
            window_frame: None,
        })
    });
    Ok(Expr::Function(Function {
        name: ast::ObjectName::from(vec![keyword.into_ident(table.span)]),
        uses_odbc_syntax: false,
        parameters: ast::FunctionArguments::None,
        args: ast::FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(input))],
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over,
        within_group: vec![],
    }))
}

/// Reads `k`, `(k, …)`, or `k, …` up to the `DESCRIPTOR` or the named argument that must follow; without one of those a
/// second key could not be told from the time column.
fn partition_keys(parser: &mut Parser) -> Result<Vec<Expr>, ParserError> {
    if parser.consume_token(&Token::LParen) {
        let keys = parser.parse_comma_separated(Parser::parse_expr)?;
        parser.expect_token(&Token::RParen)?;
        return Ok(keys);
    }
    let mut keys = vec![parser.parse_expr()?];
    while parser.peek_token_ref().token == Token::Comma && time_column_ahead(parser) > 1 {
        parser.advance_token();
        keys.push(parser.parse_expr()?);
    }
    Ok(keys)
}

/// How many arguments from here the one is that can only be the time column; 0 if there is none. The parser is at a comma.
fn time_column_ahead(parser: &Parser) -> usize {
    let mut depth = 0usize;
    let mut arguments = 0;
    for n in 0.. {
        let token = parser.peek_nth_token_ref(n);
        let next = &parser.peek_nth_token_ref(n + 1).token;
        match &token.token {
            Token::EOF | Token::SemiColon => return 0,
            Token::RParen if depth == 0 => return 0,
            Token::RParen => depth -= 1,
            Token::LParen => depth += 1,
            Token::Comma if depth == 0 => arguments += 1,
            Token::Word(w) if depth == 0 => {
                let descriptor = w.value.eq_ignore_ascii_case("DESCRIPTOR") && *next == Token::LParen;
                if descriptor || matches!(next, Token::RArrow | Token::Assignment) {
                    return arguments;
                }
            }
            _ => {}
        }
    }
    0
}

/// Reads `a[.b[.c]]`.
fn multipart_name(parser: &mut Parser) -> Result<Vec<ast::Ident>, ParserError> {
    let mut parts = vec![parser.parse_identifier()?];
    while parser.consume_token(&Token::Period) {
        parts.push(parser.parse_identifier()?);
    }
    Ok(parts)
}
