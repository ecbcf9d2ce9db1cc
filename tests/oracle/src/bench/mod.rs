//! What a call costs: nanoseconds as the minimum of many interleaved regions, instructions by single step.

pub mod c;
pub mod case;
pub mod clock;
pub mod figure;
pub mod fleet;
pub mod limits;
pub mod measure;
pub mod native;
pub mod report;
pub mod scale;
pub mod worker;
