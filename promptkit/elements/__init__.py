"""The grammar: the elements that promptkit itself understands. Everything else is made of them."""
