//! Clock, randomness, tasks, network and disk: real or simulated.
