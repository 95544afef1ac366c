package weights

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/services/intake"
)

// TestPromote: a version is tried with a share, promoted, rolled back, and left to the newest
// again; what is promoted shows in the list.
func TestPromote(t *testing.T) {
	r := clitest.NewRecorded(t, intake.Run)
	for version := range int64(3) {
		publish(t, r, version+1)
	}
	for _, c := range []struct{ args, says, refused string }{
		{"promote small 3 --share 0.25", "25 % of the rollouts of small get version 3, and the others version 2", ""},
		{"list small", "3 (current) (promoted for 25 % of the rollouts)", ""},
		{"list small", "2 (promoted for 75 % of the rollouts)", ""},
		{"promote small 3 --json", `{"version":3,"before":2}`, ""},
		{"show small", "version 3 (promoted)", ""},
		{"rollback small --json", `{"version":2,"rolled_back":3}`, ""},
		{"list small --json", `"version":2,"current":false,"share":1`, ""},
		{"rollback small", "rollouts of small get version 1, and no more version 2", ""},
		{"rollback small", "", "has no version before 1"},
		{"promote small 2 --share 0.5 --json", `{"version":2,"share":0.5,"before":1}`, ""},
		{"rollback small --json", `{"version":1,"rolled_back":2}`, ""},
		{"promote small newest", "get the newest version", ""},
		{"rollback small --json", `{"version":2,"rolled_back":3}`, ""},
		{"promote small 9", "", "version 9 of policy small was never published"},
		{"promote small 0", "", "give a number"},
		{"promote small 3 --share 1", "", "must be between 0 and 1"},
		{"promote small newest --share 0.5", "", "must be between 0 and 1, and of a version"},
		{"promote none 1", "", "nothing was published"},
		{"fetch small --canary --to x", "", "--canary needs --follow"},
	} {
		output, err := clitest.Run(t, New, append([]string{"weights", "--dir", r.Dir}, strings.Fields(c.args)...)...)
		switch {
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %v, want %q", c.args, err, c.refused)
		case c.refused == "" && (err != nil || !strings.Contains(output, c.says)):
			t.Errorf("%s: %v\n%s\nwant %s", c.args, err, output, c.says)
		}
	}
}
