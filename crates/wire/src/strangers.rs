//! Whatever strangers send, the parsers answer with what it means or with an error: they don't panic, and the pieces in
//! which it arrives make no difference. (`PROPTEST_CASES=1000000 cargo test --release -p hihooi-wire strangers` looks
//! longer.)

use bytes::{BufMut, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::authentication::{self, Request};
use crate::backend::{self, ErrorFields};
use crate::frontend::{self, Bind, Parse, Target, tag};
use crate::startup::{self, Packet};
use crate::{Result, frame};

/// All readers of a message's body.
fn read_all(tag: u8, body: &[u8]) {
    let _ = Parse::read(body).map(|parse| (parse.query.len(), parse.types.len()));
    let _ = Bind::read(body).map(|bind| Bind::result_formats(bind.rest).map(Iterator::count));
    let _ = Bind::result_formats(body).map(Iterator::count);
    let _ = frontend::read_target(tag, body);
    let _ = frontend::read_execute(body);
    let _ = frontend::read_query(body);
    let _ = authentication::read_password(body);
    let _ = authentication::read_sasl_initial(body);
    let _ = Request::read(body);
    let _ = ErrorFields::read(body);
    let _ = backend::read_data_row(body);
    let _ = backend::read_row_description(body);
    let _ = backend::read_parameter_status(body);
    let _ = backend::read_command_complete(body);
}

/// Messages that a client could send, one behind the other.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let text = || vec(any::<u8>(), 0..12);
    let message = prop_oneof![
        text().prop_map(|text| written(|out| frontend::query(&text, out))),
        (text(), text()).prop_map(|(name, text)| written(|out| frontend::parse(&name, &text, out))),
        (text(), vec(proptest::option::of(text()), 0..4)).prop_map(|(name, values)| {
            let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
            written(|out| frontend::bind(b"", &name, values.iter().copied(), out))
        }),
        text().prop_map(|name| written(|out| frontend::describe(Target::Portal, &name, out))),
        text().prop_map(|name| written(|out| frontend::execute(&name, 1, out))),
        text().prop_map(|data| written(|out| frontend::copy_data(&data, out))),
        text().prop_map(|text| written(|out| authentication::password(&text, out))),
        (text(), text()).prop_map(|(name, data)| written(|out| authentication::sasl_initial(
            &name, &data, out
        ))),
    ];
    vec(message, 1..4).prop_map(|messages| messages.concat())
}

fn written(write: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    write(&mut out);
    out.to_vec()
}

/// Some bytes of a message are others, or it is cut off.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let damage = vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (messages(), damage, any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(mut bytes, damage, end, is_cut)| {
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if is_cut {
                bytes.truncate(end.index(bytes.len()));
            }
            bytes
        },
    )
}

/// First packets, some of them damaged.
fn first_packets() -> impl Strategy<Value = Vec<u8>> {
    let word = || "[a-z_.]{0,8}";
    let startup = vec((word(), word()), 0..4).prop_map(|pairs| {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        written(|out| startup::startup(pairs, out))
    });
    let cancel = (any::<i32>(), vec(any::<u8>(), 0..300))
        .prop_map(|(process, secret)| written(|out| startup::cancel(process, &secret, out)));
    let packet = prop_oneof![startup, cancel, Just(written(startup::ssl_request))];
    (packet, proptest::option::of((any::<prop::sample::Index>(), any::<u8>()))).prop_map(
        |(mut bytes, damage)| {
            if let Some((at, byte)) = damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        },
    )
}

/// What a first packet means, coming in pieces of these lengths.
fn first_packet(
    bytes: &[u8],
    mut pieces: impl Iterator<Item = usize>,
) -> (Result<Option<Packet>>, usize) {
    let (mut buffer, mut rest) = (BytesMut::new(), bytes);
    loop {
        match startup::parse(&mut buffer) {
            Ok(None) if !rest.is_empty() => {}
            parsed => return (parsed, buffer.len() + rest.len()),
        }
        let (piece, further) =
            rest.split_at(pieces.next().unwrap_or(rest.len()).clamp(1, rest.len()));
        buffer.extend_from_slice(piece);
        rest = further;
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(tag: u8, body in vec(any::<u8>(), 0..64)) {
        read_all(tag, &body);
        let _ = frame::peek(&body);
        let _ = first_packet(&body, std::iter::empty());
    }

    #[test]
    fn damaged_messages_are_messages_or_errors(bytes in damaged()) {
        let mut rest = &bytes[..];
        while let Ok(Some((tag, message))) = frame::whole(rest) {
            prop_assert!(message.len() >= frame::HEADER_LEN && message.len() <= rest.len());
            read_all(tag, frame::body(message));
            rest = &rest[message.len()..];
        }
    }

    #[test]
    fn what_is_written_is_read(bytes in messages()) {
        let mut rest = &bytes[..];
        while let Some((tag, message)) = frame::whole(rest).expect("whole messages") {
            let body = frame::body(message);
            match tag {
                // (Zero bytes end names and texts.)
                tag::PARSE => drop(Parse::read(body)),
                tag::BIND => drop(Bind::read(body)),
                _ => read_all(tag, body),
            }
            rest = &rest[message.len()..];
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn the_first_packet_is_the_same_in_pieces(
        bytes in first_packets(),
        pieces in vec(1..9_usize, 0..400),
        more in vec(any::<u8>(), 0..8),
    ) {
        let bytes = [bytes, more].concat();
        let (whole, left) = first_packet(&bytes, std::iter::empty());
        let (in_pieces, left_then) = first_packet(&bytes, pieces.into_iter());
        prop_assert_eq!(&whole, &in_pieces);
        if matches!(whole, Ok(Some(_))) {
            prop_assert_eq!(left, left_then);
        }
    }
}

/// Lengths are believed only as far as there are bytes.
#[test]
fn a_length_reserves_nothing() {
    let mut row = BytesMut::new();
    row.put_i16(i16::MAX);
    row.put_i32(i32::MAX);
    assert!(backend::read_data_row(&row).is_err());
    let mut bind = BytesMut::from(&b"\0\0"[..]);
    for _ in 0..3 {
        bind.put_i16(i16::MAX);
    }
    let rest = bind.freeze();
    assert!(Bind::result_formats(&rest[2..]).is_err());
}
