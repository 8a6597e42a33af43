//! NIDs and connections: lo in-process, tcp; delay and fault injection.
