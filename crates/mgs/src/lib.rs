//! The management service: which targets a file system has and where.
