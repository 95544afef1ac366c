package opening

import (
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// TestAsListed: an evaluation that goes on has the tools that its servers had when it was opened.
func TestAsListed(t *testing.T) {
	tools := func(name string) []toolset.ServerTool { return []toolset.ServerTool{{Name: name}} }
	var cfg, opened runfile.RunConfig
	cfg.Tools.Servers = []toolset.Server{{Name: "a"}, {Name: "b", Tools: tools("own")}, {Name: "c"}}
	opened.Tools.Servers = []toolset.Server{{Name: "a", Tools: tools("x")}, {Name: "b", Tools: tools("y")},
		{Name: "other", Tools: tools("z")}}
	given := cfg.Tools.Servers
	AsListed(&cfg, opened)
	if s := cfg.Tools.Servers; s[0].Tools[0].Name != "x" || s[1].Tools[0].Name != "own" || len(s[2].Tools) > 0 ||
		len(given[0].Tools) > 0 {
		t.Errorf("%+v, and the caller has %+v", s, given)
	}
}
