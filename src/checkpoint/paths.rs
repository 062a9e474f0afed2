//! Where the files of a view lie.
//!
//! ```text
//! views/<view>/
//!   manifest/00000000000000000007.json     epoch 7
//!   index/00000000000000000064.json        all live files as of epoch 64
//!   state/00000000000000000007-1f3a….state the job's state as of epoch 7, see [`super::state_file`]
//!   results/  late/  windows/  runs/       Delta tables
//!   rejects/<source>/                      Delta tables
//! ```

use std::fmt::{self, Write as _};
use std::str::FromStr;

use object_store::path::Path;

/// One of the tables a view writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableId {
    /// Every version of every result.
    Results,
    /// Refused rows.
    Late,
    /// Window status.
    Windows,
    /// What batch runs have made of windows.
    Runs,
    /// Rejected rows of one source, as this view met them.
    Rejects(String),
}

impl TableId {
    /// Whether a row replaces the one before of its window, which then says nothing any more.
    pub fn holds_newest_rows(&self) -> bool {
        matches!(self, Self::Windows | Self::Runs)
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Results => f.write_str("results"),
            Self::Late => f.write_str("late"),
            Self::Windows => f.write_str("windows"),
            Self::Runs => f.write_str("runs"),
            Self::Rejects(source) => write!(f, "rejects/{source}"),
        }
    }
}

impl FromStr for TableId {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "results" => Ok(Self::Results),
            "late" => Ok(Self::Late),
            "windows" => Ok(Self::Windows),
            "runs" => Ok(Self::Runs),
            other => match other.strip_prefix("rejects/") {
                Some(source) => Ok(Self::Rejects(source.to_owned())),
                None => Err(format!("unknown table: name=`{other}`")),
            },
        }
    }
}

impl serde::Serialize for TableId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for TableId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The paths of one view, relative to the storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewPaths {
    root: Path,
}

impl ViewPaths {
    /// Paths of the view `name`.
    pub fn new(name: &str) -> Self {
        Self { root: Path::from_iter(["views", &folder_name(name)]) }
    }

    /// The view's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the manifests.
    pub fn manifests(&self) -> Path {
        self.root.clone().join("manifest")
    }

    /// The manifest of `epoch`.
    pub fn manifest(&self, epoch: u64) -> Path {
        self.manifests().join(numbered(epoch))
    }

    /// The folder of the indexes.
    pub fn indexes(&self) -> Path {
        self.root.clone().join("index")
    }

    /// The index as of `epoch`.
    pub fn index(&self, epoch: u64) -> Path {
        self.indexes().join(numbered(epoch))
    }

    /// The folder of the job's state.
    pub fn states(&self) -> Path {
        self.root.clone().join("state")
    }

    /// Name in that folder of the state that `writer` keeps with `epoch`: two writers at one epoch never share a name.
    pub fn state_name(epoch: u64, writer: &str) -> String {
        format!("{epoch:020}-{}.state", writer.get(..8).unwrap_or(writer))
    }

    /// The folder of a Delta table.
    pub fn table(&self, table: &TableId) -> Path {
        match table {
            TableId::Rejects(source) => self.root.clone().join("rejects").join(folder_name(source)),
            other => self.root.clone().join(other.to_string()),
        }
    }

    /// A data file of a table, from its path below the table's folder.
    pub fn file(&self, table: &TableId, path: &str) -> Path {
        let folder = self.table(table);
        let below = Path::from(path);
        folder.parts().chain(below.parts()).collect()
    }

    /// The epoch a manifest or index file is named after; `None` for files of other names.
    pub fn epoch_of(file: &Path) -> Option<u64> {
        let digits = file.filename()?.strip_suffix(".json")?;
        if digits.len() == 20 { digits.parse().ok() } else { None }
    }
}

/// `name` as one part of a path. Every byte but ASCII letters, digits, `_` and `-` is written `@` and two hexadecimal digits, so
/// that different names lie in different folders, none leads out of its parent, and whoever takes the path for a URL reads the
/// same.
fn folder_name(name: &str) -> String {
    name.bytes().fold(String::with_capacity(name.len()), |mut folder, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => folder.push(char::from(byte)),
            other => write!(folder, "@{other:02x}").expect("writing to a String does not fail"),
        }
        folder
    })
}

/// Twenty digits, so that names sort as numbers.
fn numbered(epoch: u64) -> String {
    format!("{epoch:020}.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_numbers_and_parse_back() {
        let paths = ViewPaths::new("hourly revenue/é");
        assert!(paths.manifest(9) < paths.manifest(10));
        assert_eq!(ViewPaths::epoch_of(&paths.manifest(10)), Some(10));
        assert_eq!(ViewPaths::epoch_of(&Path::from("manifest/10.json")), None);
        assert_eq!(paths.table(&TableId::Late).parts().count(), 3);
    }

    #[test]
    fn a_name_is_one_folder_whatever_it_holds() {
        let names = ["a b/../c", "..", ".", "", "a%20b", "a b", "a@20b", "é", "x".repeat(60).as_str()].map(folder_name);
        for (i, folder) in names.iter().enumerate() {
            assert_eq!(Path::parse(format!("views/v{folder}")).unwrap().parts().count(), 2);
            assert!(names[..i].iter().all(|other| other != folder), "{folder}");
        }
        assert_eq!(names[0], "a@20b@2f@2e@2e@2fc");
    }

    #[test]
    fn table_ids_parse_back() {
        for id in [TableId::Results, TableId::Late, TableId::Windows, TableId::Runs, TableId::Rejects("a/b".into())] {
            assert_eq!(id.to_string().parse::<TableId>(), Ok(id));
        }
        assert!("other".parse::<TableId>().is_err());
    }
}
