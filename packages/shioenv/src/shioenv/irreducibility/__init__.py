"""Which arguments mattered: exact scores and estimates over any `behave` callable."""
