//! As many certifications as the second argument says, by the certifier that the first names; with
//! a third argument each reads a range. For counting instructions where time is noisy: the
//! difference between two counts, divided by that of the certifications, leaves the start out.
//!
//! `cargo bench -p hihooi-certify --bench instructions --no-run` names BINARY;
//! `perf stat -e instructions:u BINARY rssi 100000` and the same with 500000.

#[path = "support/stream.rs"]
mod stream;

use stream::Stream;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let name = arguments.first().map_or("rssi", String::as_str);
    let count: u64 = arguments.get(1).and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let mut stream = Stream::new(stream::certifier(name), arguments.len() > 2);
    measured(&mut stream, count);
    println!("{name}: {} of {count} committed", stream.committed);
}

fn measured(stream: &mut Stream, count: u64) {
    for _ in 0..count {
        stream.step();
    }
}
