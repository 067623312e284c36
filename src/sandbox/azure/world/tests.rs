mod cloud;
mod events;
mod identity;
