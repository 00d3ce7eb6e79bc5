//! The file that describes a system whose sites or objects are not all alike.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use hihooi_placement::model::{Object, Site, System, Writes};
use serde::Deserialize;

use crate::failure::{Failure, Result};

/// A model file is a few kilobytes; this bounds what a wrong path can do.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    write_overhead: f64,
    #[serde(default)]
    site: Vec<SiteModel>,
    #[serde(default)]
    object: Vec<ObjectModel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteModel {
    name: String,
    #[serde(default = "one")]
    capacity: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectModel {
    name: String,
    #[serde(default = "one")]
    share: f64,
    updates: f64,
    sites: Holders,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a list of site names, or \"all\"")]
enum Holders {
    All(All),
    Named(Vec<String>),
}

#[derive(Deserialize)]
enum All {
    #[serde(rename = "all")]
    All,
}

fn one() -> f64 {
    1.0
}

/// Reads a system.
///
/// # Errors
/// One line that names the file and what is wrong with it.
pub fn read(path: &Path) -> Result<System> {
    let named =
        |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(|error| named(&plain(&error)))?;
    let read = file.take(BYTES_MAX + 1).read_to_string(&mut text);
    if read.map_err(|error| named(&plain(&error)))? as u64 > BYTES_MAX {
        return Err(named(&"the file is too large for a model"));
    }
    let system = parse(&text).map_err(|error| named(&error))?;
    system.check().map_err(|error| named(&error))?;
    Ok(system)
}

fn plain(error: &std::io::Error) -> String {
    hihooi_postgres::cluster::plain(error)
}

fn parse(text: &str) -> std::result::Result<System, String> {
    let model: Model = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| {
            let at = span.start.min(text.len());
            format!("line {}: ", text[..at].matches('\n').count() + 1)
        });
        format!("{}{}", line.unwrap_or_default(), error.message())
    })?;
    let mut index = BTreeMap::new();
    for (i, site) in model.site.iter().enumerate() {
        if index.insert(site.name.clone(), i).is_some() {
            return Err(format!("two sites are called {}", site.name));
        }
    }
    let mut names = std::collections::BTreeSet::new();
    for object in &model.object {
        if !names.insert(&object.name) {
            return Err(format!("two objects are called {}", object.name));
        }
    }
    let objects = model.object.into_iter().map(|object| holders(object, &index));
    Ok(System {
        write_overhead: model.write_overhead,
        writes: Writes::Proportional,
        objects: objects.collect::<std::result::Result<_, _>>()?,
        sites: model.site.into_iter().map(|site| site.into()).collect(),
    })
}

impl From<SiteModel> for Site {
    fn from(site: SiteModel) -> Site {
        Site { name: site.name, capacity: site.capacity }
    }
}

fn holders(
    object: ObjectModel,
    index: &BTreeMap<String, usize>,
) -> std::result::Result<Object, String> {
    let sites = match object.sites {
        Holders::All(All::All) => (0..index.len()).collect(),
        Holders::Named(names) => {
            let find = |name: &String| {
                let unknown = || format!("object {} names unknown site {name}", object.name);
                index.get(name).copied().ok_or_else(unknown)
            };
            names.iter().map(find).collect::<std::result::Result<_, _>>()?
        }
    };
    Ok(Object { name: object.name, share: object.share, updates: object.updates, sites })
}
