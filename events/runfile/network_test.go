package runfile

import (
	"strings"
	"testing"
)

func TestAllowedEntries(t *testing.T) {
	for _, entry := range []string{"pypi", "npm", "go", "example.org", "*.example.org", "example.org:8443", "*.example.org:1", "a_b.example.org", "xn--bcher-kva.example"} {
		if err := CheckAllowed(entry); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
	}
	for _, entry := range []string{
		"", "*", "*.", "cargo", "localhost", "127.0.0.1", "10.1", "0x7f.1", "[::1]", "::1", "example.org:0", "example.org:65536", "example.org:", "example.org:08", "Example.org",
		"example.org.", "a..b", "*.*.org", "a.*.org", "https://example.org", "example.org/x", "user@example.org", "exämple.org", "a b.org", "a.org\n", "1.2.3.4.5", strings.Repeat("a.", 200) + "org",
	} {
		if CheckAllowed(entry) == nil {
			t.Errorf("%q is taken", entry)
		}
	}
}

// TestTaskAsksForLess opens a run only where it allows what its tasks want.
func TestTaskAsksForLess(t *testing.T) {
	for _, c := range []struct {
		run  *Network
		task string
		ok   bool
	}{
		{nil, "pypi", false},
		{&Network{Allow: []string{"pypi"}}, "pypi", true},
		{&Network{Allow: []string{"pypi"}}, "npm", false},
		{&Network{Allow: []string{"a.example.org"}}, "a.example.org", true},
		{&Network{Allow: []string{"a.example.org:443"}}, "a.example.org", false},
		{&Network{Allow: []string{"a.example.org"}}, "a.example.org:443", true},
		{&Network{Allow: []string{"a.example.org"}}, "a.example.org:22", false},
		{&Network{Allow: []string{"a.example.org:22"}}, "a.example.org:22", true},
		{&Network{Allow: []string{"a.example.org"}}, "*.example.org", false},
		{&Network{Allow: []string{"*.example.org"}}, "a.example.org", true},
		{&Network{Allow: []string{"*.example.org"}}, "example.org", false},
		{&Network{Allow: []string{"*.example.org"}}, "*.a.example.org", true},
		{&Network{Allow: []string{"*.a.example.org"}}, "*.example.org", false},
		{&Network{Allow: []string{"*.example.org"}}, "*.badexample.org", false},
		{&Network{Allow: []string{"*.example.org:80"}}, "*.example.org", false},
		{&Network{Allow: []string{"*.example.org"}}, "*.example.org:443", true},
	} {
		cfg := RunConfig{Network: c.run}
		if err := cfg.checkNetworkOf(TaskSpec{Network: &Network{Allow: []string{c.task}}}); (err == nil) != c.ok {
			t.Errorf("%v of %v: %v", c.task, c.run, err)
		}
		if err := cfg.checkNetworkOf(TaskSpec{Network: &Network{}}); err != nil {
			t.Errorf("nothing of %v: %v", c.run, err)
		}
	}
}

func TestNetworkBounds(t *testing.T) {
	for _, n := range []Network{{Bytes: -1}, {Bytes: maxNetworkBytes + 1}, {Allow: make([]string, maxAllowed+1)}, {Allow: []string{"10.0.0.1"}}} {
		if len(n.validate()) == 0 {
			t.Errorf("%+v is taken", n)
		}
	}
	if errs := (&Network{Allow: []string{"pypi"}, Bytes: maxNetworkBytes}).validate(); len(errs) > 0 {
		t.Error(errs)
	}
}
