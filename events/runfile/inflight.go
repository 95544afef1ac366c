package runfile

import (
	"fmt"
	"math"
	"strconv"
)

// InFlight bounds how many rollouts of a run are under way at once. It reads and writes
// as a number, or as "auto".
type InFlight int

// AutoInFlight lets the bound follow what the inference servers can sample at once,
// as generators measure it.
const AutoInFlight InFlight = math.MinInt32

// LoadUnknownDo says what to do where a server says nothing of its load, so that
// AutoInFlight has nothing to follow.
const LoadUnknownDo = "see that it is up and gives metrics (SGLang: --enable-metrics, llama.cpp: --metrics), or set in_flight of the run to a number"

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

// AtOnce is how many rollouts the run may have under way at once: in_flight, or as many as the
// staleness of its first feed lets it open. 0 means that the run file does not say: the bound
// follows the servers, batches are counted in tokens, or outsiders make the rollouts.
func (c *RunConfig) AtOnce() int {
	switch {
	case c.External || c.InFlight == AutoInFlight:
		return 0
	case c.InFlight > 0:
		return int(c.InFlight)
	case len(c.Feeds) == 0:
		return 0
	}
	return int(c.StalenessOf(c.Feeds[0]).Max+1) * c.Feeds[0].GroupsPerBatch * c.GroupSize
}
