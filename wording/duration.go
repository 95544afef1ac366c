package wording

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Duration is a time.Duration that reads and writes as text ("90s") in JSON and YAML.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration %q: %w", text, err)
	}
	*d = Duration(v)
	return nil
}

// days are the weeks and days that a duration begins with.
var days = regexp.MustCompile(`^(?:(\d{1,4})w)?(?:(\d{1,4})d)?`)

// ParseDuration reads a duration as time.ParseDuration does, and one that begins with weeks and
// days of 24 hours: 2w, 7d, 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	found := days.FindStringSubmatch(text)
	weeks, _ := strconv.Atoi(found[1])
	whole, _ := strconv.Atoi(found[2])
	d := time.Duration(7*weeks+whole) * 24 * time.Hour
	if found[0] != "" && found[0] == text {
		return d, nil
	}
	rest, err := time.ParseDuration(text[len(found[0]):])
	if sum := d + rest; err == nil && (found[0] == "" || rest >= 0 && sum >= rest) {
		return sum, nil
	}
	return 0, errors.New("use a number with a unit, for example 90s, 5m or 7d")
}
