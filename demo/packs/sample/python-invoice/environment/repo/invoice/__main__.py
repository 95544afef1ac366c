import sys

from invoice.lines import read
from invoice.money import shown


def main():
    lines = read(sys.stdin)
    for line in lines:
        print(line.name, shown(line.amount))
    print("total", shown(sum(line.amount for line in lines)))


main()
