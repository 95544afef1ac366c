package registry

import (
	"testing"

	"github.com/opencontainers/go-digest"
)

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"debian":                                "docker.io/library/debian:latest",
		"debian:12":                             "docker.io/library/debian:12",
		"swebench/sweb.eval:v1":                 "docker.io/swebench/sweb.eval:v1",
		"ghcr.io/a/b/c":                         "ghcr.io/a/b/c:latest",
		"localhost/a":                           "localhost/a:latest",
		"host:5000/a:1":                         "host:5000/a:1",
		"a:1@" + digest.FromString("").String(): "docker.io/library/a@" + digest.FromString("").String(),
	} {
		if got, err := parse(name); err != nil || got.String() != want {
			t.Errorf("%s is %s, %v, want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"Debian", "a//b", "a:b:c", "host:5000/"} {
		if got, err := parse(name); err == nil {
			t.Errorf("%s is %s", name, got)
		}
	}
}
