//! The prompt, and when an entered text is complete.

use std::borrow::Cow;

use reedline::{Prompt, PromptEditMode, PromptHistorySearch, PromptHistorySearchStatus, ValidationResult, Validator};

use super::commands::{Command, behind_statement};
use crate::sql;

/// `highwater> `, and dots of the same width on the lines that continue a statement.
pub struct SqlPrompt;

impl Prompt for SqlPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        "highwater".into()
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        "> ".into()
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        "       -> ".into()
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let failing = match search.status {
            PromptHistorySearchStatus::Passing => "",
            PromptHistorySearchStatus::Failing => "nothing like it: ",
        };
        format!(" ({failing}{}) ", search.term).into()
    }
}

fn is_command(text: &str) -> bool {
    Command::parse(text).is_some() || behind_statement(text).is_some()
}

/// Enter runs a statement that ends with a semicolon, and a command; in anything else it starts a new line.
pub struct SqlValidator;

impl Validator for SqlValidator {
    fn validate(&self, line: &str) -> ValidationResult {
        match line.trim().is_empty() || is_command(line) || sql::is_complete(line) {
            true => ValidationResult::Complete,
            false => ValidationResult::Incomplete,
        }
    }
}
