//! oxverbs as a provider plug-in that libibverbs loads.
