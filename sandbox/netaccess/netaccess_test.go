package netaccess

import (
	"strings"
	"testing"
)

func TestAllowedEntries(t *testing.T) {
	for _, entry := range []string{"pypi", "npm", "go", "example.org", "*.example.org", "example.org:8443",
		"*.example.org:1", "a_b.example.org", "xn--bcher-kva.example"} {
		if err := CheckAllowed(entry); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
	}
	for _, entry := range []string{
		"", "*", "*.", "cargo", "localhost", "127.0.0.1", "10.1", "0x7f.1", "[::1]", "::1", "example.org:0",
		"example.org:65536", "example.org:", "example.org:08", "Example.org",
		"example.org.", "a..b", "*.*.org", "a.*.org", "https://example.org", "example.org/x", "user@example.org",
		"exämple.org", "a b.org", "a.org\n", "1.2.3.4.5", strings.Repeat("a.", 200) + "org",
	} {
		if CheckAllowed(entry) == nil {
			t.Errorf("%q is taken", entry)
		}
	}
}

func TestNetworkBounds(t *testing.T) {
	for _, n := range []Network{{Bytes: -1}, {Bytes: maxNetworkBytes + 1}, {Allow: make([]string, maxAllowed+1)},
		{Allow: []string{"10.0.0.1"}}} {
		if len(n.Validate()) == 0 {
			t.Errorf("%+v is taken", n)
		}
	}
	if errs := (&Network{Allow: []string{"pypi"}, Bytes: maxNetworkBytes}).Validate(); len(errs) > 0 {
		t.Error(errs)
	}
}
