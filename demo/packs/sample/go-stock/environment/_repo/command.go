package main

import (
	"errors"
	"strconv"
)

// command is one line of input.
type command struct {
	verb  string
	item  string
	count int
}

var errSyntax = errors.New("want COMMAND ITEM NUMBER")

func parse(line string) (command, error) {
	words := split(line)
	if len(words) != 3 {
		return command{}, errSyntax
	}
	count, err := strconv.Atoi(words[2])
	if err != nil || count < 1 {
		return command{}, errors.New(words[2] + " is no number of pieces")
	}
	return command{verb: words[0], item: words[1], count: count}, nil
}

// split cuts a line at its spaces.
func split(line string) []string {
	var words []string
	start := -1
	for i := 0; i < len(line); i++ {
		if line[i] == ' ' {
			if start >= 0 {
				words = append(words, line[start:i])
			}
			start = -1
		} else if start < 0 {
			start = i
		}
	}
	if start >= 0 {
		words = append(words, line[start:])
	}
	return words
}

func (c command) run(l *ledger) error {
	switch c.verb {
	case "add":
		return l.add(c.item, c.count)
	case "reserve":
		return l.reserve(c.item, c.count)
	case "release":
		return l.release(c.item, c.count)
	case "ship":
		return l.ship(c.item, c.count)
	}
	return errors.New("unknown command " + c.verb)
}
