//! hihooi
fn main() {}
