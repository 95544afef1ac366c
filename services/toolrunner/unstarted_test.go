package toolrunner

import (
	"strings"
	"testing"
)

// TestWhyLibrary: an agent that could not start for want of a C library is said to need
// one, and others are not.
func TestWhyLibrary(t *testing.T) {
	for name, c := range map[string]struct {
		glibc  string
		code   int
		stderr string
		want   bool
	}{
		"an older one": {"2.34", 1, "node: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found", true},
		"none":         {"2.34", 127, "", true},
		"musl's":       {"2.34", 127, "Error loading shared library libc.so.6: No such file or directory", true},
		"another end":  {"2.34", 1, "no such model", false},
		"needs none":   {"", 127, "", false},
	} {
		if got := whyLibrary(c.glibc, c.code, c.stderr); strings.Contains(got, "glibc 2.34 or later") != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := lastLine("one\n two\x1b[0m \n\n"); got != "two\x1b[0m" {
		t.Errorf("the last line is %q", got)
	}
}
