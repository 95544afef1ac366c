package tables

import (
	"fmt"
	"io"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/gc"
)

// PrintWeights prints what retention finds of a policy.
func PrintWeights(w io.Writer, r gc.WeightsReport, deletes bool) error {
	t := app.NewColumns(w)
	for _, v := range r.Versions {
		state := "could be collected"
		switch {
		case v.Kept != "":
			state = "stays: " + v.Kept
		case v.Collected:
			state = "is collected"
		}
		fmt.Fprintf(t, "policy %s, version %d\t%d bytes\treplaced %s\t%s\n", r.Policy, v.Version, v.Bytes,
			v.Replaced.UTC().Format(time.DateTime), app.Clean(state))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	end := "; --delete deletes them"
	if deletes {
		end = fmt.Sprintf("; %d of them deleted (%d bytes)", r.Deleted, r.Freed)
	} else if r.Objects == 0 {
		end = ""
	}
	_, err := fmt.Fprintf(w,
		"policy %s: %d objects (%d bytes) that no version needs which stays, and %d that are too young%s\n", r.Policy,
		r.Objects, r.Bytes, r.Young, end)
	return err
}
