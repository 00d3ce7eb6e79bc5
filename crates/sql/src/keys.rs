//! The canonical form of key values. A row is identified by the bytes of its key.
//!
//! Keeps I6: values that are equal by PostgreSQL's `=` on the column's type have the same bytes, however they
//! are written. A value for which this isn't certain has no canonical form (`None`), and the caller uses the
//! whole table. A text that PostgreSQL refuses may have a key: that statement fails and touches no row.
//!
//! A key is the concatenation of its parts. No part is a prefix of another part of the same type. So two keys
//! of the same columns are equal only if all their parts are, and rows with the same leading parts have keys
//! with the same prefix.
//!
//! What the caller must check:
//! - The column's collation is deterministic (`pg_collation.collisdeterministic`), and so is the one that a
//!   comparison names. With other collations, different texts can be equal (manual, section "Nondeterministic
//!   Collations").
//! - The encoding of the database and of the client is UTF8.
//! - The value is compared with the column, or stored in it, unchanged. An assignment to `numeric(5,2)` or
//!   `timestamp(3)` rounds, one to `varchar(3)` cuts trailing spaces, and an explicit cast cuts anything. What
//!   a write stores in a column with a type modifier is known beforehand only for `char(n)`.
//! - A string constant has no type of its own: it gets the column's (manual, section "Operator Type
//!   Resolution").
//! - A column of a domain type is treated as one of the domain's base type.

/// OIDs of types in `pg_catalog`; the same in all versions and databases.
mod oid {
    pub(super) const BOOL: u32 = 16;
    pub(super) const BYTEA: u32 = 17;
    pub(super) const INT8: u32 = 20;
    pub(super) const INT2: u32 = 21;
    pub(super) const INT4: u32 = 23;
    pub(super) const TEXT: u32 = 25;
    pub(super) const BPCHAR: u32 = 1042;
    pub(super) const VARCHAR: u32 = 1043;
    pub(super) const DATE: u32 = 1082;
    pub(super) const TIMESTAMP: u32 = 1114;
    pub(super) const TIMESTAMPTZ: u32 = 1184;
    pub(super) const NUMERIC: u32 = 1700;
    pub(super) const UUID: u32 = 2950;
}

/// A numeric may be written with so many digits; one with more has no key.
const NUMERIC_DIGITS_MAX: usize = 1_000;
/// So many decimal digits a numeric may have before and behind its point (manual, table "Numeric Types").
const NUMERIC_WHOLE_MAX: i64 = 131_072;
const NUMERIC_SCALE_MAX: i64 = 16_383;
/// The last years of dates and of timestamps (manual, table "Date/Time Types").
const DATE_YEAR_MAX: i64 = 5_874_897;
const TIMESTAMP_YEAR_MAX: i64 = 294_276;
/// Hours of an offset from UTC (`MAX_TZDISP_HOUR` of PostgreSQL's `datetime.c`).
const OFFSET_HOURS_MAX: i64 = 15;
const SECONDS_PER_DAY: i64 = 86_400;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// The types that have a canonical form: those that share an equality.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyType {
    /// `smallint`, `integer`, `bigint`.
    Integer,
    /// `text` and `varchar`: equal if their bytes are.
    Text,
    /// `char(n)`: trailing spaces don't count.
    PaddedText,
    /// `uuid`.
    Uuid,
    /// `boolean`.
    Bool,
    /// `date`.
    Date,
    /// `timestamp without time zone`.
    Timestamp,
    /// `timestamp with time zone`.
    TimestampTz,
    /// `numeric`: trailing zeros don't count.
    Numeric,
    /// `bytea`.
    Bytea,
}

impl KeyType {
    /// The key type of a column whose type (not a domain) has this OID; `None` if it has no canonical form.
    #[must_use]
    pub fn of(oid: u32) -> Option<KeyType> {
        Some(match oid {
            oid::INT2 | oid::INT4 | oid::INT8 => KeyType::Integer,
            oid::TEXT | oid::VARCHAR => KeyType::Text,
            oid::BPCHAR => KeyType::PaddedText,
            oid::UUID => KeyType::Uuid,
            oid::BOOL => KeyType::Bool,
            oid::DATE => KeyType::Date,
            oid::TIMESTAMP => KeyType::Timestamp,
            oid::TIMESTAMPTZ => KeyType::TimestampTz,
            oid::NUMERIC => KeyType::Numeric,
            oid::BYTEA => KeyType::Bytea,
            _ => return None,
        })
    }

    /// Whether a parameter or constant whose type has this OID compares with such a column as the column's
    /// own values do.
    ///
    /// PostgreSQL compares `char(n)` with text as text, after the column's padding is removed. Trailing
    /// spaces of the text count then, so that it is equal to fewer values than a `char(n)` would be; never
    /// to more. Text with `char(n)` is not taken: it is equal to what it would differ from as text.
    ///
    /// Integers become numeric beside a numeric. A numeric beside an integer column is not taken, as it need
    /// not be an integer; nor are a date beside a timestamp, and a timestamp beside one with time zone,
    /// which depend on the session's time zone.
    #[must_use]
    pub fn takes(self, oid: u32) -> bool {
        KeyType::of(oid).is_some_and(|given| {
            given == self
                || matches!(
                    (self, given),
                    (KeyType::PaddedText, KeyType::Text) | (KeyType::Numeric, KeyType::Integer)
                )
        })
    }

