"""Tasks as Harbor's folders, and what judges them there."""
