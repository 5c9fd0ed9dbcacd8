"""What runs the product on one machine: the supervisor, the demo driver, images and locks."""
