mod cases;
mod fixtures;
mod labels;
mod properties;
