//! Requests, replies, bulk, in-flight limits, resend.
