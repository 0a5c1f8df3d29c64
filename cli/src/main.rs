//! w
fn main(){}
