//! dormouse.
