//! Tests of the global dependency checking protocol (RSSI paper, section 4, appendices B and C).

mod departures;
mod failures;
mod golden;
mod log;
mod oracle;
mod ring;
