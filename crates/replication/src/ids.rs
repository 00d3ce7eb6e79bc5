//! Ids and positions as types, so that an LSN is never mistaken for a TSID.

use std::fmt;
use std::str::FromStr;

/// Transaction-state identifier: the position of an entry in the log. Dense, from 1; 0 means
/// "before every entry" (Hihooi section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tsid(pub u64);

impl Tsid {
    /// The position before every entry.
    pub const ZERO: Tsid = Tsid(0);
    /// The position behind every entry.
    pub const MAX: Tsid = Tsid(u64::MAX);

    /// The position right after this one.
    #[must_use]
    pub fn next(self) -> Tsid {
        Tsid(self.0 + 1)
    }
}

impl fmt::Display for Tsid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Byte position in the write-ahead log of one primary (PostgreSQL type `pg_lsn`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl FromStr for Lsn {
    type Err = BadLsn;

    fn from_str(text: &str) -> Result<Lsn, BadLsn> {
        let bad = || BadLsn(text.to_owned());
        let (high, low) = text.split_once('/').ok_or_else(bad)?;
        let high = u32::from_str_radix(high, 16).map_err(|_| bad())?;
        let low = u32::from_str_radix(low, 16).map_err(|_| bad())?;
        Ok(Lsn((u64::from(high) << 32) | u64::from(low)))
    }
}

/// A text that is not of the form `16/B374D848`.
#[derive(Debug, thiserror::Error)]
#[error("not an LSN: {0:?}")]
pub struct BadLsn(String);

/// Transaction id with its epoch, as `pg_current_xact_id()` prints it (PostgreSQL `xid8`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Xid(pub u64);

impl Xid {
    /// The 32 bits that the stream carries.
    #[must_use]
    pub fn low(self) -> u32 {
        (self.0 & 0xFFFF_FFFF) as u32
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsn_prints_and_parses_as_postgresql_does() {
        let lsn: Lsn = "16/B374D848".parse().expect("a valid LSN");
        assert_eq!(lsn, Lsn(0x16_B374_D848));
        assert_eq!(lsn.to_string(), "16/B374D848");
        assert!("16".parse::<Lsn>().is_err());
        assert!("1/100000000".parse::<Lsn>().is_err());
    }
}
