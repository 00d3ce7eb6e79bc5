//! One read buffer for all sockets of the relay's thread: an idle connection holds none.

use std::cell::RefCell;

/// So much is read from a socket at once.
pub const LEN: usize = 64 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; LEN].into_boxed_slice());
}

/// Lends the buffer. What it held before is of no meaning.
pub fn with<T>(body: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| body(buffer))
}
