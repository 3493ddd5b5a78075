"""Services over ports: they apply requests to chains and publish the events of finished ones."""
