//! The binary in a terminal: the prompt, many lines, completion, Ctrl-C and Ctrl-D.
//!
//! `script` (util-linux) gives the binary a terminal of its own; [`Terminal`] types into it and reads the screen's bytes.
//! It answers the one question that a line editor asks a terminal, where the cursor is.
//!
//! Catches: a prompt that does not come, a statement that runs too early, a Ctrl-C that kills. Cannot see: where on the
//! screen something stands.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A question nobody answered for this long fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

const ENTER: &str = "\r";
const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";

struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Receiver<Vec<u8>>,
    /// What has been shown and not yet been waited for.
    unread: String,
    /// Everything that has been shown, for the message of a failing test.
    all: String,
    _home: tempfile::TempDir,
}

impl Terminal {
    fn open(arguments: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let binary = env!("CARGO_BIN_EXE_highwater");
        let command = format!("stty cols 120 rows 40; exec '{binary}' --color never {arguments}");
        let mut child = Command::new("script")
            .args(["-q", "-e", "-f", "-c", &command, "/dev/null"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("HOME", home.path())
            .env("XDG_STATE_HOME", home.path())
            .env("TERM", "xterm")
            .env("PAGER", "")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script (util-linux) is installed");
        let keys = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let (send, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                if send.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, screen, unread: String::new(), all: String::new(), _home: home }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn enter(&mut self, line: &str) {
        self.press(line);
        self.press(ENTER);
    }

    /// Waits until `text` is shown, and forgets what was shown before it.
    fn expect(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.unread.find(text) {
                let before = self.unread[..at].to_string();
                self.unread.drain(..at + text.len());
                return before;
            }
            let Ok(bytes) = self.screen.recv_timeout(PATIENCE) else {
                panic!("'{text}' was not shown; the screen had:\n{}", self.all);
            };
            let shown = String::from_utf8_lossy(&bytes);
            for _ in shown.matches("\u{1b}[6n") {
                self.press("\u{1b}[1;1R");
            }
            self.unread.push_str(&shown);
            self.all.push_str(&shown);
        }
    }

    fn leave(mut self) -> i32 {
        drop(self.keys);
        self.child.wait().unwrap().code().unwrap()
    }
}

#[test]
fn a_statement_runs_when_its_semicolon_comes() {
    let mut terminal = Terminal::open("--in-memory");
    terminal.expect("highwater> ");
    terminal.enter("SELECT 40 + 2");
    terminal.expect("-> ");
    terminal.enter("AS answer;");
    terminal.expect("|     42 |");
    terminal.expect("1 row in ");
    terminal.expect("highwater> ");
    terminal.enter("\\q");
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn an_error_keeps_the_prompt() {
    let mut terminal = Terminal::open("--in-memory");
    terminal.expect("highwater> ");
    terminal.enter("SELECT * FROM nowhere;");
    terminal.expect("error: ");
    terminal.expect("highwater> ");
    terminal.enter("\\nope");
    terminal.expect("no command \\nope");
    terminal.expect("highwater> ");
    terminal.press(CTRL_D);
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn ctrl_c_stops_a_query_and_not_the_program() {
    let mut terminal = Terminal::open("--in-memory --format ndjson");
    terminal.expect("highwater> ");
    // The prompt echoes the statement; only the rows have a brace.
    terminal.enter("SELECT * FROM generate_series(1, 1000000000000);");
    terminal.expect("{\"value\":1}");
    terminal.press(CTRL_C);
    terminal.expect("stopped");
    terminal.expect("highwater> ");
    terminal.enter("SELECT 'still' || ' here' AS a;");
    terminal.expect("{\"a\":\"still here\"}");
    terminal.expect("highwater> ");
    terminal.press(CTRL_D);
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn ctrl_c_stops_a_query_that_keeps_every_thread_busy() {
    let mut terminal = Terminal::open("--in-memory --workers 2");
    terminal.expect("highwater> ");
    terminal
        .enter("SELECT max(a.value + b.value) FROM generate_series(1, 100000) a, generate_series(1, 1000000000000) b;");
    std::thread::sleep(Duration::from_secs(1));
    terminal.press(CTRL_C);
    let shown = terminal.expect("stopped after ");
    assert!(!shown.contains("+---"), "it has no answer: {shown}");
    terminal.expect("highwater> ");
    terminal.enter("SELECT 40 + 2 AS answer;");
    terminal.expect("|     42 |");
    terminal.expect("highwater> ");
    terminal.press(CTRL_D);
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn what_h_start_shows_can_be_pasted_and_corrects_a_number() {
    let mut terminal = Terminal::open("--in-memory");
    terminal.expect("highwater> ");
    terminal.enter("\\h START");
    terminal.expect("CREATE SOURCE");
    let example = terminal.expect("ORDER BY _version;").replace("\r\n", "\n");
    terminal.expect("highwater> ");
    terminal.press(&format!("\u{1b}[200~CREATE SOURCE{example}ORDER BY _version;\u{1b}[201~"));
    terminal.press(ENTER);
    terminal.expect("| 2024-01-15T10:00:00Z | /a   | 1 |");
    terminal.expect("| 2024-01-15T10:00:00Z | /a   | 1 |        1 | initial   |");
    terminal.expect("| 2024-01-15T10:00:00Z | /a   | 2 |        2 | late_data |");
    terminal.expect("highwater> ");
    terminal.press(CTRL_D);
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn a_command_in_the_middle_of_a_statement_leaves_it_as_it_is() {
    let mut terminal = Terminal::open("--in-memory");
    terminal.expect("highwater> ");
    terminal.enter("SELECT 40");
    terminal.expect("-> ");
    terminal.enter("\\timing off");
    terminal.expect("timing is off");
    terminal.expect("-> ");
    terminal.enter("+ 2 AS answer;");
    terminal.expect("|     42 |");
    terminal.press(CTRL_D);
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn tab_offers_windows_where_a_relation_stands_and_says_nothing_where_nothing_fits() {
    let mut terminal = Terminal::open("--in-memory");
    terminal.expect("highwater> ");
    terminal.press("select * from tu\t");
    terminal.expect("tumble(table");
    terminal.press("zzz\t");
    terminal.press(CTRL_C);
    let shown = terminal.expect("highwater> ");
    assert!(!shown.contains("NO RECORDS"), "{shown}");
    terminal.press(CTRL_D);
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn help_explains_clauses_with_an_example() {
    let mut terminal = Terminal::open("--in-memory");
    terminal.expect("\\h START");
    terminal.expect("highwater> ");
    terminal.enter("\\h allowed lateness");
    terminal.expect("How long after it closes");
    terminal.expect("ALLOWED LATENESS INTERVAL '1 hour';");
    terminal.expect("highwater> ");
    terminal.enter("\\?");
    terminal.expect("\\watch");
    terminal.expect("highwater> ");
    terminal.press(CTRL_D);
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn tab_completes_functions_and_keywords() {
    let mut terminal = Terminal::open("--in-memory");
    terminal.expect("highwater> ");
    terminal.press("SELECT regr_interc\t");
    terminal.enter("2, 1) AS n;");
    terminal.expect("|    n |");
    terminal.expect("highwater> ");
    terminal.press(CTRL_D);
    assert_eq!(terminal.leave(), 0);
}
