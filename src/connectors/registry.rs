//! Which connector a name stands for.
//!
//! The registry maps the `connector` option to a factory. Embedders register their own under further names. It reads no
//! option but `connector` itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{FileSource, GeneratorSource, PushSource, Source, SourceDefinition, StdinSource};
use crate::error::{Error, Result, nearest};

/// Makes a source from its definition. It may look at files to learn their columns, and starts nothing.
pub type SourceFactory = Arc<dyn Fn(&SourceDefinition) -> Result<Arc<dyn Source>> + Send + Sync>;

/// Connector names and their factories.
#[derive(Clone)]
pub struct ConnectorRegistry {
    factories: BTreeMap<String, SourceFactory>,
}

impl fmt::Debug for ConnectorRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.factories.keys()).finish()
    }
}

impl Default for ConnectorRegistry {
    fn default() -> Self {
        Self::with_builtins()
    }
}

impl ConnectorRegistry {
    /// No connectors at all.
    pub fn empty() -> Self {
        Self { factories: BTreeMap::new() }
    }

    /// The built-in connectors.
    pub fn with_builtins() -> Self {
        let mut registry = Self::empty();
        for name in ["file", "filesystem"] {
            registry.register(name, |definition| Ok(Arc::new(FileSource::try_new(definition)?)));
        }
        for name in ["nexmark", "generator"] {
            registry.register(name, |definition| Ok(Arc::new(GeneratorSource::try_new(definition)?)));
        }
        registry.register("stdin", |definition| Ok(Arc::new(StdinSource::try_new(definition)?)));
        registry.register("push", PushSource::from_definition);
        registry
    }

    /// Adds a connector, or replaces the one of that name. Names are not case-sensitive.
    pub fn register<F>(&mut self, name: &str, factory: F)
    where
        F: Fn(&SourceDefinition) -> Result<Arc<dyn Source>> + Send + Sync + 'static,
    {
        self.factories.insert(name.to_lowercase(), Arc::new(factory));
    }

    /// The names registered, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
    }

    /// Makes the source that `definition` describes.
    ///
    /// # Errors
    /// `Invalid` for a missing or unknown connector, an unknown option or a bad value; what the factory says otherwise.
    pub fn create(&self, definition: &SourceDefinition) -> Result<Arc<dyn Source>> {
        let name = definition.option_reader().required(&["connector"])?.to_lowercase();
        match self.factories.get(&name) {
            Some(factory) => factory(definition),
            None => {
                let names: Vec<&str> = self.names().collect();
                let hint = match nearest(&name, &names) {
                    Some(near) => format!("did you mean '{near}'?"),
                    None => format!("connectors are {}", names.join(", ")),
                };
                Err(Error::invalid(format!("there is no connector '{name}'")).with_hint(hint))
            }
        }
    }
}
