package tools

import (
	"strings"
	"testing"
)

// TestNearMiss: an edit that fails by white space at line ends or beginnings says so, and where.
func TestNearMiss(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"a\r\nb\r\nc\r\n", "b\nc",
			`; it would match at line 2, but lines there end in \r\n (CRLF), those of old_string in \n (LF)`},
		{"a\nb\nc\n", "b\r\nc",
			`; it would match at line 2, but lines there end in \n (LF), those of old_string in \r\n (CRLF)`},
		{"a\r\nb\nc\n", "a\nb\r\nc",
			`; it would match at line 1, but lines there end in \r\n (CRLF) in other places than those of old_string`},
		{"a  \nb\n", "a\nb", "; it would match at line 1, but lines there end in other white space"},
		{"a\nb\n", "a\t\nb", "; it would match at line 1, but lines there end in other white space"},
		{"if x:\n\treturn\n", "if x:\n    return",
			"; it would match at line 1, but lines there are indented with tabs, or otherwise than those of old_string"},
		{"x\nif x:\n    return\n", "if x:\n\treturn",
			"; it would match at line 2, but lines there are indented with spaces, those of old_string with tabs"},
		{"  a\n  b\n", "a\n b", "; it would match at line 1, but lines there are indented otherwise"},
		{"a\r\n", "b", ""},
		{"a\n\n", " \n", ""},
		{"ab", "a b", ""},
	} {
		if strings.Contains(c.file, c.text) {
			t.Errorf("%q is there", c.text)
		}
		if got := nearMiss(c.file, c.text); got != c.want {
			t.Errorf("%q in %q: %s, want %s", c.text, c.file, got, c.want)
		}
	}
}
