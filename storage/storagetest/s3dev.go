package storagetest

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The credentials of the servers that S3Dev starts.
const (
	AccessKey = "rondo-test"
	SecretKey = "rondo-test-secret"
)

// S3Dev starts a real S3 server (versitygw, from tools/s3dev) over a temporary directory and gives
// its endpoint. The server ends with the test; flags are further ones of s3dev. Without the modules
// that it is built from the test is skipped, or fails with RONDO_REQUIRE_ALL=1.
func S3Dev(t *testing.T, flags ...string) (endpoint string) {
	t.Helper()
	binary, err := Tool("s3dev")
	if err != nil {
		missing(t, "%v", err)
	}
	server := exec.Command(binary, append([]string{"-dir", filepath.Join(t.TempDir(), "objects")}, flags...)...)
	server.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+AccessKey, "AWS_SECRET_ACCESS_KEY="+SecretKey)
	var problems bytes.Buffer
	server.Stderr = &problems
	input, err := server.StdinPipe()
	must(t, err)
	output, err := server.StdoutPipe()
	must(t, err)
	must(t, server.Start())
	t.Cleanup(func() {
		// The server ends with its input; what it says then is of no interest.
		_ = input.Close()
		_ = server.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		_ = server.Wait()
		missing(t, "s3dev did not start: %v\n%s", err, problems.String())
	}
	return strings.TrimSpace(line)
}

// missing ends a test that needs what this machine lacks.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
