//! stub
use crate::{Analysis, Catalog, SearchPath};
use std::sync::Arc;
/// stub
#[derive(Default)]
pub struct Cache;
impl Cache {
    /// stub
    pub fn get(
        &mut self,
        text: &str,
        catalog: &Catalog,
        path: Option<&SearchPath>,
    ) -> Arc<Analysis> {
        Arc::new(crate::analyse(text, catalog, path))
    }
}
