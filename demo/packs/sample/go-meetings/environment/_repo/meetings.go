package main

import "errors"

// A meeting lasts from start up to, not including, end.
type meeting struct {
	start, end clock
}

// parseMeeting reads "HH:MM HH:MM".
func parseMeeting(line string) (meeting, error) {
	if len(line) != 11 || line[5] != ' ' {
		return meeting{}, errors.New("want two times")
	}
	start, err := parseClock(line[:5])
	if err != nil {
		return meeting{}, err
	}
	end, err := parseClock(line[6:])
	if err != nil {
		return meeting{}, err
	}
	if end <= start {
		return meeting{}, errors.New("ends before it starts")
	}
	return meeting{start, end}, nil
}

// byStart sorts meetings in place; insertion sort will do for one day.
func byStart(list []meeting) {
	for i := 1; i < len(list); i++ {
		for j := i; j > 0 && list[j].start < list[j-1].start; j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
	}
}

// join merges meetings that overlap or touch.
func join(list []meeting) []meeting {
	byStart(list)
	var joined []meeting
	for _, next := range list {
		last := len(joined) - 1
		if last < 0 || next.start > joined[last].end {
			joined = append(joined, next)
			continue
		}
		if next.end < joined[last].end {
			joined[last].end = next.end
		}
	}
	return joined
}

// gaps gives the free times between joined meetings.
func gaps(joined []meeting) []meeting {
	var free []meeting
	for i := 1; i < len(joined); i++ {
		free = append(free, meeting{joined[i-1].end, joined[i].start})
	}
	return free
}

// total adds up the lengths.
func total(list []meeting) clock {
	var sum clock
	for _, m := range list {
		sum += m.end - m.start
	}
	return sum
}
