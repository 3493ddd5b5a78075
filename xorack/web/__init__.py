"""HTML: the page of `xorack web` on this machine, and the widget of the dashboard."""
