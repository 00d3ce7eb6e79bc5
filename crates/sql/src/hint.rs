//! Hints for one statement in a comment at its start: `/* hihooi: primary */`,
//! `/*hihooi:consistency=weak-si*/`.

/// What a leading comment asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hint<'a> {
    /// Run it on the primary.
    Primary,
    /// Run it at this consistency level; the name isn't checked here.
    Consistency(&'a str),
}

/// The hint in the first comment of a text, if it has one that is understood. Other comments may
/// not stand before it.
#[must_use]
pub fn hint(text: &str) -> Option<Hint<'_>> {
    let comment = text.trim_start().strip_prefix("/*")?;
    let wish = comment.trim_start().strip_prefix("hihooi:")?;
    let wish = wish[..wish.find("*/")?].trim();
    if wish.eq_ignore_ascii_case("primary") {
        return Some(Hint::Primary);
    }
    let (name, value) = wish.split_once('=')?;
    let value = value.trim();
    (name.trim().eq_ignore_ascii_case("consistency") && !value.is_empty())
        .then_some(Hint::Consistency(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_stand_in_the_first_comment() {
        assert_eq!(hint("/* hihooi: primary */ SELECT 1"), Some(Hint::Primary));
        assert_eq!(hint(" /*hihooi:PRIMARY*/select"), Some(Hint::Primary));
        assert_eq!(
            hint("/*hihooi:consistency=weak-si*/ SELECT 1"),
            Some(Hint::Consistency("weak-si"))
        );
        assert_eq!(
            hint("\n/* hihooi: consistency = rsi-pc */ SELECT 1"),
            Some(Hint::Consistency("rsi-pc"))
        );
        for other in [
            "SELECT 1 /* hihooi: primary */",
            "/* not ours */ SELECT 1",
            "/* hihooi: nonsense */ SELECT 1",
            "/* hihooi: primary",
            "/* hihooi: consistency= */ SELECT 1",
            "-- hihooi: primary\nSELECT 1",
            "",
        ] {
            assert_eq!(hint(other), None, "{other}");
        }
    }
}