    /// Whether its values are texts, which clients send in an encoding of their own.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(self, KeyType::Text | KeyType::PaddedText)
    }

    /// Whether the order of the bytes is the order of the values, so that ranges can be told. Texts are
    /// ordered by their collation instead.
    #[must_use]
    pub fn is_ordered(self) -> bool {
        !self.is_text()
    }

    /// Appends the part for a value written as text: a string constant, a parameter in text format, or a
    /// column in the replication stream (DateStyle ISO, TimeZone UTC, `bytea_output` hex). `None`, and
    /// nothing appended, if its meaning depends on a setting or a version, or is not known here.
    ///
    /// A part of text or bytea is as long as the value (bytea: up to twice); others are bounded.
    pub fn push_text(self, text: &[u8], key: &mut Vec<u8>) -> Option<()> {
        match self {
            KeyType::Integer => push_i64(integer(trim(text))?, key),
            KeyType::Text => push_string(string(text)?, key),
            KeyType::PaddedText => push_string(unpadded(string(text)?), key),
            KeyType::Uuid => key.extend(uuid(text)?),
            KeyType::Bool => key.push(u8::from(boolean(trim(text))?)),
            KeyType::Date => push_i32(date(trim(text))?, key),
            KeyType::Timestamp => push_i64(timestamp(trim(text))?, key),
            KeyType::TimestampTz => push_i64(timestamp_tz(trim(text))?, key),
            KeyType::Numeric => numeric(trim(text))?.push(key),
            KeyType::Bytea => push_bytea(&bytea(text)?, key),
        }
        Some(())
    }

    /// Appends the part for a parameter in binary format whose type has this OID. `None`, and nothing
    /// appended, if the column doesn't take the type ([`KeyType::takes`]) or the value is malformed.
    pub fn push_binary(self, oid: u32, value: &[u8], key: &mut Vec<u8>) -> Option<()> {
        if !self.takes(oid) {
            return None;
        }
        match self {
            KeyType::Integer => push_i64(integer_from_binary(oid, value)?, key),
            KeyType::Text => push_string(string(value)?, key),
            KeyType::PaddedText => push_string(unpadded(string(value)?), key),
            KeyType::Uuid => key.extend(<[u8; 16]>::try_from(value).ok()?),
            KeyType::Bool => key.push(u8::from(u8::from_be_bytes(value.try_into().ok()?) != 0)),
            KeyType::Date => push_i32(i32::from_be_bytes(value.try_into().ok()?), key),
            KeyType::Timestamp | KeyType::TimestampTz => {
                push_i64(i64::from_be_bytes(value.try_into().ok()?), key);
            }
            KeyType::Numeric if oid == oid::NUMERIC => numeric_from_binary(value)?.push(key),
            KeyType::Numeric => {
                Numeric::from_integer(integer_from_binary(oid, value)?).push(key);
            }
            KeyType::Bytea => push_bytea(value, key),
        }
        Some(())
    }

    /// Appends the part for an integer constant of SQL: its digits, and whether there is a minus in front.
    /// `None`, and nothing appended, if it has other characters (PostgreSQL 16 knows `0x1f` and `1_000`) or
    /// the column's type is no number.
    pub fn push_number(self, digits: &[u8], negative: bool, key: &mut Vec<u8>) -> Option<()> {
        if !is_digits(digits) || digits.is_empty() {
            return None;
        }
        match self {
            KeyType::Integer => {
                let magnitude: u64 = parse(digits)?;
                let value = if negative {
                    0_i64.checked_sub_unsigned(magnitude)
                } else {
                    0_i64.checked_add_unsigned(magnitude)
                };
                push_i64(value?, key);
            }
            KeyType::Numeric => numeric_of(negative, digits, &[], 0)?.push(key),
            _ => return None,
        }
        Some(())
    }
}

/// Big endian with the sign's bit flipped: bytes in the order of the values.
fn push_i64(value: i64, key: &mut Vec<u8>) {
    key.extend((value ^ i64::MIN).to_be_bytes());
}

fn push_i32(value: i32, key: &mut Vec<u8>) {
    key.extend((value ^ i32::MIN).to_be_bytes());
}

/// Ended by a NUL, which no text contains.
fn push_string(text: &str, key: &mut Vec<u8>) {
    key.extend(text.as_bytes());
    key.push(0);
}

/// Ended by two NULs; those of the value are followed by 0xFF. Keeps the order.
fn push_bytea(value: &[u8], key: &mut Vec<u8>) {
    for &byte in value {
        key.push(byte);
        if byte == 0 {
            key.push(0xff);
        }
    }
    key.extend([0, 0]);
}

/// Without the white space at both ends that PostgreSQL's input functions skip (`isspace`).
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    let is_space = |b: &u8| matches!(b, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|b| !is_space(b)).unwrap_or(text.len());
    let end = text.iter().rposition(|b| !is_space(b)).map_or(start, |last| last + 1);
    &text[start..end]
}

