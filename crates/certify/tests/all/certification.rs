//! The certifiers against their papers: rules one by one, random histories against oracles that
//! look at everything, and planted bugs that the oracles find.

mod forgotten_readers;
mod naive;
mod oracle;
mod random;
mod rules;
mod ssibench;
mod support;
mod world;
