package sandbox_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// The benchmarks run what they measure in turn with the same command started plainly by
// os/exec, and report how many times that one takes: absolute times say more of the
// machine than of the sandbox.

func plainly(b *testing.B) time.Duration {
	begin := time.Now()
	if err := exec.Command("true").Run(); err != nil {
		b.Fatal(err)
	}
	return time.Since(begin)
}

func report(b *testing.B, plain, measured time.Duration) {
	b.ReportMetric(float64(measured)/float64(plain), "x-plain-exec")
	b.ReportMetric(float64(plain.Microseconds())/float64(b.N), "µs-plain-exec")
}

// BenchmarkStart makes a sandbox, runs one command in it and closes it.
func BenchmarkStart(b *testing.B) {
	sandboxtest.Require(b)
	var plain, measured time.Duration
	for b.Loop() {
		plain += plainly(b)
		begin := time.Now()
		sb, err := sandbox.New(b.Context(), sandbox.Spec{})
		if err != nil {
			b.Fatal(err)
		}
		run(b, sb, sandbox.Command{Argv: []string{"true"}})
		if err := sb.Close(); err != nil {
			b.Fatal(err)
		}
		measured += time.Since(begin)
	}
	report(b, plain, measured)
}

// BenchmarkExec runs a command in a held sandbox.
func BenchmarkExec(b *testing.B) {
	sb := sandboxtest.New(b, sandbox.Spec{})
	var plain, measured time.Duration
	for b.Loop() {
		plain += plainly(b)
		begin := time.Now()
		run(b, sb, sandbox.Command{Argv: []string{"true"}})
		measured += time.Since(begin)
	}
	report(b, plain, measured)
}
