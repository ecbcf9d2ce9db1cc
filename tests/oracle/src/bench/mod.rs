//! What a call costs: nanoseconds as the minimum of many interleaved regions, instructions by single step.

pub mod c;
pub mod case;
pub mod clock;
pub mod cold;
pub mod control;
pub mod figure;
pub mod fleet;
pub mod limits;
pub mod longest;
pub mod measure;
pub mod native;
pub mod report;
pub mod scale;
pub mod worker;
