package evaluation

import (
	"strings"
	"testing"
)

func TestParseSubject(t *testing.T) {
	for text, want := range map[string]string{"repair": "repair", "repair@0": "repair@0", "repair@12": "repair@12"} {
		s, err := ParseSubject(text)
		if err != nil || s.String() != want || (s.Version != nil) != strings.Contains(text, "@") {
			t.Errorf("%s: %s, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "@1", "a b", "a.b", "a@", "a@x", "a@-1", "a@1@2", "a@99999999999999999999"} {
		if s, err := ParseSubject(text); err == nil {
			t.Errorf("%q is read as %s", text, s)
		}
	}
}
