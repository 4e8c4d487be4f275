//! Mneme: a memory-centric storage engine.
