//! Text that a server sends.

/// Stands for byte 0 where a byte is no character.
const FIRST: u32 = 0xF700;

/// Text in UTF-8, whatever the bytes are. All databases of a server share the names of roles, and settings of roles and
/// databases, and PostgreSQL doesn't convert what was given in a database with another encoding. A byte that is no part of a
/// character becomes a character of Unicode's private use area (U+F700 to U+F7FF), so that different names stay different.
#[must_use]
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        let private = chunk.invalid().iter().map(|byte| char::from_u32(FIRST + u32::from(*byte)));
        text.extend(private.map(|character| character.expect("in the private use area")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_names_stay_different() {
        assert_eq!(text_of("é".as_bytes()), "é");
        assert_eq!(text_of(b"a\xe9b"), "a\u{f7e9}b");
        assert_ne!(text_of(b"\xe8"), text_of(b"\xe9"));
        assert_eq!(text_of(&[0xe2, 0x82]), "\u{f7e2}\u{f782}");
    }
}
