mod cloud;
mod events;
