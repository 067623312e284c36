mod cases;
mod fixtures;
mod properties;
