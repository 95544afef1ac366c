import unittest

from invoice.money import cents, shown


class TestMoney(unittest.TestCase):
    def test_cents(self):
        self.assertEqual(cents("3.5"), 350)
        self.assertEqual(cents("19.99"), 1999)

    def test_shown(self):
        self.assertEqual(shown(1205), "12.05")
        self.assertEqual(shown(-150), "-1.50")


if __name__ == "__main__":
    unittest.main()
