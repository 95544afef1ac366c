"""Invoices of lines with a count, a price and a name."""
