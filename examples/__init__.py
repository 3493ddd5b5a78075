"""Examples. A test runs each of them."""
