package evaluation

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/rondo-rl/rondo/events/runfile"
)

// largestGroup bounds the attempts at a task that begin at the same moment.
const largestGroup = 32

// GroupsOf divides the attempts at a task into groups of equal size, as few as there can be. No
// group is larger than what may be under way, which is 0 for the default.
func GroupsOf(attempts, inFlight int) (size, groups int) {
	most := largestGroup
	if inFlight > 0 {
		most = min(most, inFlight)
	}
	for groups = 1; attempts%groups != 0 || attempts/groups > most; groups++ {
	}
	return attempts / groups, groups
}

// RunName is the name of an evaluation's run. It is the same for the same evaluation, so that the
// same command finds its run.
func RunName(cfg runfile.RunConfig) string {
	text, err := json.Marshal(cfg)
	if err != nil {
		panic(err) // a configuration that was validated is text and numbers
	}
	name := fmt.Sprintf("eval-%.28s", cfg.Policy)
	if cfg.PolicyVersion != nil {
		name += fmt.Sprintf("-v%d", *cfg.PolicyVersion)
	}
	return fmt.Sprintf("%s-%x", name, sha256.Sum256(text))[:len(name)+9]
}
