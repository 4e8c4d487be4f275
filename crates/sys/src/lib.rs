//! The machine as Mneme sees it.
