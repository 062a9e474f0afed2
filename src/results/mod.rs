//! Versioned results on Delta Lake.
