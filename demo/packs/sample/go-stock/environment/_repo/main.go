// Command stock runs a ledger of commands from standard input.
package main

import (
	"bufio"
	"os"
	"strconv"
)

func main() {
	var l ledger
	input := bufio.NewScanner(os.Stdin)
	for number := 1; input.Scan(); number++ {
		if input.Text() == "" {
			continue
		}
		c, err := parse(input.Text())
		if err == nil {
			err = c.run(&l)
		}
		if err != nil {
			complain(number, c.item, err)
			os.Exit(1)
		}
	}
	for _, i := range l.items {
		os.Stdout.WriteString(i.name + " " + strconv.Itoa(i.onShelf) + " " + strconv.Itoa(i.reserved) + "\n")
	}
}

func complain(line int, item string, err error) {
	text := "line " + strconv.Itoa(line) + ": "
	if item != "" {
		text += item + ": "
	}
	os.Stderr.WriteString(text + err.Error() + "\n")
}
