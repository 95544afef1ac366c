// Command busy joins the meetings of a day.
package main

import (
	"bufio"
	"os"
)

func main() {
	free := len(os.Args) > 1 && os.Args[1] == "-free"
	var list []meeting
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		m, err := parseMeeting(lines.Text())
		if err != nil {
			os.Stderr.WriteString("busy: " + lines.Text() + ": " + err.Error() + "\n")
			os.Exit(1)
		}
		list = append(list, m)
	}

	list, label := join(list), "busy "
	if free {
		list, label = gaps(list), "free "
	}
	for _, m := range list {
		os.Stdout.WriteString(m.start.String() + " " + m.end.String() + "\n")
	}
	os.Stdout.WriteString(label + duration(total(list)) + "\n")
}
