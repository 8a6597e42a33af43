//! The OST's object engine: object names, attributes, destroys.
