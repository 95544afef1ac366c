package weights

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

func TestListed(t *testing.T) {
	r := clitest.NewRecorded(t)
	for version := int64(1); version <= 3; version++ {
		publish(t, r, version)
	}
	for i, said := range []events.WeightsActivated{{Version: 1, Replica: "a"}, {Version: 2, Replica: "a"},
		{Version: 3, Replica: "b"}, {Version: 3, Replica: "b", Lost: true}} {
		servicetest.Append(t, r.Log, servicetest.Event(t, events.Catalogue, events.WeightsActivatedType, "small",
			"a"+events.Ordinal(int64(i)), said))
	}
	for _, c := range []struct {
		args  string
		parts []string
		fails bool
	}{
		{"list", []string{"small   3 (current)  full"}, false},
		{"list small --json", []string{`"version":2,"current":false,"format":"full","base":-1`, `"replicas":["a"]`,
			`"version":3,"current":true`}, false},
		{"list small --last 1 --json", []string{`[{"policy":"small","version":3`}, false},
		{"list other", []string{"nothing was published for policy other"}, true},
		{"list --last 0", []string{"--last 0"}, true},
		{"show small", []string{"version 3 (full, ", "model.safetensors", "serves version 2, 1 behind",
			"does not serve version 3 any more"}, false},
		{"show small --version 1 --json", []string{`"version":1,"current":false`,
			`"replica":"a","version":2,"lag":1`, `"lost":true`}, false},
		{"show small --version 9", []string{"version 9"}, true},
		{"diff small", []string{"version 2 to 3: 1 of 2 elements changed (50 %), of 8 bytes\n",
			"others  50 %  8 bytes  ########################################\n"}, false},
		{"diff small", []string{"up to 100 %   1 tensors  2 elements  ####", "nothing       0 tensors  0 elements\n"},
			false},
		{"diff small --by tensor", []string{"  w  50 %  8 bytes  ####"}, false},
		{"diff small --by row", []string{"want layer or tensor"}, true},
		{"diff small --from 1 --to 2 --json",
			[]string{`"from":1,"to":2,"sum":{"name":"","elements":2,"changed":1,"bytes":8}`,
				`"histogram":[{"up_to":0,"tensors":0,"elements":0}`}, false},
		{"diff small --to 1", []string{"is the first"}, true},
	} {
		output, err := clitest.Run(t, New, append([]string{"weights", "--dir", r.Dir}, strings.Fields(c.args)...)...)
		if err != nil {
			output += err.Error()
		}
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", c.args, err)
		}
		for _, part := range c.parts {
			if !strings.Contains(output, part) {
				t.Errorf("%s says\n%s\nwant %q", c.args, output, part)
			}
		}
	}
}
