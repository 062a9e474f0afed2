//! A data dir on an object store, through the S3 protocol: the real binary against a small server of this file.
//!
//! Catches: conditional creates that are not, a request whose answer was lost and is sent again, a listing in pages, a
//! commit made twice, errors of the server that are taken for an answer. Cannot see: what a real service does beyond the
//! protocol, such as its throttling. The server keeps objects in memory and knows what `object_store` asks of it: PUT (with
//! `If-None-Match: *`), GET (with ranges), HEAD, DELETE, lists and deletes of many.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It is refused with status 500.
    Refused,
    /// It is done, and answered with status 500.
    AnswerLost,
    /// It is done, and the connection ends without an answer.
    Hangup,
}

#[derive(Default)]
struct Bucket {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    requests: AtomicUsize,
    /// The fault, and how many requests there are from one to the next.
    fault: Mutex<Option<(Fault, usize)>>,
}

struct Request {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

struct Answer {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    fn error(status: &'static str, code: &str) -> Self {
        Self::new(status, format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}</Message></Error>"))
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl Request {
    /// `None` at the end of the connection.
    fn read(from: &mut BufReader<TcpStream>) -> Option<Self> {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            from.read_line(&mut line).ok()?;
            match line.trim_end().split_once(':') {
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
                None => break,
            }
        }
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let query = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let mut request = Self { method, path: decoded(path), query, headers, body: Vec::new() };
        let length = request.header("content-length").map_or(0, |n| n.parse().expect("a length is a number"));
        request.body.resize(length, 0);
        from.read_exact(&mut request.body).ok()?;
        Some(request)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn decoded(path: &str) -> String {
    // A `+` in a path is itself.
    let escaped = path.replace('+', "%2B");
    url::form_urlencoded::parse(escaped.as_bytes()).map(|(name, _)| name.into_owned()).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn etag(bytes: &[u8]) -> String {
    format!("\"{:x}-{:x}\"", bytes.len(), crc32fast::hash(bytes))
}

impl Bucket {
    /// Serves on a port of its own until the test ends; returns the endpoint.
    fn serve() -> (Arc<Self>, String) {
        let bucket = Arc::new(Self::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let served = Arc::clone(&bucket);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let bucket = Arc::clone(&served);
                thread::spawn(move || bucket.talk(stream.unwrap()));
            }
        });
        (bucket, endpoint)
    }

    fn talk(&self, stream: TcpStream) {
        let mut to = stream.try_clone().unwrap();
        let mut from = BufReader::new(stream);
        while let Some(request) = Request::read(&mut from) {
            let n = self.requests.fetch_add(1, Ordering::SeqCst);
            let fault = self.fault.lock().unwrap().filter(|(_, every)| n % every == every - 1).map(|(fault, _)| fault);
            let answer = match fault {
                Some(Fault::Refused) => Answer::error("500 Internal Server Error", "InternalError"),
                Some(Fault::AnswerLost) => {
                    self.answer(&request);
                    Answer::error("500 Internal Server Error", "InternalError")
                }
                Some(Fault::Hangup) => {
                    self.answer(&request);
                    return;
                }
                None => self.answer(&request),
            };
            let mut head = format!("HTTP/1.1 {}\r\n", answer.status);
            for (name, value) in &answer.headers {
                head += &format!("{name}: {value}\r\n");
            }
            if !answer.headers.iter().any(|(name, _)| *name == "Content-Length") {
                head += &format!("Content-Length: {}\r\n", answer.body.len());
            }
            let sent = to.write_all(format!("{head}\r\n").as_bytes()).and_then(|()| to.write_all(&answer.body));
            if sent.is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let mut objects = self.objects.lock().unwrap();
        let path = request.path.strip_prefix("/lake").expect("requests are for the bucket");
        let key = path.trim_start_matches('/').to_owned();
        match request.method.as_str() {
            "GET" if key.is_empty() => list(&objects, request),
            "PUT" if request.header("if-none-match") == Some("*") && objects.contains_key(&key) => {
                Answer::error("412 Precondition Failed", "PreconditionFailed")
            }
            "PUT" => {
                let tag = etag(&request.body);
                objects.insert(key, request.body.clone());
                Answer::new("200 OK", "").with("ETag", tag)
            }
            "GET" | "HEAD" => match objects.get(&key) {
                Some(bytes) => get(bytes, request),
                None => Answer::error("404 Not Found", "NoSuchKey"),
            },
            "DELETE" => {
                objects.remove(&key);
                Answer::new("204 No Content", "")
            }
            "POST" if request.parameter("delete").is_some() => {
                let text = String::from_utf8(request.body.clone()).unwrap();
                let keys = text.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap());
                let mut done = String::new();
                for key in keys {
                    objects.remove(key);
                    done += &format!("<Deleted><Key>{key}</Key></Deleted>");
                }
                Answer::new("200 OK", format!("<DeleteResult>{done}</DeleteResult>"))
            }
            other => panic!("the server does not know {other} {}?{:?}", request.path, request.query),
        }
    }
}

fn get(bytes: &[u8], request: &Request) -> Answer {
    let range = request.header("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let (status, part, place) = match range {
        None => ("200 OK", bytes, None),
        Some((from, to)) => {
            let (start, end) = match (from.parse::<usize>(), to.parse::<usize>()) {
                (Ok(from), Ok(to)) => (from, bytes.len().min(to + 1)),
                (Ok(from), Err(_)) => (from, bytes.len()),
                (Err(_), last) => (bytes.len().saturating_sub(last.unwrap()), bytes.len()),
            };
            if start >= end {
                return Answer::error("416 Range Not Satisfiable", "InvalidRange");
            }
            let place = format!("bytes {start}-{}/{}", end - 1, bytes.len());
            ("206 Partial Content", &bytes[start..end], Some(place))
        }
    };
    let body = if request.method == "HEAD" { Vec::new() } else { part.to_vec() };
    let answer = Answer::new(status, body)
        .with("ETag", etag(bytes))
        .with("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        .with("Content-Length", part.len().to_string());
    match place {
        Some(place) => answer.with("Content-Range", place),
        None => answer,
    }
}

/// A page of at most seven entries, so that listings have pages.
fn list(objects: &BTreeMap<String, Vec<u8>>, request: &Request) -> Answer {
    const PAGE: usize = 7;
    let prefix = request.parameter("prefix").unwrap_or_default();
    let delimiter = request.parameter("delimiter");
    let after = request.parameter("continuation-token").or(request.parameter("start-after")).unwrap_or_default();
    let mut entries: BTreeMap<String, Option<&Vec<u8>>> = BTreeMap::new();
    for (key, bytes) in objects.iter().filter(|(key, _)| key.starts_with(prefix)) {
        let folder = delimiter.and_then(|d| key[prefix.len()..].find(d).map(|at| &key[..prefix.len() + at + d.len()]));
        match folder {
            Some(folder) => entries.insert(folder.to_owned(), None),
            None => entries.insert(key.clone(), Some(bytes)),
        };
    }
    let mut rest = entries.into_iter().filter(|(name, _)| name.as_str() > after);
    let page: Vec<_> = rest.by_ref().take(PAGE).collect();
    let more = rest.next().is_some();
    let mut text = format!("<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>{more}</IsTruncated>");
    if let Some((last, _)) = page.last().filter(|_| more) {
        text += &format!("<NextContinuationToken>{}</NextContinuationToken>", escaped(last));
    }
    for (name, bytes) in &page {
        let name = escaped(name);
        text += &match bytes {
            None => format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"),
            Some(bytes) => format!(
                "<Contents><Key>{name}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>{}</ETag>\
                 <Size>{}</Size></Contents>",
                escaped(&etag(bytes)),
                bytes.len()
            ),
        };
    }
    Answer::new("200 OK", text + "</ListBucketResult>").with("Content-Type", "application/xml")
}

const DECLARE: &str = "
    CREATE SOURCE flights (carrier VARCHAR, origin VARCHAR, scheduled TIMESTAMP, status VARCHAR, delay_min BIGINT,
      WATERMARK FOR scheduled AS scheduled - INTERVAL '15 minutes')
    WITH (connector = 'file', path = 'sql/data/flights-2013-01-01_03.jsonl', format = 'json');
    CREATE MATERIALIZED VIEW hourly AS
    SELECT window_start, origin, count(*) AS n, sum(delay_min) AS d
    FROM TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1 hour') WHERE status = 'departed'
    GROUP BY window_start, window_end, origin ALLOWED LATENESS INTERVAL '1 hour';";

const QUESTIONS: [&str; 4] = [
    "SELECT window_start, origin, n, d, _event_count, _version FROM hourly ORDER BY 1, 2",
    "SELECT _offset, _window_start, _reason FROM hourly$late ORDER BY 1",
    "SHOW LATENESS FOR hourly",
    "SELECT window_start, origin, n, d, _is_final FROM hourly$final ORDER BY 1, 2",
];

fn highwater(endpoint: &str, data_dir: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command
        .args(["--quiet", "--format", "csv", "--epoch-interval", "10ms", "--data-dir", data_dir])
        .envs([("AWS_ENDPOINT", endpoint), ("AWS_ALLOW_HTTP", "true"), ("AWS_REGION", "us-east-1")])
        .envs([("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null());
    command
}

fn output(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn script(folder: &tempfile::TempDir) -> std::path::PathBuf {
    let path = folder.path().join("declare.sql");
    std::fs::write(&path, DECLARE).unwrap();
    path
}

/// What the questions give once the view is computed and finalized.
fn answers(endpoint: &str, data_dir: &str) -> Vec<String> {
    let mut finalize = highwater(endpoint, data_dir);
    finalize.args(["-c", "FINALIZE hourly FROM '2013-01-01T00:00:00Z' TO '2013-01-04T00:00:00Z'"]);
    output(finalize);
    let ask = |question: &&str| {
        let mut command = highwater(endpoint, data_dir);
        command.args(["-c", question]);
        output(command)
    };
    QUESTIONS.iter().map(ask).collect()
}

/// The answers of a data dir on a local disk.
fn expected() -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data").display().to_string();
    let mut command = highwater("", &data_dir);
    command.arg("-f").arg(script(&folder));
    output(command);
    answers("", &data_dir)
}

#[test]
fn a_data_dir_on_s3_holds_what_a_local_one_holds() {
    let expected = expected();
    let folder = tempfile::tempdir().unwrap();
    for fault in [None, Some((Fault::Refused, 9)), Some((Fault::AnswerLost, 9)), Some((Fault::Hangup, 11))] {
        let (bucket, endpoint) = Bucket::serve();
        *bucket.fault.lock().unwrap() = fault;
        let mut command = highwater(&endpoint, "s3://lake/some where/hw");
        command.arg("-f").arg(script(&folder));
        output(command);
        assert_eq!(answers(&endpoint, "s3://lake/some where/hw"), expected, "{fault:?}");
        if let Some((_, every)) = fault {
            assert!(bucket.requests.load(Ordering::SeqCst) > 4 * every, "{fault:?}: too few requests to tell");
        }
    }
}

#[test]
fn kills_on_s3_change_nothing() {
    let expected = expected();
    let folder = tempfile::tempdir().unwrap();
    let (bucket, endpoint) = Bucket::serve();
    *bucket.fault.lock().unwrap() = Some((Fault::AnswerLost, 11));
    let mut random = SmallRng::seed_from_u64(7);
    for _ in 0..8 {
        let mut command = highwater(&endpoint, "s3://lake/hw");
        command.arg("-f").arg(script(&folder)).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        thread::sleep(Duration::from_millis(random.random_range(20..250)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut command = highwater(&endpoint, "s3://lake/hw");
    command.arg("-f").arg(script(&folder));
    output(command);
    // How many late versions there are depends on where epochs were cut; what they come to does not.
    let got = answers(&endpoint, "s3://lake/hw");
    let latest = |answers: &[String]| -> Vec<String> {
        answers[0].lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned()).collect()
    };
    assert_eq!(latest(&got), latest(&expected));
    assert_eq!(got[1..], expected[1..]);
}
