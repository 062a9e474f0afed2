//! A first look over a block of JSON lines, before arrow-json decodes it.
//!
//! arrow-json decodes values one after the other: it matches names letter for letter, skips fields it does not know
//! without a word, takes two objects on a line for two rows, and reads `2.5` into BIGINT as 2. The survey walks the block
//! once (strings with memchr, the rest byte by byte, no allocation per row) and finds what has to be done about that:
//! where lines begin and end, which are not one object, which keys need another spelling, how many fields nobody
//! declared, and whether integers are written with a point or an exponent. It judges no value.

use std::ops::Range;

use arrow::datatypes::{DataType, Fields};
use memchr::{memchr, memchr3};

/// What is declared at one place of a row, as far as the survey cares.
#[derive(Debug)]
pub(super) enum Node {
    /// STRUCT, and the row itself: its fields.
    Object(Vec<(Box<str>, Node)>),
    /// ARRAY of.
    List(Box<Node>),
    /// MAP to: keys are data here, not names.
    Map(Box<Node>),
    /// An integer type.
    Integer,
    /// Anything else, and fields nobody declared.
    Other,
}

/// Deepest nesting that is decoded. arrow-json spells out a value that does not fit by recursion, which costs stack.
const DEPTH_MAX: usize = 256;

static OTHER: Node = Node::Other;

impl Node {
    /// The row's own node, from the declared fields.
    pub(super) fn row(fields: impl IntoIterator<Item = (String, DataType)>) -> Self {
        Self::Object(fields.into_iter().map(|(name, t)| (name.into_boxed_str(), Self::of(&t))).collect())
    }

    fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Struct(fields) => Self::object(fields),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                Self::List(Box::new(Self::of(item.data_type())))
            }
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 => Self::Map(Box::new(Self::of(pair[1].data_type()))),
                _ => Self::Other,
            },
            t if t.is_integer() => Self::Integer,
            _ => Self::Other,
        }
    }

    fn object(fields: &Fields) -> Self {
        Self::row(fields.iter().map(|f| (f.name().clone(), f.data_type().clone())))
    }
}

/// What a block holds.
#[derive(Debug, Default)]
pub(super) struct Survey<'n> {
    /// Each line that is not blank, without its line end.
    pub lines: Vec<Range<usize>>,
    /// Indices into `lines` of those that are not exactly one object, or nested too deep, ascending.
    pub misshapen: Vec<usize>,
    /// Keys to be spelled as declared, ascending.
    pub renames: Vec<(Range<usize>, &'n str)>,
    /// Fields nobody declared.
    pub ignored_fields: u64,
    /// Whether a declared integer is written with a point or an exponent.
    pub fractional_integers: bool,
}

/// Looks over `bytes`: whole lines, the last one perhaps without its line end.
pub(super) fn survey<'n>(bytes: &[u8], row: &'n Node) -> Survey<'n> {
    let mut walk = Walk { bytes, row, at: 0, frames: Vec::new(), found: Survey::default() };
    while walk.at < bytes.len() {
        walk.line();
    }
    walk.found
}

struct Frame<'n> {
    node: &'n Node,
    object: bool,
    expects_key: bool,
    /// Index of the field expected next: rows mostly repeat the order of the one before.
    guess: usize,
}

struct Walk<'a, 'n> {
    bytes: &'a [u8],
    row: &'n Node,
    at: usize,
    frames: Vec<Frame<'n>>,
    found: Survey<'n>,
}

