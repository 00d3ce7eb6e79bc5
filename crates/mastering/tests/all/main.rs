//! All tests of dynamic mastering.

mod support;

mod figure2;
mod learning;
mod selector;
mod site;
