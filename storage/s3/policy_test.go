package s3

import (
	"slices"
	"testing"
)

// TestWidest: a policy does not say again what a wider pattern of the same user says.
func TestWidest(t *testing.T) {
	for _, test := range []struct{ patterns, want []string }{
		{nil, nil},
		{[]string{"*", "runs/*", "runs/*/tools/*"}, []string{"*"}},
		{[]string{"weights/p/*", "weights/p/files/*"}, []string{"weights/p/*"}},
		{[]string{"weights/p/files/*", "weights/q/*"}, []string{"weights/p/files/*", "weights/q/*"}},
		{[]string{"runs/*/batches/f/*", "runs/r/*"}, []string{"runs/*/batches/f/*", "runs/r/*"}},
		{[]string{"a.b", "aXb"}, []string{"a.b", "aXb"}},
	} {
		if got := widest(test.patterns); !slices.Equal(got, test.want) {
			t.Errorf("widest of %q: %q instead of %q", test.patterns, got, test.want)
		}
	}
}
