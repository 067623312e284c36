mod cases;
mod fixtures;
mod labels;
mod lists;
mod properties;