impl<'n> Walk<'_, 'n> {
    fn line(&mut self) {
        while self.bytes.get(self.at).is_some_and(|b| matches!(b, b' ' | b'\t' | b'\r')) {
            self.at += 1;
        }
        let start = self.at;
        if self.bytes.get(start).is_none_or(|b| *b == b'\n') {
            self.at += 1;
            return;
        }
        let one_object = self.object_and_line_end();
        if !one_object {
            self.at = memchr(b'\n', &self.bytes[self.at..]).map_or(self.bytes.len(), |i| self.at + i);
            self.found.misshapen.push(self.found.lines.len());
        }
        let mut end = self.at;
        while end > start && matches!(self.bytes[end - 1], b' ' | b'\t' | b'\r') {
            end -= 1;
        }
        self.found.lines.push(start..end);
        self.at += 1;
    }

    /// Walks one object up to the line's end. False as soon as the line cannot be exactly one object.
    fn object_and_line_end(&mut self) -> bool {
        self.frames.clear();
        let mut node = self.row;
        let mut objects = 0;
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => match self.string() {
                    Some(text) => node = self.key(text).unwrap_or(node),
                    None => return false,
                },
                b'{' | b'[' => {
                    if self.frames.is_empty() {
                        objects += 1;
                        if *byte == b'[' || objects > 1 {
                            return false;
                        }
                    }
                    if self.frames.len() == DEPTH_MAX {
                        return false;
                    }
                    node = self.enter(node, *byte == b'{');
                }
                b'}' | b']' => match self.frames.pop() {
                    Some(frame) if frame.object == (*byte == b'}') => {}
                    _ => return false,
                },
                b',' => node = self.next_value(node),
                b'-' | b'0'..=b'9' if matches!(node, Node::Integer) => {
                    self.integer();
                    continue;
                }
                b'\n' => break,
                b' ' | b'\t' | b'\r' => {}
                _ if self.frames.is_empty() => return false,
                _ => {}
            }
            self.at += 1;
        }
        objects == 1 && self.frames.is_empty()
    }

    /// The string that begins here, without quotes; leaves `at` on its closing quote. None if the line ends first.
    fn string(&mut self) -> Option<Range<usize>> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            at += memchr3(b'"', b'\\', b'\n', self.bytes.get(at..)?)?;
            match self.bytes[at] {
                b'"' => break,
                b'\\' if self.bytes.get(at + 1).is_some_and(|b| *b != b'\n') => at += 2,
                _ => return None,
            }
        }
        self.at = at;
        Some(start..at)
    }

    /// If a key is expected, the node of the value that `text` names.
    fn key(&mut self, text: Range<usize>) -> Option<&'n Node> {
        let frame = self.frames.last_mut()?;
        if !(frame.object && frame.expects_key) {
            return None;
        }
        frame.expects_key = false;
        let fields = match frame.node {
            Node::Object(fields) => fields,
            Node::Map(value) => return Some(value),
            _ => return Some(&OTHER),
        };
        let key = &self.bytes[text.clone()];
        let guess = frame.guess;
        if let Some((name, node)) = fields.get(guess)
            && name.as_bytes() == key
        {
            frame.guess += 1;
            return Some(node);
        }
        Some(self.find(fields, text))
    }

    fn find(&mut self, fields: &'n [(Box<str>, Node)], text: Range<usize>) -> &'n Node {
        let raw = &self.bytes[text.clone()];
        let plain = plain_text(raw);
        let exact = fields.iter().position(|(name, _)| **name == *plain);
        let folded = || fields.iter().position(|(name, _)| same_but_for_case(name, &plain));
        let Some(index) = exact.or_else(folded) else {
            self.found.ignored_fields += 1;
            return &OTHER;
        };
        if exact.is_none() {
            self.found.renames.push((text, &fields[index].0));
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.guess = index + 1;
        }
        &fields[index].1
    }

    fn enter(&mut self, node: &'n Node, object: bool) -> &'n Node {
        self.frames.push(Frame { node, object, expects_key: object, guess: 0 });
        match node {
            Node::List(item) if !object => item,
            _ => &OTHER,
        }
    }

    /// After a comma: a key in an object, another item in a list.
    fn next_value(&mut self, node: &'n Node) -> &'n Node {
        match self.frames.last_mut() {
            Some(frame) if frame.object => {
                frame.expects_key = true;
                node
            }
            Some(Frame { node: Node::List(item), .. }) => item,
            _ => &OTHER,
        }
    }

    fn integer(&mut self) {
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b'0'..=b'9' | b'-' | b'+' => {}
                b'.' | b'e' | b'E' => self.found.fractional_integers = true,
                _ => return,
            }
            self.at += 1;
        }
    }
}

fn same_but_for_case(a: &str, b: &str) -> bool {
    if a.is_ascii() && b.is_ascii() {
        return a.eq_ignore_ascii_case(b);
    }
    a.to_lowercase() == b.to_lowercase()
}

/// A key without its escapes.
fn plain_text(raw: &[u8]) -> std::borrow::Cow<'_, str> {
    if memchr(b'\\', raw).is_some() {
        let quoted = [b"\"", raw, b"\""].concat();
        if let Ok(text) = serde_json::from_slice::<String>(&quoted) {
            return text.into();
        }
    }
    String::from_utf8_lossy(raw)
}

