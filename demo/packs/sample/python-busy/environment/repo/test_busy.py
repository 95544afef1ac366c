import unittest

from busy import free, merge


class TestBusy(unittest.TestCase):
    def test_apart(self):
        self.assertEqual(merge([(60, 90), (10, 20)]), [(10, 20), (60, 90)])

    def test_touching(self):
        self.assertEqual(merge([(540, 600), (600, 660)]), [(540, 660)])

    def test_inside(self):
        self.assertEqual(free([(780, 1020), (840, 870)], 780, 1080), [(1020, 1080)])


if __name__ == "__main__":
    unittest.main()
