package verifier_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// TestGoReporterNames: the reporter of go test tells of tests whatever is in their names. The testing package writes what cannot be printed as \x00.
func TestGoReporterNames(t *testing.T) {
	names := []string{"TestA", `TestA/\d+`, `TestA/a"b`, `TestA/\x00\u202e\"`, "TestA/{id:[0-9]+}&ü"}
	binary := filepath.Join(t.TempDir(), "a.test")
	text := "#!/bin/sh\necho profile >\"${1#-test.memprofile=}\"\ncat <<'END'\n"
	for _, name := range names {
		text += "    --- PASS: " + name + " (0.00s)\n"
	}
	if err := os.WriteFile(binary, []byte(text+"PASS\nEND\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, other := os.NewFile(uintptr(ends[0]), "own"), os.NewFile(uintptr(ends[1]), "other")
	defer own.Close()
	nonce := strings.Repeat("a", 32)
	if _, err := own.WriteString(nonce + "\n"); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("sh", "reporters/gotest", binary)
	for len(command.ExtraFiles) <= sandbox.ChannelFD-3 {
		command.ExtraFiles = append(command.ExtraFiles, other)
	}
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	sent := make([]byte, 1<<16)
	total := 0
	for {
		n, err := own.Read(sent[total:])
		if total += n; err != nil {
			break
		}
	}
	report, err := grade.ReadReport(sent[:total], []string{nonce})
	if err != nil || !report.Complete || len(report.Results) != len(names) {
		t.Errorf("%+v, %v: %s", report, err, sent[:total])
	}
	for _, name := range names {
		if report.Results[name] != grade.Passed {
			t.Errorf("%s: %q", name, report.Results[name])
		}
	}
}
