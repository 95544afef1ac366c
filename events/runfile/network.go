package runfile

import (
	"errors"
	"fmt"
)

// checkNetworkOf says what a task wants of the network that its run does not allow. A task can ask
// for less than its run, and never for more.
func (c *RunConfig) checkNetworkOf(t TaskSpec) error {
	errs := t.Network.Validate()
	for _, entry := range t.Network.Allowed() {
		if len(errs) == 0 && !c.Network.Covers(entry) {
			errs = append(errs,
				fmt.Errorf("network: the task wants %.300q, which network.allow of the run does not name", entry))
		}
	}
	return errors.Join(errs...)
}
