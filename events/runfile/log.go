package runfile

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes that reads and writes as text ("8GiB") in JSON and YAML.
type Size int64

// sizeUnits are the units of sizes, the largest first.
var sizeUnits = []struct {
	suffix string
	shift  uint
}{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}}

// String is the size in the largest unit of which it is a whole number.
func (s Size) String() string {
	for _, unit := range sizeUnits {
		if s != 0 && s%(1<<unit.shift) == 0 {
			return strconv.FormatInt(int64(s>>unit.shift), 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText implements encoding.TextMarshaler.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error {
	number, shift := string(text), uint(0)
	for _, unit := range sizeUnits {
		if before, ok := strings.CutSuffix(number, unit.suffix); ok {
			number, shift = before, unit.shift
			break
		}
	}
	value, err := strconv.ParseInt(number, 10, 64)
	if err != nil || value < 0 || value > math.MaxInt64>>shift {
		return fmt.Errorf("size %.40q: use a number of bytes, or one with KiB, MiB, GiB or TiB, for example 8GiB", text)
	}
	*s = Size(value << shift)
	return nil
}

// Log is how much room a run's log has, and how often it is archived.
type Log struct {
	// MaxBytes is what the run's stream may hold, and reserves on the server; 0 is DefaultLogBytes.
	MaxBytes Size `json:"max_bytes,omitempty" yaml:"max_bytes" absent:"2GiB"`
	// ArchiveEvery is how long the archive of an open run may be behind its stream;
	// 0 is DefaultArchiveEvery.
	ArchiveEvery Duration `json:"archive_every,omitempty" yaml:"archive_every" absent:"5m"`
	// Keep is what the run's stream keeps of what is archived: KeepOpen, or
	// KeepAll, which "" is too.
	Keep string `json:"keep,omitempty" yaml:"keep" absent:"all"`
	// Replicas is how many servers of a cluster hold the run's stream; 0 is as
	// many as hold the catalogue.
	Replicas int `json:"replicas,omitempty" yaml:"replicas"`
	// Placement is a tag of the cluster's servers that may hold the run's stream, such as
	// region:eu; "" are all of them.
	Placement string `json:"placement,omitempty" yaml:"placement" absent:"every server"`
}

// MaxReplicas is the most that NATS takes. An even number survives no more losses
// than the odd one below it.
const MaxReplicas = 5

// CheckReplicas says what is wrong with a number of replicas.
func CheckReplicas(n int) error {
	if n < 0 || n > MaxReplicas || n > 0 && n%2 == 0 {
		return fmt.Errorf("%d replicas: use 1, 3 or 5, or 0 for as many as the log's catalogue has", n)
	}
	return nil
}

// What a run's stream keeps of what is archived.
const (
	KeepAll  = "all"
	KeepOpen = "open" // rollouts that have no outcome yet, and the outcomes of the others
)

// Forgets reports whether archived events may leave the run's stream.
func (l Log) Forgets() bool { return l.Keep == KeepOpen }

// Bounds and defaults of a run's log. A group of 16 long rollouts takes some 20 MiB, and a
// server's disk has an end.
const (
	DefaultLogBytes Size = 2 << 30
	minLogBytes     Size = 64 << 20
	maxLogBytes     Size = 16 << 40

	DefaultArchiveEvery = 5 * time.Minute
	minArchiveEvery     = 10 * time.Second
	maxArchiveEvery     = 24 * time.Hour
)

// Bytes is what the run's stream may hold.
func (l Log) Bytes() int64 { return int64(cmp.Or(l.MaxBytes, DefaultLogBytes)) }

// Every is how long the archive may be behind the stream.
func (l Log) Every() time.Duration { return cmp.Or(time.Duration(l.ArchiveEvery), DefaultArchiveEvery) }

func (l Log) validate() (errs []error) {
	if n := Size(l.Bytes()); n < minLogBytes || n > maxLogBytes {
		errs = append(errs, fmt.Errorf("log.max_bytes %s: must be %s to %s, or left out for %s", n, minLogBytes,
			maxLogBytes, DefaultLogBytes))
	}
	if every := l.Every(); every < minArchiveEvery || every > maxArchiveEvery {
		errs = append(errs, fmt.Errorf("log.archive_every %s: must be %s to %s, or left out for %s", every,
			minArchiveEvery, maxArchiveEvery, DefaultArchiveEvery))
	}
	if err := CheckReplicas(l.Replicas); err != nil {
		errs = append(errs, fmt.Errorf("log.replicas: %w", err))
	}
	if l.Placement != "" && !ValidLabel(strings.ReplaceAll(l.Placement, ":", "=")) {
		errs = append(errs,
			fmt.Errorf("log.placement %.80q: want one tag of servers; use letters, digits and any of _ . / = - :, at most 64 of them", l.Placement))
	}
	if l.Keep != "" && l.Keep != KeepAll && l.Keep != KeepOpen {
		errs = append(errs, fmt.Errorf("log.keep %.40q: must be %s or %s", l.Keep, KeepOpen, KeepAll))
	}
	return errs
}
