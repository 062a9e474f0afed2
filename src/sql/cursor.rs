//! One place in a text, and the small steps every rule of the grammar is made of.
//!
//! A [`Cursor`] wraps DataFusion's parser (which wraps sqlparser's), so that our clauses, sqlparser's expressions and
//! DataFusion's statements are read from one row of tokens. Our words are matched by text, as most are no keywords of
//! sqlparser's. Each error leaves here with its position, what was expected and what was found.

use datafusion::sql::parser::{DFParser, DFParserBuilder, Statement as DfStatement};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use super::diagnostics::{self, list};
use super::dialect::{DIALECT, word};
use super::interval::{HINT, interval_from_expr};
use super::statement::{Interval, Spanned};
use super::text::{Script, at, is_space};
use crate::error::{Error, Position, Result, nearest};

/// A place among the tokens of a [`Script`].
pub(super) struct Cursor<'s, 't> {
    script: &'s Script<'t>,
    inner: DFParser<'static>,
}

impl<'s, 't> Cursor<'s, 't> {
    pub(super) fn try_new(script: &'s Script<'t>) -> Result<Self> {
        let inner = DFParserBuilder::new(script.tokens().to_vec())
            .with_dialect(&DIALECT)
            .build()
            .map_err(|e| diagnostics::from_datafusion(e, script))?;
        Ok(Self { script, inner })
    }

    // Looking.

    /// The `n`th token from here, white space left out.
    pub(super) fn peek(&self, n: usize) -> &TokenWithSpan {
        self.inner.parser.peek_nth_token_ref(n)
    }

    /// The `n`th token from here if it is an unquoted word.
    pub(super) fn word(&self, n: usize) -> Option<&str> {
        word(self.peek(n))
    }

    /// Where the next token starts, or the text ends.
    pub(super) fn position(&self) -> Position {
        self.position_at(0)
    }

    /// Where the `n`th token from here starts, or the text ends.
    pub(super) fn position_at(&self, n: usize) -> Position {
        at(self.peek(n).span.start).unwrap_or_else(|| self.script.end())
    }

    /// Whether the words of `phrase`, which is upper case, come next.
    pub(super) fn is_at(&self, phrase: &str) -> bool {
        phrase.split(' ').enumerate().all(|(i, expected)| self.is_word(i, expected))
    }

    /// Whether the `n`th token from here is the unquoted word `expected`.
    pub(super) fn is_word(&self, n: usize, expected: &str) -> bool {
        self.word(n).is_some_and(|w| w.eq_ignore_ascii_case(expected))
    }

    /// Whether the statement ends here.
    pub(super) fn is_end(&self) -> bool {
        self.ends_at(0)
    }

    /// Whether the statement ends before the `n`th token from here.
    pub(super) fn ends_at(&self, n: usize) -> bool {
        matches!(self.peek(n).token, Token::EOF | Token::SemiColon)
    }

    /// Whether the whole text ends here.
    pub(super) fn is_end_of_text(&self) -> bool {
        self.peek(0).token == Token::EOF
    }

    // Stepping.

    pub(super) fn skip(&mut self, tokens: usize) {
        for _ in 0..tokens {
            self.inner.parser.advance_token();
        }
    }

    /// Takes `phrase` if all of it comes next.
    pub(super) fn eat(&mut self, phrase: &str) -> bool {
        let found = self.is_at(phrase);
        if found {
            self.skip(phrase.split(' ').count());
        }
        found
    }

    /// Takes `token` if it comes next.
    pub(super) fn eat_token(&mut self, token: &Token) -> bool {
        self.inner.parser.consume_token(token)
    }

    /// Takes `phrase`.
    pub(super) fn expect(&mut self, phrase: &str) -> Result<()> {
        let words: Vec<&str> = phrase.split(' ').collect();
        match words.iter().enumerate().position(|(i, expected)| !self.is_word(i, expected)) {
            None => {
                self.skip(words.len());
                Ok(())
            }
            Some(i) => {
                self.skip(i);
                Err(self.unexpected_word(&words[i..].join(" "), &words[i..=i]))
            }
        }
    }

