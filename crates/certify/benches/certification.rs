//! How long the certification of a transaction of 8 items takes with 10,000 concurrent ones, to
//! be remembered and later forgotten included. Required: under 2 microseconds for `rsi`, under 10
//! for `rssi`.
//!
//! `cargo bench -p hihooi-certify --bench certification`

#[path = "support/stream.rs"]
mod stream;

use criterion::{Criterion, criterion_group, criterion_main};
use stream::Stream;

fn certification(criterion: &mut Criterion) {
    for (variant, range) in [("rows", false), ("a range", true)] {
        for name in ["rsi", "cp-roo", "rssi", "vdbsm"] {
            let mut stream = Stream::new(stream::certifier(name), range);
            criterion.bench_function(&format!("certification of {variant} by {name}"), |bencher| {
                bencher.iter(|| stream.step());
            });
        }
    }
}

criterion_group!(benches, certification);
criterion_main!(benches);
