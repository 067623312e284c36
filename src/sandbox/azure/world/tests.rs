mod cloud;
