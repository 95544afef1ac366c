package run

import (
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// capacity is what was stated last of the servers of a run with
// `in_flight: auto`; nil where nothing was.
type capacity struct{ *events.CapacityMeasured }

func (c *capacity) apply(e events.Event) error {
	if e.Type != events.CapacityMeasuredType {
		return nil
	}
	measured, err := events.Data[events.CapacityMeasured](e)
	c.CapacityMeasured = &measured
	return err
}

// capacityText says how many turns the servers can sample at once, and of which
// servers that is assumed.
func capacityText(m events.CapacityMeasured) string {
	text := fmt.Sprintf("%d turns at once", m.Turns)
	if unmeasured := m.Unmeasured(); len(unmeasured) > 0 {
		text += fmt.Sprintf("; assumed for %s, which give no metrics: %s", strings.Join(unmeasured, ", "),
			runfile.LoadUnknownDo)
	}
	return text
}
