"""Tools for operators: chain status, watching, redriving, the dashboard's page."""