/// `bytes` with its keys renamed, and `lines` moved accordingly.
pub(super) fn respell(bytes: &[u8], found: &Survey<'_>) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut out = Vec::with_capacity(bytes.len() + 16);
    let mut lines = Vec::with_capacity(found.lines.len());
    let mut renames = found.renames.iter().peekable();
    for line in &found.lines {
        let start = out.len();
        let mut from = line.start;
        while let Some((key, name)) = renames.next_if(|(key, _)| key.start < line.end) {
            out.extend_from_slice(&bytes[from..key.start]);
            let quoted = serde_json::Value::from(*name).to_string();
            out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
            from = key.end;
        }
        out.extend_from_slice(&bytes[from..line.end]);
        lines.push(start..out.len());
        out.push(b'\n');
    }
    (out, lines)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    fn row() -> Node {
        let inner = DataType::Struct(vec![Field::new("n", DataType::Int64, true)].into());
        Node::row([
            ("ts".to_string(), DataType::Int64),
            ("name".to_string(), DataType::Utf8),
            ("inner".to_string(), inner),
            ("list".to_string(), DataType::List(Field::new("item", DataType::Int64, true).into())),
        ])
    }

    fn misshapen(text: &str) -> Vec<usize> {
        survey(text.as_bytes(), &row()).misshapen
    }

    #[test]
    fn lines_are_found_without_their_ends_and_blank_ones_are_none() {
        let text = "{\"ts\":1}\r\n\n  \n {\"ts\":2} \n{\"ts\":3}";
        let row = row();
        let found = survey(text.as_bytes(), &row);
        let lines: Vec<&str> = found.lines.iter().map(|l| &text[l.clone()]).collect();
        assert_eq!(lines, ["{\"ts\":1}", "{\"ts\":2}", "{\"ts\":3}"]);
        assert!(found.misshapen.is_empty());
    }

    #[test]
    fn a_line_that_is_not_one_object_is_misshapen() {
        assert_eq!(misshapen("{\"ts\":1,\n\"name\":2}\n{}\n"), [0, 1]);
        assert_eq!(misshapen("{}{}\n{}\n"), [0]);
        assert_eq!(misshapen("[{}]\nnull\n1\n\"a\"\n{\"name\":\"un\n{\"name\":\"}\"}\n{]}"), [0, 1, 2, 3, 4, 6]);
        assert_eq!(misshapen("{\"name\":\"a\\\"}{\"}\n{\"name\":\"\\"), [1]);
    }

    #[test]
    fn a_line_nested_too_deep_is_misshapen() {
        let nested = |depth| format!("{{\"name\":{}{}}}\n", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(misshapen(&(nested(DEPTH_MAX - 1) + &nested(DEPTH_MAX) + &nested(100_000))), [1, 2]);
    }

    #[test]
    fn keys_in_another_case_are_respelled_also_inside_structs() {
        let text = r#"{"TS":1,"Inner":{"N":2},"list":[{"N":3}],"name":"TS"}"#;
        let row = row();
        let found = survey(text.as_bytes(), &row);
        let (bytes, lines) = respell(text.as_bytes(), &found);
        let expected = r#"{"ts":1,"inner":{"n":2},"list":[{"N":3}],"name":"TS"}"#;
        assert_eq!(std::str::from_utf8(&bytes[lines[0].clone()]).unwrap(), expected);
    }

    #[test]
    fn undeclared_fields_are_counted_once_each() {
        let text = r#"{"ts":1,"x":{"y":{"z":1}},"inner":{"n":1,"m":2},"w":[{"v":1}]}"#;
        assert_eq!(survey(text.as_bytes(), &row()).ignored_fields, 3);
    }

    #[test]
    fn fractions_are_seen_in_declared_integers_only() {
        for (text, expected) in [
            (r#"{"ts":1,"name":2.5}"#, false),
            (r#"{"ts":2.5}"#, true),
            (r#"{"inner":{"n":1e3}}"#, true),
            (r#"{"list":[1,2,3.0]}"#, true),
            (r#"{"list":[1,2,3],"other":[1.5],"inner":{"n":7},"more":1.5}"#, false),
        ] {
            assert_eq!(survey(text.as_bytes(), &row()).fractional_integers, expected, "{text}");
        }
    }
}
