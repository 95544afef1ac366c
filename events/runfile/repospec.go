package runfile

import (
	"fmt"
	"slices"
)

// validateRepositories checks which repositories the run wants to hear of.
func (c *RunConfig) validateRepositories() (errs []error) {
	for i, name := range c.Repositories {
		switch {
		case !ValidToken(name):
			errs = append(errs, fmt.Errorf("repositories: %.80q: use letters, digits, - and _, at most 64", name))
		case slices.Contains(c.Repositories[:i], name):
			errs = append(errs, fmt.Errorf("repositories: %q appears twice", name))
		}
	}
	return errs
}
