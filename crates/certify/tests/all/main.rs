//! All tests of the certifiers and of the global dependency checking protocol.

mod certification;
mod gdcp;