fn is_digits(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_digit)
}

/// A number in Rust's own grammar of integers: a sign or none, then decimal digits.
fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn integer(text: &[u8]) -> Option<i64> {
    parse(text)
}

fn integer_from_binary(oid: u32, value: &[u8]) -> Option<i64> {
    match oid {
        oid::INT2 => Some(i16::from_be_bytes(value.try_into().ok()?).into()),
        oid::INT4 => Some(i32::from_be_bytes(value.try_into().ok()?).into()),
        oid::INT8 => Some(i64::from_be_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

fn string(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok().filter(|text| !text.contains('\0'))
}

fn unpadded(text: &str) -> &str {
    text.trim_end_matches(' ')
}

/// 32 hexadecimal digits, with a hyphen or none after each four, in braces or not (`uuid_in`).
fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let mut rest = match text.strip_prefix(b"{") {
        Some(inner) => inner.strip_suffix(b"}")?,
        None => text,
    };
    let mut bytes = [0; 16];
    for (n, byte) in bytes.iter_mut().enumerate() {
        let (pair, after) = rest.split_first_chunk()?;
        *byte = hex_byte(pair)?;
        let may_have_hyphen = n % 2 == 1 && n < 15;
        rest = after.strip_prefix(b"-").filter(|_| may_have_hyphen).unwrap_or(after);
    }
    rest.is_empty().then_some(bytes)
}

fn hex_byte(&[high, low]: &[u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// The words of a boolean, how many letters of each are enough, and what it means (manual, section
/// "Boolean Type").
const BOOLEANS: [(&str, usize, bool); 8] = [
    ("true", 1, true),
    ("yes", 1, true),
    ("on", 2, true),
    ("1", 1, true),
    ("false", 1, false),
    ("no", 1, false),
    ("off", 2, false),
    ("0", 1, false),
];

fn boolean(text: &[u8]) -> Option<bool> {
    let is_meant = |word: &str, enough: usize| {
        let start = word.as_bytes().get(..text.len());
        text.len() >= enough && start.is_some_and(|start| start.eq_ignore_ascii_case(text))
    };
    BOOLEANS.iter().find(|(word, enough, _)| is_meant(word, *enough)).map(|(_, _, value)| *value)
}

/// The hex format without white space in it, or the escape format without escapes. Others are `None`.
fn bytea(text: &[u8]) -> Option<Vec<u8>> {
    match text.strip_prefix(b"\\x") {
        Some(digits) => {
            let (pairs, odd) = digits.as_chunks();
            if odd.is_empty() { pairs.iter().map(hex_byte).collect() } else { None }
        }
        None => (!text.contains(&b'\\') && !text.contains(&0)).then(|| text.to_vec()),
    }
}

/// A text that is read from its front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// Takes this byte.
    fn byte(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }

    /// Takes all digits here, if they are between `least` and `most`.
    fn digits(&mut self, least: usize, most: usize) -> Option<&[u8]> {
        let len = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(len);
        self.0 = rest;
        (least..=most).contains(&len).then_some(digits)
    }

    /// Takes a number of two digits, at most `max`.
    fn two_digits(&mut self, max: i64) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(2).filter(|(two, _)| is_digits(two))?;
        self.0 = rest;
        parse(digits).filter(|&value| value <= max)
    }

    /// Takes a year, month and day; returns days since 2000-01-01. A year of four digits and more comes
    /// first in every DateStyle. There is no year 0.
    fn date(&mut self, year_max: i64) -> Option<i64> {
        let year = parse(self.digits(4, 7)?).filter(|year| (1..=year_max).contains(year))?;
        self.byte(b'-')?;
        let month = self.two_digits(12)?;
        self.byte(b'-')?;
        let day = self.two_digits(31)?;
        days_since_2000(year, month, day)
    }

    /// Takes a time of day; returns microseconds. More than six digits behind the point would be rounded.
    fn time(&mut self) -> Option<i64> {
        let hour = self.two_digits(23)?;
        self.byte(b':')?;
        let minute = self.two_digits(59)?;
        self.byte(b':')?;
        let second = self.two_digits(59)?;
        let mut micros = 0;
        if self.byte(b'.').is_some() {
            let digits = self.digits(1, 6)?;
            let missing = (digits.len()..6).fold(1, |unit, _| unit * 10);
            micros = parse::<i64>(digits)? * missing;
        }
        Some((hour * 3600 + minute * 60 + second) * MICROS_PER_SECOND + micros)
    }

    /// Takes an offset from UTC, positive east of Greenwich: ±HH, ±HHMM, ±HH:MM or ±HH:MM:SS; returns
    /// microseconds. Names of time zones, `Z` among them, depend on `timezone_abbreviations`.
    fn offset(&mut self) -> Option<i64> {
        let is_west = self.byte(b'-').is_some();
        if !is_west {
            self.byte(b'+')?;
        }
        let mut seconds = self.two_digits(OFFSET_HOURS_MAX)? * 3600;
        let has_colon = self.byte(b':').is_some();
        if has_colon || !self.0.is_empty() {
            seconds += self.two_digits(59)? * 60;
        }
        if has_colon && self.byte(b':').is_some() {
            seconds += self.two_digits(59)?;
        }
        let east = if is_west { -1 } else { 1 };
        Some(east * seconds * MICROS_PER_SECOND)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Days since 2000-01-01 in the Gregorian calendar, extended backwards; `None` if there is no such day.
fn days_since_2000(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if is_leap { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let (before, this) = months.split_at_checked(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if !(1..=*this.first()?).contains(&day) {
        return None;
    }
    let days_before =
        |year: i64| (year - 1) * 365 + (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400;
    Some(days_before(year) - days_before(2000) + before.iter().sum::<i64>() + day - 1)
}

/// Days since 2000-01-01, and the extremes for infinity, as `date` stores them.
fn date(text: &[u8]) -> Option<i32> {
    match text {
        b"infinity" => return Some(i32::MAX),
        b"-infinity" => return Some(i32::MIN),
        _ => {}
    }
    let mut reader = Reader(text);
    let days = reader.date(DATE_YEAR_MAX)?;
    reader.end()?;
    i32::try_from(days).ok()
}

/// Microseconds since 2000-01-01, and the extremes for infinity, as `timestamp` stores them.
fn timestamp(text: &[u8]) -> Option<i64> {
    if let Some(infinity) = infinity(text) {
        return Some(infinity);
    }
    let mut reader = Reader(text);
    let day = reader.date(TIMESTAMP_YEAR_MAX)? * SECONDS_PER_DAY * MICROS_PER_SECOND;
    if reader.end().is_some() {
        return Some(day);
    }
    let time = separated_time(&mut reader)?;
    reader.end()?;
    Some(day + time)
}

/// Microseconds since 2000-01-01 00:00 UTC. Without an offset it would depend on TimeZone.
fn timestamp_tz(text: &[u8]) -> Option<i64> {
    if let Some(infinity) = infinity(text) {
        return Some(infinity);
    }
    let mut reader = Reader(text);
    let day = reader.date(TIMESTAMP_YEAR_MAX)? * SECONDS_PER_DAY * MICROS_PER_SECOND;
    let time = separated_time(&mut reader)?;
    let offset = reader.offset()?;
    reader.end()?;
    Some(day + time - offset)
}

fn infinity(text: &[u8]) -> Option<i64> {
    match text {
        b"infinity" => Some(i64::MAX),
        b"-infinity" => Some(i64::MIN),
        _ => None,
    }
}

fn separated_time(reader: &mut Reader<'_>) -> Option<i64> {
    reader.byte(b' ').or_else(|| reader.byte(b'T'))?;
    reader.time()
}

/// A value of `numeric`, in PostgreSQL's order.
enum Numeric {
    NegativeInfinity,
    /// 0.digits × 10^point.
    Finite {
        negative: bool,
        /// ASCII; neither the first nor the last is 0. None at all: the value is 0.
        digits: Vec<u8>,
        point: i32,
    },
    Infinity,
    /// Equal to itself, and greater than all others (manual, section "Numeric Types").
    NaN,
}

impl Numeric {
    fn from_integer(value: i64) -> Numeric {
        let digits = value.unsigned_abs().to_string().into_bytes();
        let point = i32::try_from(digits.len()).unwrap_or_default();
        Numeric::finite(value < 0, &digits, point)
    }

    fn finite(negative: bool, digits: &[u8], point: i32) -> Numeric {
        let start = digits.iter().position(|&b| b != b'0').unwrap_or(digits.len());
        let end = digits.iter().rposition(|&b| b != b'0').map_or(start, |last| last + 1);
        let leading = i32::try_from(start).unwrap_or(i32::MAX);
        let point = point.saturating_sub(leading);
        Numeric::Finite { negative, digits: digits[start..end].to_vec(), point }
    }

    /// Appends a byte for the kind, then `point` and the digits, ended by a NUL. Those of negative numbers
    /// are inverted, so that the order is that of the values.
    fn push(&self, key: &mut Vec<u8>) {
        match self {
            Numeric::NegativeInfinity => key.push(0),
            Numeric::Finite { digits, .. } if digits.is_empty() => key.push(2),
            Numeric::Finite { negative, digits, point } => {
                key.push(if *negative { 1 } else { 3 });
                let start = key.len();
                push_i32(*point, key);
                key.extend(digits);
                key.push(0);
                if *negative {
                    key[start..].iter_mut().for_each(|byte| *byte = !*byte);
                }
            }
            Numeric::Infinity => key.push(4),
            Numeric::NaN => key.push(5),
        }
    }
}

/// Digits with a point and an exponent, or one of the special values.
fn numeric(text: &[u8]) -> Option<Numeric> {
    if let Some(special) = special_numeric(text) {
        return Some(special);
    }
    let (negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let is_exponent = |byte: &u8| matches!(byte, b'e' | b'E');
    let (mantissa, exponent) = match unsigned.iter().position(is_exponent) {
        Some(at) => (&unsigned[..at], parse(&unsigned[at + 1..])?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = match mantissa.iter().position(|&byte| byte == b'.') {
        Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
        None => (mantissa, &[][..]),
    };
    numeric_of(negative, whole, fraction, exponent)
}

/// PostgreSQL allows a sign for infinity, and none for NaN.
fn special_numeric(text: &[u8]) -> Option<Numeric> {
    if text.eq_ignore_ascii_case(b"nan") {
        return Some(Numeric::NaN);
    }
    let unsigned = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let is_infinity =
        ["inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word.as_bytes()));
    is_infinity.then_some(if text.starts_with(b"-") {
        Numeric::NegativeInfinity
    } else {
        Numeric::Infinity
    })
}

/// `None` for what PostgreSQL refuses as too large or too small.
fn numeric_of(negative: bool, whole: &[u8], fraction: &[u8], exponent: i32) -> Option<Numeric> {
    let len = whole.len() + fraction.len();
    if !(1..=NUMERIC_DIGITS_MAX).contains(&len) || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let point = i64::try_from(whole.len()).ok()? + i64::from(exponent);
    let scale = i64::try_from(fraction.len()).ok()? - i64::from(exponent);
    if point > NUMERIC_WHOLE_MAX || scale > NUMERIC_SCALE_MAX {
        return None;
    }
    Some(Numeric::finite(negative, &[whole, fraction].concat(), i32::try_from(point).ok()?))
}

/// `numeric_send`'s form: the number of digits, the weight of the first, the sign, the number of decimal
/// digits behind the point to show, then the digits, to the base of 10,000.
fn numeric_from_binary(value: &[u8]) -> Option<Numeric> {
    let (&[c0, c1, w0, w1, s0, s1, d0, d1], rest) = value.split_first_chunk()?;
    let (digits, odd) = rest.as_chunks();
    let is_whole = odd.is_empty() && digits.len() == usize::from(u16::from_be_bytes([c0, c1]));
    if !is_whole || digits.len() * 4 > NUMERIC_DIGITS_MAX {
        return None;
    }
    let negative = match u16::from_be_bytes([s0, s1]) {
        0x0000 => false,
        0x4000 => true,
        0xc000 if digits.is_empty() => return Some(Numeric::NaN),
        0xd000 if digits.is_empty() => return Some(Numeric::Infinity),
        0xf000 if digits.is_empty() => return Some(Numeric::NegativeInfinity),
        _ => return None,
    };
    let point = (i32::from(i16::from_be_bytes([w0, w1])) + 1) * 4;
    let shown = i32::from(u16::from_be_bytes([d0, d1]));
    let numeric = Numeric::finite(negative, &decimal_digits(digits)?, point);
    is_shown(&numeric, shown).then_some(numeric)
}

fn decimal_digits(digits: &[[u8; 2]]) -> Option<Vec<u8>> {
    let mut decimal = Vec::with_capacity(digits.len() * 4);
    for &digit in digits {
        let digit = Some(u16::from_be_bytes(digit)).filter(|&digit| digit < 10_000)?;
        decimal.extend(format!("{digit:04}").as_bytes());
    }
    Some(decimal)
}

/// Whether all digits are shown; PostgreSQL cuts off the others when it receives the value.
fn is_shown(numeric: &Numeric, shown: i32) -> bool {
    let Numeric::Finite { digits, point, .. } = numeric else { return true };
    i32::try_from(digits.len()).is_ok_and(|len| digits.is_empty() || len - point <= shown)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::KeyType::{
        Bool, Bytea, Date, Integer, Numeric, PaddedText, Text, Timestamp, TimestampTz, Uuid,
    };
    use super::*;

    const ALL: [KeyType; 10] =
        [Integer, Text, PaddedText, Uuid, Bool, Date, Timestamp, TimestampTz, Numeric, Bytea];

    fn key(key_type: KeyType, text: &[u8]) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        key_type.push_text(text, &mut key).map(|()| key)
    }

    fn binary(key_type: KeyType, oid: u32, value: &[u8]) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        key_type.push_binary(oid, value, &mut key).map(|()| key)
    }

    fn number(key_type: KeyType, digits: &str, negative: bool) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        key_type.push_number(digits.as_bytes(), negative, &mut key).map(|()| key)
    }

    /// Lines of spellings of one value each; other lines are other values.
    const SPELLINGS: &[(KeyType, &[&[&str]])] = &[
        (
            Integer,
            &[
                &["7", "07", " 7 ", "+7", "\t\n\r\x0b\x0c7", "0000000000000000000000007"],
                &["0", "-0", "+0", "00"],
                &["-7", "-07"],
                &["9223372036854775807"],
                &["-9223372036854775808"],
            ],
        ),
        (Text, &[&["a"], &["A"], &["a "], &[" a"], &[""], &["é"], &["e\u{301}"], &["7"], &["07"]]),
        (PaddedText, &[&["a", "a ", "a    "], &[" a"], &["a\t"], &["a\u{a0}"], &["", " "], &["A"]]),
        (
            Uuid,
            &[
                &[
                    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                    "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
                    "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
                    "a0eebc999c0b4ef8bb6d6bb9bd380a11",
                    "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
                ],
                &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12"],
            ],
        ),
        (
            Bool,
            &[
                &["t", "true", "TRUE", "tr", "y", "yes", "on", " On ", "1"],
                &["f", "false", "F", "fal", "n", "no", "of", "off", "0"],
            ],
        ),
        (
            Date,
            &[
                &["2024-02-29", " 2024-02-29 ", "02024-02-29"],
                &["2024-03-01"],
                &["2000-01-01"],
                &["1999-12-31"],
                &["0001-01-01"],
                &["5874897-12-31"],
                &["infinity"],
                &["-infinity"],
            ],
        ),
        (
            Timestamp,
            &[
                &["2024-01-02 03:04:05", "2024-01-02T03:04:05", "2024-01-02 03:04:05.000"],
                &["2024-01-02 03:04:05.5", "2024-01-02 03:04:05.500000"],
                &["2024-01-02 03:04:05.000005"],
                &["2024-01-02", "2024-01-02 00:00:00"],
                &["294276-12-31 23:59:59.999999"],
                &["infinity"],
                &["-infinity"],
            ],
        ),
        (
            TimestampTz,
            &[
                &[
                    "2024-01-02 03:04:05+00",
                    "2024-01-02 03:04:05-00:00",
                    "2024-01-02T05:04:05+0200",
                    "2024-01-01 21:34:05.0-05:30",
                    "2024-01-02 03:04:04-00:00:01",
                ],
                &["2024-01-02 03:04:05+01"],
                &["infinity"],
            ],
        ),
        (
            Numeric,
            &[
                &["1000", "1e3", "1E+3", "+1000.00", "01000.", " 1000 ", "10000e-1", ".1e04"],
                &["0", "-0", "0.00", "0e9", ".0", "-0e-5"],
                &["0.5", ".5", "5e-1"],
                &["-0.5", "-.50"],
                &["NaN", "nan"],
                &["Infinity", "+inf", "INF"],
                &["-infinity", "-Inf"],
                &["1e-16383"],
                &["1e131071"],
            ],
        ),
        (
            Bytea,
            &[
                &["", "\\x"],
                &["ab", "\\x6162"],
                &["\\x00"],
                &["\\xff", "\\xFF"],
                &["é", "\\xc3a9"],
                &["xab"],
            ],
        ),
    ];

    #[test]
    fn a_value_has_one_key_however_it_is_written() {
        for (key_type, values) in SPELLINGS {
            let spelled = values.iter().enumerate().flat_map(|(n, spellings)| {
                spellings.iter().map(move |spelling| (n, spelling.as_bytes()))
            });
            let keys: Vec<_> = spelled
                .map(|(n, spelling)| {
                    let told = String::from_utf8_lossy(spelling).into_owned();
                    let key = key(*key_type, spelling);
                    (n, key.unwrap_or_else(|| panic!("{key_type:?} {told:?} has no key")), told)
                })
                .collect();
            for (a, key_a, text_a) in &keys {
                for (b, key_b, text_b) in &keys {
                    assert_eq!(key_a == key_b, a == b, "{key_type:?} {text_a:?} {text_b:?}");
                }
            }
        }
    }

    const NONE: &[(KeyType, &[&str])] = &[
        (Integer, &["", " ", "+", "-", "--7", "+-7", "- 7", "7 7", "7.0", "1e1", "x", "٧"]),
        // PostgreSQL 16 and later take these; 14 and 15 refuse them.
        (Integer, &["0x7", "0o7", "0b1", "1_000"]),
        (Integer, &["9223372036854775808", "-9223372036854775809", "\u{a0}7"]),
        (Text, &["a\0", "\0"]),
        (PaddedText, &["a\0 "]),
        (
            Uuid,
            &["", "{}", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1", "{a0eebc999c0b4ef8bb6d6bb9bd380a11"],
        ),
        (Uuid, &["a0eebc999c0b4ef8bb6d6bb9bd380a11}", " a0eebc999c0b4ef8bb6d6bb9bd380a11"]),
        (Uuid, &["a0-eebc999c0b4ef8bb6d6bb9bd380a11", "a0eebc999c0b4ef8bb6d6bb9bd380a11-"]),
        (Bool, &["", "o", "2", "11", "tr ue", "truee", "null"]),
        (Date, &["", "now", "today", "epoch", "Infinity", "J2451187", "20240102", "2024-1-2"]),
        (Date, &["01/02/2024", "24-01-02", "2024.01.02", "2024-Jan-02", "2024-01-02 BC"]),
        (Date, &["2023-02-29", "1900-02-29", "2024-00-01", "2024-13-01", "2024-01-00"]),
        (Date, &["2024-01-32", "0000-01-01", "5874898-01-01", "99999999-01-01", "2024-01-02 x"]),
        (Timestamp, &["now", "2024-01-02 24:00:00", "2024-01-02 23:59:60", "2024-01-02 03:04"]),
        (Timestamp, &["2024-01-02 03:04:05.1234567", "2024-01-02 03:04:05.", "2024-01-02T"]),
        (Timestamp, &["2024-01-02 03:04:05+00", "2024-01-02 03:04:05 PM", "294277-01-01"]),
        (TimestampTz, &["2024-01-02", "2024-01-02 03:04:05", "2024-01-02 03:04:05Z"]),
        (TimestampTz, &["2024-01-02 03:04:05 UTC", "2024-01-02 03:04:05+16", "2024-01-02+00"]),
        (
            TimestampTz,
            &["2024-01-02 03:04:05+2", "2024-01-02 03:04:05+02:", "2024-01-02 03:04:05+"],
        ),
        (Numeric, &["", ".", "-", "e3", "1e", "1e+", "1e1.5", "1 e3", "1.2.3", "0x10", "1_0"]),
        (Numeric, &["+NaN", "-nan", "infinit", "1e131072", "1e-16384", "1e99999999999", "- 1"]),
        (Bytea, &["\\x6", "\\x61 62", "\\xzz", "\\X61", "a\\b", "\\141", "\0"]),
    ];

    #[test]
    fn what_depends_on_settings_or_is_wrong_has_no_key() {
        for (key_type, spellings) in NONE {
            for spelling in *spellings {
                assert_eq!(key(*key_type, spelling.as_bytes()), None, "{key_type:?} {spelling:?}");
            }
        }
        assert_eq!(key(Text, b"\xff"), None);
        assert_eq!(key(Numeric, "0".repeat(1_001).as_bytes()), None);
    }

    #[test]
    fn binary_values_have_the_key_of_their_texts() {
        let cases: &[(KeyType, u32, &[u8], &str)] = &[
            (Integer, oid::INT2, &[0xff, 0xf9], "-7"),
            (Integer, oid::INT4, &[0xff, 0xff, 0xff, 0xf9], "-7"),
            (Integer, oid::INT8, &[0, 0, 0, 0, 0, 0, 0, 7], "7"),
            (Text, oid::VARCHAR, b"a ", "a "),
            (PaddedText, oid::BPCHAR, b"a  ", "a"),
            (PaddedText, oid::TEXT, b"a ", "a"),
            (Bool, oid::BOOL, &[1], "t"),
            (Bool, oid::BOOL, &[9], "t"),
            (Date, oid::DATE, &[0, 0, 0, 1], "2000-01-02"),
            (Date, oid::DATE, &[0x7f, 0xff, 0xff, 0xff], "infinity"),
            (Timestamp, oid::TIMESTAMP, &[0, 0, 0, 0, 0, 0, 0, 1], "2000-01-01 00:00:00.000001"),
            (TimestampTz, oid::TIMESTAMPTZ, &[0; 8], "2000-01-01 02:00:00+02"),
            (Numeric, oid::INT2, &[0, 10], "10.0"),
            (Numeric, oid::NUMERIC, &[0, 2, 0, 0, 0x40, 0, 0, 2, 0, 1, 0x13, 0x88], "-1.5"),
            // A needless group of zeros in front and behind.
            (Numeric, oid::NUMERIC, &[0, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0], "5"),
            (Numeric, oid::NUMERIC, &[0, 0, 0, 0, 0x40, 0, 0, 0], "0"),
            (Numeric, oid::NUMERIC, &[0, 0, 0, 0, 0xc0, 0, 0, 0], "NaN"),
            (Bytea, oid::BYTEA, &[0, 0xff], "\\x00ff"),
        ];
        for (key_type, oid, value, text) in cases {
            let expected = key(*key_type, text.as_bytes()).expect("has a key");
            assert_eq!(binary(*key_type, *oid, value), Some(expected), "{key_type:?} {text}");
        }
    }

    #[test]
    fn malformed_binary_values_have_no_key() {
        let cases: &[(KeyType, u32, &[u8])] = &[
            (Integer, oid::INT4, &[0, 7]),
            (Integer, oid::NUMERIC, &[0, 0, 0, 0, 0, 0, 0, 0]),
            (Text, oid::BPCHAR, b"a"),
            (Text, oid::TEXT, b"\xff"),
            (Uuid, oid::UUID, &[0; 15]),
            (Bool, oid::BOOL, &[]),
            (Date, oid::TIMESTAMP, &[0; 8]),
            (Timestamp, oid::TIMESTAMPTZ, &[0; 8]),
            (Numeric, oid::NUMERIC, &[0, 1, 0, 0, 0, 0, 0, 0]),
            (Numeric, oid::NUMERIC, &[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10]),
            // 1.5 of which one digit behind the point less is shown: PostgreSQL takes it for 1.
            (Numeric, oid::NUMERIC, &[0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0x13, 0x88]),
        ];
        for (key_type, oid, value) in cases {
            assert_eq!(binary(*key_type, *oid, value), None, "{key_type:?} {value:?}");
        }
    }

    #[test]
    fn constants_have_the_key_of_their_texts() {
        assert_eq!(number(Integer, "007", true), key(Integer, b"-7"));
        assert_eq!(
            number(Integer, "9223372036854775808", true),
            key(Integer, b"-9223372036854775808")
        );
        assert_eq!(number(Integer, "9223372036854775808", false), None);
        assert_eq!(
            number(Numeric, "9223372036854775808", false),
            key(Numeric, b"9223372036854775808.0")
        );
        assert_eq!(number(Numeric, "0", true), key(Numeric, b"0"));
        for digits in ["", "0x7", "1_000", "-7", "7.5"] {
            assert_eq!(number(Integer, digits, false), None, "{digits}");
            assert_eq!(number(Numeric, digits, false), None, "{digits}");
        }
        assert_eq!(number(Text, "7", false), None);
    }

    #[test]
    fn types_without_a_sure_equality_have_no_keys() {
        // "char", name, oid, json, float4, float8, money, int4[], interval, time, timetz, jsonb, citext's.
        for oid in [18, 19, 26, 114, 700, 701, 790, 1007, 1186, 1083, 1266, 3802, 16_384] {
            assert_eq!(KeyType::of(oid), None);
            assert!(ALL.iter().all(|key_type| !key_type.takes(oid)), "{oid}");
        }
        assert!(PaddedText.takes(oid::TEXT) && !Text.takes(oid::BPCHAR));
        assert!(Numeric.takes(oid::INT4) && !Integer.takes(oid::NUMERIC));
        assert!(!Timestamp.takes(oid::DATE) && !Timestamp.takes(oid::TIMESTAMPTZ));
    }

    fn spelling() -> impl Strategy<Value = (KeyType, Vec<u8>)> {
        let known = SPELLINGS.iter().flat_map(|(key_type, values)| {
            let texts = values.iter().flat_map(|spellings| spellings.iter());
            texts.map(move |text| (*key_type, text.as_bytes().to_vec()))
        });
        let of = |key_type| move |text: String| (key_type, text.into_bytes());
        prop_oneof![
            proptest::sample::select(known.collect::<Vec<_>>()),
            any::<i64>().prop_map(|n| (Integer, n.to_string().into_bytes())),
            "[ab\u{1}é ]{0,4}".prop_map(of(Text)),
            "[ab\u{1}é ]{0,4}".prop_map(of(PaddedText)),
            "-?[0-9]{1,3}(\\.[0-9]{1,3})?(e-?[0-9])?".prop_map(of(Numeric)),
            "\\\\x(00|01|ff|61){0,4}".prop_map(of(Bytea)),
            "[12][09][0-9]{2}-0[1-9]-[12][0-9]".prop_map(of(Date)),
        ]
    }

    /// A decimal of small size as an integer, and as text.
    fn decimal() -> impl Strategy<Value = (i64, String)> {
        (-2_000_000_i64..2_000_000).prop_map(|n| {
            let sign = if n < 0 { "-" } else { "" };
            (n, format!("{sign}{}.{:04}", n.abs() / 10_000, n.abs() % 10_000))
        })
    }

    proptest! {
        #[test]
        fn no_part_is_a_prefix_of_another(spellings in proptest::collection::vec(spelling(), 16)) {
            let key_of = |(key_type, text): &(KeyType, Vec<u8>)| Some((*key_type, key(*key_type, text)?));
            let keys: Vec<_> = spellings.iter().filter_map(key_of).collect();
            for (type_a, key_a) in &keys {
                for (type_b, key_b) in keys.iter().filter(|(key_type, _)| key_type == type_a) {
                    let is_prefix = key_a != key_b && key_b.starts_with(key_a);
                    prop_assert!(!is_prefix, "{type_a:?} {key_a:?} {type_b:?} {key_b:?}");
                }
            }
        }

        #[test]
        fn integers_are_ordered(a: i64, b: i64) {
            let texts = [a, b].map(|n| key(Integer, n.to_string().as_bytes()));
            prop_assert_eq!(texts[0].cmp(&texts[1]), a.cmp(&b));
        }

        #[test]
        fn numerics_are_ordered((a, text_a) in decimal(), (b, text_b) in decimal()) {
            let [key_a, key_b] = [text_a, text_b].map(|text| key(Numeric, text.as_bytes()));
            prop_assert_eq!(key_a.cmp(&key_b), a.cmp(&b));
        }

        #[test]
        fn bytea_is_ordered(a in "(00|01|ff){0,4}", b in "(00|01|ff){0,4}") {
            let [key_a, key_b] = [&a, &b].map(|digits| key(Bytea, format!("\\x{digits}").as_bytes()));
            prop_assert_eq!(key_a.cmp(&key_b), a.cmp(&b));
        }

        #[test]
        fn days_follow_one_another(year in 1_i64..10_000, month in 1_i64..=12, day in 1_i64..=31) {
            let here = days_since_2000(year, month, day);
            let next = days_since_2000(year, month, day + 1)
                .or_else(|| days_since_2000(year, month + 1, 1))
                .or_else(|| days_since_2000(year + 1, 1, 1));
            if let (Some(here), Some(next)) = (here, next) {
                prop_assert_eq!(here + 1, next);
            }
        }

        #[test]
        fn nothing_is_appended_without_a_key(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            for key_type in ALL {
                for oid in [20, 21, 23, 16, 17, 25, 1042, 1082, 1114, 1184, 1700, 2950] {
                    let mut key = vec![1];
                    let told = key_type.push_binary(oid, &bytes, &mut key);
                    prop_assert_eq!(told.is_none(), key == [1]);
                }
                let mut key = vec![1];
                let told = key_type.push_text(&bytes, &mut key);
                prop_assert_eq!(told.is_none(), key == [1]);
                let mut key = vec![1];
                let told = key_type.push_number(&bytes, true, &mut key);
                prop_assert_eq!(told.is_none(), key == [1]);
            }
        }
    }
}
