package app

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes as a flag: 4096, 64k, 256m, 2g.
type Size int64

var units = []struct {
	suffix string
	shift  uint
}{{"g", 30}, {"m", 20}, {"k", 10}}

// Type is the name of the flag's value in the help.
func (*Size) Type() string { return "SIZE" }

func (s Size) String() string {
	for _, unit := range units {
		if s != 0 && s%(1<<unit.shift) == 0 {
			return strconv.FormatInt(int64(s>>unit.shift), 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Set reads a number with or without a unit.
func (s *Size) Set(text string) error {
	number, shift := strings.ToLower(text), uint(0)
	for _, unit := range units {
		if before, ok := strings.CutSuffix(number, unit.suffix); ok {
			number, shift = before, unit.shift
			break
		}
	}
	value, err := strconv.ParseInt(number, 10, 64)
	if err != nil || value <= 0 || value > math.MaxInt64>>shift {
		return fmt.Errorf("%q is not a size: use a number of bytes with or without k, m or g, for example 256m", text)
	}
	*s = Size(value << shift)
	return nil
}
