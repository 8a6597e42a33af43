//! Exactly-once execution: reply cache, transaction numbers.
