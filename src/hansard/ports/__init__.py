"""What the outside must offer."""
