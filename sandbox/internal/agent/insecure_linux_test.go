package agent

import (
	"testing"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

func TestPrivateFolderNames(t *testing.T) {
	folder := t.TempDir()
	p, err := newPrivate(wire.Boot{Workdir: "/app", ReadOnly: []string{"/tests"}, Insecure: folder}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"/app":                        "P/app",
		"cat /app/file":               "cat P/app/file",
		"cp /app/a /tmp/b /tmp/c":     "cp P/app/a P/tmp/b P/tmp/c",
		"/app /app /app":              "P/app P/app P/app",
		"X=/app:/tmp;/tests/test.sh":  "X=P/app:P/tmp;P/tests/test.sh",
		"'/logs/verifier'":            "'P/logs/verifier'",
		"/app/tmp/x /usr/tmp":         "P/app/tmp/x /usr/tmp",
		"/application /app-x /app.go": "/application /app-x /app.go",
		"./app/x ../tmp":              "./app/x ../tmp",
		"/var/tmp/x":                  "P/var/tmp/x",
		"":                            "",
	} {
		t.Run(text, func(t *testing.T) {
			expanded := ""
			for _, c := range want {
				if c == 'P' {
					expanded += folder
				} else {
					expanded += string(c)
				}
			}
			got := p.outward(text)
			if got != expanded {
				t.Errorf("%q becomes %q, want %q", text, got, expanded)
			}
			if back := string(p.inward([]byte(got))); back != text {
				t.Errorf("%q comes back as %q", text, back)
			}
		})
	}
	if got := p.path("/usr/bin"); got != "/usr/bin" {
		t.Errorf("path of the host: %q", got)
	}
}
