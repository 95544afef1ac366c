package runfile

import (
	"fmt"
	"math"
	"strconv"
)

// InFlight bounds how many rollouts of a run are under way at once. It reads and writes as a number, or as "auto".
type InFlight int

// AutoInFlight lets the bound follow what the inference servers can sample at once, as generators measure it.
const AutoInFlight InFlight = math.MinInt32

const (
	autoInFlight = "auto"
	maxInFlight  = 100000
)

// String is the text of a run file.
func (n InFlight) String() string {
	if n == AutoInFlight {
		return autoInFlight
	}
	return strconv.Itoa(int(n))
}

// Set implements the value of a flag.
func (n *InFlight) Set(text string) error { return n.UnmarshalText([]byte(text)) }

// Type is the name of a flag's value.
func (n *InFlight) Type() string { return "number|auto" }

// MarshalJSON implements json.Marshaler.
func (n InFlight) MarshalJSON() ([]byte, error) {
	if n == AutoInFlight {
		return []byte(strconv.Quote(autoInFlight)), nil
	}
	return []byte(n.String()), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *InFlight) UnmarshalJSON(text []byte) error {
	if string(text) == strconv.Quote(autoInFlight) {
		*n = AutoInFlight
		return nil
	}
	return n.number(string(text))
}

// MarshalYAML implements yaml.InterfaceMarshaler.
func (n InFlight) MarshalYAML() (any, error) {
	if n == AutoInFlight {
		return autoInFlight, nil
	}
	return int(n), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *InFlight) UnmarshalText(text []byte) error {
	if string(text) == autoInFlight {
		*n = AutoInFlight
		return nil
	}
	return n.number(string(text))
}

func (n *InFlight) number(text string) error {
	value, err := strconv.Atoi(text)
	if err != nil || value < 0 || value > maxInFlight {
		return fmt.Errorf("in_flight %.40s: must be 0 to %d, or %s", text, maxInFlight, autoInFlight)
	}
	*n = InFlight(value)
	return nil
}

// EvaluatedAtOnce is how many rollouts of an evaluation are under way at once where its in_flight does not say: those of a training run with the default settings. More would wait in
// line while their deadlines run.
const EvaluatedAtOnce = 128

// AtOnce is how many rollouts the run keeps under way at most: in_flight, or what the staleness of its first feed lets it open. 0 is unknown: the size of its batches is counted in tokens,
// or outsiders make its rollouts.
func (c *RunConfig) AtOnce() int {
	switch {
	case c.External:
		return 0
	case c.InFlight > 0:
		return int(c.InFlight)
	case c.Epochs > 0:
		return EvaluatedAtOnce
	case len(c.Feeds) == 0:
		return 0
	}
	return int(c.StalenessOf(c.Feeds[0]).Max+1) * c.Feeds[0].GroupsPerBatch * c.GroupSize
}
