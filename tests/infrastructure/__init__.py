"""Tests over the synthesised template."""
