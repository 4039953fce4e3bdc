//! What this host offers: facts judged by a pure function.
