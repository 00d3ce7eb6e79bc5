//! The output of `plan scale-out`, as text or as JSON.

use std::fmt::Write;

use hihooi_placement::model::{ScaleOut, System, Usage};
use serde_json::json;

/// Names of sites in a line at most; the rest is counted.
const NAMES_MAX: usize = 6;

/// Sites that do the same.
struct Group {
    sites: Vec<usize>,
    usage: Usage,
    is_bottleneck: bool,
}

/// For people.
pub fn text(system: &System, solved: &ScaleOut) -> String {
    let mut text = format!("scale-out: {:.1}\n\n", solved.scale_out);
    let groups = groups(solved);
    let names: Vec<String> = groups.iter().map(|group| names(system, &group.sites)).collect();
    let width = names.iter().map(|name| name.chars().count()).chain([5]).max().unwrap_or(5);
    let _ = writeln!(text, "{:width$}  local work  applied writes    used", "sites");
    for (name, group) in names.iter().zip(&groups) {
        let part = |work: f64| format!("{:.1}%", 100.0 * work / group.usage.capacity);
        let (local, remote) = (part(group.usage.local), part(group.usage.remote));
        let used = format!("{:.1}%", 100.0 * group.usage.used());
        let _ = writeln!(text, "{name:width$}  {local:>10}  {remote:>14}  {used:>6}");
    }
    let _ = write!(text, "\n{}\n", why(system, solved));
    text
}

/// For machines: one object.
pub fn json(system: &System, solved: &ScaleOut) -> String {
    let sites: Vec<serde_json::Value> = (system.sites.iter().zip(&solved.sites).enumerate())
        .map(|(i, (site, usage))| {
            json!({
                "name": site.name,
                "capacity": usage.capacity,
                "local": usage.local,
                "remote": usage.remote,
                "used": usage.used(),
                "bottleneck": solved.bottleneck.contains(&i),
            })
        })
        .collect();
    let answer = json!({
        "scale_out": solved.scale_out,
        "sites": sites,
        "why": why(system, solved),
    });
    format!("{answer:#}\n")
}

/// What saturates first.
fn why(system: &System, solved: &ScaleOut) -> String {
    let full = || solved.bottleneck.iter().map(|&i| &solved.sites[i]);
    let capacity: f64 = full().map(|usage| usage.capacity).sum();
    let remote: f64 = full().map(|usage| usage.remote).sum();
    let share = format!("{:.1}%", 100.0 * remote / capacity);
    let everyone = solved.bottleneck.len() == system.sites.len();
    match (everyone, solved.bottleneck.len()) {
        (true, 1) => "limit: the one site there is".to_owned(),
        (true, _) => format!(
            "limit: all sites are full; {share} of their capacity goes into applying each other's \
             writes"
        ),
        (false, count) => format!(
            "limit: {} {} full, with {share} of the capacity applying other sites' writes; more \
             capacity at the other sites adds nothing",
            names(system, &solved.bottleneck),
            if count == 1 { "is" } else { "are" },
        ),
    }
}

fn groups(solved: &ScaleOut) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (i, &usage) in solved.sites.iter().enumerate() {
        let is_bottleneck = solved.bottleneck.contains(&i);
        let same = |group: &&mut Group| {
            group.is_bottleneck == is_bottleneck && alike(&group.usage, &usage)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.sites.push(i),
            None => groups.push(Group { sites: vec![i], usage, is_bottleneck }),
        }
    }
    groups
}

/// Equal as far as it is printed.
fn alike(a: &Usage, b: &Usage) -> bool {
    let parts = |usage: &Usage| [usage.local / usage.capacity, usage.remote / usage.capacity];
    a.capacity == b.capacity && parts(a).iter().zip(parts(b)).all(|(a, b)| (a - b).abs() < 0.0005)
}

fn names(system: &System, sites: &[usize]) -> String {
    let name = |i: usize| system.sites[i].name.clone();
    let run = sites.windows(2).all(|pair| pair[1] == pair[0] + 1);
    match sites {
        [first, .., last] if run && sites.len() > 2 => {
            format!("{} to {} ({})", name(*first), name(*last), sites.len())
        }
        _ if sites.len() > NAMES_MAX => {
            let shown: Vec<String> = sites[..NAMES_MAX].iter().map(|&i| name(i)).collect();
            format!("{} and {} more", shown.join(", "), sites.len() - NAMES_MAX)
        }
        _ => sites.iter().map(|&i| name(i)).collect::<Vec<_>>().join(", "),
    }
}
