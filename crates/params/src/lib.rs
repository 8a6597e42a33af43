//! Tunable parameters by Lustre's names, and the socket that lctl reaches them through.
