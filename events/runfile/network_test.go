package runfile

import (
	"testing"

	"github.com/rondo-rl/rondo/sandbox/netaccess"
)

// TestTaskAsksForLess opens a run only where it allows what its tasks want.
func TestTaskAsksForLess(t *testing.T) {
	for _, c := range []struct {
		run  *netaccess.Network
		task string
		ok   bool
	}{
		{nil, "pypi", false},
		{&netaccess.Network{Allow: []string{"pypi"}}, "pypi", true},
		{&netaccess.Network{Allow: []string{"pypi"}}, "npm", false},
		{&netaccess.Network{Allow: []string{"a.example.org"}}, "a.example.org", true},
		{&netaccess.Network{Allow: []string{"a.example.org:443"}}, "a.example.org", false},
		{&netaccess.Network{Allow: []string{"a.example.org"}}, "a.example.org:443", true},
		{&netaccess.Network{Allow: []string{"a.example.org"}}, "a.example.org:22", false},
		{&netaccess.Network{Allow: []string{"a.example.org:22"}}, "a.example.org:22", true},
		{&netaccess.Network{Allow: []string{"a.example.org"}}, "*.example.org", false},
		{&netaccess.Network{Allow: []string{"*.example.org"}}, "a.example.org", true},
		{&netaccess.Network{Allow: []string{"*.example.org"}}, "example.org", false},
		{&netaccess.Network{Allow: []string{"*.example.org"}}, "*.a.example.org", true},
		{&netaccess.Network{Allow: []string{"*.a.example.org"}}, "*.example.org", false},
		{&netaccess.Network{Allow: []string{"*.example.org"}}, "*.badexample.org", false},
		{&netaccess.Network{Allow: []string{"*.example.org:80"}}, "*.example.org", false},
		{&netaccess.Network{Allow: []string{"*.example.org"}}, "*.example.org:443", true},
	} {
		cfg := RunConfig{Network: c.run}
		task := TaskSpec{Network: &netaccess.Network{Allow: []string{c.task}}}
		if err := cfg.checkNetworkOf(task); (err == nil) != c.ok {
			t.Errorf("%v of %v: %v", c.task, c.run, err)
		}
		if err := cfg.checkNetworkOf(TaskSpec{Network: &netaccess.Network{}}); err != nil {
			t.Errorf("nothing of %v: %v", c.run, err)
		}
	}
}
