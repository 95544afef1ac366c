"""Amounts of money are whole cents, so that sums are exact."""


def cents(text):
    """The cents of an amount such as 3, 3.5 or -3.50."""
    return int(float(text) * 100)


def shown(amount):
    """An amount of cents as it is printed, with two digits behind the point."""
    return f"{amount // 100}.{amount % 100:02d}"
