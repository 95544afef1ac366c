"""The lines of an invoice."""

from invoice.money import cents


class Line:
    """So many of a thing, at a price each."""

    def __init__(self, text):
        count, price, self.name = text.split(None, 2)
        self.count, self.price = int(count), cents(price)

    @property
    def amount(self):
        return self.count * self.price


def read(source):
    """The lines of a text; empty ones and those after # are left out."""
    return [Line(text.strip()) for text in source if text.strip() and not text.startswith("#")]
