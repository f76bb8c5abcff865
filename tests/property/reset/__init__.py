"""What must hold of a redrive for any stream and any moment at which it ends."""