    /// Takes `token`, which is written as `text`.
    pub(super) fn expect_token(&mut self, token: &Token, text: &str) -> Result<()> {
        match self.eat_token(token) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{text}`"))),
        }
    }

    /// Takes the one of `options` that comes next; of two that do, the longer. `before` is what the phrases follow, for
    /// messages.
    pub(super) fn choose<T: Copy>(&mut self, before: &str, options: &[(&str, T)]) -> Result<T> {
        let best = options.iter().filter(|(phrase, _)| self.is_at(phrase)).max_by_key(|(phrase, _)| phrase.len());
        match best {
            Some((phrase, choice)) => {
                self.skip(phrase.split(' ').count());
                Ok(*choice)
            }
            None => Err(self.no_choice(before, &options.iter().map(|(phrase, _)| *phrase).collect::<Vec<_>>())),
        }
    }

    /// The error for `choose`: it lies where the phrase that goes furthest breaks off.
    pub(super) fn no_choice(&self, before: &str, phrases: &[&str]) -> Error {
        let matched = |phrase: &str| phrase.split(' ').enumerate().take_while(|(i, w)| self.is_word(*i, w)).count();
        let reached = phrases.iter().map(|p| matched(p)).max().unwrap_or(0);
        let open: Vec<&str> = phrases.iter().copied().filter(|p| matched(p) == reached).collect();
        let tails: Vec<String> =
            open.iter().map(|p| p.split(' ').skip(reached).collect::<Vec<_>>().join(" ")).collect();
        let found = self.peek(reached);
        let error = diagnostics::unexpected(&list(&tails, "or"), found).at(self.position_at(reached));
        let hint = word(found).and_then(|found| {
            let next: Vec<&str> = tails.iter().filter_map(|t| t.split(' ').next()).collect();
            let near = nearest(found, &next);
            let phrase = match near {
                Some(near) => open.iter().find(|p| p.split(' ').nth(reached) == Some(near)),
                // `EMIT WINDOW CLOSE`: a word in front was left out.
                None => open.iter().find(|p| p.split(' ').any(|w| w.eq_ignore_ascii_case(found))),
            }?;
            Some(format!("did you mean {}?", [before, phrase].join(" ").trim()))
        });
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }

    // Errors.

    /// The error "expected `expected`, found the next token".
    pub(super) fn unexpected(&self, expected: &str) -> Error {
        diagnostics::unexpected(expected, self.peek(0)).at(self.position())
    }

    /// As [`Cursor::unexpected`], with a hint if the word found is nearly one of `words`.
    pub(super) fn unexpected_word(&self, expected: &str, words: &[&str]) -> Error {
        let error = self.unexpected(expected);
        match self.word(0).and_then(|found| nearest(found, words)) {
            Some(near) => error.with_hint(format!("did you mean {near}?")),
            None => error,
        }
    }

    /// The error for what follows a whole query and should not; see [`diagnostics::stray`].
    pub(super) fn stray(&self, expected: &str) -> Error {
        diagnostics::stray(expected, self.script, self.position())
    }

    // Reading.

    /// A name of one part, folded to lower case unless quoted. `what` is "a column's name" or the like.
    pub(super) fn name(&mut self, what: &str) -> Result<Spanned<String>> {
        let position = self.position();
        let name = self.ident(what)?;
        if self.peek(0).token == Token::Period {
            return Err(Error::unsupported("names of sources, views and columns have one part")
                .at(self.position())
                .with_hint("quote the name if it contains a dot"));
        }
        Ok(Spanned { node: fold(name), position })
    }

    /// As [`Cursor::name`], for something that exists: if the name is missing, a shell may have taken it.
    pub(super) fn existing_name(&mut self, what: &str) -> Result<Spanned<String>> {
        match (self.is_end(), &self.peek(0).token) {
            (true, _) => Err(self.unexpected(what).with_hint(diagnostics::EMPTY_NAME)),
            (_, Token::Placeholder(name)) => {
                Err(self.unexpected(what).with_hint(format!("put the view's name before it: my_view{name}")))
            }
            _ => self.name(what),
        }
    }

    /// An identifier of any kind, quoted or not.
    pub(super) fn ident(&mut self, what: &str) -> Result<ast::Ident> {
        let token = self.peek(0).clone();
        match token.token {
            Token::Word(w) => {
                self.skip(1);
                Ok(w.into_ident(token.span))
            }
            _ => Err(self.unexpected(what)),
        }
    }

    /// `(a, b, …)`, at least one name.
    pub(super) fn names_in_parentheses(&mut self, what: &str) -> Result<Vec<Spanned<String>>> {
        self.expect_token(&Token::LParen, "(")?;
        let mut names = vec![self.name(what)?];
        while self.eat_token(&Token::Comma) {
            names.push(self.name(what)?);
        }
        self.expect_token(&Token::RParen, ")")?;
        Ok(names)
    }

    /// A string literal.
    pub(super) fn string(&mut self, what: &str) -> Result<Spanned<String>> {
        let position = self.position();
        match &self.peek(0).token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => {
                let node = text.clone();
                self.skip(1);
                Ok(Spanned { node, position })
            }
            _ => Err(self.unexpected(what)),
        }
    }

    /// A whole number without sign.
    pub(super) fn unsigned<N: std::str::FromStr>(&mut self, what: &str) -> Result<N> {
        let Token::Number(digits, false) = &self.peek(0).token else { return Err(self.unexpected(what)) };
        let number = digits.parse().map_err(|_| {
            Error::invalid(format!("expected {what}, found `{digits}`, which is out of range")).at(self.position())
        })?;
        self.skip(1);
        Ok(number)
    }

    /// `INTERVAL …`.
    pub(super) fn interval(&mut self) -> Result<Spanned<Interval>> {
        let position = self.position();
        if !self.eat("INTERVAL") {
            return Err(self.unexpected("INTERVAL").with_hint(HINT));
        }
        let is_value = matches!(
            self.peek(0).token,
            Token::SingleQuotedString(_)
                | Token::EscapedStringLiteral(_)
                | Token::Number(..)
                | Token::Minus
                | Token::Plus
        );
        if !is_value {
            return Err(self.unexpected("a length in quotes").with_hint(HINT));
        }
        let expr = self.sqlparser(Parser::parse_interval)?;
        if matches!(self.peek(0).token, Token::Number(..)) {
            return Err(self
                .unexpected("the end of the interval")
                .with_hint("put a length of several units in quotes: INTERVAL '1 hour 30 minutes'"));
        }
        let node = interval_from_expr(&expr).map_err(|e| e.at(position))?;
        Ok(Spanned { node, position })
    }

    /// An `INTERVAL` that is not negative; `what` it limits is for the message.
    pub(super) fn non_negative_interval(&mut self, what: &str) -> Result<Spanned<Interval>> {
        let interval = self.interval()?;
        match interval.node.is_not_negative() {
            true => Ok(interval),
            false => {
                Err(Error::invalid(format!("{what} must not be negative, is `{}`", interval.node))
                    .at(interval.position))
            }
        }
    }

    /// An expression.
    pub(super) fn expr(&mut self) -> Result<Spanned<ast::Expr>> {
        let position = self.position();
        let node = self.sqlparser(Parser::parse_expr)?;
        Ok(Spanned { node, position })
    }

    /// A query, and its text letter for letter.
    pub(super) fn query(&mut self) -> Result<(Box<ast::Query>, &'t str)> {
        let start = self.here();
        let query = self.sqlparser(Parser::parse_query)?;
        diagnostics::refuse_ignored(&query)?;
        Ok((query, self.text_since(start)))
    }

    /// Whether a query starts here.
    pub(super) fn is_at_query(&self) -> bool {
        let starts = ["SELECT", "WITH", "VALUES", "FROM"];
        self.peek(0).token == Token::LParen || starts.iter().any(|w| self.is_at(w))
    }

    /// A type.
    pub(super) fn data_type(&mut self) -> Result<ast::DataType> {
        self.sqlparser(Parser::parse_data_type)
    }

    /// A whole statement, as DataFusion reads it.
    pub(super) fn datafusion_statement(&mut self) -> Result<DfStatement> {
        self.inner.parse_statement().map_err(|e| diagnostics::from_datafusion(e, self.script))
    }

    /// One rule of sqlparser's.
    fn sqlparser<T>(&mut self, rule: impl FnOnce(&mut Parser<'static>) -> Result<T, ParserError>) -> Result<T> {
        rule(&mut self.inner.parser).map_err(|e| diagnostics::from_sqlparser(&e, self.script))
    }

    // Text.

    /// The place of the next token, for [`Cursor::text_since`].
    pub(super) fn here(&self) -> Location {
        self.peek(0).span.start
    }

    /// The text from `start` to the end of the last token taken.
    pub(super) fn text_since(&self, start: Location) -> &'t str {
        let taken = (0..self.inner.parser.index()).rev().map(|i| self.inner.parser.token_at(i));
        match taken.into_iter().find(|t| !is_space(t)) {
            Some(last) => self.script.slice(start, last.span.end),
            None => "",
        }
    }
}

/// An identifier's text, in lower case unless it was quoted. As DataFusion folds names.
pub(super) fn fold(ident: ast::Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value,
        None => ident.value.to_ascii_lowercase(),
    }
}
