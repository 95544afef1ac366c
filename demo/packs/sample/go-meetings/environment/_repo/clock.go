package main

import (
	"errors"
	"strconv"
)

// A clock is a time of day in minutes since midnight; 24:00 is allowed.
type clock int

var errClock = errors.New("want a time such as 09:30")

func parseClock(text string) (clock, error) {
	if len(text) != 5 || text[2] != ':' {
		return 0, errClock
	}
	hours, err := strconv.Atoi(text[:2])
	if err != nil {
		return 0, errClock
	}
	minutes, err := strconv.Atoi(text[3:])
	if err != nil {
		return 0, errClock
	}
	at := clock(hours*60 + minutes)
	if hours < 0 || minutes < 0 || minutes > 59 || at > 24*60 {
		return 0, errClock
	}
	return at, nil
}

func (c clock) String() string {
	return twoDigits(int(c)/60) + ":" + twoDigits(int(c)%60)
}

func twoDigits(n int) string {
	if n < 10 {
		return "0" + strconv.Itoa(n)
	}
	return strconv.Itoa(n)
}

// duration formats minutes as 1h05m.
func duration(minutes clock) string {
	return strconv.Itoa(int(minutes)/60) + "h" + twoDigits(int(minutes)%60) + "m"
}
